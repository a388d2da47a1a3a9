"""The trends of the vital signs: what is kept of each moment, and for how long."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.making import shipped_catalogue
from tests.paths import FIXTURES
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reason import Reason
from vllm_doctor.recording import bundle
from vllm_doctor.session import tracks
from vllm_doctor.session.tracks import Tracks

CATALOGUE = shipped_catalogue()


def seen(name: str) -> Observation:
    found = bundle.read(FIXTURES / name).server.observation(CATALOGUE.metrics)
    return replace(found, recent=found.window)


def test_a_moment_is_kept_of_every_track() -> None:
    kept = Tracks(CATALOGUE)
    assert kept.add(1.0, [seen("preemption")])
    trend = kept.trend
    assert list(trend.times) == [1.0]
    assert trend.values["kv_cache_usage"][0] > 0.8
    assert set(trend.values) == set(tracks.TRACKS)


def test_engines_of_several_servers_add_up() -> None:
    one, two = Tracks(CATALOGUE), Tracks(CATALOGUE)
    sick = seen("preemption")
    one.add(1.0, [sick])
    two.add(1.0, [sick, replace(sick, target="another", patient="another")])
    assert two.trend.values["requests_running"][0] == 2 * one.trend.values["requests_running"][0]
    assert two.trend.values["kv_cache_usage"][0] == one.trend.values["kv_cache_usage"][0]


def test_what_is_not_known_is_no_number_and_has_its_reason() -> None:
    kept = Tracks(CATALOGUE)
    kept.add(1.0, [seen("no-log-stats")])
    assert math.isnan(kept.trend.values["requests_running"][0])
    assert isinstance(kept.lacking["requests_running"], Reason)


def test_nothing_seen_is_no_moment() -> None:
    kept = Tracks(CATALOGUE)
    assert not kept.add(1.0, [])
    assert list(kept.trend.times) == []


def test_a_gap_ends_a_course_and_a_clock_that_steps_back_adds_none() -> None:
    kept = Tracks(CATALOGUE)
    kept.gap(0.5)
    kept.add(1.0, [seen("idle")])
    kept.gap(0.5)
    assert not kept.add(0.9, [seen("idle")])
    assert list(kept.trend.times) == pytest.approx([1.0, 1.001])
    assert math.isnan(kept.trend.values["requests_running"][1])


def test_only_the_last_hour_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracks, "_KEPT", 3)
    kept = Tracks(CATALOGUE)
    idle = seen("idle")
    for at in range(20):
        kept.add(float(at), [idle])
    assert list(kept.trend.times) == [17.0, 18.0, 19.0]
    assert {len(values) for values in kept.trend.values.values()} == {3}
