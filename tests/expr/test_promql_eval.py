from __future__ import annotations

import math

import pytest

from tests.making import window
from vllm_doctor.expr import promql_eval
from vllm_doctor.expr.promql_eval import Estimate, Expression, PromQLError
from vllm_doctor.model.errors import UsageError


def value(text: str, *pages: str) -> float:
    """The only value that the expression has over these pages."""
    vector, _ = Expression(text).evaluate(window(*pages))
    assert len(vector) == 1, vector
    return next(iter(vector.values()))


def by_x(text: str, *pages: str) -> dict[str, float]:
    """The values by the label x; "" is a value without it."""
    vector, _ = Expression(text).evaluate(window(*pages))
    return {dict(labels).get("x", ""): found for labels, found in vector.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("increase(a[1m])", 10.0),
        ("rate(a[1m])", 2.5),
        ("avg_over_time(a[1m])", 6.0),
        ("min_over_time(a[1m])", 2.0),
        ("max_over_time(a[1m])", 12.0),
        ("count_over_time(a[1m])", 3.0),
        ("changes(a[1m])", 2.0),
        ("resets(a[1m])", 1.0),
        ("quantile_over_time(0.5, a[1m])", 4.0),
        ("quantile_over_time(0.75, a[1m])", 8.0),
    ],
)
def test_a_range_is_the_whole_window_with_its_counter_reset(text: str, expected: float) -> None:
    # 4 -> 12 grew by 8; 2 is what it grew since the restart; in 4 seconds, not extrapolated
    assert value(text, "a 4", "a 12", "a 2") == expected


@pytest.mark.parametrize("text", ["rate(a[1m])", "increase(a[1m])", "changes(a[1m])"])
def test_one_scrape_gives_no_rate_and_the_trace_says_why(text: str) -> None:
    vector, trace = Expression(text).evaluate(window("a 5"))
    assert vector == {}
    assert trace.found_series
    assert trace.lacked_points


def test_a_metric_that_is_not_there_is_not_a_lack_of_points() -> None:
    vector, trace = Expression("rate(a[1m])").evaluate(window("b 5"))
    assert vector == {}
    assert not trace.found_series
    assert not trace.lacked_points


def test_an_instant_selector_leaves_out_a_series_that_vanished_and_a_range_keeps_it() -> None:
    pages = ('a{x="gone"} 1\na{x="here"} 2', 'a{x="here"} 3')
    assert by_x("a", *pages) == {"here": 3}
    assert by_x("max_over_time(a[1m])", *pages) == {"gone": 1, "here": 3}


@pytest.mark.parametrize(
    ("matcher", "chosen"),
    [
        ('{x="ab"}', {"ab"}),
        ('{x!="ab"}', {"abc", "z", ""}),
        ('{x=~"ab.*"}', {"ab", "abc"}),
        ('{x=~"b"}', set()),  # a regex is anchored at its start
        ('{x=~"a"}', set()),  # and at its end
        ('{x!~"ab.*"}', {"z", ""}),
        ('{x=""}', {""}),  # a label that is not there is empty
        ('{x=~"ab.*",x!="abc"}', {"ab"}),
    ],
)
def test_matchers(matcher: str, chosen: set[str]) -> None:
    page = 'a{x="ab"} 1\na{x="abc"} 1\na{x="z"} 1\na 1'
    assert by_x(f"a{matcher}", page).keys() == chosen


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        pytest.param('new{x="1"} 7', {"1": 7}, id="new-name"),
        pytest.param('old{x="1"} 5', {"1": 5}, id="old-name"),
        pytest.param('new{x="1"} 7\nold{x="1"} 5\nold{x="2"} 6', {"1": 7, "2": 6}, id="both: the new one first"),
        pytest.param("other 1", {}, id="neither"),
    ],
)
def test_a_renamed_metric_is_or(page: str, expected: dict[str, float]) -> None:
    expression = Expression("max by (x) (max_over_time(new[1m]) or max_over_time(old[1m]))")
    assert expression.names == ("new", "old")
    assert by_x(expression.text, page) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a and b", {"1": 10}),
        ("a unless b", {"2": 20}),
        ("a or b", {"1": 10, "2": 20, "3": 3}),
        ("a + b", {"1": 11}),  # only where both sides have the labels
        ("a - 1", {"1": 9, "2": 19}),
        ("100 / a", {"1": 10, "2": 5}),
        ("a > 10", {"2": 20}),  # a comparison is a filter: it keeps the left value
        ("a >= 10", {"1": 10, "2": 20}),
        ("a == 10", {"1": 10}),
        ("a != 10", {"2": 20}),
        ("a > b", {"1": 10}),
        ("a < b", {}),
        ("a / (b > 5) or b * 2", {"1": 2, "3": 6}),
        ("2 * 3 + 1", {"": 7}),
    ],
)
def test_operators(text: str, expected: dict[str, float]) -> None:
    assert by_x(text, 'a{x="1"} 10\na{x="2"} 20\nb{x="1"} 1\nb{x="3"} 3') == expected


