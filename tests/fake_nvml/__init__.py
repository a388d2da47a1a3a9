"""A fake GPU host for the tests: a library like NVIDIA's libnvidia-ml.so.1, told by a text what to answer.

In a process of its own, with the real pynvml and no GPU:

    subprocess.run([sys.executable, "-m", "vllm_doctor", url], env=os.environ | environment("throttled"))
    environment("a10g", "gpu/0/Temperature 91")           # first lines win: the A10G, but hot
    environment("no-library")                             # also hides a real driver

In this process, with pytest's monkeypatch (pynvml holds its library in a global):

    host = installed(monkeypatch, "a10g")
    host.becomes("a10g", "gpu/0/lost_after 0")            # while it is watched
    host.calls()                                          # NVML's functions in the order they were called

scenarios.py names the scenarios, nvml.c says how a text is written. Needs a C compiler.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pynvml
import pytest

from tests.fake_nvml.scenarios import SCENARIOS
from tests.programs import needed

NO_LIBRARY = "no-library"
_SOURCE = Path(__file__).with_name("nvml.c")
_NAME = "libnvidia-ml.so.1"
_numbers = itertools.count()


@cache
def _folder() -> Path:
    """Of this test run."""
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def library() -> Path:
    """The fake library, compiled once."""
    compiler = needed("gcc", os.environ.get("CC", "cc"), "gcc", "clang")
    target = _folder() / "driver" / _NAME
    target.parent.mkdir(exist_ok=True)
    command = [compiler, "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-o", str(target), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the fake NVML does not compile:\n{done.stderr}")
    return target


def environment(scenario: str, more: str = "") -> dict[str, str]:
    """Variables that give a process the GPUs of a scenario. `more`: lines that go before the scenario's own."""
    if scenario == NO_LIBRARY:
        folder = _folder() / NO_LIBRARY
        folder.mkdir(exist_ok=True)
        (folder / _NAME).write_text("no library")  # the loader stops at it, also where a real one is installed
        return _searched(folder)
    return _searched(library().parent) | {"FAKE_NVML": str(_written(_new_file(), scenario, more))}


def _searched(folder: Path) -> dict[str, str]:
    others = os.environ.get("LD_LIBRARY_PATH", "")
    return {"LD_LIBRARY_PATH": f"{folder}:{others}" if others else str(folder)}


class Host:
    """The GPUs that this process sees."""

    def __init__(self, path: Path, log: Path) -> None:
        self._path, self._log = path, log

    def becomes(self, scenario: str, more: str = "") -> None:
        """Another host from the next call on."""
        _written(self._path, scenario, more)

    def calls(self) -> list[str]:
        """The functions of NVML that were called up to now."""
        return self._log.read_text().split() if self._log.exists() else []


def installed(monkeypatch: pytest.MonkeyPatch, scenario: str, more: str = "") -> Host:
    """Give this process the GPUs of a scenario, until the test ends."""
    path = _new_file()
    host = Host(_written(path, scenario, more), path.with_suffix(".log"))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library())))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setenv("FAKE_NVML", str(path))
    monkeypatch.setenv("FAKE_NVML_LOG", str(path.with_suffix(".log")))
    return host


def _new_file() -> Path:
    return _folder() / f"{next(_numbers)}.txt"


def _written(path: Path, scenario: str, more: str) -> Path:
    new = path.with_suffix(".new")
    new.write_text(f"{more}\n{SCENARIOS[scenario]}", "utf-8", "surrogateescape")
    new.replace(path)
    return path
