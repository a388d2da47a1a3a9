"""The reader of Chrome's format: what is whole comes out, what is hostile costs little and breaks nothing."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests import trace_files
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.trace import chrome
from vllm_doctor.sources.trace.chrome import Trace

EVENT = {
    "ph": "X",
    "cat": "kernel",
    "name": 'a "quoted" {brace} \\ name',
    "ts": 1.5,
    "dur": 2,
    "args": {"correlation": 1},
}


def _read(path: Path) -> tuple[list[dict[str, Any]], Trace]:
    trace = Trace(path)
    return list(trace.events()), trace


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("block", [7, 64, 1 << 20])
def test_events_come_out_whole_whatever_the_blocks(
    tmp_path: Path, indent: int | None, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome, "_BLOCK", block)
    document = {"schemaVersion": 1, "skipped": [{"a": [1, 2]}], "traceEvents": [EVENT] * 20, "with_stack": 1}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document, indent=indent))
    events, trace = _read(path)
    assert events == [EVENT] * 20
    assert trace.header == {"schemaVersion": 1, "with_stack": 1}
    assert trace.is_whole
    assert trace.notes == []


def test_a_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([EVENT, EVENT]))
    assert _read(path)[0] == [EVENT, EVENT]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_a_cut_file_is_read_as_far_as_it_goes(tmp_path: Path, share: float) -> None:
    text = json.dumps({"schemaVersion": 1, "traceEvents": [EVENT] * 1000})
    path = tmp_path / "t.json"
    path.write_text(text[: int(len(text) * share)])
    events, trace = _read(path)
    assert share * 990 - 5 < len(events) < share * 1010
    assert not trace.is_whole
    assert trace.notes == ["it ends early, or is damaged: read as far as it goes"]


def test_a_cut_gzip_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    document = {"traceEvents": [{**EVENT, "ts": place * 1.37} for place in range(20_000)]}
    packed = gzip.compress(json.dumps(document).encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    events, trace = _read(path)
    assert 5000 < len(events) < 15_000
    assert not trace.is_whole
    assert any("truncated gzip" in note for note in trace.notes)


@pytest.mark.parametrize(
    "bad",
    [
        '{"ph": "X", "ts": ' + "9" * 5000 + "}",
        '{"ph": "X", "args": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"ph": "X", "ts": nonsense}',
        '{"ph": "X" "ts"}',
    ],
    ids=["huge number", "deep", "no value", "no comma"],
)
def test_an_event_that_is_none_costs_itself(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + ", ".join([json.dumps(EVENT), bad, json.dumps(EVENT)]) + "]}")
    events, trace = _read(path)
    assert events.count(EVENT) == 2
    assert not trace.is_whole


def test_a_file_of_broken_events_ends_soon(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + '{"ph": "X, ' * 200_000)
    began = time.process_time()
    assert _read(path)[0] == []
    assert time.process_time() - began < 20


def test_an_endless_value_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"schemaVersion": "' + "x" * (30 << 20))
    tracemalloc.start()
    try:
        assert _read(path)[0] == []
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    line = json.dumps(EVENT)
    path.write_text('{"traceEvents": [' + ",\n".join([line] * 200_000) + "]}")
    tracemalloc.start()
    try:
        assert sum(1 for _ in Trace(path).events()) == 200_000
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("INFO 11-20 hello\n")
    with pytest.raises(SourceError) as refused:
        _read(path)
    assert refused.value.kind == "not-a-trace"


def test_made_traces_are_read(tmp_path: Path) -> None:
    made = trace_files.busy()
    events, trace = _read(made.write(tmp_path / "t.pt.trace.json.gz"))
    assert events == made.events
    assert trace.header["distributedInfo"]["world_size"] == 1
