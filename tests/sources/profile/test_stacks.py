"""Collapsed stacks: read as py-spy writes them, bounded and clean whatever they hold."""

from __future__ import annotations

import time

import pytest

from vllm_doctor.model.profile import Frame
from vllm_doctor.sources.profile import stacks


def test_a_line_is_a_thread_its_frames_and_a_count() -> None:
    [stack] = stacks.parse(b"thread (17): MainThread;<module> (app.py);Queue.get (queue.py:171) 42\n").found
    assert (stack.thread, stack.number, stack.count) == ("MainThread", 17, 42)
    assert stack.frames == (Frame("<module>", "app.py"), Frame("Queue.get", "queue.py"))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/usr/lib/python3.12/site-packages/vllm/v1/request.py", "vllm/v1/request.py"),
        ("/usr/local/lib/python3.12/dist-packages/torch/nn/modules/module.py", "torch/nn/modules/module.py"),
        ("/opt/python/lib/python3.12/json/encoder.py", "json/encoder.py"),
        ("/workspace/vllm/vllm/v1/core/sched/scheduler.py", "vllm/v1/core/sched/scheduler.py"),
        ("/home/anna/secret-project/serve.py", "serve.py"),
        ("vllm/v1/request.py", "vllm/v1/request.py"),
        ("threading.py", "threading.py"),
    ],
)
def test_a_path_begins_where_its_module_is_imported_from(path: str, shown: str) -> None:
    [stack] = stacks.parse(f"thread (1): MainThread;run ({path}:3) 1".encode()).found
    assert stack.frames[0].path == shown


def test_what_is_no_stack_is_counted() -> None:
    read = stacks.parse(
        b"\nnonsense\nthread (x): a;b (c.py) 3\nthread (1): a;b (c.py) many\nthread (1): a;b (c.py) 3\n"
    )
    assert (len(read.found), read.strange) == (1, 3)


def test_nothing_that_a_terminal_obeys_is_left() -> None:
    text = "thread (1): \x1b[31mred;evil\x1b]0;title\x07 (a\x9b.py) 3"
    [stack] = stacks.parse(text.encode()).found
    assert (stack.thread + "".join(frame.shown for frame in stack.frames)).isprintable()
    assert "\x1b" not in stacks.collapsed(stacks.parse(text.encode()))


def test_a_huge_file_is_read_in_part() -> None:
    line = b"thread (%d): T;<module> (a.py);" + b";".join(b"f%d (vllm/m%d.py)" % (n, n) for n in range(20)) + b" 1\n"
    data = b"".join(line % number for number in range(1_000_00)) * 10
    began = time.process_time()
    read = stacks.parse(data)
    assert read.is_cut
    assert len(read.found) <= stacks.MAX_LINES
    assert time.process_time() - began < 60  # a bound, not a speed: a test machine may be slow


def test_of_a_deep_recursion_the_end_is_kept() -> None:
    frames = ";".join(f"f{number} (a.py)" for number in range(5000))
    [stack] = stacks.parse(f"thread (1): T;{frames} 1".encode()).found
    assert len(stack.frames) == stacks.MAX_FRAMES
    assert stack.frames[-1].function == "f4999"
