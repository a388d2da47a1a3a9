from __future__ import annotations

import pytest

from tests.making import window
from vllm_doctor.model.window import Window, increase


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


def test_the_oldest_and_the_newest_scrape_can_be_dropped() -> None:
    made = window('a{x="1"} 1\nb 1', 'a{x="1"} 2', 'a{x="1"} 3\nc 1', every=1)
    copied = made.copy()
    made.drop(100.0)
    assert made.times == [101.0, 102.0]
    assert list(made.series("a").values()) == [[(101.0, 2.0), (102.0, 3.0)]]
    assert made.series("b") == {}
    made.drop(102.0)
    assert made.latest("a") == {(("x", "1"),): 2.0}
    assert made.series("c") == {}
    assert copied.times == [100.0, 101.0, 102.0]
    assert copied.latest("a") == {(("x", "1"),): 3.0}
