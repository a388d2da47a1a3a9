from __future__ import annotations

import pytest

from tests.making import window
from vllm_doctor.window import Window, increase


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        pytest.param([], 0, id="no-point"),
        pytest.param([7], 0, id="one-point"),
        pytest.param([3, 5, 9], 6, id="grows"),
        pytest.param([4, 4], 0, id="stands-still"),
        pytest.param([100, 120, 5, 8], 28, id="restart-counts-from-zero"),
        pytest.param([100, 0, 3], 3, id="restart-seen-at-zero"),
    ],
)
def test_increase_survives_a_counter_reset(values: list[float], grown: float) -> None:
    assert increase([(float(at), value) for at, value in enumerate(values)]) == grown


def test_an_empty_window_knows_nothing_and_does_not_fail() -> None:
    empty = Window()
    assert empty.seconds == 0
    assert empty.latest("a") == {}
    assert empty.vanished("a") == []
    assert empty.series("a") == {}


def test_latest_is_of_the_last_scrape_and_vanished_is_the_rest() -> None:
    seen = window('a{x="1"} 1\na{x="2"} 2', 'a{x="2"} 3')
    assert seen.latest("a") == {(("x", "2"),): 3}
    assert seen.vanished("a") == [(("x", "1"),)]
    assert seen.seconds == 2


def test_a_series_that_stands_twice_on_a_page_counts_once_with_its_last_value() -> None:
    assert window("a 1\na 5", "a 6").series("a") == {(): [(100.0, 5.0), (102.0, 6.0)]}
