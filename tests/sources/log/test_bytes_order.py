from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sources.log.test_bytes_document import GENERATED, LINES, generated, read
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.log import bytes_order, entry_redact
from vllm_doctor.sources.log.bytes_order import is_newest_first, turned


def head(*times: str) -> bytes:
    return "\n".join(f"2025-11-20T{time}Z line" for time in times).encode()


def test_which_way_a_log_runs() -> None:
    assert is_newest_first(head("10:00:04", "10:00:03", "10:00:02", "10:00:01"))
    assert not is_newest_first(head("10:00:01", "10:00:02", "10:00:03", "10:00:04"))
    assert not is_newest_first(head("10:00:01", "10:00:01", "10:00:01", "10:00:01"))
    assert not is_newest_first(head("10:00:02", "10:00:01"))  # too few to tell
    assert not is_newest_first(head("10:00:04", "10:00:03", "10:00:05", "10:00:02", "10:00:06", "10:00:01"))
    assert not is_newest_first(b"")


def test_a_log_that_runs_backwards_is_read_from_its_end(tmp_path: Path) -> None:
    seen = read(tmp_path, "\n".join(LINES[::-1]))
    assert generated(seen) == pytest.approx(GENERATED)
    assert seen.notes == ("its newest lines stand first: it is read from its end",)


def test_the_text_that_grafana_saves(tmp_path: Path) -> None:
    lines = [f"17636328000{n}0\t2025-11-20T10:00:{n}0.000Z\t{line}" for n, line in enumerate(LINES)]
    text = "\n".join(['Common labels: {"app":"vllm"}', "Line limit: 1000", "", "", *lines[::-1]])
    assert generated(read(tmp_path, text)) == pytest.approx(GENERATED)


def test_what_has_no_time_stays_below_its_line() -> None:
    text = b"head\n" + head("10:00:04", "10:00:03", "10:00:02", "10:00:01").replace(
        b":02Z line", b":02Z line\n  more\n  and more"
    )
    again = b"".join(turned(iter([text[:20], text[20:]]), [])).split(b"\n")
    assert again[1:4] == [b"2025-11-20T10:00:02Z line", b"  more", b"  and more"]
    assert again[0] == b"2025-11-20T10:00:01Z line"


def test_one_that_is_too_long_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client sent could not be told from what the server wrote."""
    monkeypatch.setattr(bytes_order, "MOST_TURNED", 900)
    path = tmp_path / "vllm.log"
    path.write_text("\n".join(LINES[::-1]))
    with pytest.raises(SourceError, match="runs backwards"):
        entry_redact.text(path, [], Counter())
