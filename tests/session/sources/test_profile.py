"""The processes of a server as a source: sampled once, or each minute where they are watched."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import profile
from vllm_doctor.sources.host.process import Member, ServerProcess
from vllm_doctor.sources.profile import profiler, py_spy, stacks
from vllm_doctor.sources.profile.profiler import How
from vllm_doctor.sources.profile.py_spy import Sampled
from vllm_doctor.sources.server.access import Access

STACKS = Path(__file__).parents[2] / "sources/profile/worker.stacks"
SERVER = ServerProcess(root=13, members=(Member(13, "worker", "x", 1),), version="0.32.0")


@pytest.fixture
def deadlines(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By when each sampling was to be done."""
    asked: list[float] = []

    def sample(kernel: object, pid: int, seconds: float, rate: int, native: bool, deadline: float) -> Sampled:
        asked.append(deadline)
        return Sampled(stacks.parse(STACKS.read_bytes()))

    monkeypatch.setattr(py_spy, "sample", sample)
    monkeypatch.setattr(py_spy, "program", lambda: "py-spy")
    monkeypatch.setattr(profiler, "_cpu", lambda *_: {})
    return asked


def source(deadline: float) -> Source:
    return profile.of_server(SERVER, How(1.0), Attachment(frozenset(), Access({}), 1.0, deadline), "x")


def test_once_it_is_done_by_the_end_of_the_examination(deadlines: list[float]) -> None:
    seen = source(1e8).look()
    assert seen.kind is SourceKind.PROFILE
    assert deadlines == [1e8]
    assert seen.profile is not None
    assert seen.profile.stacks[13]
    assert seen.profile.flames[13].boxes


def test_watched_it_is_sampled_anew_with_time_of_its_own(deadlines: list[float]) -> None:
    follow = source(0.0).follow  # the watch goes on for longer than any deadline
    assert follow is not None
    feed = follow()
    first, second = feed.look(30.0), feed.look(30.0)
    assert feed.every == profile.EVERY
    assert len(deadlines) == 2
    assert min(deadlines) > 0.0
    assert first.facts == second.facts
    assert second.profile is not None
    assert second.profile.processes[0].main is not None


def test_no_terminal_draws_stacks(deadlines: list[float]) -> None:
    follow = source(0.0).follow
    assert follow is not None
    seen = follow().look(30.0).profile
    assert seen is not None
    assert not seen.flames
    assert not seen.stacks


def test_without_py_spy_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "program", lambda: None)
    error = source(0.0).look().error
    assert error is not None
    assert "pip install" in error.message
