"""A file of torch's profiler, as Events: which of its events are on the device, launch something, or are operators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_doctor.rules.kernel_table import KernelTable
from vllm_doctor.sources.trace.chrome import Trace
from vllm_doctor.sources.trace.events import Events

_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_KERNEL = frozenset({"kernel", "Kernel"})
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"})
_OLD_OPERATOR = "Operator"
_OPERATOR = frozenset({"cpu_op", _OLD_OPERATOR})
_MARK = frozenset({"user_annotation"})
_FRAME = frozenset({"python_function"})
_LOADS = ("ModuleLoad", "LibraryLoad", "ModuleGetFunction")
_NOTHING: Mapping[str, Any] = {}


def gather(trace: Trace, table: KernelTable) -> Events:
    """All that is kept of it. Of several devices all are gathered as one: a worker has one."""
    events = Events(table)
    device, launches, operators = events.device, events.launches, events.operators
    span, number = events.span, events.number
    for event in trace.events():
        kind = event.get("cat")
        if type(kind) is not str:
            continue
        if kind in _FRAME:
            events.python_frames += 1
            continue
        if event.get("ph") != "X" or type(name := event.get("name")) is not str:
            continue
        if kind in _ON_DEVICE:
            if (times := span(event.get("ts"), event.get("dur"))) is not None:
                device.add(*times, number(name, is_copy=kind not in _KERNEL), _key(event))
                events.ran_on(event.get("pid"))
        elif kind in _RUNTIME:
            if "Launch" in name or "Memcpy" in name or "Memset" in name:
                if "HostFunc" not in name and (times := span(event.get("ts"), event.get("dur"))) is not None:
                    launches.add(*times, int("GraphLaunch" in name), _key(event))
            elif any(sign in name for sign in _LOADS):
                events.loaded(span(event.get("ts"), event.get("dur")))
        elif kind in _OPERATOR:
            if (times := span(event.get("ts"), event.get("dur"))) is not None:
                operators.add(*times, number(name, is_op=True), _thread(event))
                if kind == _OLD_OPERATOR:  # which marks were, too
                    events.mark(name, *times)
        elif kind in _MARK and (times := span(event.get("ts"), event.get("dur"))) is not None:
            events.mark(name, *times)
    return events


def read(path: Path | None, table: KernelTable) -> tuple[Trace, Events]:
    """The file; None: standard input. Raises SourceError."""
    trace = Trace(path)
    return trace, gather(trace, table)


def _key(event: Mapping[str, Any]) -> int:
    args = event.get("args")
    if type(args) is not dict:
        return 0
    key = args.get("correlation")
    return key if type(key) is int and 0 < key < 1 << 62 else 0


def _thread(event: Mapping[str, Any]) -> int:
    thread = event.get("tid")
    return thread if type(thread) is int and 0 <= thread < 1 << 62 else 0
