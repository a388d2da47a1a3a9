"""Durations as people and Prometheus write them."""

from __future__ import annotations

import pytest

from vllm_doctor.text import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3", 3),
        ("0", 0),
        ("3s", 3),
        ("50ms", 0.05),
        ("2m", 120),
        ("2 min", 120),
        ("1.5h", 5400),
        (".5h", 1800),
        ("1d", 86400),
    ],
)
def test_what_is_a_duration(text: str, seconds: float) -> None:
    assert durations.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-3", "+3", "nan", "inf", "1e9", "3 weeks", "1_0", "3s4", "٣", "9" * 400])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        durations.parse(text)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (45, "45 s"),
        (119, "119 s"),
        (120, "2 min"),
        (719, "12 min"),
        (7199, "2 h"),
        (26400, "7 h 20"),
        (47 * 3600 + 3599, "2 d"),
        (76 * 3600, "3 d 4 h"),
    ],
)
def test_a_duration_for_people(seconds: float, said: str) -> None:
    assert durations.duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "text"), [(300, "5m"), (90, "90s"), (3600, "1h"), (0, "0s"), (0.5, "500ms"), (1.5, "1500ms")]
)
def test_a_duration_as_prometheus_writes_it(seconds: float, text: str) -> None:
    assert durations.promql(seconds) == text
