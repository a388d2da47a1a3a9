from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.day import Day
from tests.making import shipped_catalogue
from tests.paths import ROOT
from tests.serving import recorded
from tests.zstandard import zstd
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.recording import archive, bundle, demo
from vllm_doctor.recording.bundle import FORMAT, Recording, parsed, read, reading, written
from vllm_doctor.recording.metrics import MetricsWriter
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.sources.server.exposition import parse

COMMAND = [sys.executable, "-m", "vllm_doctor"]
TARGET = "http://h:8000"
ABOUT: dict[str, Any] = {
    "format": FORMAT,
    "doctor": "0.1.0",
    "taken": "2026-11-20T10:00:00Z",
    "seconds": 1.5,
    "sources": [
        {"folder": "1-server", "kind": "server", "target": TARGET, "patient": TARGET},
        {"folder": "2-host", "kind": "host", "target": "pid 7", "patient": TARGET, "command": ["vllm", "serve", "m"]},
    ],
}
METRICS = b"# at 0.000\na 1\nb 1\n# at 1.500 clock 1795000000\na 1\nb 2\n"
METRICS_V1 = b"@ 0.000 page 3\na 1\nb 1\n\n@ 1.500 lines 1 1795000000\n2 b 2\n"
SERVER = "1-server/metrics.prom.zst"
FACTS: dict[str, Any] = {"cores": {"value": 2, "from": "proc"}, "governor": {"unknown": "denied"}}


def parts(**changed: object) -> dict[str, bytes]:
    """A recording's parts by name, with `_` for / and . in it left to the caller."""
    about = ABOUT | changed
    return {
        "recording.json": json.dumps(about).encode(),
        SERVER: zstd.compress(METRICS),
        "1-server/version.json": b'{"version": "0.32.0"}',
        "1-server/models.json": b'{"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 2048}]}',
        "2-host/facts.json": json.dumps(FACTS).encode(),
    }


def without(name: str) -> dict[str, bytes]:
    return {part: body for part, body in parts().items() if part != name}


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder


def test_what_a_recording_holds(tmp_path: Path) -> None:
    found = read(put(tmp_path / "mine", parts()))
    assert (found.times, found.pages) == ((0.0, 1.5), (b"a 1\nb 1\n", b"a 1\nb 2\n"))
    assert found.version == {"version": "0.32.0"}
    assert found.facts == {"cores": Known(2.0), "governor": Unknown(Reason.DENIED)}
    assert [source.kind for source in found.sources] == ["server", "host"]
    assert found.sources[1].command == ("vllm", "serve", "m")
    assert found.report is None


def test_parts_may_be_packed(tmp_path: Path) -> None:
    files = without("2-host/facts.json") | {"2-host/facts.json.gz": gzip.compress(json.dumps(FACTS).encode())}
    assert read(put(tmp_path / "mine", files)).facts == {"cores": Known(2.0), "governor": Unknown(Reason.DENIED)}


@pytest.mark.parametrize(
    "files",
    [
        {"1-server/metrics.prom": METRICS},
        {"1-server/metrics.prom.gz": gzip.compress(METRICS)},
        {"1-server/metrics.txt": METRICS_V1},
        {"1-server/metrics.txt.gz": gzip.compress(METRICS_V1)},
    ],
    ids=lambda files: next(iter(files)),
)
def test_answers_unpacked_by_hand_and_those_of_version_1(files: dict[str, bytes], tmp_path: Path) -> None:
    found = read(put(tmp_path / "mine", without(SERVER) | files))
    assert (found.times, found.pages) == ((0.0, 1.5), (b"a 1\nb 1\n", b"a 1\nb 2\n"))
    assert found.server.lacks == ()


@pytest.mark.parametrize("name", ["preemption", "cpu-hog", "data-parallel"])
def test_the_report_is_the_same_whichever_version_holds_it(name: str, tmp_path: Path) -> None:
    old = demo.folder() / name
    new = put(tmp_path / name, as_v2(archive.read(old)))

    def reported(path: Path) -> Any:
        ran = subprocess.run([*COMMAND, str(path), "--json"], capture_output=True, text=True)
        return json.loads(ran.stdout.replace(str(path), "RECORDING")) | {"at": None}

    assert json.loads((old / "recording.json").read_text())["format"] == "vllm-doctor/recording/v1"
    assert reported(new) == reported(old)


