"""What is around a pod: its node, with the labels that name its GPUs, and the events of the pod."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.kubernetes import pod as pods
from vllm_doctor.sources.kubernetes.api import Api, Ask
from vllm_doctor.sources.kubernetes.pod import ORIGIN, Pod, listed, mapping, moment, text, whole
from vllm_doctor.text import durations
from vllm_doctor.vllm import gpu_names, instances

_MOST_EVENTS = 200
_SHOWN = 4
_SAID = 250
_KILLING = "Killing"
_BY_PROBE = ("failed liveness probe", "failed startup probe")


def examine(
    api: Api, pod: Pod, container: str, patient: str, deadline: float, wall: Callable[[], float] = time.time
) -> Observation:
    """The pod as the API knows it. What may not be read is a note with the right that is missing."""
    now = wall()
    running = pod.container(container)
    facts = pods.facts(pod, running, now)
    notes = [*api.cluster.notes, *pods.notes(pod, running, now)]
    for look in (_node, _events):
        try:
            more, said = look(api, pod, deadline, now)
            facts |= more
            notes += said
        except SourceError as error:
            notes.append(f"not seen: {error}")
    return Observation(SourceKind.KUBERNETES, patient, facts=facts, notes=tuple(notes), patient=patient)


def _node(api: Api, pod: Pod, deadline: float, now: float) -> tuple[dict[str, Reading], list[str]]:
    if not pod.node:
        return {}, []
    node = api.object(Ask(f"/api/v1/nodes/{pod.node}", "get", "nodes"), deadline)
    labels = mapping(node, "metadata", "labels")
    said = []
    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure"):
        if any(text(c, "type") == kind and text(c, "status") == "True" for c in listed(node, "status", "conditions")):
            said.append(f"node {pod.node} has {kind}")
    found = gpu(labels)
    if found is None:
        return {}, said
    return {"gpu_written": Known(found[1], origin=ORIGIN)}, said


def gpu(labels: Mapping[str, Any]) -> tuple[str, str] | None:
    """The label of a node that names its GPUs, and the name; the one that tells most goes first."""
    for label in instances.labels():
        value = labels.get(label)
        if isinstance(value, str) and gpu_names.named(value) is not None:
            return label, value
    return None


def _events(api: Api, pod: Pod, deadline: float, now: float) -> tuple[dict[str, Reading], list[str]]:
    ask = Ask(f"/api/v1/namespaces/{pod.namespace}/events", "list", "events", pod.namespace)
    selected = f"involvedObject.kind=Pod,involvedObject.name={pod.name}"
    found = api.objects(ask, deadline, _MOST_EVENTS, fieldSelector=selected).items
    kills = [one for one in found if text(one, "reason") == _KILLING and _is_by_probe(text(one, "message"))]
    count = float(sum(_times(one) for one in kills))
    facts: dict[str, Reading] = {"probe_kills": Known(count, origin=ORIGIN)}
    if kills:
        facts["probe_kills_says"] = Known(text(kills[-1], "message")[:_SAID].rstrip("."), origin=ORIGIN)
    warnings = [one for one in found if text(one, "type") == "Warning"]
    warnings = sorted(warnings, key=lambda one: -(_seen(one) or 0.0))
    said = [_said(one, now) for one in warnings[:_SHOWN]]
    if len(warnings) > _SHOWN:
        said.append(f"{len(warnings) - _SHOWN} more warnings among its events")
    return facts, said


def _is_by_probe(message: str) -> bool:
    return any(words in message for words in _BY_PROBE)


def _times(event: Mapping[str, Any]) -> int:
    return max(1, whole(event, "count"), whole(event, "series", "count"))


def _seen(event: Mapping[str, Any]) -> float | None:
    """When it was seen last."""
    times = (moment(event, "series", "lastObservedTime"), moment(event, "lastTimestamp"), moment(event, "eventTime"))
    return next((at for at in times if at is not None), None)


def _said(event: Mapping[str, Any], now: float) -> str:
    times, at = _times(event), _seen(event)
    often = f" × {times}" if times > 1 else ""
    ago = f", {durations.duration(max(0.0, now - at))} ago" if at is not None else ""
    return f"event {text(event, 'reason')}{often}{ago}: {text(event, 'message')[:_SAID]}"
