"""PASS only where a server got better under the same load; else FAIL, or why nothing can be concluded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.paths import FIXTURES, ROOT
from vllm_doctor.compare.comparison import Advice, Comparison, Outcome, Result, compared
from vllm_doctor.compare.measure import measured, metrics, window_of
from vllm_doctor.model.report import Measure
from vllm_doctor.model.window import Window
from vllm_doctor.recording import bundle

SPREAD = 0.05


def parts(name: str, value: float, samples: int = 8, spread: float = SPREAD) -> Measure:
    return Measure(name, value, value * (1 - spread), value * (1 + spread), samples, "parts")


USUAL: Mapping[str, float] = {
    "tokens_out": 1000.0, "tokens_in": 500.0, "requests": 5.0, "request_time": 4.0, "ttft": 1.0, "itl": 0.01,
    "waiting": 10.0, "preemptions": 5.0, "in_flight": 24.0, "arrivals": 5.0, "prompt_tokens": 100.0,
    "output_tokens": 200.0,
}  # fmt: skip
FASTER = {"tokens_out": 2000.0, "tokens_in": 1000.0, "requests": 10.0, "arrivals": 10.0, "waiting": 0.0}


def result(changed: Mapping[str, float | None] | None = None, **fields: Any) -> Result:
    """A server that was seen for a minute; a measure that is None was not."""
    values = {**USUAL, **(changed or {})}
    measures = {name: parts(name, value) for name, value in values.items() if value is not None}
    measures["finished"] = Measure("finished", 300.0, 300.0, 300.0, 1, "none")
    told = Result(name="x.json", kind="report", measures=measures, seconds=60.0, model="tiny", vllm="0.32.0")
    return replace(told, **fields)


def outcome(before: Result, after: Result, **how: Any) -> tuple[Outcome, str]:
    found = compared(before, after, **how)
    assert (found.outcome is Outcome.INCONCLUSIVE) == bool(found.reasons)
    return found.outcome, " / ".join(found.reasons)


def inconclusive(before: Result, after: Result, **how: Any) -> str:
    found, why = outcome(before, after, **how)
    assert found is Outcome.INCONCLUSIVE
    return why


def word(found: Comparison, name: str) -> str:
    return next(row.word for row in found.rows if row.name == name)


def test_more_tokens_under_the_same_load_is_a_pass() -> None:
    found = compared(result(), result(FASTER))
    assert (found.outcome, found.outcome.exit_code, found.same_load) == (Outcome.PASS, 0, True)
    assert found.headline == "It got better: generation tokens 1,000/s → 2,000/s (× 2), requests waiting 10 → 0"
    assert [word(found, name) for name in ("tokens_out", "waiting", "itl")] == ["better", "better", "the same"]


def test_less_tokens_under_the_same_load_is_a_fail() -> None:
    found = compared(result(FASTER), result())
    assert (found.outcome, found.outcome.exit_code) == (Outcome.FAIL, 2)
    assert found.headline.startswith("It got worse: generation tokens 2,000/s → 1,000/s (÷ 2)")


def test_a_server_with_itself_is_inconclusive() -> None:
    assert inconclusive(result(), result()).startswith("no difference beyond the spread and 10 %")


@pytest.mark.parametrize(
    ("value", "spread", "judged"), [(1200.0, 0.05, Outcome.PASS), (1200.0, 0.15, None), (1080.0, 0.01, None)]
)
def test_a_difference_counts_beyond_the_spread_and_a_tenth(value: float, spread: float, judged: Outcome | None) -> None:
    before = result({"tokens_in": None, "requests": None})
    after = replace(before, measures={**before.measures, "tokens_out": parts("tokens_out", value, spread=spread)})
    assert outcome(before, after)[0] is (judged or Outcome.INCONCLUSIVE)


def of_parts(name: str, *samples: float) -> Measure:
    return Measure.of(name, sum(samples) / len(samples), samples, "parts")


UNSTEADY = (225.0, 262.0, 241.0, 270.0, 232.0, 258.0, 229.0, 251.0)


@pytest.mark.parametrize(
    ("before", "after", "judged"),
    [
        (UNSTEADY, (268.0, 330.0, 290.0, 310.0, 300.0, 322.0, 265.0, 301.0), Outcome.PASS),  # the ranges overlap
        (UNSTEADY, (210.0, 330.0, 290.0, 345.0, 230.0, 322.0, 235.0, 301.0), None),
        ((100.0,) * 4, (115.0,) * 4, Outcome.PASS),
        ((100.0,) * 4, (105.0,) * 4, None),
        # Ranges of four that part, as those of a server with itself do once in 35 times.
        ((100.0, 90.0, 96.0, 84.0), (118.0, 102.0, 112.0, 101.0), None),
    ],
)
def test_a_difference_counts_that_chance_seldom_makes(
    before: tuple[float, ...], after: tuple[float, ...], judged: Outcome | None
) -> None:
    without = result({"tokens_in": None, "requests": None})
    was, now = (
        replace(without, measures={**without.measures, "tokens_out": of_parts("tokens_out", *samples)})
        for samples in (before, after)
    )
    assert outcome(was, now)[0] is (judged or Outcome.INCONCLUSIVE)


def test_the_swing_of_one_of_them_counts_alone() -> None:
    """Welch's degrees of freedom: of a steady server and one that swings, those of the second."""
    steady, swinging = of_parts("itl", *[0.010] * 30), of_parts("itl", 0.010, 0.014, 0.018, 0.012)
    wide = (
        result(measures={**result().measures, "itl": steady}),
        result(measures={**result().measures, "itl": swinging}),
    )
    assert word(compared(*wide), "itl") == "the same"


