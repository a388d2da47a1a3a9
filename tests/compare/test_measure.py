"""What is measured of a server over a time, and its spread."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.making import shipped_catalogue, window
from vllm_doctor.compare import measure
from vllm_doctor.model.errors import DocumentError
from vllm_doctor.model.report import Measure
from vllm_doctor.model.window import Window


def page(tokens: float, running: float = 4.0, waiting: float = 0.0, done: float = 0.0, engine: int = 0) -> str:
    name = f'{{engine="{engine}",model_name="m"}}'
    return "\n".join(
        f"{metric}{name} {value}"
        for metric, value in (
            ("vllm:generation_tokens_total", tokens),
            ("vllm:num_requests_running", running),
            ("vllm:num_requests_waiting", waiting),
            ("vllm:request_success_total", done),
            ("vllm:request_generation_tokens_sum", done * 50),
            ("vllm:request_generation_tokens_count", done),
        )
    )


def measured(seen: Window) -> dict[str, Measure]:
    return {found.name: found for found in measure.measured(seen)}


def test_the_whole_lies_between_its_parts() -> None:
    found = measured(window(page(0), page(20), page(60), page(80)))  # 2 s apart
    tokens = found["tokens_out"]
    assert (tokens.value, tokens.low, tokens.high, tokens.samples) == (80 / 6, 10.0, 20.0, 3)
    assert tokens.deviation == pytest.approx(math.sqrt(100 / 3))


def test_a_long_time_is_cut_into_eight() -> None:
    found = measured(window(*(page(10.0 * n) for n in range(41))))
    assert found["tokens_out"] == Measure("tokens_out", 5.0, 5.0, 5.0, 8, "parts", 0.0)


@pytest.mark.parametrize(("request_seconds", "parts"), [(1.0, 8), (16.0, 5), (30.0, 4)])
def test_a_part_is_as_long_as_a_request_where_four_allow_it(request_seconds: float, parts: int) -> None:
    def after(requests: int) -> str:
        name = '{engine="0",model_name="m"}'
        return page(10.0 * requests, done=requests) + (
            f"\nvllm:e2e_request_latency_seconds_sum{name} {requests * request_seconds}"
            f"\nvllm:e2e_request_latency_seconds_count{name} {requests}"
        )

    assert measured(window(*map(after, range(41))))["tokens_out"].samples == parts  # 80 s


def test_engines_add_up() -> None:
    def both(tokens: float) -> str:
        return page(tokens) + "\n" + page(tokens, engine=1)

    assert measured(window(both(0), both(20)))["tokens_out"].value == 20.0
    assert measured(window(both(0), both(20)))["in_flight"].value == 8.0


def test_who_came_is_who_finished_and_who_is_in_flight_now() -> None:
    found = measured(window(page(0, running=2, done=10), page(9, running=4, waiting=2, done=16)))
    assert found["arrivals"].value == (6 + 4) / 2
    assert found["finished"].value == 6.0
    assert found["output_tokens"].value == 50.0


def test_the_idle_ends_and_the_ramps_are_left_out() -> None:
    idle, after = page(0, running=0), page(220, running=0)
    load = [page(0, running=1), *(page(20.0 * n) for n in range(11)), page(210, running=1)]
    found = measured(window(idle, idle, *load, after, after))
    assert found["tokens_out"] == Measure("tokens_out", 10.0, 10.0, 10.0, 8, "parts", 0.0)
    assert found["in_flight"].value == 4.0


def test_an_idle_server_is_measured_as_such() -> None:
    assert measured(window(page(5, running=0), page(5, running=0), page(5, running=0)))["tokens_out"].value == 0.0


def test_what_is_not_there_is_not_zero() -> None:
    found = measured(window(page(0), page(20)))
    assert not {"ttft", "preemptions", "kv_cache", "prompt_tokens"} & set(found)


def test_one_scrape_measures_nothing() -> None:
    assert measure.measured(window(page(0))) == ()


def test_a_quantile_is_as_good_as_its_bucket() -> None:
    def bucketed(low: float, top: float) -> str:
        return page(0) + "".join(
            f'\nvllm:time_to_first_token_seconds_bucket{{engine="0",le="{le}",model_name="m"}} {count}'
            for le, count in (("1.0", low), ("2.5", top), ("+Inf", top))
        )

    found = measured(window(bucketed(0, 0), bucketed(0, 10)))["ttft_p50"]
    assert (found.low, found.high, found.spread) == (1.0, 2.5, "bucket")


def test_what_is_measured_is_scraped() -> None:
    assert measure.metrics() <= shipped_catalogue().metrics


def test_the_measures_that_decide_say_what_is_better() -> None:
    for definition in measure.definitions().values():
        assert not definition.decides or definition.better
        assert not (definition.load and definition.better)
        assert len(definition.says) <= (20 if definition.unit == "1/s" else 24)


def test_a_wrong_entry_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "measures.yaml"
    path.write_text("measures:\n  x:\n    says: x\n    unit: s\n    promql: rate(\n")
    with pytest.raises(DocumentError, match=rf"{path}:5: "):
        measure.read(path)


def test_a_course_is_from_scrape_to_scrape() -> None:
    found = {trend.name: trend for trend in measure.trends(window(page(0), page(20), page(60)))}
    assert found["tokens_out"].points == ((2.0, 10.0), (4.0, 20.0))
    assert "kv_cache" not in found


def test_a_long_course_is_thinned() -> None:
    trends = measure.trends(window(*(page(float(n)) for n in range(2000))))
    assert all(len(trend.points) <= 241 for trend in trends)
    assert trends[0].points[-1][0] == 2.0 * 1999


def test_the_known_is_finite() -> None:
    """0/0 is nothing, not a number."""
    for found in measured(window(page(0), page(20))).values():
        assert math.isfinite(found.value)
