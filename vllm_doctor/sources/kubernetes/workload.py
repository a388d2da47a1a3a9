"""From a name to pods: a Deployment's, a StatefulSet's, those with a label, or one alone. What is not there is said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.kubernetes import pod
from vllm_doctor.sources.kubernetes.api import Api, Ask, Listed
from vllm_doctor.sources.kubernetes.pod import Pod
from vllm_doctor.sources.kubernetes.target import Kind, Target

MOST_LISTED = 1000
_NAMED = 5
_APPS = {
    Kind.DEPLOYMENT: "deployments",
    Kind.STATEFUL_SET: "statefulsets",
    Kind.DAEMON_SET: "daemonsets",
    Kind.REPLICA_SET: "replicasets",
}
"""What apps/v1 has, with a selector."""
_BY_LABEL = {
    Kind.LEADER_WORKER_SET: "leaderworkerset.sigs.k8s.io/name={},leaderworkerset.sigs.k8s.io/worker-index=0",
    Kind.INFERENCE_SERVICE: "serving.kserve.io/inferenceservice={}",
    Kind.JOB: "job-name={}",
}
"""What others make pods with. Of a LeaderWorkerSet the leaders serve HTTP."""
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9][\w./-]{0,316}", re.ASCII)


@dataclass(frozen=True)
class Pods:
    """The pods of a target, the worst first. `owner`: the object that makes them, where it was read."""

    pods: tuple[Pod, ...]
    owner: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


def pods(api: Api, target: Target, namespace: str, deadline: float) -> Pods:
    """Raises SourceError where there is none: why, and what was likely meant."""
    if target.kind is Kind.POD:
        ask = Ask(f"/api/v1/namespaces/{namespace}/pods/{target.name}", "get", "pods", namespace)
        try:
            return Pods((Pod(api.object(ask, deadline)),))
        except SourceError as error:
            raise _missing(api, target, namespace, error, deadline) from None
    owner = None
    if target.kind in _APPS:
        owner = _owner(api, target, namespace, deadline)
        selector = _selector(mapping_of(owner))
    else:
        selector = _BY_LABEL[target.kind].format(target.name)
    ask = Ask(f"/api/v1/namespaces/{namespace}/pods", "list", "pods", namespace)
    found = api.objects(ask, deadline, MOST_LISTED, labelSelector=selector)
    if not found.items:
        raise _none(api, target, namespace, owner, deadline)
    notes = (f"more than {MOST_LISTED:,} pods: of the others nothing is known",) if found.is_cut else ()
    return Pods(tuple(pod.of_list(found.items)), owner, notes)


def mapping_of(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its selector."""
    return pod.mapping(owner, "spec", "selector")


def _owner(api: Api, target: Target, namespace: str, deadline: float) -> dict[str, Any]:
    plural = _APPS[target.kind]
    ask = Ask(f"/apis/apps/v1/namespaces/{namespace}/{plural}/{target.name}", "get", f"{plural}.apps", namespace)
    try:
        return api.object(ask, deadline)
    except SourceError as error:
        raise _missing(api, target, namespace, error, deadline) from None


def _selector(selector: Mapping[str, Any]) -> str:
    """As a query. Raises SourceError for one that would select every pod."""
    terms = [
        f"{label}={value}"
        for label, value in pod.mapping(selector, "matchLabels").items()
        if _LABEL.fullmatch(label) and isinstance(value, str) and _LABEL_VALUE.fullmatch(value)
    ]
    for one in pod.listed(selector, "matchExpressions"):
        label, values = pod.text(one, "key"), pod.at(one, "values") or []
        among = ",".join(str(value) for value in values) if isinstance(values, list) else ""
        match pod.text(one, "operator"):
            case "In":
                terms.append(f"{label} in ({among})")
            case "NotIn":
                terms.append(f"{label} notin ({among})")
            case "Exists":
                terms.append(label)
            case "DoesNotExist":
                terms.append(f"!{label}")
    if not terms:
        raise SourceError("unreadable", "its spec.selector is not read")
    return ",".join(terms)


