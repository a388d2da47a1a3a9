"""Exports of Nsight Systems: the same split as torch's traces, from the tables that are there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import trace_files
from tests.trace_files import Made
from vllm_doctor.model import trace
from vllm_doctor.session.sources import trace as words
from vllm_doctor.sources.trace import source


@pytest.mark.parametrize("made", [trace_files.busy(), trace_files.eager()], ids=["busy", "eager"])
def test_it_is_split_as_the_same_events_of_torch(tmp_path: Path, made: Made) -> None:
    path = trace_files.export(tmp_path / "report1.sqlite", made)
    assert words.is_named_by(str(path))
    mine = source.examine([path], "").trace
    theirs = source.examine([made.write(tmp_path / "t.json")], "").trace
    assert mine is not None
    assert theirs is not None
    assert mine.tool == "Nsight Systems"
    assert mine.told.parts == pytest.approx(theirs.told.parts)
    assert (mine.told.steps, mine.told.graph_launches) == (theirs.told.steps, theirs.told.graph_launches)
    assert mine.told.device == theirs.told.device
    assert [f.name for f in mine.told.families] == [f.name for f in theirs.told.families]


def test_graphs_as_one_event_are_told_so(tmp_path: Path) -> None:
    path = trace_files.export(tmp_path / "r.sqlite", Made())
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
            " (start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER, globalPid INTEGER)"
        )
        file.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1000, 900000, 0, 3, {trace_files.PROCESS})")
    seen = source.examine([path], "").trace
    assert seen is not None
    assert seen.told.families[0].longest.startswith("CUDA graph (its kernels are not in the file")
    assert seen.told.share(trace.COMPUTE) == 1


def test_other_databases_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start")
    assert not words.is_named_by(str(path))
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    assert not words.is_named_by(str(path))


def test_a_damaged_export_is_said_so(tmp_path: Path) -> None:
    path = trace_files.export(tmp_path / "r.sqlite", trace_files.busy(steps=400))
    raw = bytearray(path.read_bytes())
    raw[8192:40960] = b"\xaa" * (40960 - 8192)
    path.write_bytes(raw)
    found = source.examine([path], "")
    assert found.error is not None
    assert found.error.kind == "unreadable"


def test_nothing_is_written_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "only"
    folder.mkdir()
    path = trace_files.export(folder / "r ?#.sqlite", trace_files.busy())
    source.examine([path], "")
    assert [one.name for one in folder.iterdir()] == ["r ?#.sqlite"]
