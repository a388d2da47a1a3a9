"""The log of a running server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.sources.log.test_runs import start, stats, table, written
from vllm_doctor.sources.log import bytes_stream
from vllm_doctor.sources.log.bytes_scan import Scanner
from vllm_doctor.sources.log.reader import Reading
from vllm_doctor.sources.log.source import Log


def watched(path: Path, seconds: float) -> Reading:
    return Reading(path, 0, table(), Scanner(table().finds, table().uncounted), time.monotonic() + seconds)


def generated(read: Reading) -> list[float]:
    return [float(seen.values["generation"]) for seen in read.sightings() if seen.line.id == "stats"]


def test_what_is_written_while_it_is_watched_is_read(tmp_path: Path) -> None:
    """Also into a new log, as it is renamed meanwhile."""
    path = tmp_path / "vllm.log"
    path.write_text(f"{stats(0, generation=1.0)}\n")
    seen = watched(path, 0.5).sightings()

    def write() -> None:
        with path.open("a") as log:
            log.write(f"{stats(10, generation=2.0)}\n")
        path.rename(tmp_path / "vllm.log.1")
        path.write_text(f"{stats(20, generation=3.0)}\n")

    writer = threading.Timer(0.1, write)
    writer.start()
    assert [float(sighting.values["generation"]) for sighting in seen] == [1.0, 2.0, 3.0]
    writer.join()


def test_of_a_long_log_of_a_living_server_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "vllm.log"
    path.write_text("".join(f"{stats(at, generation=float(at))}\n" for at in range(0, 1000, 10)))
    monkeypatch.setattr(bytes_stream, "MOST_OF_LIVING", 1000)
    alive, afterwards = watched(path, 0.0), Reading(path, 0, table(), Scanner(table().finds, table().uncounted))
    assert len(generated(afterwards)) == 100
    assert generated(alive)[-1] == 990.0
    assert len(generated(watched(path, 0.0))) < 10
    assert "only its last" in alive.notes[0]


def test_of_a_living_server_only_what_was_logged_just_now_counts(tmp_path: Path) -> None:
    """What its start told stays true; a request that was refused an hour ago is no matter."""
    refused = 'INFO:     127.0.0.1:59734 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request'
    path = written(tmp_path / "vllm.log", [*start(0), stats(40), refused, refused, stats(3600), refused])

    def seen(watch: float | None) -> Mapping[str, object]:
        facts = Log([path], table(), watch=watch).examine("the server").facts
        return {name: getattr(facts[f"log:{name}"], "value", None) for name in ("bad-request", "engine-config")}

    assert seen(None) == {"bad-request": 3.0, "engine-config": 1.0}
    os.utime(path)
    assert seen(0.0) == {"bad-request": 1.0, "engine-config": 1.0}
    long_ago = path.stat().st_mtime - 600
    os.utime(path, (long_ago, long_ago))
    assert seen(0.0) == {"bad-request": 0.0, "engine-config": 1.0}
