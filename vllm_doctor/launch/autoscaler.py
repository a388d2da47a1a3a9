"""What an autoscaler is told to look at: the triggers of KEDA's ScaledObject, and of a HorizontalPodAutoscaler.

Nothing is asked of a cluster or a Prometheus: a trigger's query is parsed, and its metrics are held against those that
vLLM has. KEDA asks a query of the Prometheus as it stands, so a name must be vLLM's own; a HorizontalPodAutoscaler gets
a metric through an adapter, which may rename it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import promql_parser as ast

from vllm_doctor.expr.promql_eval import PromQLError, parsed
from vllm_doctor.launch import yaml_tree
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.vllm import flags, gateways, metrics

MAX_BYTES = 1_000_000
ORIGIN = "manifest"
_SIGNS = re.compile(r"^[ \t]*kind:[ \t]*[\"']?(?:ScaledObject|HorizontalPodAutoscaler)\b", re.MULTILINE)
_UNDERSCORE = "vllm_"
_NO_LABELS = frozenset({"model", "model_id", "served_model_name", "engine_id"})
"""What people take for labels of vLLM's metrics, which are `model_name` and `engine`."""
_RUNNING, _KV = "vllm:num_requests_running", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_STUCK: Mapping[str, str] = {
    "gpu_utilization": "GPU utilisation is the share of time in which any kernel ran: it is near 1 from one request on",
    "gpu_memory": "vLLM takes its GPU memory at its start and keeps it: the memory in use does not move with the load",
    "memory": "the memory of vLLM's processes hardly moves with the load",
    "cpu": "an engine process takes about one core whatever its batch is: the CPU hardly moves with the load",
}
_OF_NAME = (
    (
        re.compile(r"DCGM_FI_(?:DEV_GPU_UTIL|PROF_GR_ENGINE_ACTIVE)|gpu_?util|duty_cycle", re.IGNORECASE),
        "gpu_utilization",
    ),
    (re.compile(r"DCGM_FI_DEV_(?:FB_USED|MEM_COPY)|gpu_?mem", re.IGNORECASE), "gpu_memory"),
)


@dataclass(frozen=True)
class Trigger:
    """One thing that it looks at. `query`: PromQL where it is asked of a Prometheus, else the name of a metric."""

    place: str
    line: int
    query: str
    is_promql: bool
    threshold: float | None = None
    resource: str = ""
    """cpu or memory, of Kubernetes' own metrics."""
    most: float | None = None
    """Replicas, at most."""
    is_average: bool = True
    """The value is divided by the replicas before it is held against the threshold: KEDA's default."""


def holds(text: str) -> bool:
    """Whether a text may hold one."""
    return len(text) <= MAX_BYTES and _SIGNS.search(text) is not None


def read(text: str) -> tuple[Trigger, ...]:
    """The triggers in a manifest; none where it cannot be read, or has none."""
    if not holds(text):
        return ()
    try:
        roots = yaml_tree.read(text).roots
    except SourceError:
        return ()
    return tuple(trigger for root in roots for trigger in _found(root))


def _found(node: Node) -> Iterator[Trigger]:
    kind = node["kind"].text if node.kind == "map" else ""
    if kind == "ScaledObject":
        yield from _of_keda(node)
    elif kind == "HorizontalPodAutoscaler":
        yield from _of_hpa(node)
    elif kind == "List":
        for item in node["items"].items:
            yield from _found(item)


def _of_keda(node: Node) -> Iterator[Trigger]:
    name, spec = node.at("metadata", "name").text, node["spec"]
    for place, trigger in enumerate(spec["triggers"].items, 1):
        kind, about = trigger["type"].text, trigger["metadata"]
        where = f"ScaledObject {name}, trigger {place}"
        most = _number(spec["maxReplicaCount"]) or 100.0  # KEDA's default
        if kind == "prometheus":
            query = about["query"]
            threshold, is_average = _number(about["threshold"]), trigger["metricType"].text != "Value"
            yield Trigger(where, query.text_line, query.text.strip(), True, threshold, "", most, is_average)
        elif kind in ("cpu", "memory"):
            yield Trigger(where, trigger.line, kind, False, _number(about["value"]), kind, most)