def test_a_time_shorter_than_four_requests_is_said_to_be_short() -> None:
    slow = result({"request_time": 20.0, "ttft": 5.0})
    why = inconclusive(replace(slow, seconds=30.0), result({"request_time": 20.0, "ttft": 5.0}))
    assert why.endswith(
        "10 %: sampled were before 30 s of requests that took 20 s and after 60 s of requests that took 20 s; sample"
        " both for --window 100"
    )


def test_few_parts_tell_nothing() -> None:
    after = result()
    few = {name: parts(name, FASTER[name], samples=3) for name in ("tokens_out", "tokens_in", "requests")}
    why = inconclusive(result(), replace(after, measures={**after.measures, **few}))
    assert why == "too few samples to separate a difference of throughput from the spread: sample longer"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"in_flight": 12.0}, "not the same load: concurrent requests 24 → 12"),
        ({"prompt_tokens": 50.0}, "not the same load: tokens per prompt 100 → 50"),
        ({"output_tokens": 100.0}, "not the same load: tokens per answer 200 → 100"),
        ({"in_flight": None}, "whether the load was the same is unknown"),
        ({"output_tokens": None}, "whether the load was the same is unknown"),
    ],
)
def test_another_load_is_inconclusive_and_nothing_is_called_better(changed: dict[str, Any], why: str) -> None:
    found = compared(result(), result({**FASTER, **changed}))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.reasons[0].startswith(why)
    assert not {row.word for row in found.rows} & {"better", "worse"}


def test_fewer_clients_of_a_full_server_look_like_a_cure_and_are_none() -> None:
    """Half of the clients: the server still does what it can, and each waits half as long."""
    halved = result({"in_flight": 12.0, "request_time": 2.0, "ttft": 0.2, "waiting": 0.0})
    assert "--open-loop" in inconclusive(result(), halved)
    assert outcome(result(), halved, open_loop=True)[0] is Outcome.PASS


def test_in_an_open_loop_the_same_rate_is_the_same_load() -> None:
    assert "requests that came 5/s → 10/s" in inconclusive(result(), result(FASTER), open_loop=True)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_idle_server_is_neither_ill_nor_cured(when: str) -> None:
    idle = result(dict.fromkeys(USUAL, 0.0))
    pair = (idle, result()) if when == "before" else (result(), idle)
    assert inconclusive(*pair).startswith(f"{when}, idle: nothing to compare")


def test_a_glance_is_too_little() -> None:
    assert inconclusive(result(), result(FASTER, seconds=3.0)).startswith("after, it was sampled for 3 s only")
    after = result(FASTER)
    few = replace(after, measures={**after.measures, "finished": Measure("finished", 4.0, 4.0, 4.0, 1, "none")})
    assert inconclusive(result(), few).startswith("after, of requests finished 4")
    assert "no rates were measured" in inconclusive(result(), replace(after, measures={}))


