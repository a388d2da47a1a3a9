"""Which gate holds the queue, from what little a log or one page tells: by what is left of them."""

from __future__ import annotations

import pytest

from tests.making import shipped_catalogue, shipped_rules, window
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.model.report import Verdict
from vllm_doctor.model.run import GENERATED, KV_CACHE, PROMPTS, RUNNING, WAITING, Round, Run
from vllm_doctor.rules import postmortem
from vllm_doctor.rules.diagnose import Diagnosis, diagnose

ON = 'engine="0",model_name="m"'
Line = tuple[float, float, float, float, float]
"""Of a line of statistics: prompt and generated tokens per second, running, waiting, percent of the KV cache."""


def logged(*lines: Line, **flags: Value) -> Diagnosis:
    """A log of these lines, ten seconds apart."""
    rounds, prompts, generated = [], 0.0, 0.0
    for place, (prompt_rate, rate, running, waiting, kv) in enumerate(lines):
        prompts, generated = prompts + 10 * prompt_rate, generated + 10 * rate
        values = {RUNNING: running, WAITING: waiting, KV_CACHE: kv / 100, PROMPTS: prompts, GENERATED: generated}
        rounds.append(Round(1e9 + 10 * place, {"0": values}))
    facts: dict[str, Reading] = {"log": Known(True), **{name: Known(value) for name, value in flags.items()}}
    run = Run(rounds[0].at, rounds[-1].at, False, True, False, None, facts, tuple(rounds))
    wished: dict[str, Reading] = {"goal": Known("throughput")}
    return postmortem.examine([run], shipped_rules(), shipped_catalogue(), wished).diagnosis


def page(running: float, waiting: float, kv: float, more: str = "") -> Diagnosis:
    """One page, and no second look."""
    text = "\n".join(
        f"{name}{{{ON}}} {value}"
        for name, value in (
            ("vllm:num_requests_running", running),
            ("vllm:num_requests_waiting", waiting),
            ("vllm:kv_cache_usage_perc", kv),
            ("vllm:generation_tokens_total", 6.7e6),
        )
    )
    snapshot = shipped_catalogue().snapshot(window(f"{text}\n{more}"), {"goal": Known("throughput")})
    return diagnose(shipped_rules(), shipped_catalogue(), [snapshot])


def roots(diagnosis: Diagnosis) -> list[str]:
    return [finding.rule for finding in diagnosis.findings if finding.is_grave]


def lifetime(batch: float, queued: float) -> str:
    """Histograms since the start: requests in a step, and the share of the time to first token that was queueing."""
    return "\n".join(
        f"{name}{{{ON}}} {value}"
        for name, value in (
            ("vllm:iteration_tokens_total_count", 1e6),
            ("vllm:request_prompt_tokens_count", 5e4),
            ("vllm:request_prompt_tokens_sum", 360 * 5e4),
            ("vllm:request_generation_tokens_count", 5e4),
            ("vllm:request_generation_tokens_sum", 127 * 5e4),
            ("vllm:inter_token_latency_seconds_count", batch * 1e6),
            ("vllm:request_queue_time_seconds_count", 5e4),
            ("vllm:request_queue_time_seconds_sum", queued * 72 * 5e4),
            ("vllm:time_to_first_token_seconds_count", 5e4),
            ("vllm:time_to_first_token_seconds_sum", 72 * 5e4),
        )
    )