def _of_hpa(node: Node) -> Iterator[Trigger]:
    name, spec = node.at("metadata", "name").text, node["spec"]
    most = _number(spec["maxReplicas"])
    for place, metric in enumerate(spec["metrics"].items, 1):
        where = f"HorizontalPodAutoscaler {name}, metric {place}"
        resource = metric.at("resource", "name").text or metric.at("containerResource", "name").text
        if resource:
            yield Trigger(where, metric.line, resource, False, None, resource, most)
            continue
        told = next((metric[key] for key in ("pods", "object", "external") if metric[key]), metric)
        named, target = told.at("metric", "name"), told["target"]
        if named.is_scalar:
            average = _number(target["averageValue"])
            threshold = average if average is not None else _number(target["value"])
            yield Trigger(where, named.line, named.text, False, threshold, "", most, average is not None)


def _number(node: Node) -> float | None:
    """Also 500m, as Kubernetes writes half of one."""
    match = re.fullmatch(r"([\d.]{1,20})(m?)", node.text) if node.is_scalar else None
    try:
        return float(match[1]) / (1000 if match[2] else 1) if match is not None else None
    except ValueError:
        return None


def facts(triggers: Iterable[Trigger], version: str | None = None) -> dict[str, Reading]:
    """What is wrong with them, as counts, and the first of each kind in words. `version`: of the vLLM, if known."""
    each = tuple(triggers)
    found: dict[str, Reading] = {"autoscaler_triggers": Known(float(len(each)), origin=ORIGIN)}
    told: dict[str, list[str]] = {kind: [] for kind in ("unknown", "renamed", "broken", "many", "label", "stuck")}
    for trigger in each:
        for kind, says in _wrong(trigger, version):
            told[kind].append(f"{trigger.place} (line {trigger.line}): {says}")
    for kind, sentences in told.items():
        found[f"autoscaler_{kind}"] = Known(float(len(sentences)), origin=ORIGIN)
        if sentences:
            found[f"autoscaler_{kind}_says"] = Known(sentences[0], origin=ORIGIN)
    for name, metric in (("running", (_RUNNING,)), ("kv", _KV)):
        alone = [one for one in each if one.threshold is not None and _is_of_replica(one, metric)]
        if alone:
            found[f"autoscaler_{name}_threshold"] = Known(alone[0].threshold or 0.0, origin=ORIGIN)
            found[f"autoscaler_{name}_place"] = Known(f"{alone[0].place} (line {alone[0].line})", origin=ORIGIN)
    return found


def _is_of_replica(trigger: Trigger, of: Sequence[str]) -> bool:
    """Whether its threshold is what one replica has of these metrics, and of no other."""
    names = set(_names(trigger))
    if len(names) != 1 or not names <= set(of):
        return False
    return trigger.is_average is (not trigger.is_promql or _is_sum(trigger))


def _is_sum(trigger: Trigger) -> bool:
    root = parsed(trigger.query)
    return isinstance(root, ast.AggregateExpr) and str(root.op) == "sum"


