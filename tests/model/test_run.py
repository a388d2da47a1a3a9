from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest

from vllm_doctor.expr.promql_eval import Expression
from vllm_doctor.model.reading import Known
from vllm_doctor.model.run import KV_CACHE, PROMPTS, RUNNING, WAITING, Death, Round, Run, Series
from vllm_doctor.model.window import Window

TOKENS: Series = ("vllm:generation_tokens_total", ())
REASON: Series = ("vllm:num_requests_waiting_by_reason", (("reason", "capacity"),))


def run(*rounds: Round, model: str | None = "tiny", interval: float = 10.0, death: Death | None = None) -> Run:
    return Run(rounds[0].at, rounds[-1].at, True, True, False, death, {}, rounds, interval, model)


def counted(count: int, rate: float = 400.0, engines: int = 1) -> Run:
    """A round every ten seconds; each engine generates `rate` tokens a second."""
    return run(
        *(
            Round(1000.0 + 10 * n, {str(e): {RUNNING: 2.0 + e, TOKENS: (n + 1) * 10 * rate} for e in range(engines)})
            for n in range(count)
        )
    )


def asked(window: Window, text: str) -> dict[tuple[tuple[str, str], ...], float]:
    vector, _ = Expression(text).evaluate(window)
    return {labels: float(value) for labels, value in vector.items()}


def rate(window: Window) -> float:
    [value] = asked(window, "sum(rate(vllm:generation_tokens_total[5m]))").values()
    return value


# Rounds


def test_what_a_round_holds_of_all_engines() -> None:
    a_round = Round(0, {"0": {RUNNING: 2, WAITING: 3, KV_CACHE: 0.2}, "1": {RUNNING: 5, KV_CACHE: 0.9}})
    assert (a_round.total(RUNNING), a_round.total(WAITING), a_round.most(KV_CACHE)) == (7, 3, 0.9)
    assert (Round(0, {}).total(RUNNING), Round(0, {}).most(KV_CACHE)) == (0, 0)


# What the rounds of a run tell beside each other


def spoken(*lines: tuple[float, float, float, float]) -> Run:
    """Rounds of a time, requests that run, and the prompt and generated tokens so far."""
    return run(*(Round(at, {"0": {RUNNING: n, PROMPTS: p, TOKENS: t}}) for at, n, p, t in lines))


def test_the_fastest_decode_is_of_rounds_without_a_prompt_in_which_the_same_requests_ran() -> None:
    run = spoken(
        (0, 1, 100, 0),
        (10, 1, 100, 200),  # one alone: 50 ms
        (20, 1, 900, 4000),  # another came and went in between
        (30, 8, 900, 8000),
        (40, 8, 900, 8800),  # eight: 100 ms
    )
    assert run.fastest_decode == pytest.approx((0.05, 1))
    assert spoken((0, 0, 0, 0), (10, 0, 0, 0)).fastest_decode is None
    assert spoken((0, 1, 0, 0), (60, 1, 0, 900)).fastest_decode is None  # nobody knows what was in between


@pytest.mark.parametrize(
    ("ats", "share"),
    [
        pytest.param([0, 10, 20, 30, 40], 0, id="at its beat"),
        pytest.param([0, 10, 21, 31, 41], 0, id="a timer that drifts"),
        pytest.param([0, 10, 40, 60, 100], 0, id="lines are missing: at its beat all the same"),
        pytest.param([0, 25, 36, 80, 126, 180, 190, 278, 319], 5 / 8, id="it stands still in between"),
    ],
)
def test_statistics_that_come_late_do_not_come_at_their_beat(ats: list[float], share: float) -> None:
    found = spoken(*((at, 64, 0, at) for at in ats)).lateness(0, len(ats))
    longest = float(max(b - a for a, b in pairwise(ats)))
    assert found == {"stats_late_share": Known(share, origin="log"), "stats_gap": Known(longest, origin="log")}


def test_an_idle_engine_prints_nothing_and_is_not_late() -> None:
    assert spoken(*((at, at < 15, 0, 0) for at in (0, 10, 33, 78, 95, 140))).lateness(0, 6) == {}


# Windows


@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 2), (0, 60), (7, 8), (7, 30), (59, 60)])
def test_a_window_gives_the_logged_rate_back(first: int, last: int) -> None:
    assert rate(counted(60).window(first, last)) == pytest.approx(400)


