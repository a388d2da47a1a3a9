"""Workloads of Kubernetes by the command line: an API over TLS that answers as a kube-apiserver does."""

from __future__ import annotations

import contextlib
import gzip
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests import kubernetes_api as k8s
from tests.cli.test_main import Doctor, doctor
from tests.making import shipped_catalogue, shipped_rules
from tests.paths import ROOT
from tests.serving import Answer, Route, Served, pages
from vllm_doctor.session.attach import attach
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.view_model import Control, Status, ViewModel
from vllm_doctor.session.watch import Judge, Watch
from vllm_doctor.sources.server.access import Access

__all__ = ["doctor"]

A, B, C = (f"vllm-7d9f8c6b5-{name}" for name in ("aaaaa", "bbbbb", "ccccc"))
CORE = f"/api/v1/namespaces/{k8s.NAMESPACE}"
WORD = f"k8s://{k8s.NAMESPACE}/vllm"
LOG = gzip.decompress((ROOT / "fixtures" / "logs" / "preemption.log.gz").read_bytes()).decode().splitlines()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def run(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor) -> Any:
    """Examine what an API knows, as from a pod of that cluster."""

    @contextlib.contextmanager
    def serving(known: k8s.Api) -> Iterator[Served]:
        with k8s.serving_api(known, authority) as served:
            k8s.as_a_pod(monkeypatch, tmp_path / "account", served, authority)
            yield served

    def ran(known: k8s.Api, *words: str) -> tuple[int, dict[str, Any], Served]:
        with serving(known) as served:
            found = doctor(*(words or (WORD,)), "--json", "--window", "1", "--timeout", "120")
        assert k8s.TOKEN not in found.out + found.err
        assert {request.method for request in served.requests} == {"GET"} or not served.requests
        return found.code, found.report, served

    return ran


def well(**more: Any) -> k8s.Api:
    return k8s.Api(pods=[k8s.pod(A)], metrics={A: pages("preemption")}, logs={A: k8s.stamped("\n".join(LOG))}, **more)


def notes_of(report: dict[str, Any]) -> str:
    return "\n".join(note for source in report["sources"] for note in source["notes"])


def test_one_pod_is_examined_by_its_metrics_its_log_and_its_manifest(run: Any) -> None:
    code, report, served = run(well())
    assert (code, report["headline"]) == (2, "The KV cache is too small for the running batch")
    assert [source["kind"] for source in report["sources"]] == ["server", "log", "command", "kubernetes"]
    assert [source["error"] for source in report["sources"]] == [None] * 4
    assert report["sources"][0]["target"] == f"k8s://{k8s.NAMESPACE}/pod/{A}"
    assert report["patient"]["cores"]["usable"] == 8  # limits.cpu
    assert any("NVIDIA" in said or "H100" in said for said in report["expected"]["assumptions"])  # the node's label
    assert report["command"]["was"][:2] == ["vllm", "serve"]
    assert report["pods"] == []
    assert len(served.asked(f"{CORE}/pods/{A}:8000/proxy/metrics")) >= 2


def test_the_command_is_that_of_what_makes_the_pods_unless_a_pod_differs(run: Any) -> None:
    _, report, _ = run(well())
    assert "Deployment inference/vllm" in next(s["target"] for s in report["sources"] if s["kind"] == "command")
    other = {**k8s.CONTAINER, "args": ["--model", "Qwen/Qwen2.5-7B-Instruct"]}
    _, report, _ = run(k8s.Api(pods=[k8s.pod(A, container=other)], metrics={A: pages("preemption")}))
    assert f"Pod inference/{A}" in next(s["target"] for s in report["sources"] if s["kind"] == "command")


def test_a_pod_that_was_killed_for_its_memory(run: Any) -> None:
    pod = k8s.pod(A, k8s.CRASHING, k8s.OOM_KILLED, 4, created=k8s.ago(minutes=50))
    events = [k8s.event("BackOff", f"Back-off restarting failed container vllm in pod {A}", A, 12)]
    code, report, served = run(k8s.Api(pods=[pod], logs={A: k8s.stamped("\n".join(LOG))}, events=events))
    assert code == 2
    [root] = [f for f in report["findings"] if f["role"] == "root" and f["severity"] == "critical"]
    assert root["rule"] == "container-oom-killed"
    assert report["lives"][-1]["end"] == "died"
    died = next(f for f in report["findings"] if f["rule"] == "engine-died")
    assert died["explained_by"] == "container-oom-killed"
    assert "event BackOff × 12" in notes_of(report)
    assert not [request for request in served.requests if "proxy" in request.path]