def test_what_could_not_be_seen_is_said() -> None:
    assert inconclusive(result(), result(FASTER, lacks=("it refused",))) == "after, it refused"
    assert "model is unknown for one of them" in inconclusive(result(), result(FASTER, model=None))
    client = result(FASTER, kind="bench", seen_by="vllm bench serve")
    assert "by server and the other by vllm bench serve" in inconclusive(result(), client)
    assert "by GuideLLM and the other by vllm bench serve" in inconclusive(replace(client, seen_by="GuideLLM"), client)


def test_the_goal_decides_where_tokens_and_latency_part() -> None:
    after = result({**FASTER, "itl": 0.02, "ttft": 2.0, "request_time": 6.0})
    assert outcome(result(), after)[0] is Outcome.PASS
    assert outcome(result(), after, goal="latency")[0] is Outcome.FAIL


def test_where_the_goals_measures_stay_the_others_decide() -> None:
    assert outcome(result(), result({"ttft": 0.5}))[0] is Outcome.PASS
    parting = result({"ttft": 0.5, "itl": 0.05})
    assert inconclusive(result(), parting) == (
        "mean TTFT got better and mean ITL worse: which of them matters is yours to say; --goal latency decides by"
        " latencies"
    )
    assert "--goal throughput decides" in inconclusive(result(), parting, goal="latency")


def test_what_a_fix_costs_stands_beside_what_it_brings() -> None:
    found = compared(result(), result({**FASTER, "itl": 0.05, "ttft": 0.2}))
    assert found.outcome is Outcome.PASS
    assert found.headline.endswith("mean TTFT 1 s → 200 ms (÷ 5); the price: mean ITL 10 ms → 50 ms (× 5)")


def test_a_before_that_is_of_after_is_told() -> None:
    morning, noon = (result(at=f"2026-11-26T{hour}:00:00Z") for hour in ("08", "12"))
    faster = replace(result(FASTER), at=morning.at)
    assert compared(noon, faster).headline.endswith(
        " (BEFORE was examined after AFTER, 2026-11-26T12:00:00Z and 2026-11-26T08:00:00Z: swapped?)"
    )
    assert "swapped" not in compared(morning, replace(faster, at=noon.at)).headline


@pytest.mark.parametrize(
    ("answer", "done", "hint"),
    [
        (170.0, 16.0, " (before of 16 requests: means of few vary; sample both for --window 190)"),
        (170.0, 300.0, ""),
        (60.0, 16.0, ""),  # no chance makes that
    ],
)
def test_means_of_few_requests_are_told(answer: float, done: float, hint: str) -> None:
    before = result()
    few = Measure("finished", done, done, done, 1, "none")
    why = inconclusive(
        replace(before, measures={**before.measures, "finished": few}), result({**FASTER, "output_tokens": answer})
    )
    assert why == f"not the same load: tokens per answer 200 → {answer:g}{hint}"


def test_faster_with_a_new_critical_finding_is_no_pass() -> None:
    assert "engine-died" in inconclusive(result(), result(FASTER, found={"engine-died": "critical"}))
    assert outcome(result(), result(FASTER, found={"no-prefix-caching": "warning"}))[0] is Outcome.PASS


def test_faster_by_refusing_is_no_pass() -> None:
    after = result(FASTER)
    failing = replace(after, measures={**after.measures, "given_up": Measure("given_up", 0.2, 0.2, 0.2, 1, "none")})
    assert "20 % of the requests failed or were given up" in inconclusive(result(), failing)


def test_it_says_which_changes_were_the_doctors() -> None:
    advice = (
        Advice("--max-num-seqs", 64.0, "max-num-seqs-cap"),
        Advice("--enforce-eager", None, "enforce-eager"),
        Advice("--num-gpu-blocks-override", None, "preemption", first=False),
    )
    before = result(flags={"--max-num-seqs": 2.0, "--enforce-eager": True, "--port": 80.0}, advice=advice)
    found = compared(before, result(FASTER, flags={"--max-num-seqs": 64, "--enforce-eager": True, "--port": 81.0}))
    assert found.headline.startswith("The fix worked")
    assert found.changes is not None
    assert [(c.name, c.was, c.now, c.advised, c.rule) for c in found.changes] == [
        ("--max-num-seqs", 2.0, 64, "yes", "max-num-seqs-cap"),
        ("--port", 80.0, 81.0, "no", None),
    ]
    assert [a.name for a in found.not_done] == ["--enforce-eager"]


