"""A profile of Nsight Systems, as `nsys export --type sqlite` writes it: the same events, as far as its tables go.

Each device of it is a rank. With --cuda-graph-trace=graph, nsys's default, a graph is one event: its kernels are not in
the file, and its time is told as that of a graph.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from vllm_doctor.model.errors import SourceError
from vllm_doctor.rules.kernel_table import KernelTable
from vllm_doctor.sources.log.bytes_unpacked import begin_stdin
from vllm_doctor.sources.trace.events import MOST, Events

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_CALLS, _STRINGS, _MARKS, _GPUS = "CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds", "NVTX_EVENTS", "TARGET_INFO_GPU"
GRAPH = "CUDA graph (its kernels are not in the file: nsys profile --cuda-graph-trace=node)"
_NANO = 1e-3
"""Microseconds of a nanosecond."""
_MOST_STRINGS, _MOST_LENGTH = 500_000, 1 << 20
_MOST_DEVICES = 64
_MOST_HELD = 512 << 20
"""Bytes of a profile on standard input."""
_STEPS = 400_000_000
"""Of SQLite's machine, in a statement: a large profile needs a tenth."""


def is_export(path: Path) -> bool:
    """Whether a file of SQLite holds kernels as nsys names them."""
    try:
        with closing(_opened(path)) as file:
            return bool({_KERNELS, _GRAPHS} & set(_tables(file)))
    except (sqlite3.Error, ValueError):
        return False


def read(path: Path | None, table: KernelTable) -> Iterator[tuple[dict[str, Any], Events]]:
    """For each device its header, as torch's profiler has it, and its events. Raises SourceError."""
    target = "standard input" if path is None else str(path)
    try:
        with closing(_opened(path) if path is not None else _held()) as file:
            tables = _tables(file)
            strings = dict(_rows(file, tables, _STRINGS, ("id", "value"), _MOST_STRINGS))
            found = _of_device(file, tables, strings, table)
            gpus = {row[0]: row[1] for row in _rows(file, tables, _GPUS, ("id", "name"), _MOST_DEVICES)}
            places = sorted(found)
            _add_calls(file, tables, strings, found)
            _add_marks(file, tables, strings, found)
    except (sqlite3.Error, ValueError) as error:
        raise SourceError("unreadable", f"{target} is a damaged SQLite database ({error}): export it again") from None
    for place in places:
        name = gpus.get(place) or next(iter(gpus.values()), None)
        yield (
            {
                "deviceProperties": [{"name": name}],
                "distributedInfo": {"rank": place, "world_size": len(places)} if len(places) > 1 else {},
            },
            found[place],
        )


def _opened(path: Path) -> sqlite3.Connection:
    """For reading alone: nothing beside the file is made or looked for, and nothing in it is run."""
    return _guarded(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    )


def _held() -> sqlite3.Connection:
    """The one on standard input, in memory."""
    raw = begin_stdin(_MOST_HELD)
    if raw is None:
        raise SourceError(
            "unreadable", f"standard input is longer than {_MOST_HELD >> 20} MiB: give the file by its name"
        )
    file = sqlite3.connect(":memory:", check_same_thread=False)
    file.deserialize(raw)
    return _guarded(file)