def test_a_run_that_was_killed_before_this_one_is_not_forgotten(run: Any) -> None:
    pod = k8s.pod(A, last=k8s.OOM_KILLED, restarts=1)
    known = k8s.Api(
        pods=[pod],
        metrics={A: pages("healthy-busy")},
        logs={A: k8s.stamped("\n".join(LOG[:80])), f"{A} previous": k8s.stamped("\n".join(LOG))},
    )
    code, report, _ = run(known)
    assert (code, report["findings"][0]["rule"]) == (1, "container-oom-killed")
    assert re.search("restarted 1 time; its last run ended .* ago, after 20 min: OOMKilled", notes_of(report))


def test_a_probe_that_ends_the_server(run: Any) -> None:
    events = [
        k8s.event("Killing", "Container vllm failed liveness probe, will be restarted", A, 3, type="Normal"),
        k8s.event("Unhealthy", "Liveness probe failed: Get http://10.244.1.17:8000/health: timeout", A, 9),
    ]
    known = k8s.Api(pods=[k8s.pod(A)], metrics={A: pages("healthy-busy")}, events=events)
    code, report, _ = run(known)
    assert (code, report["findings"][0]["rule"]) == (2, "probe-ends-server")
    assert "event Unhealthy × 9" in notes_of(report)


def test_several_pods_are_examined_each_and_the_worst_is_the_first(run: Any) -> None:
    known = k8s.Api(
        pods=[
            k8s.pod(A),
            k8s.pod(B),
            k8s.pod(C, k8s.CRASHING, k8s.OOM_KILLED, 4),
            k8s.pod(
                "vllm-7d9f8c6b5-ddddd", {}, phase="Failed", reason="Evicted", message="The node was low on memory."
            ),
        ],
        metrics={A: pages("healthy-busy"), B: pages("prefix-cache-off")},
        logs={C: k8s.stamped("\n".join(LOG))},
        page=2,
    )
    code, report, _ = run(known)
    assert code == 2
    assert [(pod["target"].rpartition("/")[2], pod["verdict"]) for pod in report["pods"]][:2] == [
        (C, "critical"),
        (B, "warning"),
    ]
    assert report["pods"][0]["findings"][0] == "container-oom-killed"
    assert "Evicted: The node was low on memory." in notes_of(report)


def test_healthy_pods_stay_silent(run: Any) -> None:
    known = k8s.Api(pods=[k8s.pod(A), k8s.pod(B)], metrics={name: pages("healthy-busy") for name in (A, B)})
    code, report, _ = run(known)
    assert code == 0
    assert [pod["verdict"] for pod in report["pods"]] == ["ok", "ok"]
    assert not [f for f in report["findings"] if f["severity"] != "info"]


def test_a_pod_that_cannot_be_scheduled(run: Any) -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/5 nodes are available: 5 Insufficient nvidia.com/gpu.",
    }
    pod = k8s.pod(A, {}, phase="Pending", containerStatuses=[], conditions=[condition])
    code, report, served = run(k8s.Api(pods=[pod]))
    assert code == 3
    assert "Insufficient nvidia.com/gpu" in report["error"]["message"]
    assert not [request for request in served.requests if "proxy" in request.path or "/log" in request.path]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/api/v1/nodes/gpu-node-1", "no right to get nodes"),
        (f"{CORE}/events", f"no right to list events in namespace {k8s.NAMESPACE}"),
        (f"{CORE}/pods/{A}/log", f"no right to get pods/log in namespace {k8s.NAMESPACE}"),
        (f"{CORE}/pods/{A}:8000/proxy/metrics", f"no right to get pods/proxy in namespace {k8s.NAMESPACE}"),
    ],
)
def test_one_right_that_is_missing_leaves_the_rest(path: str, what: str, run: Any) -> None:
    code, report, _ = run(well(override={path: lambda request: k8s.forbidden("get it")}))
    errors = " ".join(source["error"]["message"] for source in report["sources"] if source["error"])
    assert what in errors + notes_of(report)
    assert sum(source["error"] is None for source in report["sources"]) >= 3
    assert (code == 2) == ("proxy" not in path)


def test_a_port_on_which_nothing_listens(run: Any) -> None:
    told = "error trying to reach service: dial tcp 10.244.1.17:8000: connect: connection refused"
    path = f"{CORE}/pods/{A}:8000/proxy/metrics"
    pods = [k8s.pod(A)]
    refused: dict[str, Route] = {path: lambda request: k8s.status(503, "ServiceUnavailable", told)}
    code, report, _ = run(k8s.Api(pods=pods, override=refused))
    assert code == 3
    assert (
        "port 8000 is not reached (dial tcp 10.244.1.17:8000: connect: connection refused)"
        in report["error"]["message"]
    )


