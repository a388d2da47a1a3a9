"""query: a signal's PromQL, as it is asked of a Prometheus."""

from __future__ import annotations

import promql_parser
import pytest

from tests.making import shipped_catalogue
from vllm_doctor.model.errors import UsageError
from vllm_doctor.prometheus import query
from vllm_doctor.prometheus.query import Matcher, Scope
from vllm_doctor.rules.signal import metrics

SIGNALS = shipped_catalogue().signals
TWO = Scope(identity=("job", "instance"), window="10m")


def written(definition: str, scope: Scope = TWO) -> str:
    text = query.text(definition, scope)
    if "$" not in scope.window:
        promql_parser.parse(text)
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('namespace="prod"', (Matcher("namespace", "=", "prod"),)),
        ('{a!="b", c=~"d.*",e!~"f"}', (Matcher("a", "!=", "b"), Matcher("c", "=~", "d.*"), Matcher("e", "!~", "f"))),
        (r'pod="a\"b\\c"', (Matcher("pod", "=", 'a"b\\c'),)),
    ],
)
def test_matchers_are_read_as_promql_has_them(text: str, expected: tuple[Matcher, ...]) -> None:
    assert query.matchers(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "prod",
        "namespace=prod",
        'a="b"} or up{c="d"',
        'a="b"} offset 5m #',
        'a="b"}[5m] #',
        'a="b"} @ 0 #',
        'a="b"} offset 1e20 #',
        'a="b" or c="d"',
        'a=~"("',
        '__name__="up"',
        '"a b"="c"',
        "\udcff",
    ],
)
def test_what_is_no_list_of_matchers_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--select"):
        query.matchers(text)


@pytest.mark.parametrize("value", ['"', "\\", 'a"} or up{b="', "line\nbreak", "\x1b[2J", "\u202eabc", "é", "{{"])
def test_a_hostile_value_stays_a_value(value: str) -> None:
    """Written and read again it is the same, and one selector."""
    scope = Scope((Matcher("pod", "=", value),))
    text = written("sum(vllm:num_requests_running)", scope)
    assert text.isprintable()
    aggregate = promql_parser.parse(text)
    assert isinstance(aggregate, promql_parser.AggregateExpr)
    inside = aggregate.expr
    assert isinstance(inside, promql_parser.VectorSelector)
    assert [(m.name, m.value) for m in inside.matchers.matchers] == [("pod", value)]


def test_an_engine_is_told_apart_by_the_servers_labels_too() -> None:
    assert (
        written("sum by ($engine) (rate(vllm:prompt_tokens_total[$window]))")
        == "sum by (engine, model_name, job, instance) (rate(vllm:prompt_tokens_total[10m]))"
    )


def test_a_model_is_that_of_one_server() -> None:
    assert (
        written("max by ($model) (vllm:num_requests_running)")
        == "max by (model_name, job, instance) (vllm:num_requests_running)"
    )


def test_a_sum_of_everything_is_that_of_one_server() -> None:
    assert written("sum(vllm:num_requests_running)") == "sum by (job, instance) (vllm:num_requests_running)"


def test_the_bucket_stays() -> None:
    text = written("histogram_quantile(0.99, sum by ($engine, le) (increase(vllm:x_bucket[$window])))")
    expected = "sum by (engine, model_name, le, job, instance) (increase(vllm:x_bucket[10m]))"
    assert text == f"histogram_quantile(0.99, {expected})"


def test_matchers_stand_in_each_selector() -> None:
    scope = Scope(query.matchers('pod="a"'), ("instance",), "5m")
    text = written('sum by ($engine) (vllm:x{reason="r"}) / sum by ($engine) (rate(vllm:y[$window]))', scope)
    assert text == (
        'sum by (engine, model_name, instance) (vllm:x{reason="r", pod="a"})'
        ' / sum by (engine, model_name, instance) (rate(vllm:y{pod="a"}[5m]))'
    )


def test_what_is_not_vllms_own_is_kept_to_vllm_servers() -> None:
    scope = Scope(query.matchers('pod="a", model_name="m"'), ("instance",), "5m")
    assert written("sum(rate(process_cpu_seconds_total[$window]))", scope) == (
        'sum by (instance) ((rate(process_cpu_seconds_total{pod="a"}[5m])'
        ' and on (instance) vllm:num_requests_running{pod="a", model_name="m"}))'
    )


def test_rays_names() -> None:
    ray = Scope(identity=("instance",), names=(query.RAY,))
    assert written("sum(vllm:num_requests_running)", ray) == "sum by (instance) (ray_vllm_num_requests_running)"
    both = Scope(identity=("instance",), names=(query.VLLM, query.RAY))
    assert written("sum(vllm:num_requests_running)", both) == (
        'sum by (instance) ({__name__=~"vllm:num_requests_running|ray_vllm_num_requests_running"})'
    )


