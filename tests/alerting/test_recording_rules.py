"""Signals, formulas and conditions as PromQL over recorded series: what is known, unknown, and never known."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest

from vllm_doctor.alerting.recording_rules import Recorder
from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.promql import Constant, Missing, Series
from vllm_doctor.expr.promql_eval import Expression
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.window import Sample, Window
from vllm_doctor.prometheus.query import Scope
from vllm_doctor.rules import catalogue, rule

SIGNALS = catalogue.load(rule.shipped())


def recorder(exported: set[str] | None = None, **given: float | str) -> Recorder:
    names = frozenset(exported) if exported is not None else None
    return Recorder(SIGNALS, Scope(window="5m", exported=names), {"goal": "throughput", **given})


def rows(text: str, values: Mapping[str, float]) -> bool:
    """Whether PromQL over recorded series has a row, where these are their values."""
    window = Window()
    window.add(0.0, [Sample(f"vllm_doctor:{name}", (("engine", "0"),), value) for name, value in values.items()])
    return bool(Expression(text).evaluate(window)[0])


@pytest.mark.parametrize(
    "text",
    [
        "kv_cache_usage > 2",
        "not kv_cache_usage > 2",
        "3 >= kv_cache_usage",
        "kv_cache_usage == 2",
        "not kv_cache_usage == 2",
        "kv_cache_usage > requests_running",
        "not (kv_cache_usage <= requests_running)",
        "kv_cache_usage > 2 and requests_running > 1",
        "kv_cache_usage > 2 or requests_running > 1",
        "not (kv_cache_usage > 2 or requests_running > 1)",
        "not (kv_cache_usage > 2 and not requests_running > 1) or requests_waiting < 2",
        "kv_cache_usage > 2 and (requests_running > 1 or requests_waiting < 2) and not requests_waiting == 3",
        "kv_cache_usage > 2 or goal == 'throughput'",
        "kv_cache_usage > 2 and goal == 'throughput' and not goal == 'latency'",
        "kv_cache_usage > 2 or cpu_wait > 0.1",
        "kv_cache_usage > 2 and cpu_wait > 0.1",
        "not kv_cache_usage == 'full'",
        "kv_cache_usage > 'full'",
    ],
)
def test_a_condition_holds_exactly_where_the_doctors_three_values_say_so(text: str) -> None:
    condition, made = Condition(text), recorder()
    names = ("kv_cache_usage", "requests_running", "requests_waiting")
    for seen in product((None, 0.0, 1.0, 2.0, 3.0), repeat=3):
        values = {name: value for name, value in zip(names, seen, strict=True) if value is not None}

        def read(name: str, values: Mapping[str, float] = values) -> Reading:
            if name == "goal":
                return Known("throughput")
            return Known(values[name]) if name in values else Unknown(Reason.ABSENT)

        judged = condition.judge(read)[0]
        for wanted in (True, False):
            truth = made.holds(condition, wanted)
            holds = truth if isinstance(truth, bool) else rows(truth, values)
            assert holds == (judged is wanted), (text, values, wanted, truth)


def test_a_quantile_is_compared_by_the_end_of_its_bucket_that_decides() -> None:
    made = recorder()
    assert made.holds(Condition("ttft_p99 > 2")) == "vllm_doctor:ttft_p99:low > 2"
    assert made.holds(Condition("ttft_p99 <= 2")) == "vllm_doctor:ttft_p99:high <= 2"
    assert made.holds(Condition("not ttft_p99 > 2")) == "vllm_doctor:ttft_p99:high <= 2"
    assert made.holds(Condition("ttft_p99 > itl_p99")) == "vllm_doctor:ttft_p99:low > vllm_doctor:itl_p99:high"
    assert made.holds(Condition("ttft_p99 == 2")) is False
    assert made.holds(Condition("ttft_tail > 5")) == "vllm_doctor:ttft_tail:low > 5"
    rules = made.rules(["vllm_doctor:ttft_tail:low"])
    assert rules["vllm_doctor:ttft_tail:low"].startswith("(vllm_doctor:ttft_p99:low / vllm_doctor:ttft_p50:high)")


def test_what_prometheus_lacks_is_missing_with_the_reason() -> None:
    made = recorder()
    for name, why in {
        "cpu_wait": "host",
        "stream_interval": "command line",
        "omp_num_threads": "environment",
        "worker_waits": "log",
        "engine_deaths": "log",
        "kv_cache_dtype": "label",
        "slo_ttft": "--slo",
    }.items():
        term = made.term(name)
        assert isinstance(term, Missing)
        assert any(why in reason for reason in term.because.values()), name


def test_known_takes_what_there_is() -> None:
    made = recorder()
    api = made.term("api_process_cpu")
    assert isinstance(api, Series)
    assert made.term("api_server_cpu") == api  # what the host alone tells is left out
    assert made.term("engine_computing") == Constant(0.0)
    assert made.holds(Condition("engine_computing >= 0.85")) is False
    either = made.term("recompute_factor_if_seen")
    assert isinstance(either, Series)
    assert made.rules([either.low])[either.low] == "vllm_doctor:recompute_factor or vllm_doctor:engine * 1.1"


def test_only_what_is_exported_is_asked_for() -> None:
    made = recorder({"vllm:num_requests_running", "vllm:kv_cache_usage_perc"})
    assert isinstance(made.term("generation_tokens_per_second"), Missing)
    assert made.term("kv_offload") == Constant(False)
    assert isinstance(made.term("prefix_caching"), Missing)
    assert isinstance(made.term("kv_cache_usage"), Series)
    text = made.rules(["vllm_doctor:kv_cache_usage"])["vllm_doctor:kv_cache_usage"]
    assert "vllm:kv_cache_usage_perc" in text
    assert "gpu_cache_usage_perc" not in text


def test_records_stand_below_what_they_use() -> None:
    made = recorder()
    for name in SIGNALS.signals:
        made.term(name)
    above: set[str] = set()
    everything = [f"vllm_doctor:{name}" for name in SIGNALS.signals if isinstance(made.term(name), Series)]
    exact = [text for text in everything if made.term(text.partition(":")[2]) == Series(text, text)]
    for record, expression in made.rules(exact).items():
        assert set(made.rules([expression])) <= above, record
        above.add(record)
    assert len(above) > 100