def as_v2(old: Mapping[str, bytes]) -> dict[str, bytes]:
    """A recording of version 1 as it would have been written today."""
    found = parsed("r", old)
    assert found.server.metrics is not None
    writer = MetricsWriter()
    for answer in found.server.metrics.answers():
        writer.add(answer.at, answer.text(), answer.clock)
    about = json.loads(old["recording.json"]) | {"format": FORMAT}
    parts = {name: body for name, body in old.items() if not name.endswith("/metrics.txt")}
    return parts | {"recording.json": json.dumps(about).encode(), SERVER: writer.ended()}


def test_parts_that_would_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_MAX_JSON", 1000)
    for part in ("recording.json", "report.json", "2-host/facts.json"):
        with pytest.raises(SourceError, match=r"\.json is larger than 0 MiB"):
            parsed("r", parts() | {part: b" " * 2000})
    with pytest.raises(SourceError, match="jsonl is larger"):
        parsed("r", parts() | {"2-host/course.jsonl": b"\n" * 2000})


def test_the_program_in_its_documentation_reads_it() -> None:
    text = (ROOT / "docs" / "recordings.md").read_text("utf-8")
    program = text.split("```python\n")[1].split("```")[0]
    scope: dict[str, Any] = {}
    exec(program, scope)
    found = demo.find("preemption")
    assert found.server.metrics is not None
    text = "".join(f"# at {at}\n{page.decode()}" for at, page in zip(found.times, found.pages, strict=True))
    read_by_hand = list(scope["answers"](text))
    assert [page.encode() for _, page in read_by_hand] == list(found.pages)
    assert [at for at, _ in read_by_hand] == list(found.times)


@pytest.mark.parametrize(("at", "place"), [(-1, 0), (0, 0), (0.9, 0), (1.0, 1), (1.4, 1), (2.5, 2), (1e9, 2)])
def test_the_page_of_a_time(at: float, place: int) -> None:
    pages = (b"0\n", b"1\n", b"2\n")
    assert recorded((0.0, 1.0, 2.5), pages).page_at(at) == pages[place]


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


# ---- what is missing, or wrong --------------------------------------------------------------------------------------


def observed(found: Recording) -> dict[str, str]:
    """What kind of source has which problem."""
    told = [source.observation(frozenset()) for source in found.sources]
    return {seen.kind: seen.error.message for seen in told if seen.error is not None}


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        (SERVER, {"server": f"the recording lacks {SERVER}"}),
        ("2-host/facts.json", {"host": "the recording lacks 2-host/facts.json"}),
    ],
)
def test_a_part_that_is_missing_is_said(lost: str, says: dict[str, str]) -> None:
    assert observed(parsed("r", without(lost) | {"1-server/version.json": b"{}"})).items() >= says.items()


def test_a_server_that_failed_stays_so() -> None:
    failed = {"kind": "unreachable", "message": "it refuses connections"}
    sources = [{**ABOUT["sources"][0], "error": failed}]
    found = parsed("r", {"recording.json": json.dumps(ABOUT | {"sources": sources}).encode()})
    assert observed(found) == {"server": "it refuses connections"}


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere does not exist"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"format": None}, "is not a recording of format"),
        ({"format": "vllm-doctor/report/v1"}, "is not a recording of format"),
        ({"format": "vllm-doctor/recording/v3"}, "update it"),
        ({"sources": []}, "names no sources"),
        ({"sources": [{"kind": "server"}]}, "'folder' is missing"),
        ({"sources": "x"}, "names no sources"),
        ({"sources": [7]}, "r is no whole recording"),
        ({"taken": "yesterday"}, "r is no whole recording"),
        ({"taken": None}, "r is no whole recording"),
        ({"redacted": [{"what": "x"}]}, "'count' is missing"),
    ],
)
def test_what_it_says_of_itself_is_wrong(about: dict[str, Any], says: str) -> None:
    with pytest.raises(SourceError, match=says):
        parsed("r", parts(**about))


