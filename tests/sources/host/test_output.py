"""A process that is blocked on its output, on this machine's own kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.sources.host import output
from vllm_doctor.sources.host.kernel import Kernel

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's files are Linux's")
HERE = Kernel()


@pytest.fixture
def writer() -> Iterator[subprocess.Popen[bytes]]:
    """It writes, and the test, which has the other end, does not read."""
    with subprocess.Popen(["sh", "-c", "while :; do echo a line of a log; done"], stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def until(is_so: Callable[[], object]) -> None:
    for _ in range(1000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_a_pipe_that_nobody_reads(writer: subprocess.Popen[bytes]) -> None:
    until(lambda: output.stuck(HERE, writer.pid, [writer.pid]))
    [stuck] = output.stuck(HERE, writer.pid, [writer.pid])
    assert (stuck.pid, stuck.thread) == (writer.pid, writer.pid)
    assert stuck.target.startswith("pipe:[")
    [(name, (used, size))] = output.pipes(HERE, [writer.pid]).items()
    assert name == stuck.target
    assert size * 0.9 < used <= size
    assert output.described(name, (used, size)) == f"a pipe with {used:,} of {size:,} bytes in it"


def test_nothing_is_taken_out_of_it(writer: subprocess.Popen[bytes]) -> None:
    until(lambda: output.stuck(HERE, writer.pid, [writer.pid]))
    before = output.pipes(HERE, [writer.pid])
    assert output.pipes(HERE, [writer.pid]) == before
    assert writer.stdout is not None
    assert writer.stdout.read(14) == b"a line of a lo"


def test_who_reads_it(writer: subprocess.Popen[bytes]) -> None:
    [target] = output.pipes(HERE, [writer.pid])
    reader = output.reader(HERE, target, {writer.pid})
    assert reader is not None
    assert (reader.pid, reader.state) == (os.getpid(), "")
    assert f"(pid {os.getpid()})" in str(reader)
    assert output.reader(HERE, target, {writer.pid, os.getpid()}) is None


def test_a_reader_that_is_stopped() -> None:
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE) as sleeper:
        try:
            os.kill(sleeper.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
            target = HERE.link(f"proc/{sleeper.pid}/fd/0")
            assert isinstance(target, str)
            reader = output.reader(HERE, target, ())
            assert reader is not None
            assert reader.is_stopped
            assert str(reader) == f"sleep (pid {sleeper.pid}, stopped)"
        finally:
            sleeper.kill()


def test_a_process_that_sleeps_is_not_stuck() -> None:
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as sleeper:
        try:
            until(lambda: "nanosleep" in str(HERE.text(f"proc/{sleeper.pid}/wchan")))
            assert output.stuck(HERE, sleeper.pid, [sleeper.pid]) == []
        finally:
            sleeper.kill()


def test_an_output_that_is_a_file_or_nothing_is_not_looked_at(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(7, ["vllm"])
    proc.link("proc/7/fd/1", "/var/log/vllm.log")
    proc.link("proc/7/fd/2", "/dev/null")
    proc.write("proc/7/task/7/syscall", "1 0x1 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n")
    assert output.stuck(proc.kernel(), 7, [7]) == []
    assert output.pipes(proc.kernel(), [7]) == {}


def test_a_kernel_that_shows_no_calls(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(7, ["vllm"])
    proc.link("proc/7/fd/1", "pipe:[4242]")
    proc.write("proc/7/task/7/wchan", "anon_pipe_write")
    assert output.stuck(proc.kernel(), 7, [7]) == [output.Stuck(7, 7, "pipe:[4242]")]


@pytest.mark.parametrize("call", ["running", "1 0x9 0x0", "0 0x1 0x0", "1 x", "", "99999999999999999999 0x1"])
def test_calls_that_are_no_write_to_the_output(tmp_path: Path, call: str) -> None:
    proc = FakeProc(tmp_path)
    proc.add(7, ["vllm"])
    proc.link("proc/7/fd/1", "pipe:[4242]")
    proc.link("proc/7/fd/9", "pipe:[777]")
    proc.write("proc/7/task/7/syscall", call)
    assert output.stuck(proc.kernel(), 7, [7]) == []


def test_a_terminal_says_how_it_is_let_go() -> None:
    assert "Ctrl-Q" in output.described("/dev/pts/3", None)