@pytest.mark.parametrize("count", [199, 200, 201, 1000, 4321])
def test_a_long_window_is_thinned_and_keeps_its_ends(count: int) -> None:
    window = counted(count).window(0, count)
    assert len(window.times) <= 202
    assert window.times[-1] == 1000.0 + 10 * (count - 1)
    assert window.seconds == 10 * count
    assert rate(window) == pytest.approx(400)
    assert all(a < b for a, b in pairwise(window.times))


def test_the_rates_of_engines_add_up() -> None:
    window = counted(20, engines=3).window(5, 15)
    assert rate(window) == pytest.approx(1200)
    assert sorted(asked(window, "vllm:num_requests_running").values()) == [2, 3, 4]


def test_an_engine_that_came_later_began_at_zero() -> None:
    a_run = run(
        Round(0, {"0": {RUNNING: 1, TOKENS: 4000}}),
        Round(10, {"0": {RUNNING: 1, TOKENS: 8000}, "1": {RUNNING: 1, TOKENS: 4000}}),
    )
    assert rate(a_run.window(1, 2)) == pytest.approx(800)


def test_series_are_of_the_engine_and_the_model() -> None:
    window = run(Round(0, {"3": {RUNNING: 1, REASON: 2}})).window(0, 1)
    assert set(window.series("vllm:num_requests_running")) == {(("engine", "3"), ("model_name", "tiny"))}
    assert set(window.series(REASON[0])) == {(("engine", "3"), ("model_name", "tiny"), ("reason", "capacity"))}
    nameless = run(Round(0, {"3": {RUNNING: 1}}), model=None).window(0, 1)
    assert set(nameless.series("vllm:num_requests_running")) == {(("engine", "3"),)}


def test_a_window_says_that_a_log_told_it() -> None:
    assert counted(3).window(0, 3).origin == "log"


def test_gauges_are_of_the_window_alone() -> None:
    window = counted(20).window(5, 8)
    [points] = window.series("vllm:num_requests_running").values()
    assert [at for at, _ in points] == [1050, 1060, 1070]


# Shifted


def test_a_life_at_another_time() -> None:
    a_run = counted(3)
    a_run = dataclasses.replace(a_run, death=Death(1015.0, 7, "EngineCore", "ValueError", True))
    moved = a_run.shifted(86400)
    assert (moved.first_at, moved.last_at) == (87400, 87420)
    assert [each.at for each in moved.rounds] == [87400, 87410, 87420]
    assert moved.death is not None
    assert (moved.death.at, moved.death.line) == (87415, 7)
    assert moved.shifted(-86400) == a_run
    assert a_run.shifted(0) is a_run


def test_a_life_without_times_has_none_at_any_time() -> None:
    death = Death(None, 7, "EngineCore", None, True)
    timeless = Run(None, None, False, False, False, death, {})
    assert timeless.shifted(60) == timeless


# The same load early and late


def of_hours(*per_token: float, kv: float = 0.2, running: float = 8.0) -> Run:
    """A run in which the same requests decode for 40 s each hour, with so many seconds between two tokens."""
    rounds = []
    tokens = 0.0
    for hour, seconds in enumerate(per_token):
        for place in range(5):
            tokens += 10 * running / seconds
            rounds.append(
                Round(3600.0 * hour + 10 * place, {"0": {RUNNING: running, KV_CACHE: kv, PROMPTS: 0.0, TOKENS: tokens}})
            )
    return run(*rounds)


def test_the_same_load_at_both_ends_of_a_run_tells_its_drift() -> None:
    found = of_hours(0.02, 0.02, 0.03, 0.03, 0.04, 0.04).decode_drift
    told = {name: reading.value for name, reading in found.items() if isinstance(reading, Known)}
    assert told == pytest.approx({
        "decode_early": 0.02,
        "decode_late": 0.04,
        "decode_drift": 2.0,
        "decode_drift_seconds": 4 * 3600.0,
        "decode_drift_batch": 8.0,
    })  # fmt: skip


def test_longer_requests_are_another_load() -> None:
    short, long = of_hours(0.02, 0.02, 0.02), of_hours(0.04, 0.04, 0.04, kv=0.4)
    later = [dataclasses.replace(one, at=one.at + 4 * 3600) for one in long.rounds]
    assert run(*short.rounds, *later).decode_drift == {}


def test_without_a_kv_cache_in_use_nobody_knows_how_long_requests_are() -> None:
    assert of_hours(0.02, 0.03, 0.04, kv=0.004).decode_drift == {}
    assert run(Round(0, {"0": {RUNNING: 1.0}})).decode_drift == {}
