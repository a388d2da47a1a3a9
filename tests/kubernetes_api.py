"""For the tests: a small server over TLS that answers as a kube-apiserver does, as far as the doctor asks.

Its objects have the shape of the real API's (v1 Pod, apps/v1 Deployment, Status); no cluster was at hand to record one.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from tests import serving
from tests.serving import Answer, Request, Route, Served
from vllm_doctor.sources.kubernetes import cluster

TOKEN = "eyJhbGciOiJSUzI1NiJ9.cGxhbnRlZC10b2tlbg.c2lnbmF0dXJl"
NAMESPACE = "inference"
NOW = datetime.now(UTC)


def ago(**past: float) -> str:
    return (NOW - timedelta(**past)).strftime("%Y-%m-%dT%H:%M:%SZ")


def status(code: int, reason: str, message: str, **metadata: str) -> Answer:
    """metav1.Status, as the API refuses."""
    return json_answer(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        },
        code,
    )


def json_answer(document: Any, code: int = 200) -> Answer:
    import json

    return Answer(json.dumps(document).encode(), code, {"Content-Type": "application/json"})


def forbidden(what: str) -> Answer:
    """`pods is forbidden: User "…" cannot list resource "pods" in API group "" in the namespace "inference"`."""
    verb, resource = what.split(" ", 1)
    user = "system:serviceaccount:inference:doctor"
    told = f'{resource} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group ""'
    return status(403, "Forbidden", f'{told} in the namespace "{NAMESPACE}"')


CONTAINER: Mapping[str, Any] = {
    "name": "vllm",
    "image": "vllm/vllm-openai:v0.11.0",
    "args": ["--model", "Qwen/Qwen2.5-7B-Instruct", "--max-num-seqs", "64"],
    "ports": [{"containerPort": 8000, "protocol": "TCP"}],
    "env": [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        {"name": "VLLM_LOGGING_LEVEL", "value": "INFO"},
    ],
    "resources": {
        "limits": {"cpu": "8", "memory": "48Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "1"},
    },
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
RUNNING = {"running": {"startedAt": ago(hours=5)}}
OOM_KILLED = {
    "terminated": {
        "exitCode": 137,
        "reason": "OOMKilled",
        "startedAt": ago(minutes=32),
        "finishedAt": ago(minutes=12),
        "containerID": "containerd://5f0c",
    }
}
CRASHING = {
    "waiting": {
        "reason": "CrashLoopBackOff",
        "message": "back-off 5m0s restarting failed container=vllm pod=vllm-0_inference(7d0f)",
    }
}


def pod(
    name: str,
    state: Mapping[str, Any] = RUNNING,
    last: Mapping[str, Any] | None = None,
    restarts: int = 0,
    container: Mapping[str, Any] = CONTAINER,
    created: str = "",
    **status_of: Any,
) -> dict[str, Any]:
    """A v1 Pod."""
    is_running = "running" in state
    return {
        "metadata": {
            "name": name,
            "generateName": "vllm-7d9f8c6b5-",
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "resourceVersion": "481516",
            "creationTimestamp": created or ago(hours=5),
            "labels": {"app": "vllm", "pod-template-hash": "7d9f8c6b5"},
        },
        "spec": {
            "containers": [container],
            "nodeName": "gpu-node-1",
            "restartPolicy": "Always",
            "serviceAccountName": "default",
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "podIP": "10.244.1.17",
            "containerStatuses": [
                {
                    "name": container["name"],
                    "state": state,
                    "lastState": last or {},
                    "ready": is_running,
                    "restartCount": restarts,
                    "image": f"docker.io/{container['image']}",
                    "imageID": "docker.io/vllm/vllm-openai@sha256:1f2e",
                    "containerID": "containerd://7d0f",
                    "started": is_running,
                }
            ],
            **status_of,
        },
    }


def deployment(name: str = "vllm", replicas: int = 1, container: Mapping[str, Any] = CONTAINER) -> dict[str, Any]:
    """An apps/v1 Deployment."""
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": {"app": "vllm"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "vllm"}},
            "template": {
                "metadata": {"labels": {"app": "vllm"}},
                "spec": {"containers": [container], "restartPolicy": "Always"},
            },
        },
        "status": {},
    }


NODE: dict[str, Any] = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {
        "name": "gpu-node-1",
        "labels": {
            "kubernetes.io/hostname": "gpu-node-1",
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        },
    },
    "status": {
        "allocatable": {"cpu": "191450m", "memory": "2100Gi", "nvidia.com/gpu": "8"},
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
    },
}


def event(reason: str, message: str, of: str, count: int = 1, type: str = "Warning", when: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": f"{of}.{reason}", "namespace": NAMESPACE, "uid": f"uid-{of}-{reason}"},
        "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": of},
        "reason": reason,
        "message": message,
        "type": type,
        "count": count,
        "firstTimestamp": ago(minutes=50),
        "lastTimestamp": when or ago(minutes=3),
    }


def stamped(text: str, begin: datetime | None = None) -> str:
    """A log with the times that the kubelet writes before its lines, one a second."""
    at = begin or NOW - timedelta(hours=1)
    lines = text.splitlines()
    times = (at + timedelta(seconds=second) for second in range(len(lines)))
    return "".join(f"{t:%Y-%m-%dT%H:%M:%S}.000000000Z {line}\n" for t, line in zip(times, lines, strict=False))


@dataclass
class Api:
    """What the server knows. `logs`: by pod, or by "pod previous". `override`: a path's own answers."""

    pods: Sequence[Mapping[str, Any]] = ()
    deployments: Sequence[Mapping[str, Any]] = field(default_factory=lambda: [deployment()])
    stateful_sets: Sequence[Mapping[str, Any]] = ()
    nodes: Sequence[Mapping[str, Any]] = (NODE,)
    events: Sequence[Mapping[str, Any]] = ()
    namespaces: Sequence[str] = (NAMESPACE, "default", "kube-system")
    logs: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    override: dict[str, Route] = field(default_factory=dict)
    page: int = 100

    def routes(self) -> dict[str, Route]:
        """By path, each behind the token."""
        core, apps = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/apps/v1/namespaces/{NAMESPACE}"
        found: dict[str, Route] = {
            f"{core}/pods": self._list(self.pods, "PodList"),
            f"{core}/events": self._list(self.events, "EventList"),
            f"{apps}/deployments": self._list(self.deployments, "DeploymentList"),
            f"{apps}/statefulsets": self._list(self.stateful_sets, "StatefulSetList"),
            "/api/v1/namespaces": self._list([{"metadata": {"name": n}} for n in self.namespaces], "NamespaceList"),
        }
        for name in self.namespaces:
            found[f"/api/v1/namespaces/{name}"] = _document({"kind": "Namespace", "metadata": {"name": name}})
        for one in self.deployments:
            found[f"{apps}/deployments/{one['metadata']['name']}"] = _document(one)
        for one in self.stateful_sets:
            found[f"{apps}/statefulsets/{one['metadata']['name']}"] = _document(one)
        for one in self.nodes:
            found[f"/api/v1/nodes/{one['metadata']['name']}"] = _document(one)
        for one in self.pods:
            name = one["metadata"]["name"]
            found[f"{core}/pods/{name}"] = _document({"kind": "Pod", "apiVersion": "v1", **one})
            found[f"{core}/pods/{name}/log"] = self._log(name)
            if name in self.metrics:
                proxied = f"{core}/pods/{name}:8000/proxy"
                found |= serving.vllm(self.metrics[name], prefix=proxied)
        found |= self.override
        return {path: _guarded(route) for path, route in found.items()}

    def _list(self, items: Sequence[Mapping[str, Any]], kind: str) -> Route:
        """Page by page; labels and fields are selected as the API does, as far as the tests ask."""

        def answer(request: Request) -> Answer:
            query = parse_qs(urlsplit(request.path).query)
            chosen = [one for one in items if _is_selected(one, query)]
            limit = min(self.page, int(query.get("limit", ["500"])[0]))
            start = int(query.get("continue", ["0"])[0])
            more = {"continue": str(start + limit)} if start + limit < len(chosen) else {}
            return json_answer(
                {
                    "kind": kind,
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": "481516", **more},
                    "items": chosen[start : start + limit],
                }
            )

        return answer

    def _log(self, name: str) -> Route:
        def answer(request: Request) -> Answer:
            query = parse_qs(urlsplit(request.path).query)
            which = f"{name} previous" if query.get("previous") == ["true"] else name
            if which not in self.logs:
                told = f'previous terminated container "vllm" in pod "{name}" not found'
                return status(400, "BadRequest", told)
            lines = self.logs[which].encode().splitlines(keepends=True)
            lines = lines[-int(query["tailLines"][0]) :] if "tailLines" in query else lines
            return Answer(b"".join(lines)[: int(query["limitBytes"][0])], headers={"Content-Type": "text/plain"})

        return answer