FLAT = ((300, 3100, 600, 4400, 60),) * 3


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        pytest.param(FLAT, ["max-num-seqs-cap"], id="flat, with room: slots"),
        pytest.param(FLAT[:1], [], id="one line is not flat"),
        pytest.param(((9000, 1000, 250, 600, 20), (9000, 1000, 256, 500, 20)), ["max-num-seqs-cap"], id="a default"),
        pytest.param(((0, 5.5, 1, 14, 77.9), (0, 5.5, 1, 14, 78.1)), ["kv-cache-saturated"], id="one fills the pool"),
        pytest.param(((0, 0, 0, 6, 0),) * 3, ["scheduler-stall"], id="an empty pool refuses nothing"),
        pytest.param(
            ((9000, 650, 77, 941, 19), (4500, 480, 96, 920, 24), (9300, 1100, 90, 875, 23), (9100, 1020, 80, 790, 22)),
            ["prefill-bound"],
            id="the batch moves, the pool is free: a step's tokens",
        ),
        pytest.param(
            tuple((2000, 160, 6 + n % 3, 5, 60) for n in range(10)),
            ["max-num-seqs-cap"],
            id="small steps, and read after some have left: slots",
        ),
        pytest.param(((800, 20, 1, 7, 3),) * 8, ["max-num-seqs-cap"], id="long prompts, one at a time, small steps"),
        pytest.param(
            tuple((50_000, 0, running, 250, 1) for running in (3, 8, 5, 4, 6, 3)), ["prefill-bound"], id="embeddings"
        ),
        pytest.param(
            ((18_800, 15, 266, 734, 98.9), (25_800, 43, 266, 734, 99), (24_300, 124, 276, 458, 98.9)),
            ["prefill-bound"],
            id="a pool full of prompts that are being computed",
        ),
        pytest.param(
            ((12_000, 735, 18, 33, 96), (18_000, 590, 21, 23, 96), (16_000, 640, 20, 23, 98)),
            ["kv-cache-saturated"],
            id="a pool full of requests that decode, beside long prompts",
        ),
        pytest.param(
            ((18_800, 15, 266, 734, 98.9), (25_800, 43, 120, 880, 99), (24_300, 20, 110, 890, 98.9)),
            ["kv-cache-saturated"],
            id="a pool that loses what it computed",
        ),
        pytest.param(((0, 0, 0, 1, 0),), [], id="none runs in one line: that may be a moment"),
        pytest.param(((0, 900, 30, 0, 40),) * 5, [], id="nobody waits"),
        pytest.param(((9000, 900, 60, 1, 40), (9000, 900, 40, 2, 40), (9000, 900, 50, 1, 40)), [], id="a short queue"),
    ],
)
def test_the_gate_of_a_log(lines: tuple[Line, ...], found: list[str]) -> None:
    assert roots(logged(*lines))[:1] == found


def test_a_batch_below_its_cap_and_a_small_budget_is_the_budget() -> None:
    lines = ((600, 40, 4, 20, 8), (610, 38, 5, 19, 9), (590, 41, 3, 21, 8))
    diagnosis = logged(*lines, **{"--max-num-seqs": 64.0, "--max-num-batched-tokens": 64.0})
    assert roots(diagnosis)[:1] == ["max-num-batched-tokens-small"]


def test_slots_that_are_known_and_reached_are_the_gate_however_much_one_request_holds() -> None:
    lines = ((20, 23, 1, 6, 60), (0, 23, 1, 6, 62), (20, 23, 1, 6, 61))
    assert roots(logged(*lines, **{"--max-num-seqs": 1.0})) == ["max-num-seqs-cap"]


def test_the_pool_is_sized_by_how_it_fills() -> None:
    lines = tuple((0, 5.5, 1, 14, 77 + 0.5 * place) for place in range(6))
    [finding] = [finding for finding in logged(*lines).findings if finding.rule == "kv-cache-saturated"]
    assert "about 11,000 tokens" in finding.here


def test_one_page_tells_a_stall() -> None:
    by_reason = f'vllm:num_requests_waiting_by_reason{{{ON},reason="%s"}} 6'
    assert roots(page(0, 6, 0, by_reason % "capacity")) == ["scheduler-stall"]
    assert roots(page(0, 6, 0, by_reason % "deferred")) == ["requests-deferred"]


def test_one_page_tells_slots_by_what_ran_since_the_start() -> None:
    diagnosis = page(1, 2, 0.001, lifetime(batch=0.98, queued=0.93))
    assert roots(diagnosis) == ["max-num-seqs-cap"]
    assert "and 93 % of the time to first token (72 s) was queueing" in diagnosis.findings[0].here
    assert roots(page(8, 2, 0.01, lifetime(batch=0.98, queued=0.93))) == []  # eight ran: no cap of one
    assert roots(page(1, 2, 0.001, lifetime(batch=0.98, queued=0.1))) == []  # it hardly ever queued


