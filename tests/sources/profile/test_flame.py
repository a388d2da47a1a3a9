"""Flame graphs: where each call stands, and what is drawn of too many of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_doctor.model.profile import Box, Flame
from vllm_doctor.rules import parts
from vllm_doctor.sources.profile import flame, profiler, stacks
from vllm_doctor.sources.profile.py_spy import Sampled

HERE = Path(__file__).parent
PARTS = parts.load()
MAIN = b"thread (1): MainThread;"


def drawn(text: bytes, cores: dict[int, float] | None = None) -> Flame:
    found = stacks.parse(text)
    process = profiler.of_process("api-server", 1, Sampled(found), PARTS, cores, 10.0)
    return flame.of_process(process, found.found, PARTS)


def box(of: Flame, name: str) -> Box:
    return next(one for one in of.boxes if one.name.startswith(name))


def test_a_call_stands_below_its_caller_and_the_largest_first() -> None:
    found = drawn(MAIN + b"<module> (a.py);small (a.py) 10\n" + MAIN + b"<module> (a.py);large (a.py) 30\n")
    assert found.total == 40
    assert [(one.depth, one.start, one.count, one.name) for one in found.boxes] == [
        (0, 0, 40, "main thread"),
        (1, 0, 40, "<module> (a.py)"),
        (2, 0, 30, "large (a.py)"),
        (2, 30, 10, "small (a.py)"),
    ]


def test_what_a_process_does_itself_is_the_room_below_it() -> None:
    found = drawn(MAIN + b"<module> (a.py) 30\n" + MAIN + b"<module> (a.py);f (a.py) 10\n")
    assert box(found, "<module>").count == 40
    assert box(found, "f ").count == 10


def test_rest_is_one_box_at_the_end_whatever_waits() -> None:
    found = drawn(
        MAIN + b"<module> (a.py);get (queue.py);wait (threading.py) 60\n" + MAIN + b"<module> (a.py);f (a.py) 40\n"
    )
    idle = box(found, "idle")
    assert (idle.depth, idle.start, idle.count) == (1, 40, 60)
    assert not any("wait" in one.name for one in found.boxes)


def test_what_an_event_loop_did_in_c_is_no_rest() -> None:
    text = MAIN + b"<module> (a.py);run (uvloop/__init__.py);Runner.run (asyncio/runners.py) 100\n"
    found = drawn(text, {1: 0.6})
    assert box(found, "an event loop in C").count == 60
    assert box(found, "an event loop in C").part == "http"
    assert box(found, "idle").count == 40


def test_a_call_has_the_part_that_nearly_all_of_it_is() -> None:
    parsers = MAIN + b"<module> (vllm);serve (x.py);parse (vllm/tool_parsers/xlam.py) 50\n"
    logs = MAIN + b"<module> (vllm);serve (x.py);info (logging/__init__.py) 50\n"
    found = drawn(parsers + logs)
    assert box(found, "serve").part == ""
    assert box(found, "parse").part == "parsers"
    assert box(drawn(parsers), "serve").part == "parsers"


def test_threads_that_only_wait_are_not_drawn() -> None:
    waits = b"".join(b"thread (%d): T%d;run (a.py);wait (threading.py) 100\n" % (n, n) for n in range(2, 30))
    found = drawn(MAIN + b"<module> (a.py) 100\n" + waits + b"thread (99): busy;f (a.py) 50\n")
    assert [one.name for one in found.boxes if one.depth == 0] == ["main thread", "thread busy"]


@pytest.mark.parametrize("role", ["api-server", "engine-core", "worker"])
def test_every_call_lies_within_its_caller(role: str) -> None:
    found = drawn((HERE / f"{role}.stacks").read_bytes())
    for one in found.boxes:
        above = [up for up in found.boxes if up.depth == one.depth - 1]
        assert not one.depth or any(
            up.start <= one.start and one.start + one.count <= up.start + up.count for up in above
        )
        beside = [next_to for next_to in found.boxes if next_to.depth == one.depth and next_to is not one]
        assert all(one.start + one.count <= up.start or up.start + up.count <= one.start for up in beside)


def test_the_order_of_the_stacks_does_not_matter() -> None:
    lines = (HERE / "worker.stacks").read_bytes().splitlines(keepends=True)
    assert drawn(b"".join(lines)) == drawn(b"".join(reversed(lines)))


def test_what_is_too_small_is_summed_and_counted() -> None:
    found = drawn(b"".join(MAIN + b"<module> (a.py);f%d (a.py) 3\n" % n for n in range(10_000)))
    assert [one.name for one in found.boxes] == ["main thread", "<module> (a.py)", "10,000 more calls"]
    assert found.summed == 10_000


def test_no_more_boxes_than_can_be_looked_at() -> None:
    def path(leaf: int) -> bytes:
        return b";".join(b"f%s (m.py)" % bin(leaf + 1024)[2 : 3 + depth].encode() for depth in range(11))

    found = drawn(b"".join(MAIN + path(leaf) + b" 9\n" for leaf in range(1024)))
    assert flame.MOST_BOXES <= len(found.boxes) < 2 * flame.MOST_BOXES
    assert found.summed


def test_the_deepest_calls_are_cut_and_counted() -> None:
    deep = b";".join(b"f%d (a.py)" % n for n in range(300))
    found = drawn(MAIN + deep + b" 7\n")
    assert max(one.depth for one in found.boxes) == flame.MOST_CALLS
    assert found.cut == 7


def test_nothing_is_drawn_of_nothing() -> None:
    assert drawn(b"") == Flame(0, ())


def test_many_threads_cost_no_more_than_their_lines() -> None:
    found = drawn(b"".join(b"thread (%d): T%d;f (m.py) 3\n" % (n, n) for n in range(5_000)))
    assert len([one for one in found.boxes if one.depth == 0]) == 6
