"""Where the time goes, in a report: bars and words in short and in whole."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.render.reports import unreachable
from vllm_doctor.model.profile import IDLE, Flame, ProcessProfile, Profile, ThreadProfile
from vllm_doctor.model.report import Problem
from vllm_doctor.render import markdown
from vllm_doctor.render.columns import lay
from vllm_doctor.render.page import Table, plain
from vllm_doctor.render.parts import profile

SAYS = {"http": "HTTP and streaming", "logging": "logging", "device-wait": "waiting for the device", IDLE: "idle"}
NOTHING_READ = Problem("denied", "this container lacks SYS_PTRACE: start it with --cap-add SYS_PTRACE")


def thread(name: str = "MainThread", **shares: float) -> ThreadProfile:
    return ThreadProfile(name, 1, 200, {part.replace("_", "-"): share for part, share in shares.items()}, None)


def process(role: str, pid: int, *threads: ThreadProfile, problem: Problem | None = None) -> ProcessProfile:
    return ProcessProfile(role, pid, threads, samples=200, problem=problem)


def seen(*processes: ProcessProfile) -> Profile:
    return Profile(10.0, 20, processes, says=SAYS)


def lines(of: Profile, width: int = 80) -> list[str]:
    report = replace(unreachable(), profiles={"profile of pid 12": of})
    return ["".join(piece.text for piece in line) for line in lay(profile.profile(report, whole=False), width)]


def rows(of: Profile) -> list[tuple[str, ...]]:
    [labelled] = profile.profile(replace(unreachable(), profiles={"profile of pid 12": of}), whole=True)
    [table] = labelled.body
    assert isinstance(table, Table)
    return [tuple(map(plain, row)) for row in table.rows] + [(plain(note),) for note in table.notes]


def test_without_a_profile_there_is_nothing() -> None:
    assert profile.profile(unreachable(), whole=True) == ()


def test_a_bar_has_the_parts_as_they_are_named_behind_it() -> None:
    said = lines(seen(process("api-server", 12, thread(http=0.5, logging=0.25, idle=0.25))))
    bar = said.index(" " * 14 + "█" * 20 + "▓" * 10 + "░" * 10)
    assert said[bar - 1].strip() == "API server (pid 12), main thread: busy 75 % of the time"
    assert said[bar + 1].strip() == "█ HTTP and streaming 50 %, ▓ logging 25 %, ░ idle 25 %"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_keeps_to_the_width(width: int) -> None:
    of = seen(process("api-server", 12, thread(http=0.3, logging=0.3, device_wait=0.3, idle=0.1), thread("x" * 90)))
    assert max(map(len, lines(of, width))) <= width


def test_in_short_the_busiest_of_each_kind_stands_for_it() -> None:
    of = seen(
        process("worker", 1, thread(http=0.1)),
        process("worker", 2, thread(http=0.4)),
        process("worker", 3, thread(http=0.2)),
    )
    said = " ".join(" ".join(lines(of)).split())
    assert "worker (pid 2)" in said
    assert "worker (pid 1)" not in said
    assert "2 more workers: main thread busy 10 % to 20 % of the time" in said
    assert [row[0].split(",")[0] for row in rows(of)] == ["worker (pid 1)", "worker (pid 2)", "worker (pid 3)"]


def test_other_threads_are_shown_where_they_work() -> None:
    of = seen(process("api-server", 12, thread(idle=1.0), thread("pool_0", http=0.5), thread("pool_1", idle=1.0)))
    said = " ".join(lines(of))
    assert "thread pool_0: busy 50 %" in said
    assert "pool_1" not in said


def test_those_that_could_not_be_looked_into_are_one_line() -> None:
    of = seen(
        process("engine-core", 9, thread(http=1.0)), *(process("worker", n, problem=NOTHING_READ) for n in (1, 2))
    )
    said = " ".join(" ".join(lines(of)).split())
    assert "worker (pid 1) and 1 more: this container lacks SYS_PTRACE" in said
    assert "2 of 3 processes could not be sampled." in said


def test_what_no_entry_describes_is_told_with_its_frames() -> None:
    strange = replace(thread(other=0.4, idle=0.6), unassigned=(("strange (mine.py) < <module> (a.py)", 0.4),))
    assert "not assigned: 40 % strange (mine.py)" in " ".join(
        " ".join(lines(seen(process("worker", 1, strange)))).split()
    )
    assert rows(seen(process("worker", 1, strange)))[-1][0].startswith("not assigned in the main thread of the worker")


def test_an_idle_server_says_that_nothing_follows() -> None:
    assert "The server was idle" in " ".join(" ".join(lines(seen(process("worker", 1, thread(idle=1.0))))).split())


def test_names_from_outside_take_no_effect_in_markdown() -> None:
    of = seen(process("worker", 1, replace(thread("T|`<b>", http=0.5), unassigned=(("a|b`<i> (x.py)", 0.5),))))
    said = markdown.paint((*profile.profile(replace(unreachable(), profiles={"x": of}), whole=True),))
    table = [line for line in said.splitlines() if line.startswith("| worker")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 4 for line in table)
    assert "<b>" not in re.sub(r"`+[^`]*`+", "", said).replace(r"\<b>", "")


def test_flame_graphs_of_the_busiest_are_open() -> None:
    of = seen(process("worker", 1, thread(http=0.1)), process("worker", 2, thread(http=0.4)))
    graphs = profile.flames(replace(of, flames={1: Flame(200, (), 3, 0), 2: Flame(200, (), 0, 4)}))
    assert [graph.is_open for graph in graphs] == [False, True]
    assert "3 calls that took too little" in graphs[0].note
    assert "4 samples go deeper" in graphs[1].note
