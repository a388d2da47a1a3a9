"""The sampler: its words, and its own errors in ours. A program in its place says what py-spy says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.profile import py_spy, rights

SAID = {
    "gone": ("Error: Failed to get process executable name. Check that the process is running.", "not-found"),
    "denied": ("Permission Denied: Try running again with elevated permissions by going 'sudo env", "denied"),
    "stranger": ("Error: Failed to find python version from target process", "unreadable"),
    "else": ("Error: a thing that nobody knows \x1b[31m", "unreadable"),
}  # fmt: skip


def root(folder: Path, status: str = "", scope: str | None = None, uid: int = 1000) -> Kernel:
    (folder / "proc/7").mkdir(parents=True)
    (folder / "proc/7/status").write_text(f"Name:\tvllm\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "proc/self").mkdir()
    (folder / "proc/self/status").write_text(f"Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n{status}")
    (folder / "etc").mkdir()
    (folder / "etc/passwd").write_text("vllm:x:990:990::/:/bin/sh\n")
    if scope is not None:
        (folder / "proc/sys/kernel/yama").mkdir(parents=True)
        (folder / "proc/sys/kernel/yama/ptrace_scope").write_text(scope)
    return Kernel(folder)


def sampler(folder: Path, said: str, code: int = 1, stacks: str = "") -> str:
    path = folder / "py-spy"
    (folder / "said").write_text(said)
    (folder / "stacks").write_text(stacks)
    write = f'while [ "$1" != --output ]; do shift; done\ncp {folder}/stacks "$2"\n' if stacks else ""
    path.write_text(f"#!/bin/sh\n{write}cat {folder}/said\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def test_it_never_asks_for_locals_or_stops_a_process() -> None:
    words = py_spy.command("py-spy", 7, 10, 100, False, Path("out"))
    assert not {"--locals", "-l", "--native", "--gil"} & set(words)
    assert "--nonblocking" in words


def test_native_frames_are_for_who_asks() -> None:
    words = py_spy.command("py-spy", 7, 10, 100, True, Path("out"))
    assert "--native" in words
    assert "--nonblocking" not in words


@pytest.mark.parametrize("case", SAID)
def test_its_errors_are_a_line_with_the_way(case: str, tmp_path: Path) -> None:
    said, kind = SAID[case]
    kernel = root(tmp_path, scope="1")
    pid = 8 if case == "gone" else 7
    seen = py_spy.sample(kernel, pid, 1, 100, False, time.monotonic() + 5, sampler(tmp_path, said))
    assert seen.problem is not None
    assert seen.problem.kind == kind
    assert seen.problem.message.isprintable()


def test_stacks_that_were_written_count_though_the_process_ended(tmp_path: Path) -> None:
    said = "py-spy> Stopped sampling because process exited\npy-spy> Wrote raw data. Samples: 104 Errors: 3\n"
    program = sampler(tmp_path, said, 0, "thread (7): MainThread;run (a.py) 52\n")
    seen = py_spy.sample(root(tmp_path), 7, 1, 100, False, time.monotonic() + 5, program)
    assert (seen.problem, seen.errors, len(seen.stacks.found)) == (None, 3, 1)
    assert seen.notes == ("it ended while it was sampled",)


def test_a_sampler_that_hangs_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\ntrap '' INT\nexec sleep 60\n")
    program.chmod(0o755)
    seen = py_spy.sample(root(tmp_path), 7, 1, 100, False, time.monotonic(), str(program))
    assert seen.problem is not None
    assert seen.problem.kind == "timeout"


@pytest.mark.parametrize(
    ("scope", "uid", "environ", "way"),
    [
        ("1", 1000, {}, "ptrace_scope is 1"),
        ("3", 1000, {}, "ptrace_scope is 3"),
        (None, 990, {}, "as that user (sudo -u vllm"),
        (None, 1000, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubectl debug"),
        (None, 1000, {}, "as root"),
    ],
)
def test_the_way_to_the_right_is_exact(
    scope: str | None, uid: int, environ: dict[str, str], way: str, tmp_path: Path
) -> None:
    assert way in rights.way(root(tmp_path, scope=scope, uid=uid), 7, environ)


def test_in_a_container_it_is_a_capability(tmp_path: Path) -> None:
    kernel = root(tmp_path)
    (tmp_path / ".dockerenv").touch()
    assert "--cap-add SYS_PTRACE" in rights.way(kernel, 7, {})


def test_without_py_spy_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "program", lambda: None)
    seen = py_spy.sample(Kernel(), os.getpid(), 1, 100, False, time.monotonic())
    assert seen.problem is not None
    assert "pip install" in seen.problem.message
