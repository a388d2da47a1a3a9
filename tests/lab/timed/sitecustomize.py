"""In a vLLM's own processes (PYTHONPATH): how long the functions of a part really take, by a clock around each call.

TIMED: "module:Class.method" entries, joined by commas; "gc" is Python's collector. TIMED_OUT: a folder, in which each
process writes PID.json twice a second: seconds inside, by thread (only the outermost call counts), and the clock.
GARBAGE: once the file `go` is there, so many objects are kept that a collection takes long (vLLM freezes what was there
when it started); COLLECT: seconds from one collection to the next.
"""

import functools
import gc
import importlib.abc
import importlib.machinery
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_inside = threading.local()
_spent: dict[str, float] = {}


def _timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(_inside, "depth", 0):
            return function(*args, **kwargs)
        _inside.depth, began = 1, time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            _inside.depth = 0
            _add(time.perf_counter() - began)

    return call


def _add(seconds: float) -> None:
    thread = threading.current_thread().name
    _spent[thread] = _spent.get(thread, 0.0) + seconds


class _Finder(importlib.abc.MetaPathFinder):
    """Wraps the functions of a module once it is loaded."""

    def __init__(self, wanted: dict[str, list[str]]) -> None:
        self.wanted = wanted

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.wanted:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            for place in self.wanted[name]:
                *owners, function = place.split(".")
                owner = functools.reduce(getattr, owners, module)
                held = owner.__dict__[function]
                wrapped = _timed(held.__func__ if isinstance(held, staticmethod) else held)
                setattr(owner, function, staticmethod(wrapped) if isinstance(held, staticmethod) else wrapped)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _collected(phase: str, _: object) -> None:
    if phase == "start":
        _inside.gc = time.perf_counter()
    elif hasattr(_inside, "gc"):
        _add(time.perf_counter() - _inside.gc)


def _write(folder: str) -> None:
    path = os.path.join(folder, f"{os.getpid()}.json")
    while True:
        time.sleep(0.5)
        with open(f"{path}.new", "w") as file:
            json.dump({"at": time.monotonic(), "spent": dict(_spent)}, file)
        os.replace(f"{path}.new", path)


def _collect(count: int, every: float) -> None:
    while not os.path.exists(os.path.join(os.environ["TIMED_OUT"], "go")):
        time.sleep(1)
    sys.kept_garbage = [[place] for place in range(count)]  # type: ignore[attr-defined]
    while True:
        time.sleep(every)
        gc.collect()


def _begin() -> None:
    wanted: dict[str, list[str]] = {}
    for entry in filter(None, os.environ.get("TIMED", "").split(",")):
        module, _, place = entry.partition(":")
        if module == "gc":
            gc.callbacks.append(_collected)
        else:
            wanted.setdefault(module, []).append(place)
    sys.meta_path.insert(0, _Finder(wanted))
    threading.Thread(target=_write, args=(os.environ["TIMED_OUT"],), daemon=True, name="timed").start()
    if count := int(os.environ.get("GARBAGE", "0")):
        args = (count, float(os.environ["COLLECT"]))
        threading.Thread(target=_collect, args=args, daemon=True, name="collector").start()


if os.environ.get("TIMED_OUT") and any(word in " ".join(sys.orig_argv) for word in ("vllm", "multiprocessing")):
    _begin()