def _is_selected(one: Mapping[str, Any], query: Mapping[str, list[str]]) -> bool:
    for term in query.get("labelSelector", [""])[0].split(","):
        label, equals, value = term.partition("=")
        if equals and one["metadata"].get("labels", {}).get(label) != value:
            return False
    for term in query.get("fieldSelector", [""])[0].split(","):
        path, _, value = term.partition("=")
        if path == "involvedObject.name" and one["involvedObject"]["name"] != value:
            return False
    return True


def _document(document: Mapping[str, Any]) -> Route:
    return lambda request: json_answer(document)


def _guarded(route: Route) -> Route:
    def answer(request: Request) -> Answer | bytes | str:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return status(401, "Unauthorized", "Unauthorized")
        return route(request)

    return answer


@contextlib.contextmanager
def serving_api(api: Api, authority: trustme.CA) -> Iterator[Served]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with serving.serving(_WithStatus(api.routes()), tls=context) as served:
        yield served


class _WithStatus(dict[str, Route]):
    """What is not there is a Status, too."""

    def get(self, path: str, default: Any = None) -> Any:
        return super().get(path, _guarded(_missing))


def _missing(request: Request) -> Answer:
    path = urlsplit(request.path).path.rsplit("/", 2)
    return status(404, "NotFound", f'{path[-2]} "{path[-1]}" not found')


def as_a_pod(monkeypatch: pytest.MonkeyPatch, folder: Path, served: Served, authority: trustme.CA) -> None:
    """As if the doctor ran in a pod of that cluster."""
    folder.mkdir(exist_ok=True)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    (folder / "token").write_text(TOKEN)
    (folder / "namespace").write_text(NAMESPACE)
    monkeypatch.setattr(cluster, "SERVICE_ACCOUNT", folder)
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(served.port))


Serve = Callable[[Api], Served]
