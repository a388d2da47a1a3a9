"""Scrapes of hours, as a recording keeps them: the same load, early and late."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.day import Day
from vllm_doctor.model import drift
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.server import past, scrapes
from vllm_doctor.sources.server.exposition import parse
from vllm_doctor.sources.server.scrapes import Scrape

HOURS = 2


def told(day: Day, more: str = "") -> dict[str, Reading]:
    """Of each pair of scrapes ten seconds apart."""
    taken = list(scraped(day, more))
    return past.facts(pairwise(taken))


def scraped(day: Day, more: str) -> Iterator[Scrape]:
    for at, text in day.pages():
        page = parse(text + more, past.WANTED | {scrapes.START_TIME})
        yield Scrape(at, page, scrapes.started(page), None)


def hours(**how: object) -> Day:
    return Day(7200.0, **{"seconds": 7200, "every": 10, "swing": 0, "batch": lambda hour: 12, **how})  # type: ignore[arg-type]


def test_a_load_that_gets_slower_drifts() -> None:
    found = told(hours(slow=lambda hour: 1 + hour / 2, leak=1e4))
    values = {name: reading.value for name, reading in found.items() if isinstance(reading, Known)}
    assert values["decode_drift"] == pytest.approx(11 / 7, rel=0.03)
    assert values["decode_early"] == pytest.approx(0.016 * 7 / 6, rel=0.03)
    assert values["decode_drift_seconds"] == pytest.approx(4800, rel=0.05)
    assert values["decode_drift_batch"] == 12
    assert float(values["memory_late"]) - float(values["memory_early"]) == pytest.approx(
        1e4 * float(values["requests_between"]), rel=0.01
    )


def test_the_same_speed_is_none() -> None:
    found = told(hours())["decode_drift"]
    assert isinstance(found, Known)
    assert found.value == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("is_one", [True, False])
def test_what_was_before_the_last_start_is_not_compared(is_one: bool) -> None:
    day = hours(slow=lambda hour: 1 if hour < 1 else 2, starts=(1,), is_one=is_one)
    found = told(day)
    values = {name: reading.value for name, reading in found.items() if isinstance(reading, Known)}
    assert values["decode_early"] == pytest.approx(0.032, rel=0.03)
    assert values["decode_drift"] == pytest.approx(1, abs=0.02)


def test_of_several_engines_nothing_is_told() -> None:
    another = 'vllm:num_requests_running{engine="1",model_name="m"} 3.0\n'
    assert told(hours(slow=lambda hour: 1 + hour / 2), another) == drift.UNTOLD


def test_prompts_from_the_cache_are_no_work() -> None:
    """From 0.16 on the counters tell which were computed."""
    day = hours(prompts=30)
    assert told(day) == drift.UNTOLD
    computed = 'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 70.0\n'
    assert isinstance(told(day, computed)["decode_drift"], Known)


def test_a_page_without_its_figures_is_no_moment() -> None:
    assert past.facts([]) == drift.UNTOLD
    empty = Scrape(0.0, parse("vllm:num_requests_running 1\n", past.WANTED), 0.0, None)
    assert past.facts([(empty, empty)]) == drift.UNTOLD
