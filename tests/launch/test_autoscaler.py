"""What an autoscaler is told to look at, and whether that can work."""

from __future__ import annotations

import re

import pytest

from tests.making import shipped_rules
from vllm_doctor.expr.promql_eval import parsed
from vllm_doctor.launch import autoscaler
from vllm_doctor.launch.autoscaler import facts, read
from vllm_doctor.model.reading import Known
from vllm_doctor.vllm import metrics

DEMAND = "sum(vllm:num_requests_running) + sum(vllm:num_requests_waiting)"

# vllm-project/production-stack, tutorials/assets/keda-scaled-object.yaml, its comments left out
KEDA_PUBLIC = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: vllm-scaledobject
  namespace: default
spec:
  scaleTargetRef:
    name: vllm-llama3-deployment-vllm
  minReplicaCount: 1
  maxReplicaCount: 2
  triggers:
    - type: prometheus
      metadata:
        serverAddress: http://prometheus-operated.monitoring.svc:9090
        metricName: vllm:num_requests_waiting
        query: vllm:num_requests_waiting
        threshold: '5'
"""
# the same, tutorials/assets/hpa-10.yaml: its tutorial's adapter renames the metric
HPA_PUBLIC = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: vllm-hpa
spec:
  minReplicas: 1
  maxReplicas: 2
  metrics:
  - type: Object
    object:
      metric:
        name: vllm_num_requests_waiting
      describedObject: {apiVersion: v1, kind: Namespace, name: default}
      target: {type: Value, value: 1}
"""


def keda(query: str, threshold: str = "5", more: str = "", most: int = 8) -> str:
    return (
        "kind: ScaledObject\nmetadata: {name: m}\nspec:\n"
        f"  maxReplicaCount: {most}\n  triggers:\n  - type: prometheus\n    {more}\n"
        f"    metadata:\n      threshold: '{threshold}'\n      query: |\n        {query}\n"
    )


def told(text: str, version: str | None = None) -> dict[str, float]:
    """The kinds of things that are wrong, with their counts."""
    kinds = ("unknown", "renamed", "broken", "many", "label", "stuck")
    found = facts(read(text), version)
    counts = {kind: known.value for kind in kinds if isinstance(known := found[f"autoscaler_{kind}"], Known)}
    return {kind: count for kind, count in counts.items() if isinstance(count, float) and count}


def says(text: str, kind: str, version: str | None = None) -> str:
    known = facts(read(text), version)[f"autoscaler_{kind}_says"]
    assert isinstance(known, Known)
    return str(known.value)


def test_the_public_scaled_object_works_with_one_pod_only() -> None:
    assert told(KEDA_PUBLIC) == {"many": 1}
    assert says(KEDA_PUBLIC, "many").startswith("ScaledObject vllm-scaledobject, trigger 1 (line 16): ")


def test_the_public_autoscaler_needs_an_adapter_that_renames() -> None:
    assert told(HPA_PUBLIC) == {"renamed": 1}
    assert "vLLM's own name is vllm:num_requests_waiting" in says(HPA_PUBLIC, "renamed")


@pytest.mark.parametrize(
    "query",
    [
        DEMAND,
        "sum(vllm:num_requests_waiting)",
        'sum(vllm:num_requests_waiting{model_name="m", namespace="prod"})',
        "sum(rate(vllm:generation_tokens_total[2m]))",
        "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))",
        "scalar(sum(vllm:num_requests_waiting))",
        "sum(llm_d_epp_flow_control_queue_size)",
        "sum(vllm_router_running_requests)",
        "sum(vllm:current_qps)",
        "sum(some_recording:rule)",
    ],
)
def test_a_query_that_works_is_left_alone(query: str) -> None:
    assert told(keda(query)) == {}


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("sum(vllm_num_requests_waiting)", {"unknown": 1}),
        ("sum(vllm:num_request_waiting)", {"unknown": 1}),
        ("sum(vllm:num_requests_waiting", {"broken": 1}),
        ("sum(vllm:num_requests_waiting[nan])", {"broken": 1}),
        ("vllm:num_requests_waiting", {"many": 1}),
        ("sum by (pod) (vllm:num_requests_waiting)", {"many": 1}),
        ("avg_over_time(vllm:num_requests_waiting[2m])", {"many": 1}),
        ('sum(vllm:num_requests_waiting{model="m"})', {"label": 1}),
        ("avg(DCGM_FI_DEV_GPU_UTIL)", {"stuck": 1}),
        ("avg(nvidia_gpu_duty_cycle)", {"stuck": 1}),
        ("avg(DCGM_FI_DEV_FB_USED)", {"stuck": 1}),
    ],
)
def test_what_cannot_work_is_told(query: str, kinds: dict[str, float]) -> None:
    assert told(keda(query)) == kinds