def test_another_value_than_advised_is_said_so() -> None:
    before = result(flags={"--max-num-seqs": 2.0}, advice=(Advice("--max-num-seqs", 64.0, "cap"),))
    found = compared(before, result(FASTER, flags={"--max-num-seqs": 32.0}))
    assert [change.advised for change in found.changes or ()] == ["another value"]
    assert found.headline.startswith("It got better")


def test_flags_that_were_not_seen_are_not_unchanged() -> None:
    assert compared(result(flags={}), result()).changes is None


def test_findings_come_and_go() -> None:
    found = compared(result(found={"a": "critical", "b": "warning"}), result(found={"b": "warning", "c": "warning"}))
    assert (found.gone, found.stayed, found.new) == (("a",), ("b",), ("c",))


def test_another_version_is_noted() -> None:
    assert compared(result(), result(vllm="0.33.0")).notes == ("vLLM: 0.32.0 → 0.33.0",)


def test_buckets_differ_where_they_do_not_overlap() -> None:
    def with_bucket(low: float, high: float) -> Result:
        one = result()
        return replace(one, measures={**one.measures, "ttft_p99": Measure("ttft_p99", high, low, high, 1, "bucket")})

    wide = with_bucket(2.5, 5.0)
    assert word(compared(wide, with_bucket(0.25, 0.5)), "ttft_p99") == "better"
    assert word(compared(wide, with_bucket(1.0, 2.5)), "ttft_p99") == "the same"  # 2.49 and 2.51 are in two buckets


@pytest.mark.parametrize(("seconds", "judged"), [(60.0, Outcome.PASS), (12.0, None)])
def test_parts_shorter_than_a_request_are_not_samples_of_their_own(seconds: float, judged: Outcome | None) -> None:
    slow = {"request_time": 10.0, "ttft": None, "itl": None, "tokens_in": None, "requests": None}
    was, now = (
        replace(one, measures={**one.measures, "tokens_out": of_parts("tokens_out", *samples)})
        for one, samples in (
            (result(slow, seconds=seconds), (100.0, 106.0, 98.0, 104.0)),
            (result(slow, seconds=seconds), (118.0, 113.0, 115.0, 121.0)),
        )
    )
    assert outcome(was, now)[0] is (judged or Outcome.INCONCLUSIVE)


def seen(path: Path, first: int, last: int) -> Result | None:
    """Of a recording, from one scrape to another; None: too little of it was under load."""
    window = _window(path)
    if window is None or len(window.times) <= last:
        return None
    part = window.part(window.times[first], window.times[last])
    measures = {one.name: one for one in measured(part)}
    return Result("x", "recording", measures, seconds=part.seconds, model="tiny") if "tokens_out" in measures else None


@cache
def _window(path: Path) -> Window | None:
    return window_of([one.observation(metrics()) for one in bundle.read(path).sources if one.kind == "server"])


TUTORIAL = ROOT / "docs" / "tutorial"
RECORDED = [*sorted(path.parent for path in FIXTURES.glob("*/recording.json")), *sorted(TUTORIAL.glob("*.tar.gz"))]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_a_recorded_server_is_no_better_than_itself(path: Path) -> None:
    for scrapes in (20, 25, 30):  # the window of compare, and longer
        for first in range(0, 60, 3):
            one, other = seen(path, first, first + scrapes), seen(path, first + scrapes, first + 2 * scrapes)
            if one is not None and other is not None:
                assert compared(one, other).outcome is not Outcome.PASS, (first, scrapes)
                assert compared(other, one).outcome is not Outcome.PASS, (first, scrapes)


def test_any_thirty_seconds_of_the_tutorial_tell_that_its_fix_worked() -> None:
    for first in range(0, 30, 3):
        for then in range(0, 30, 3):
            before = seen(TUTORIAL / "before.tar.gz", first, first + 30)
            after = seen(TUTORIAL / "after.tar.gz", then, then + 30)
            assert before is not None
            assert after is not None
            assert compared(before, after).outcome is Outcome.PASS, (first, then)
