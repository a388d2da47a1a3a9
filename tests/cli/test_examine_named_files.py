"""Whatever an option or a word names: nothing is waited for, and what cannot be read is one line."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, doctor, one_line
from tests.paths import FIXTURES, ROOT

__all__ = ["doctor"]

GPUS = ROOT / "tests/data/nvidia_smi/h100-driver-550.xml"
COMMAND = ("--command", "vllm serve m")
WAYS = {
    "a command": ("--command", "{}"),
    "a log": ("{}",),
    "GPUs": ("--nvidia-smi", "{}"),
    "before": ("compare", "{}", "{}"),
}


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture
def open_pipe() -> Iterator[int]:
    """A pipe of the shell's into which nothing is written."""
    read, write = os.pipe()
    yield read
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_named_pipe_is_refused_at_once(way: tuple[str, ...], pipe: Path, doctor: Doctor) -> None:
    assert "a named pipe, which may have no writer" in one_line(doctor(*(word.format(pipe) for word in way)))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="needs root, on Linux")
def test_a_link_to_the_log_of_the_kernel_is_refused_at_once(
    way: tuple[str, ...], tmp_path: Path, doctor: Doctor
) -> None:
    (tmp_path / "link").symlink_to("/proc/kmsg")
    assert "a file of the kernel" in one_line(doctor(*(word.format(tmp_path / "link") for word in way)))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_device_is_refused_at_once(way: tuple[str, ...], doctor: Doctor) -> None:
    assert "a device or a socket" in one_line(doctor(*(word.format("/dev/zero") for word in way)))


def test_a_named_pipe_among_rules_is_refused_at_once(tmp_path: Path, doctor: Doctor) -> None:
    os.mkfifo(tmp_path / "x.yaml")
    assert "x.yaml: cannot be read: a named pipe" in one_line(doctor(*COMMAND, "--rules", tmp_path))


def test_a_command_that_never_comes_is_waited_for_until_the_time_is_up(open_pipe: int, doctor: Doctor) -> None:
    began = time.monotonic()
    ran = doctor("--command", f"/dev/fd/{open_pipe}", "--timeout", "0.2")
    assert "it did not end in time: raise --timeout" in one_line(ran)
    assert time.monotonic() - began >= 0.2


def test_so_is_one_on_standard_input(open_pipe: int, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    with os.fdopen(os.dup(open_pipe)) as given:
        monkeypatch.setattr(sys, "stdin", given)
        assert "standard input: it did not end in time" in one_line(doctor("--command", "-", "--timeout", "0.2"))


def test_gpus_may_come_from_a_pipe_of_the_shell(doctor: Doctor) -> None:
    """The file of --nvidia-smi is read twice, and a pipe gives it once."""
    read, write = os.pipe()
    os.write(write, b"GPU 0: NVIDIA A10G (UUID: GPU-4e6ee2a4-1c5b-4c35-8c6c-8f9b0f0f0f0f)\n")
    os.close(write)
    ran = doctor(*COMMAND, "--nvidia-smi", f"/dev/fd/{read}", "--json")
    os.close(read)
    assert ran.report["patient"]["gpu"] == "NVIDIA A10G"


def test_gpus_in_a_file_are_those_of_a_recording_that_has_none(doctor: Doctor) -> None:
    ran = doctor(str(FIXTURES / "preemption"), "--nvidia-smi", str(GPUS), "--json")
    assert ran.report["patient"]["gpu"] == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("names", "why"),
    [(["data-parallel"], "what its server has is known"), (["preemption", "idle"], "several servers are examined")],
)
def test_gpus_in_a_file_that_are_nobodys_are_said_not_to_be_used(names: list[str], why: str, doctor: Doctor) -> None:
    ran = doctor(*(str(FIXTURES / name) for name in names), "--nvidia-smi", str(GPUS), "--json")
    (said,) = [note for source in ran.report["sources"] if source["kind"] == "gpu" for note in source["notes"]]
    assert "is not used" in said
    assert why in said