@pytest.mark.parametrize(
    ("running", "waiting", "kv", "more", "says"),
    [
        (3, 1, 0.45, "", "not for KV blocks (45 % used, room for 3.7 more)"),
        (3, 0, 0.45, "", "At this one sample 3 run and none waits"),
        (0, 0, 0, "", "Idle at this one sample: none runs"),
        (0, 0, 0, lifetime(batch=0.98, queued=0.93), "since the start 93 % of the time to first token (72 s) was"),
    ],
)  # fmt: skip
def test_what_one_page_leaves_open_it_says_with_numbers(
    running: float, waiting: float, kv: float, more: str, says: str
) -> None:
    diagnosis = page(running, waiting, kv, more)
    assert diagnosis.verdict is Verdict.UNKNOWN
    assert says in diagnosis.headline


def test_an_engine_whose_statistics_stand_still_is_not_well() -> None:
    ats = (0, 25, 36, 80, 126, 180, 190, 278, 319)
    rounds = tuple(
        Round(1e9 + at, {"0": {RUNNING: 113.0, WAITING: 0.0, KV_CACHE: 0.02, PROMPTS: 3e3 * at, GENERATED: 500.0 * at}})
        for at in ats
    )
    run = Run(rounds[0].at, rounds[-1].at, False, True, False, None, {"log": Known(True)}, rounds)
    diagnosis = postmortem.examine([run], shipped_rules(), shipped_catalogue(), {"goal": Known("throughput")}).diagnosis
    assert diagnosis.verdict is Verdict.UNKNOWN
    assert "come late, up to 88 s apart" in diagnosis.headline


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (2.0, "in the same log 1 concurrent request got 20 each: neither the device nor the host"),
        (1.0, "in the same log 1 concurrent request got 20 each: what slows it was not there all the time"),
    ],
)
def test_a_server_that_is_slower_than_itself_is_slow_whatever_its_gpu_is(batch: float, says: str) -> None:
    lines = ((0, 2.2, batch, 0, 1),) * 20
    best: dict[str, Value] = {"decode_seconds_best": 0.05, "decode_batch_best": 1.0}
    diagnosis = logged(*lines, **best)
    assert (diagnosis.verdict, says in diagnosis.headline) == (Verdict.WARNING, True)


def test_a_larger_batch_that_takes_as_much_longer_is_no_fault() -> None:
    best: dict[str, Value] = {"decode_seconds_best": 0.01, "decode_batch_best": 1.0}
    lines = ((0, 200, 16, 0, 5),) * 20  # sixteen times as many, eight times as slow
    assert logged(*lines, **best).verdict is Verdict.OK


def test_even_the_fastest_decode_of_a_short_log_tells_a_slow_server() -> None:
    lines = ((1.9, 0.1, 1, 0, 0.1), (0, 2.9, 1, 0, 0.1), (0, 2.9, 1, 0, 0.2))
    diagnosis = logged(*lines, decode_seconds_best=0.345, decode_batch_best=1.0)
    assert diagnosis.verdict is Verdict.UNKNOWN
    assert "Even at its fastest (1 running, no prompt computed) a request gets a token only every 345 ms" in (
        diagnosis.headline
    )


@pytest.mark.parametrize(
    ("kv", "preempted", "then", "says"),
    [
        (
            0.99,
            400,
            400,
            "The KV cache is 99 % full, with no preemption in this window, and 0.8 for each request since",
        ),
        (0.60, 400, 400, ""),
        (0.99, 4, 4, ""),
        (0.99, 400, 410, ""),  # in this window, too: the rule says it
    ],
)
def test_a_full_cache_that_preempted_before_is_not_well_in_a_window_without(
    kv: float, preempted: int, then: int, says: str
) -> None:
    looks = (
        "\n".join(
            f"{name}{{{ON}}} {value}"
            for name, value in (
                ("vllm:num_requests_running", 24),
                ("vllm:num_requests_waiting", 0),
                ("vllm:kv_cache_usage_perc", kv),
                ("vllm:num_preemptions_total", preemptions),
                ("vllm:generation_tokens_total", tokens),
                ("vllm:time_to_first_token_seconds_count", 500),
            )
        )
        for preemptions, tokens in ((preempted, 9e5), (then, 9.01e5))
    )
    snapshot = shipped_catalogue().snapshot(window(*looks), {"goal": Known("throughput")})
    diagnosis = diagnose(shipped_rules(), shipped_catalogue(), [snapshot])
    assert says in diagnosis.headline
    assert ("no preemption in this window" in diagnosis.headline) == bool(says)
    assert not says or diagnosis.verdict is Verdict.UNKNOWN