# ---- what was likely meant -------------------------------------------------------------------------------------------


def _missing(api: Api, target: Target, namespace: str, error: SourceError, deadline: float) -> SourceError:
    """The error, with what there is, where it says that there is no such object."""
    if error.kind != "not-found":
        return error
    others = _others(api, namespace, deadline)
    if not any(others.values()) and (unknown := _unknown_namespace(api, namespace, deadline)):
        return SourceError("not-found", unknown)
    told = f"namespace {namespace} has no {target.kind} {target.name!r}"
    for kind, names in others.items():
        if kind is not target.kind and target.name in names:
            return SourceError(
                "not-found", f"{told}; it has a {kind} of that name: k8s://{namespace}/{kind}/{target.name}"
            )
    if target.kind not in others:
        return SourceError("not-found", told)
    names = others[target.kind]
    near = get_close_matches(target.name, names, 1, 0.5)
    if near:
        return SourceError("not-found", f"{told}; did you mean {near[0]}?")
    for kind, other in others.items():
        if kind is not target.kind and (near := get_close_matches(target.name, other, 1, 0.8)):
            return SourceError("not-found", f"{told}; did you mean k8s://{namespace}/{kind}/{near[0]}?")
    return SourceError("not-found", f"{told}; it has {_some(names) or f'no {target.kind}'}")


def _none(api: Api, target: Target, namespace: str, owner: Mapping[str, Any] | None, deadline: float) -> SourceError:
    """Why an object has no pods."""
    if owner is None:
        unknown = _unknown_namespace(api, namespace, deadline)
        label = _BY_LABEL[target.kind].format(target.name)
        return SourceError("not-found", unknown or f"namespace {namespace} has no pods with {label}")
    where = f"{target.kind} {target.name} in namespace {namespace}"
    if pod.at(owner, "spec", "replicas") == 0:
        return SourceError("not-found", f"{where} has no pods: it is scaled to 0 replicas")
    failing = [
        f"{pod.text(one, 'reason')}: {pod.text(one, 'message')[:200]}"
        for one in pod.listed(owner, "status", "conditions")
        if (pod.text(one, "type"), pod.text(one, "status")) in (("ReplicaFailure", "True"), ("Progressing", "False"))
    ]
    return SourceError("not-found", f"{where} has no pods{f': {failing[0]}' if failing else ''}")


def _others(api: Api, namespace: str, deadline: float) -> dict[Kind, list[str]]:
    """The names of what the namespace has, as far as they may be listed."""
    found: dict[Kind, list[str]] = {}
    for kind, path, resource in (
        (Kind.DEPLOYMENT, f"/apis/apps/v1/namespaces/{namespace}/deployments", "deployments.apps"),
        (Kind.STATEFUL_SET, f"/apis/apps/v1/namespaces/{namespace}/statefulsets", "statefulsets.apps"),
        (Kind.POD, f"/api/v1/namespaces/{namespace}/pods", "pods"),
    ):
        try:
            found[kind] = _names(api.objects(Ask(path, "list", resource, namespace), deadline, MOST_LISTED))
        except SourceError:
            continue
    return found


def _unknown_namespace(api: Api, namespace: str, deadline: float) -> str:
    """That there is no such namespace, as far as one may ask; else ""."""
    try:
        api.object(Ask(f"/api/v1/namespaces/{namespace}", "get", "namespaces"), deadline)
        return ""
    except SourceError as error:
        if error.kind != "not-found":
            return ""
    told = f"{api.cluster.name} has no namespace {namespace!r}"
    try:
        names = _names(api.objects(Ask("/api/v1/namespaces", "list", "namespaces"), deadline, MOST_LISTED))
    except SourceError:
        return told
    near = get_close_matches(namespace, names, 1, 0.5)
    return f"{told}; did you mean {near[0]}?" if near else f"{told}; it has {_some(names)}"


def _names(found: Listed) -> list[str]:
    return sorted(pod.text(one, "metadata", "name") for one in found.items)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
