from __future__ import annotations

import pytest

from vllm_doctor.model.reading import Known
from vllm_doctor.model.restarts import MEMORY, Starts


def seen(*looks: tuple[float, float], now: float | None = None) -> dict[str, float]:
    """What a server tells that was asked at these times, and said that it was started then."""
    starts = Starts()
    for at, started in looks:
        starts.add(at, started)
    told = starts.facts(looks[-1][0] if now is None else now, "metrics")
    return {name: float(reading.value) for name, reading in told.items() if isinstance(reading, Known)}


def test_a_crash_loop() -> None:
    assert seen((0, 1000), (60, 1060), (90, 1060), (120, 1120), (180, 1180)) == {
        "restarts": 3, "restart_interval": 60, "lived_before_restart": 60,
    }  # fmt: skip


def test_one_restart_has_no_interval() -> None:
    assert seen((0, 1000), (60, 1500)) == {"restarts": 1, "lived_before_restart": 500}


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param(((0, 1000), (60, 1000)), id="none"),
        pytest.param(((0, 0.0), (60, 1060), (120, 0.0)), id="it does not say"),
        pytest.param(((0, 1000), (1, 900), (2, 1000), (3, 900)), id="servers in turns"),
    ],
)
def test_nothing_is_told_where_no_restart_is_known(looks: tuple[tuple[float, float], ...]) -> None:
    assert seen(*looks) == {}


def test_an_hour_later_it_is_forgotten() -> None:
    assert seen((0, 1000), (60, 1060), now=60 + MEMORY) == {}
