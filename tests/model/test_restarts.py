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
    assert seen((1010, 1000), (1070, 1060), (1100, 1060), (1130, 1120), (1190, 1180)) == {
        "restarts": 3, "restart_interval": 60, "lived_before_restart": 60,
    }  # fmt: skip


def test_one_restart_has_no_interval() -> None:
    assert seen((1100, 1000), (1600, 1500)) == {"restarts": 1, "lived_before_restart": 500}


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param(((1010, 1000), (1070, 1000)), id="none"),
        pytest.param(((1010, 0.0), (1070, 1060), (1130, 0.0)), id="it does not say"),
        pytest.param(((9000, 1000), (9001, 900), (9002, 1000), (9003, 900)), id="servers in turns"),
        pytest.param(((9000, 1000), (9060, 1300)), id="another server, that was there at the last look"),
    ],
)
def test_nothing_is_told_where_no_restart_is_known(looks: tuple[tuple[float, float], ...]) -> None:
    assert seen(*looks) == {}


def test_an_hour_later_it_is_forgotten() -> None:
    assert seen((1010, 1000), (1070, 1060), now=1070 + MEMORY) == {}