def test_one_replica_has_one_value() -> None:
    assert told(keda("vllm:num_requests_waiting", most=1)) == {}


def test_a_metric_that_this_vllm_has_no_more() -> None:
    query = keda("sum(vllm:gpu_cache_usage_perc)")
    assert told(query) == {}
    assert told(query, "0.32.0") == {"unknown": 1}
    assert "is no metric of vLLM 0.32.0" in says(query, "unknown", "0.32.0")


def test_a_share_that_is_divided_by_the_replicas_stops_early() -> None:
    assert told(keda("avg(vllm:kv_cache_usage_perc)", "0.8")) == {"stuck": 1}
    assert "never more than 2 replicas" in says(keda("avg(vllm:kv_cache_usage_perc)", "0.8"), "stuck")
    assert told(keda("avg(vllm:kv_cache_usage_perc)", "0.8", "metricType: Value")) == {}
    assert told(keda("sum(vllm:kv_cache_usage_perc)", "0.8")) == {}


def test_cpu_and_memory_hardly_move() -> None:
    text = "kind: HorizontalPodAutoscaler\nspec:\n  metrics:\n  - type: Resource\n    resource: {name: cpu}\n"
    assert told(text) == {"stuck": 1}
    assert told("kind: ScaledObject\nspec:\n  triggers:\n  - type: memory\n    metadata: {value: '80'}\n") == {
        "stuck": 1
    }


@pytest.mark.parametrize(
    ("text", "threshold"),
    [
        (keda("sum(vllm:num_requests_running)", "64"), 64.0),
        (keda("sum(vllm:num_requests_running)", "500m"), 0.5),
        (keda("sum(vllm:num_requests_running)", "64", "metricType: Value"), None),  # of all replicas together
        (keda("max(vllm:num_requests_running)", "64", "metricType: Value"), 64.0),
        (keda(DEMAND, "64"), None),  # what waits has no ceiling
        (keda("sum(vllm:num_requests_running)", "{{ .Values.threshold }}"), None),
    ],
)
def test_the_threshold_of_a_replica(text: str, threshold: float | None) -> None:
    known = facts(read(text)).get("autoscaler_running_threshold")
    assert (known.value if isinstance(known, Known) else None) == threshold


@pytest.mark.parametrize(
    "text",
    ["", "kind: Deployment\n", "kind: ScaledObject\nspec: [", "kind: ScaledObject\n", "a: kind: ScaledObject\n",
     "kind: ScaledObject\nspec: {triggers: 3}\n",
     "kind: HorizontalPodAutoscaler\nspec: {metrics: [1, {type: Pods}]}\n"],
)  # fmt: skip
def test_what_holds_no_trigger(text: str) -> None:
    assert read(text) == ()


def test_a_list_of_objects() -> None:
    indented = "".join(f"    {line}\n" for line in keda("vllm:num_requests_waiting").splitlines())
    assert told(f"kind: List\nitems:\n  -\n{indented}") == {"many": 1}


def test_the_query_that_the_rules_propose_is_one_and_works() -> None:
    proposed = {
        query
        for rule in shipped_rules()
        if rule.group == "scaling"
        for remedy in rule.remedies
        for query in re.findall(r"sum\(vllm:\S+ \+ sum\(\S+\)", remedy.do)
    }
    assert proposed == {DEMAND}
    parsed(DEMAND)
    assert told(keda(DEMAND)) == {}
    assert all(metrics.is_shown(name) for name in re.findall(r"vllm:\w+", DEMAND))


def test_a_long_text_is_not_read() -> None:
    assert not autoscaler.holds("kind: ScaledObject\n" + "#" * autoscaler.MAX_BYTES)