@pytest.mark.parametrize(
    ("above", "expected"),
    [pytest.param(0, math.nan, id="0/0"), pytest.param(3, math.inf, id="x/0"), pytest.param(-3, -math.inf, id="-x/0")],
)
def test_division_by_zero(above: float, expected: float) -> None:
    assert value("a / b", f"a {above}\nb 0") == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("sum", {"1": 6, "": 5}),
        ("min", {"1": 2, "": 5}),
        ("max", {"1": 4, "": 5}),
        ("avg", {"1": 3, "": 5}),
        ("count", {"1": 2, "": 1}),
    ],
)
def test_aggregation_puts_series_without_the_label_in_a_group_of_their_own(
    operator: str, expected: dict[str, float]
) -> None:
    assert by_x(f"{operator} by (x) (a)", 'a{x="1",y="1"} 2\na{x="1",y="2"} 4\na{y="1"} 5') == expected


def test_aggregation_without_by_is_over_everything() -> None:
    assert by_x("sum(a)", 'a{x="1"} 2\na{x="2"} 4') == {"": 6}


# ---- histograms


def buckets(*counts: tuple[str, float]) -> str:
    """A page with one histogram: upper bounds and cumulative counts."""
    return "\n".join(f'h_bucket{{x="m",le="{bound}"}} {count}' for bound, count in counts)


def quantile(q: float, page: str) -> float:
    return value(f"histogram_quantile({q}, sum by (x, le) (h_bucket))", page)


@pytest.mark.parametrize(
    ("q", "expected", "low", "high"),
    [
        pytest.param(0.5, 1.5, 1, 2, id="interpolated in its bucket"),
        pytest.param(0.9, 3.8, 2, 5, id="the bounds are the bucket's"),
        pytest.param(0.125, 0.5, 0, 1, id="the first bucket starts at 0"),
        pytest.param(0.25, 1.0, 0, 1, id="on a bound it is in the bucket below"),
        pytest.param(1, 5.0, 2, 5, id="the largest is in the last bucket that grew"),
        pytest.param(0, 0.0, 0, 1, id="the smallest"),
    ],
)
def test_a_quantile_and_the_bounds_of_its_bucket(q: float, expected: float, low: float, high: float) -> None:
    found = quantile(q, buckets(("1", 10), ("2", 30), ("5", 40), ("+Inf", 40)))
    assert isinstance(found, Estimate)
    assert found == pytest.approx(expected)
    assert (found.low, found.high) == (low, high)


def test_a_quantile_above_the_last_finite_bound_is_known_only_from_below() -> None:
    found = quantile(0.99, buckets(("1", 10), ("5", 15), ("+Inf", 20)))
    assert isinstance(found, Estimate)
    assert float(found) == 5
    assert (found.low, found.high) == (5, math.inf)


def test_the_smallest_is_in_the_first_bucket_that_holds_anything() -> None:
    found = quantile(0, buckets(("1", 0), ("2", 0), ("5", 10), ("+Inf", 10)))
    assert isinstance(found, Estimate)
    assert (found.low, found.high) == (2, 5)


