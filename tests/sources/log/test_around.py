"""The lines of a log around a time."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.paths import LOGS
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.log.around import AFTER, BEFORE, around
from vllm_doctor.sources.log.bytes_stream import Held

LOG = LOGS / "max-num-seqs-cap.log.gz"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def held(*lines: str, written: str = "2026-11-20T12:00:00") -> Held:
    return Held("a.log", ("\n".join(lines) + "\n").encode(), at(written))


def line(second: int, text: str) -> str:
    hours, rest = divmod(second, 3600)
    stamp = f"11-20 {hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
    return f"(EngineCore pid=7) INFO {stamp} [loggers.py:123] {text}"


def test_the_line_of_the_time_and_what_stands_around_it() -> None:
    found = around(LOG, at("2026-11-20T10:52:59"))
    assert found is not None
    every = gzip.decompress(LOG.read_bytes()).decode().split("\n")
    assert "10:52:59" in found.lines[found.place]
    assert found.lines[found.place].split("[")[0] == every[found.first - 1 + found.place].split("[")[0]
    assert (found.place, len(found.lines)) == (BEFORE, BEFORE + AFTER)


def test_in_a_log_of_many_blocks_the_number_is_that_of_the_line() -> None:
    filler = "x" * 200
    found = around(held(*(line(second, f"{second} {filler}") for second in range(9000))), at("2026-11-20T01:00:00"))
    assert found is not None
    assert found.lines[found.place].startswith(line(3600, "3600 "))
    assert found.first + found.place == 3601


def test_lines_without_a_time_belong_to_the_one_before() -> None:
    found = around(held(line(1, "one"), "Traceback", "  File x", line(9, "two")), at("2026-11-20T00:00:01"))
    assert found is not None
    assert found.lines[found.place : found.place + 3] == (line(1, "one"), "Traceback", "  File x")


def test_what_a_client_sent_and_what_is_secret_is_not_shown() -> None:
    lines = [
        line(1, "api_key='sk-abcdefghijklmnopqrstuvwxyz0123456789'"),
        "(APIServer pid=1) INFO 11-20 00:00:02 [logger.py:42] "
        "Received request cmpl-1: prompt: 'my own words', params: None",
    ]
    found = around(held(*lines), at("2026-11-20T00:00:01"))
    assert found is not None
    assert "sk-abc" not in " ".join(found.lines)
    assert "my own words" not in " ".join(found.lines)


def test_a_time_after_the_log_or_a_log_without_times_has_no_lines() -> None:
    assert around(LOG, at("2026-11-20T13:00:00")) is None
    assert around(held("no time", "none here either"), at("2026-11-20T13:00:00")) is None


def test_what_cannot_be_read_again_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="a second time"):
        around(None, 0.0)
    with pytest.raises(SourceError):
        around(tmp_path / "gone.log", 0.0)