@pytest.mark.parametrize("text", ["{", "[]", '[{"scrapes": []}]', '"text"', "null", "7", "[" * 100_000, "NaN"])
def test_json_that_is_none(text: str) -> None:
    with pytest.raises(SourceError, match=r"recording\.json is no JSON|is not a recording of format"):
        parsed("r", parts() | {"recording.json": text.encode()})


@pytest.mark.parametrize(
    "facts",
    ["[]", "7", '{"x": 3}', '{"x": {}}', '{"x": {"value": null}}', '{"x": {"unknown": "because"}}',
     '{"x": {"value": [1]}}', "{"],
)  # fmt: skip
def test_facts_that_are_none(facts: str) -> None:
    with pytest.raises(SourceError, match=r"2-host/facts\.json"):
        parsed("r", parts() | {"2-host/facts.json": facts.encode()})


@pytest.mark.parametrize(
    ("part", "body", "says"),
    [
        (SERVER, zstd.compress(b"x\n"), r"r: 1-server/metrics\.prom\.zst, answer 1: 'x' does not begin a scrape"),
        ("1-server/metrics.prom", b"x\n", r"r: 1-server/metrics\.prom, answer 1"),
        ("1-server/metrics.txt", b"x\n", r"r: 1-server/metrics\.txt, line 1"),
    ],
)
def test_scrapes_that_are_none(part: str, body: bytes, says: str) -> None:
    found = parsed("r", without(SERVER) | {part: body})
    with pytest.raises(SourceError, match=says):
        found.sources[0].observation(frozenset())


@pytest.mark.parametrize(
    "fact",
    [Known(2.5, origin="proc"), Known("x", origin="log"), Known(True), Known(float("inf"), origin="cgroup"),
     Unknown(Reason.DENIED)],
)  # fmt: skip
def test_a_fact_comes_back_as_it_was(fact: Reading) -> None:
    back = reading(json.loads(json.dumps(written(fact), allow_nan=False)))
    assert back == fact
    assert getattr(back, "origin", None) == getattr(fact, "origin", None)


@pytest.mark.parametrize("value", ["NaN", "1e400", "1e308", "9" * 400, "-Infinity"])
def test_a_fact_that_is_no_number_is_not_known(value: str) -> None:
    facts = f'{{"x": {{"value": {value}}}, "y": {{"value": 2}}}}'
    found = parsed("r", parts() | {"2-host/facts.json": facts.encode()}).sources[1].facts
    assert found == {"x": Unknown(Reason.INVALID), "y": Known(2.0)}


@pytest.mark.parametrize("taken", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"])
def test_a_time_beyond_the_calendar_is_told(taken: str) -> None:
    with pytest.raises(SourceError, match="r is no whole recording"):
        parsed("r", parts(taken=taken))


# Hours of one server


def of_hours(catalogue: Catalogue, **how: object) -> Mapping[str, Reading]:
    """The facts of a recording of so many seconds, in which steps get longer."""
    day = Day(7200.0, **{"every": 10, "swing": 0, "batch": lambda hour: 12, **how})  # type: ignore[arg-type]
    writer = MetricsWriter()
    for at, page in day.pages():
        writer.add(at, page, None)
    files = parts() | {SERVER: writer.ended()}
    return parsed("mine", files).sources[0].observation(catalogue.metrics).facts


def test_a_recording_of_hours_tells_whether_its_load_gets_slower() -> None:
    catalogue = shipped_catalogue()
    found = of_hours(catalogue, seconds=7200, slow=lambda hour: 1 + hour / 2)
    drifted = found["decode_drift"]
    assert isinstance(drifted, Known)
    assert drifted.value == pytest.approx(11 / 7, rel=0.03)
    assert of_hours(catalogue, seconds=7200, batch=lambda hour: 0)["decode_drift"] == Unknown(Reason.NO_EQUAL_LOAD)


def test_one_of_minutes_does_not() -> None:
    assert "decode_drift" not in of_hours(shipped_catalogue(), seconds=600, slow=lambda hour: 1 + hour / 2)
