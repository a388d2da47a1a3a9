"""Harnesses of what profilers write: collapsed stacks, traces of torch's profiler, exports of Nsight Systems."""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from collections.abc import Hashable
from contextlib import closing
from functools import cache
from pathlib import Path

from tests import trace_files
from tests.fuzz.harness import clean, file_of, finite, folder, harness
from vllm_doctor.model.trace import TraceSeen

_THREAD = b"thread (17): MainThread;<module> (<string>);EngineCore.step (vllm/v1/engine/core.py);"
_OTHER = b"thread (18): Thread-1;Thread._bootstrap (threading.py) 49\n"
_STACKS = (
    _THREAD + b"Scheduler.schedule (vllm/v1/core/sched/scheduler.py:200) 42\n" + _THREAD + b"wait (x.py) 7\n" + _OTHER,
    b"thread (0x7f00): ;wait (/opt/x/lib/python3.12/threading.py) 3\nthread (17): MainThread 5\n",
)
_KERNEL = '{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5, "dur": 7, "args": {"correlation": 1}}, '
_STEP = '"cat": "user_annotation", "name": "execute_context_0(0)_generation_8(8)"'


@harness(lambda: list(_STACKS), "thread (", "): ", ";", " (vllm/v1/", ".py)", " 0\n", " 9999999999\n")
def stacks(data: bytes) -> Hashable:
    """What py-spy wrote of one process, to its parts and back."""
    from vllm_doctor.rules import parts
    from vllm_doctor.sources.profile import profiler
    from vllm_doctor.sources.profile import stacks as collapsed
    from vllm_doctor.sources.profile.py_spy import Sampled

    parsed = collapsed.parse(data)
    clean(collapsed.collapsed(parsed))
    found = profiler.of_process("engine", 17, Sampled(parsed), parts.load(), {17: 0.5}, 8.0)
    for thread in found.threads:
        assert all(0 <= share <= 1.001 for share in thread.shares.values()), thread.shares
    shown = tuple(sorted(found.threads[0].shares)[:4]) if found.threads else ()
    return len(found.threads), len(parsed.found), bool(parsed.strange), shown


def _traces() -> list[bytes]:
    each = [trace_files.eager(steps=2, kernels=3), trace_files.busy(steps=2, kernels=2, rank=1, world=2)]
    each[0].copy(500, 510, 40)
    texts = [json.dumps(made.document()).encode() for made in each]
    return [*texts, json.dumps(each[0].events).encode(), gzip.compress(texts[1], mtime=0)]


@harness(
    _traces,
    '"traceEvents": [',
    _KERNEL,
    '"cat": "cuda_runtime"',
    _STEP,
    '"ts": ',
    '"dur": ',
    '"correlation": ',
    most=20_000,
)
def torch_trace(data: bytes) -> Hashable:
    """A file of torch's profiler, packed or not."""
    from vllm_doctor.sources.trace import signs

    path = file_of(data, "t.pt.trace.json")
    return signs.is_trace(path), signs.begins_trace(data), _examined(path)


def _exports() -> list[bytes]:
    folder().mkdir(parents=True, exist_ok=True)
    found = []
    for place, made in enumerate((trace_files.eager(steps=2, kernels=3), trace_files.busy(steps=2, kernels=2))):
        path = folder() / f"corpus{place}.sqlite"
        path.unlink(missing_ok=True)
        trace_files.export(path, made)
        with closing(sqlite3.connect(path)) as file:
            file.executescript("PRAGMA page_size = 512; VACUUM")
        found.append(path.read_bytes())
        path.unlink()
    return found


@harness(_exports, "CUPTI_ACTIVITY_KIND_KERNEL", "StringIds", "TABLE", "INTEGER", "VIRTUAL", "VIEW", most=20_000)
def nsys_export(data: bytes) -> Hashable:
    """An export of Nsight Systems, damaged."""
    from vllm_doctor.sources.trace import signs

    path = file_of(data, "t.sqlite")
    return signs.is_sqlite(path), signs.is_trace(path), _examined(path)


def _rows() -> list[bytes]:
    path = file_of(_exports()[0], "rows.sqlite")
    with closing(sqlite3.connect(path)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: file.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    return [json.dumps(rows).encode(), json.dumps({name: each[:2] for name, each in rows.items()}).encode()]


@harness(_rows, "1e308", "-1", "9223372036854775807", "null", '"x"', raises=(ValueError,))
def nsys_rows(data: bytes) -> Hashable:
    """A whole export, with values that nsys does not write."""
    document = json.loads(data)
    path = file_of(_exports_schema(), "t.sqlite")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("PRAGMA synchronous = OFF")
        for table, rows in document.items() if isinstance(document, dict) else ():
            for row in (row for row in (rows if isinstance(rows, list) else ()) if isinstance(row, list)):
                with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeError):
                    file.execute(f"INSERT INTO {_name(table)} VALUES ({','.join('?' * len(row))})", row)
    return _examined(path)


@cache
def _exports_schema() -> bytes:
    path = folder() / "schema.sqlite"
    folder().mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return trace_files.export(path, trace_files.Made()).read_bytes()


def _name(table: str) -> str:
    return '"' + table.replace('"', "") + '"'


def _examined(path: Path) -> Hashable:
    from vllm_doctor.sources.trace import source

    found = source.examine([path], "")
    kinds = "" if found.error is None else found.error.kind
    return kinds, finite(found.facts), None if found.trace is None else _checked(found.trace)


def _checked(seen: TraceSeen) -> Hashable:
    """What is said of it can be said, and is no more than all of the time."""
    from vllm_doctor.render import json_trace

    json.dumps(json_trace.document(seen), allow_nan=False)
    for rank in seen.ranks:
        assert all(seconds >= 0 for seconds in rank.parts.values()), rank.parts
        assert abs(sum(rank.parts.values()) - rank.seconds) <= 1e-6 * max(1.0, rank.seconds), rank.parts
    rank = seen.told
    return len(seen.ranks), tuple(sorted(rank.parts)), len(rank.families), rank.idle_unknown[:12], len(rank.kinds)