def test_buckets_that_fall_because_a_scrape_was_torn_are_made_to_rise() -> None:
    found = quantile(0.6, buckets(("1", 10), ("2", 8), ("5", 20), ("+Inf", 20)))
    assert isinstance(found, Estimate)
    assert (found.low, found.high) == (2, 5)
    assert found == pytest.approx(2.6)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(buckets(("1", 0), ("+Inf", 0)), id="empty"),
        pytest.param(buckets(("1", 3), ("2", 4)), id="no +Inf bucket"),
        pytest.param(buckets(("+Inf", 4)), id="only +Inf"),
    ],
)
def test_a_histogram_without_observations_has_no_quantile(page: str) -> None:
    assert math.isnan(quantile(0.5, page))


def test_a_quantile_is_of_what_the_window_saw() -> None:
    before, after = buckets(("1", 100), ("2", 100), ("+Inf", 100)), buckets(("1", 100), ("2", 110), ("+Inf", 110))
    assert value("histogram_quantile(0.5, sum by (x, le) (increase(h_bucket[1m])))", before, after) == 1.5


# ---- what is not in the subset


@pytest.mark.parametrize(
    "text",
    [
        "a + on(x) b",
        "a * ignoring(x) b",
        "a * on(x) group_left b",
        "a and on() b",
        "a > bool 1",
        "a offset 1m",
        "rate(a[1m] offset 1m)",
        "a @ 5",
        "sum without(x) (a)",
        "topk(2, a)",
        "quantile(0.5, a)",
        "absent(a)",
        "label_replace(a, 'b', '$1', 'c', '(.*)')",
        "rate(a[5m:1m])",
        "max_over_time(rate(a[1m])[5m:1m])",
        "histogram_quantile(scalar(a), a)",
        "{__name__=~'a.*'}",
        "irate(a[1m])",
        "-a",
        "a ^ 2",
        "time()",
        "'text'",
        "a[5m]",
        "(a[5m])",
        "rate((a[5m]))",
        "quantile_over_time(2, a[5m])",
        "quantile_over_time(-0.1, a[5m])",
        "quantile_over_time(0.5, (a[5m]))",
        "histogram_quantile(1.1, a)",
        "1 > a",
        "(1) > a",
        "1 == a",
        'a{x="1" or x="2"}',
        'rate(a{x="1" or x="2"}[5m])',
    ],
)
def test_what_the_subset_lacks_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(PromQLError) as refused:
        Expression(text)
    assert len(str(refused.value).splitlines()) == 1


OVERLONG = ["a offset 1e20", "a offset 99999999999999999999", "a offset NaN", "rate(a[1e30])", "a[5m:1e99]"]
"""On these promql_parser panics, which is no Exception of Python's."""


@pytest.mark.parametrize("text", ["", "sum by (", "rate(a)", "a{x=~'('}", "a b", *OVERLONG])
def test_what_is_not_promql_is_refused(text: str) -> None:
    with pytest.raises(PromQLError):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a" * 4001, "longer than 4000 characters", id="long"),
        pytest.param("(" * 100_000, "longer than 4000 characters", id="100,000 parentheses: no crash"),
        pytest.param("(" * 1900 + "a" + ")" * 1900, "nested too deeply", id="1,900 parentheses"),
        pytest.param("+".join(["a"] * 1900), "nested too deeply", id="1,900 sums"),
    ],
)
def test_what_is_too_long_or_too_deep_is_refused(text: str, said: str) -> None:
    with pytest.raises(PromQLError, match=said):
        Expression(text)


def test_a_pattern_of_a_rule_author_cannot_hang_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promql_eval, "_PATTERN_SECONDS", 0.05)
    shown = window(f'x{{a="{"a" * 40}"}} 1')
    assert Expression('x{a=~"a+"}').evaluate(shown)[0]
    with pytest.raises(UsageError, match="simplify it"):
        Expression('x{a=~"(a|aa)+b"}').evaluate(shown)