def test_no_credentials_follow_a_redirect_to_the_rest_of_the_api(run: Any) -> None:
    path = f"{CORE}/pods/{A}:8000/proxy/metrics"
    moved = {path: lambda request: Answer(b"", 307, {"Location": f"{CORE}/secrets"})}
    known = well(override=moved)
    known.override[f"{CORE}/secrets"] = lambda request: "vllm:num_requests_running 1\n"
    _, report, served = run(known)
    assert report["sources"][0]["error"]["kind"] == "denied"
    assert not [request for request in served.asked(f"{CORE}/secrets") if "authorization" in request.headers]


def test_the_port_is_that_of_the_command(run: Any) -> None:
    container = {**k8s.CONTAINER, "args": ["--model", "m", "--port", "9000"]}
    _, _, served = run(k8s.Api(pods=[k8s.pod(A, container=container)]))
    assert served.asked(f"{CORE}/pods/{A}:9000/proxy/metrics")
    _, _, served = run(well(), f"{WORD}?port=7000")
    assert served.asked(f"{CORE}/pods/{A}:7000/proxy/metrics")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        (f"k8s://{k8s.NAMESPACE}/vlm", "has no deployment 'vlm'; did you mean vllm?"),
        (f"k8s://{k8s.NAMESPACE}/sts/vllm", f"a deployment of that name: k8s://{k8s.NAMESPACE}/deployment/vllm"),
        (f"k8s://{k8s.NAMESPACE}/pod/{A[:-1]}", f"did you mean {A}?"),
        ("k8s://inferenc/vllm", "has no namespace 'inferenc'; did you mean inference?"),
        (f"k8s://{k8s.NAMESPACE}/lws/vllm", "has no pods with leaderworkerset.sigs.k8s.io/name=vllm"),
        (f"{WORD}?container=vlm", "has no container 'vlm'; it has vllm"),
    ],
)
def test_what_is_not_there_is_one_line(word: str, says: str, run: Any) -> None:
    code, report, _ = run(well(), word)
    assert code == 3
    assert says in report["error"]["message"]


def test_a_workload_without_pods(run: Any) -> None:
    code, report, _ = run(k8s.Api(deployments=[k8s.deployment(replicas=0)]))
    assert code == 3
    assert "scaled to 0 replicas" in report["error"]["message"]


def test_words_as_kubectl_has_them(run: Any) -> None:
    code, report, _ = run(well(), "-n", k8s.NAMESPACE, "deploy/vllm")
    assert (code, report["sources"][0]["target"]) == (2, f"k8s://{k8s.NAMESPACE}/pod/{A}")


def test_a_recording_holds_the_log_of_a_pod(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor
) -> None:
    pod = k8s.pod(A, k8s.CRASHING, k8s.OOM_KILLED, 4)
    with k8s.serving_api(k8s.Api(pods=[pod], logs={A: k8s.stamped("\n".join(LOG))}), authority) as served:
        k8s.as_a_pod(monkeypatch, tmp_path / "account", served, authority)
        doctor("record", WORD, "--duration", "1", "-o", str(tmp_path / "r.tar.gz"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "")
    found = doctor(str(tmp_path / "r.tar.gz"), "--json").report
    assert found["findings"][0]["rule"] == "container-oom-killed"
    assert found["lives"][-1]["end"] == "died"


def test_what_the_api_says_cannot_move_a_terminal(run: Any) -> None:
    events = [k8s.event("Odd", "\x1b[2J\x1b[31mcleared", A)]
    _, report, _ = run(well(events=events))
    assert "\x1b" not in notes_of(report)


def test_at_a_terminal_each_pod_is_watched(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = k8s.Api(
        pods=[k8s.pod(A), k8s.pod(B)], metrics={A: pages("preemption"), B: pages("healthy-busy")}, deployments=[
            k8s.deployment(replicas=2)
        ],
    )  # fmt: skip
    control, told = Control(), []
    with k8s.serving_api(known, authority) as served:
        k8s.as_a_pod(monkeypatch, tmp_path / "account", served, authority)
        look = Attachment(shipped_catalogue().metrics, Access(), 3.0, time.monotonic() + 600)
        judge = Judge(shipped_rules(), shipped_catalogue(), {"goal": "throughput"})
        watch = Watch(lambda opened: attach([WORD], look, opened), judge, control)

        def tell(view_model: ViewModel) -> None:
            told.append(view_model)
            seen = view_model.report.sources if view_model.report is not None else ()
            if sum(source.scrapes > 1 for source in seen) == 2:  # before that no rate is known
                control.stop()

        watch.run(tell)
    assert told[-1].status is Status.LIVE
    assert told[-1].report is not None
    assert [engine.subject["server"].rpartition("/")[2] for engine in told[-1].report.engines] == [A, B]
    assert told[-1].report.headline == "The KV cache is too small for the running batch"
