"""Where the server's time goes, on the first screen: where it was asked for."""

from __future__ import annotations

from pathlib import Path

from tests.tui.showing import screen, watched
from tests.tui.watching import TARGET, Pages, Told
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.profile import Profile
from vllm_doctor.rules import parts
from vllm_doctor.session.source import Source
from vllm_doctor.sources.profile import facts, profiler, stacks
from vllm_doctor.sources.profile.py_spy import Sampled

STACKS = Path(__file__).parents[1] / "sources/profile/engine-core.stacks"


def profiled() -> Source:
    known = parts.load()
    process = profiler.of_process("engine-core", 11, Sampled(stacks.parse(STACKS.read_bytes())), known, None, 10.0)
    seen = Profile(10.0, 20, (process,), says={part.id: part.says for part in known.parts})
    told = Observation(
        SourceKind.PROFILE, "profile of pid 11", facts=facts.of(seen, known.parts), patient=TARGET, profile=seen
    )
    return Source(SourceKind.PROFILE, told.target, TARGET, lambda: told, follow=lambda: Told(told, 60.0))


def test_a_bar_stands_below_the_findings() -> None:
    shown = screen(watched(Pages("healthy-busy"), profiled(), seconds=8), size=(100, 45))
    assert "engine core (pid 11), main thread: busy 8.3 % of the time" in shown
    assert "█ waiting for the device 90 %" in " ".join(shown.split())


def test_without_it_nothing_is_said_of_it() -> None:
    assert "Profile" not in screen(watched(Pages("healthy-busy"), seconds=8), size=(100, 45))