def _guarded(file: sqlite3.Connection) -> sqlite3.Connection:
    file.execute("PRAGMA trusted_schema = OFF")
    file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_LENGTH)
    steps = iter(range(_STEPS // 100_000))
    file.set_progress_handler(lambda: next(steps, None) is None, 100_000)
    return file


def _tables(file: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """The plain tables that are read, and their columns."""
    wanted = (_KERNELS, _GRAPHS, *_COPIES, _CALLS, _STRINGS, _MARKS, _GPUS)
    rows = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchmany(10_000)
    plain = {name for name, sql in rows if isinstance(sql, str) and "VIRTUAL" not in sql[:40].upper()}
    return {
        name: frozenset(row[1] for row in file.execute(f"PRAGMA table_info('{name}')"))
        for name in wanted
        if name in plain
    }


def _rows(
    file: sqlite3.Connection, tables: dict[str, frozenset[str]], table: str, columns: Sequence[str], most: int = MOST
) -> Iterator[Any]:
    """The columns' values, NULL for a column that this version of nsys has not; nothing where there is no table."""
    if table not in tables:
        return
    (pages,), (size,) = (file.execute(f"PRAGMA {of}").fetchone() for of in ("page_count", "page_size"))
    most = min(most, pages * size)  # a row takes a byte and more: in a damaged file the same ones come again and again
    picked = ", ".join(column if column in tables[table] else "NULL" for column in columns)
    yield from file.execute(f"SELECT {picked} FROM {table} LIMIT {most}")


def _of_device(
    file: sqlite3.Connection, tables: dict[str, frozenset[str]], strings: dict[Any, Any], table: KernelTable
) -> dict[int, Events]:
    found: dict[int, Events] = {}

    def add(
        device: object, start: object, end: object, pid: object, correlation: object, name: str, copy: bool
    ) -> None:
        place = device if type(device) is int and (device in found or len(found) < _MOST_DEVICES) else 0
        events = found.setdefault(place, Events(table))
        times = _times(events, start, end)
        if times is not None:
            events.device.add(*times, events.number(name, is_copy=copy), _key(pid, correlation))

    columns = ("deviceId", "start", "end", "globalPid", "correlationId", "demangledName", "shortName")
    for device, start, end, pid, correlation, name, short in _rows(file, tables, _KERNELS, columns):
        said = strings.get(name) or strings.get(short)
        add(device, start, end, pid, correlation, said if isinstance(said, str) else "(kernel without a name)", False)
    for device, start, end, pid, correlation in _rows(file, tables, _GRAPHS, columns[:5]):
        add(device, start, end, pid, correlation, GRAPH, False)
    for copies in _COPIES:
        for device, start, end, pid, correlation in _rows(file, tables, copies, columns[:5]):
            add(device, start, end, pid, correlation, "memory copy", True)
    return found


def _add_calls(
    file: sqlite3.Connection, tables: dict[str, frozenset[str]], strings: dict[Any, Any], found: dict[int, Events]
) -> None:
    """Launches, to every device: a launch whose kernel ran on another one joins nothing."""
    keys = {place: set(events.device.key) for place, events in found.items()}
    for start, end, thread, correlation, name in _rows(
        file, tables, _CALLS, ("start", "end", "globalTid", "correlationId", "nameId")
    ):
        said = strings.get(name)
        if not isinstance(said, str):
            continue
        is_launch = any(sign in said for sign in ("Launch", "Memcpy", "Memset")) and "HostFunc" not in said
        is_load = "ModuleLoad" in said or "LibraryLoad" in said
        key = _key(thread, correlation)
        for place, events in found.items():
            if is_launch and (key in keys[place] or len(found) == 1) and (times := _times(events, start, end)):
                events.launches.add(*times, int("GraphLaunch" in said), key)
            elif is_load:
                events.loaded(_times(events, start, end))


def _add_marks(
    file: sqlite3.Connection, tables: dict[str, frozenset[str]], strings: dict[Any, Any], found: dict[int, Events]
) -> None:
    for start, end, text, number in _rows(file, tables, _MARKS, ("start", "end", "text", "textId")):
        said = text if isinstance(text, str) else strings.get(number)
        if not isinstance(said, str):
            continue
        for events in found.values():
            if (times := _times(events, start, end)) is not None:
                events.mark(said, *times)


def _times(events: Events, start: object, end: object) -> tuple[float, float] | None:
    if type(start) is not int or type(end) is not int:
        return None
    return events.span(start * _NANO, (end - start) * _NANO)


def _key(process: object, correlation: object) -> int:
    """Correlations count from 1 in each process, which both ids hold in their upper bits."""
    if type(process) is not int:
        process = 0
    if type(correlation) is not int or not 0 < correlation < 1 << 32:
        return 0
    return (process >> 24 & 0xFFFFFF) << 32 | correlation
