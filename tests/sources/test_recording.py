from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from vllm_doctor import demo
from vllm_doctor.catalogue import Catalogue
from vllm_doctor.errors import UsageError
from vllm_doctor.sources.exposition import parse
from vllm_doctor.sources.recording import FORMAT, Recording, read

ABOUT = {"format": FORMAT, "scrapes": [0.0, 1.5], "version": {"version": "0.32.0"}, "models": {"data": []}}


def written(folder: Path, about: object = ABOUT, pages: tuple[bytes, ...] = (b"a 1\n", b"a 2\n")) -> Path:
    (folder / "metrics").mkdir(parents=True)
    (folder / "recording.json").write_text(json.dumps(about), "utf-8")
    for place, body in enumerate(pages):
        (folder / "metrics" / f"{place:03}.prom.gz").write_bytes(gzip.compress(body))
    return folder


def test_what_a_recording_holds(tmp_path: Path) -> None:
    found = read(written(tmp_path / "mine"))
    assert found == Recording("mine", (0.0, 1.5), (b"a 1\n", b"a 2\n"), {"version": "0.32.0"}, {"data": []})


@pytest.mark.parametrize(("at", "place"), [(-1, 0), (0, 0), (0.9, 0), (1.0, 1), (1.4, 1), (2.5, 2), (1e9, 2)])
def test_the_page_of_a_time(at: float, place: int) -> None:
    pages = (b"0", b"1", b"2")
    assert Recording("r", (0.0, 1.0, 2.5), pages, None, None).page_at(at) == pages[place]


@pytest.mark.parametrize("name", demo.names())
def test_the_shipped_recordings(name: str, signals: Catalogue) -> None:
    found = demo.find(name)
    assert found.times[0] == 0
    assert list(found.times) == sorted(found.times)
    assert found.times[-1] > 5
    assert len(found.times) == len(found.pages)
    assert found.version == {"version": "0.32.0"}
    assert found.models["data"][0]["owned_by"] == "vllm"
    for body in found.pages:
        read_page = parse(body.decode(), signals.metrics)
        assert read_page.refused_lines == 0
        assert read_page.has_vllm == (name != "no-log-stats")


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere is not a recording"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "about",
    [
        {},
        ABOUT | {"format": "vllm-doctor/recording/v2"},
        ABOUT | {"scrapes": [0.0]},
        ABOUT | {"scrapes": [0.0, 1.0, 2.0]},
    ],
    ids=["nothing", "another format", "too few times", "too many times"],
)
def test_another_format(about: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a recording of format"):
        read(written(tmp_path / "bad", about))


@pytest.mark.parametrize("scrapes", [["x"], None, 5], ids=["texts", "null", "a number"])
def test_times_that_are_none(scrapes: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a recording"):
        read(written(tmp_path / "bad", ABOUT | {"scrapes": scrapes}))


def test_no_pages(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a recording of format"):
        read(written(tmp_path / "bad", ABOUT | {"scrapes": []}, ()))


@pytest.mark.parametrize("text", ["{", "[]", '[{"scrapes": []}]', '"text"', "null", "7"])
def test_json_that_is_none(text: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "bad")
    (folder / "recording.json").write_text(text, "utf-8")
    with pytest.raises(UsageError, match="bad is not a recording: "):
        read(folder)


GZIP = gzip.compress(b"a 1\n" * 100)


@pytest.mark.parametrize(
    "body",
    [b"not gzip", GZIP[:-12], GZIP[:10] + b"\xff" * 20 + GZIP[30:], GZIP[:-8] + b"\0" * 8],
    ids=["plain", "cut", "corrupt", "wrong sum"],
)
def test_a_page_that_is_damaged(body: bytes, tmp_path: Path) -> None:
    folder = written(tmp_path / "bad")
    (folder / "metrics" / "001.prom.gz").write_bytes(body)
    with pytest.raises(UsageError, match="bad is not a recording: "):
        read(folder)