def _wrong(trigger: Trigger, version: str | None) -> Iterator[tuple[str, str]]:
    """(kind, sentence) of each thing that is wrong with it."""
    if trigger.resource:
        if trigger.resource in _STUCK:
            yield "stuck", f"{trigger.resource}: {_STUCK[trigger.resource]}"
        return
    names = _names(trigger)
    if trigger.is_promql and not names:
        yield "broken", "its query is no PromQL, or names no metric"
    for name in dict.fromkeys(names):
        if (stuck := next((kind for pattern, kind in _OF_NAME if pattern.search(name)), None)) is not None:
            yield "stuck", f"{name}: {_STUCK[stuck]}"
        elif name.startswith("vllm:") and not (_is_there(name, version) or gateways.shows(name)):
            yield "unknown", f"{name}{_of_whom(version)}"
        elif name.startswith(_UNDERSCORE) and _is_there(own := f"vllm:{name.removeprefix(_UNDERSCORE)}", version):
            if trigger.is_promql:
                yield "unknown", f"{name}: vLLM's own name is {own}"
            else:
                yield "renamed", f"{name}: vLLM's own name is {own}, so an adapter's rule must rename it"
    if trigger.is_promql and names and (trigger.most is None or trigger.most > 1) and _is_many(parsed(trigger.query)):
        yield "many", "its query gives a series for each pod and engine, and KEDA takes one value: sum(…) around it"
    if names and set(names) <= set(_KV) and trigger.is_promql and trigger.is_average and not _is_sum(trigger):
        says = f"{names[0]} is at most 1, and KEDA divides it by the threshold"
        if trigger.threshold:
            says += f" ({trigger.threshold:g}): never more than {math.ceil(1 / trigger.threshold)} replicas"
        yield "stuck", f"{says}; metricType: Value, or sum(…), makes it a replica's"
    for label in _labels(trigger):
        if label in _NO_LABELS:
            yield "label", f"{label} is no label of vLLM's metrics (they have model_name and engine)"


def _of_whom(version: str | None) -> str:
    return f" is no metric of vLLM {version}" if version and flags.judged_as(version) else " is no metric of any vLLM"


def _is_there(name: str, version: str | None) -> bool:
    """Whether vLLM shows it: this version, if it is known, else any."""
    judged = flags.judged_as(version) if version else None
    if judged is not None:
        return metrics.metric(judged, name) is not None
    return metrics.is_shown(name)


def _names(trigger: Trigger) -> list[str]:
    """The metrics that it names."""
    if not trigger.is_promql:
        return [trigger.query]
    return [str(selector.name) for selector in _selectors(trigger) if selector.name]


def _labels(trigger: Trigger) -> list[str]:
    """The labels that it selects vLLM's metrics by."""
    if not trigger.is_promql:
        return []
    return [
        matcher.name
        for selector in _selectors(trigger)
        if str(selector.name).startswith(("vllm:", _UNDERSCORE))
        for matcher in selector.matchers.matchers
    ]


def _selectors(trigger: Trigger) -> list[Any]:
    try:
        return list(_within(parsed(trigger.query)))
    except (PromQLError, RecursionError):
        return []


def _within(node: object) -> Iterator[Any]:
    match node:
        case ast.VectorSelector():
            yield node
        case ast.MatrixSelector():
            yield node.vector_selector
        case ast.ParenExpr() | ast.UnaryExpr() | ast.SubqueryExpr() | ast.AggregateExpr():
            yield from _within(node.expr)
        case ast.Call():
            for argument in node.args:
                yield from _within(argument)
        case ast.BinaryExpr():
            yield from _within(node.lhs)
            yield from _within(node.rhs)


def _is_many(node: object) -> bool:
    """Whether a query gives as many values as there are pods or engines."""
    match node:
        case ast.VectorSelector() | ast.MatrixSelector():
            return True
        case ast.AggregateExpr():
            labels = set(node.modifier.labels) if node.modifier is not None else set()
            is_by = node.modifier is None or str(node.modifier.type) == "AggModifierType.By"
            return str(node.op) in ("topk", "bottomk", "count_values") or not is_by or not labels <= {"le"}
        case ast.Call() if node.func.name in ("scalar", "vector", "absent", "absent_over_time", "time"):
            return False
        case ast.Call():
            return any(_is_many(argument) for argument in node.args)
        case ast.BinaryExpr():
            return _is_many(node.lhs) or _is_many(node.rhs)
        case ast.ParenExpr() | ast.UnaryExpr() | ast.SubqueryExpr():
            return _is_many(node.expr)
        case _:
            return False