def test_a_placeholder_for_the_window() -> None:
    scope = Scope(identity=("instance",), window="$__rate_interval")
    assert written("sum(rate(vllm:x[$window]))", scope) == "sum by (instance) (rate(vllm:x[$__rate_interval]))"


@pytest.mark.parametrize("wrong", [{"window": "5m]) or up"}, {"window": ""}, {"identity": ("a b",)}, {"names": ()}])
def test_a_scope_that_would_not_be_promql_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no"):
        Scope(**wrong)  # type: ignore[arg-type]


OF_VLLM = [
    name
    for name, signal in SIGNALS.items()
    if signal.way == "promql" and all(metric.startswith("vllm:") for metric in metrics(signal))
]


@pytest.mark.parametrize("name", OF_VLLM)
def test_every_signal_means_the_same_before_and_after(name: str) -> None:
    """With nothing added the printed query is the written one, but for what stands for a server."""
    definition = SIGNALS[name].definition
    bare = Scope(identity=(), window="1m")
    plain = definition.replace("$engine", "engine, model_name").replace("$model", "model_name")
    expected = promql_parser.parse(plain.replace("$window", "1m").replace("$recent", "1m")).prettify()
    text = promql_parser.parse(written(definition, bare)).prettify()
    assert text.replace(" by ()", "").split() == expected.split()


def test_what_a_definition_is_made_of() -> None:
    assert query.needs_two_samples("sum by ($engine) (rate(vllm:x[$window]))")
    assert not query.needs_two_samples("sum by ($engine) (avg_over_time(vllm:x[$window]))")


@pytest.mark.parametrize(
    ("definition", "prometheus", "victoria_metrics"),
    [
        ("sum by ($engine) (vllm:x > 0)", True, True),
        ("sum by ($engine) (vllm:x)", False, False),
        ("sum by ($engine) (vllm:x) / sum by ($engine) (vllm:y)", False, True),
        ("histogram_quantile(0.5, sum by ($engine, le) (increase(vllm:b_bucket[$window])))", False, True),
    ],
)
def test_what_leaves_engines_out_of_a_result(definition: str, prometheus: bool, victoria_metrics: bool) -> None:
    assert query.leaves_out(definition, Scope()) == prometheus
    assert query.leaves_out(definition, Scope(is_metricsql=True)) == victoria_metrics


def test_victoria_metrics_is_asked_for_what_was_counted() -> None:
    definition = "sum by ($engine) (increase(vllm:x[$window])) / sum by ($engine) (rate(vllm:y[$window]))"
    written = query.text(definition, Scope(is_metricsql=True))
    assert "(increase_prometheus(vllm:x[10m]))" in written
    assert "(rate(vllm:y[10m]))" in written
    assert "(increase(vllm:x[10m]))" in query.text(definition, Scope())


@pytest.mark.parametrize(
    ("exported", "text"),
    [
        ({"vllm:new", "vllm:old"}, "max by (instance) (vllm:new or vllm:old)"),
        ({"vllm:new"}, "max by (instance) (vllm:new)"),
        ({"vllm:old"}, "max by (instance) (vllm:old)"),
        ({"vllm:other"}, None),
    ],
)
def test_of_a_renamed_metric_only_what_is_exported_is_asked_for(exported: set[str], text: str | None) -> None:
    scope = Scope(identity=("instance",), exported=frozenset(exported))
    assert query.is_told("max(vllm:new or vllm:old)", scope) == (text is not None)
    if text is not None:
        assert written("max(vllm:new or vllm:old)", scope) == text


def test_a_definition_is_told_where_all_that_it_needs_is_exported() -> None:
    scope = Scope(exported=frozenset({"vllm:a", "vllm:b_bucket"}))
    assert query.is_told("sum(rate(vllm:a[$window])) * 2", scope)
    assert query.is_told("histogram_quantile(0.5, sum by ($engine, le) (increase(vllm:b_bucket[$window])))", scope)
    assert not query.is_told("sum(rate(vllm:a[$window])) / sum(rate(vllm:c[$window]))", scope)
    assert query.is_told("sum(vllm:c)", Scope())


def test_an_info_metric_has_no_model_name() -> None:
    scope = Scope(query.matchers('pod="a", model_name="m"'))
    own = query.Matcher("enable_prefix_caching", "=", "True")
    assert query.info_metric("vllm:cache_config_info", scope, own) == (
        'vllm:cache_config_info{enable_prefix_caching="True", pod="a"}'
    )
