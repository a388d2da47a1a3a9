"""The API over TLS: pages, what is refused, what breaks, and the logs."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Iterator

import pytest
import trustme

from tests import kubernetes_api as k8s
from tests.serving import Answer, CutError, Request, Served
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.kubernetes import pod_log
from vllm_doctor.sources.kubernetes.api import Api, Ask
from vllm_doctor.sources.kubernetes.cluster import Cluster
from vllm_doctor.sources.kubernetes.pod import Pod

PODS = Ask(f"/api/v1/namespaces/{k8s.NAMESPACE}/pods", "list", "pods", k8s.NAMESPACE)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@contextlib.contextmanager
def asked(known: k8s.Api, authority: trustme.CA, token: str = k8s.TOKEN) -> Iterator[tuple[Api, Served]]:
    secured = ssl.create_default_context()
    authority.configure_trust(secured)
    with k8s.serving_api(known, authority) as served:
        cluster = Cluster(served.url, "context test", "default", secured, lambda: {"authorization": f"Bearer {token}"})
        with contextlib.closing(Api(cluster)) as api:
            yield api, served


def soon() -> float:
    return time.monotonic() + 20


def refusal(known: k8s.Api, authority: trustme.CA, ask: Ask = PODS, token: str = k8s.TOKEN) -> SourceError:
    with asked(known, authority, token) as (api, _), pytest.raises(SourceError) as refused:
        api.objects(ask, soon(), 100)
    assert k8s.TOKEN not in str(refused.value)
    return refused.value


def test_all_pages_of_a_list(authority: trustme.CA) -> None:
    with asked(k8s.Api(pods=[k8s.pod(f"p{n}") for n in range(25)], page=10), authority) as (api, served):
        found = api.objects(PODS, soon(), 1000)
    assert [item["metadata"]["name"] for item in found.items] == [f"p{n}" for n in range(25)]
    assert not found.is_cut
    assert len(served.requests) == 3
    assert len({request.client for request in served.requests}) == 1


def test_a_list_without_end_is_cut(authority: trustme.CA) -> None:
    with asked(k8s.Api(pods=[k8s.pod(f"p{n}") for n in range(40)], page=10), authority) as (api, served):
        found = api.objects(PODS, soon(), 20)
    assert (len(found.items), found.is_cut, len(served.requests)) == (20, True, 2)


@pytest.mark.parametrize("has_token", [True, False])
def test_a_list_that_grew_too_old_goes_on_or_begins_anew(has_token: bool, authority: trustme.CA) -> None:
    known = k8s.Api(pods=[k8s.pod(f"p{n}") for n in range(25)], page=10)
    pages = known.routes()[PODS.path]
    expired: list[str] = []

    def answer(request: Request) -> Answer | bytes | str:
        if "continue=10" in request.path and not expired:
            expired.append(request.path)
            told = "The provided continue parameter is too old to display a consistent list result."
            return k8s.status(410, "Expired", told, **({"continue": "10"} if has_token else {}))
        return pages(request)

    known.override[PODS.path] = answer
    with asked(known, authority) as (api, served):
        found = api.objects(PODS, soon(), 1000)
    assert [item["metadata"]["name"] for item in found.items] == [f"p{n}" for n in range(25)]
    assert len(served.requests) == (4 if has_token else 5)


def test_a_list_that_expires_on_and_on_is_given_up(authority: trustme.CA) -> None:
    known = k8s.Api(pods=[k8s.pod(f"p{n}") for n in range(25)], page=10)
    pages = known.routes()[PODS.path]
    known.override[PODS.path] = lambda request: (
        k8s.status(410, "Expired", "too old") if "continue=" in request.path else pages(request)
    )
    assert "changed faster than it could be read" in str(refusal(known, authority))


def test_a_connection_that_breaks_is_tried_once_more(authority: trustme.CA) -> None:
    known = k8s.Api(pods=[k8s.pod("a")])
    pods = known.routes()[PODS.path]
    calls: list[str] = []

    def cut_once(request: Request) -> Answer | bytes | str:
        calls.append(request.path)
        if len(calls) == 1:
            raise CutError
        return pods(request)

    known.override[PODS.path] = cut_once
    with asked(known, authority) as (api, _):
        assert len(api.objects(PODS, soon(), 10).items) == 1


def test_a_right_that_is_missing_is_named(authority: trustme.CA) -> None:
    known = k8s.Api(override={PODS.path: lambda request: k8s.forbidden("list pods")})
    error = refusal(known, authority)
    assert error.kind == "denied"
    assert f"no right to list pods in namespace {k8s.NAMESPACE}" in str(error)


def test_credentials_that_expired(authority: trustme.CA) -> None:
    error = refusal(k8s.Api(), authority, token="old")
    assert error.kind == "denied"
    assert "401" in str(error)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda request: Answer(b"<html>sign in</html>", headers={"Content-Type": "text/html"}), "text/html"),
        (lambda request: Answer(b"[" * 100_000), "no answer of Kubernetes"),
        (lambda request: k8s.status(500, "InternalError", "etcdserver: request timed out"), "etcdserver"),
        (lambda request: k8s.status(429, "TooManyRequests", "later"), "too many requests"),
        (lambda request: Answer(b"", 302, {"Location": "https://elsewhere.example/"}), "302"),
    ],
)
def test_what_is_no_answer(answer: Callable[[Request], Answer], says: str, authority: trustme.CA) -> None:
    assert says in str(refusal(k8s.Api(override={PODS.path: answer}), authority))


def test_a_cluster_that_nobody_vouches_for_is_sent_nothing(authority: trustme.CA) -> None:
    with k8s.serving_api(k8s.Api(), authority) as served:
        cluster = Cluster(
            served.url, "context test", "", ssl.create_default_context(), lambda: {"authorization": "Bearer x"}
        )
        with contextlib.closing(Api(cluster)) as api, pytest.raises(SourceError) as refused:
            api.objects(PODS, soon(), 10)
    assert refused.value.kind == "tls"
    assert "certificate-authority" in str(refused.value)
    assert "--insecure" not in str(refused.value)
    assert served.requests == []


# ---- logs ------------------------------------------------------------------------------------------------------------


def log_of(known: k8s.Api, authority: trustme.CA) -> tuple[str, list[str], Served]:
    with asked(known, authority) as (api, served):
        pod = Pod({"kind": "Pod", **known.pods[0]})
        text, notes = pod_log.read(api, pod, pod.container("vllm"), soon())
    return text.decode(), notes, served


def test_a_short_log_is_read_whole(authority: trustme.CA) -> None:
    text, notes, served = log_of(k8s.Api(pods=[k8s.pod("a")], logs={"a": k8s.stamped("one\ntwo")}), authority)
    assert [line.split(" ", 1)[1] for line in text.splitlines()] == ["one", "two"]
    assert notes == []
    assert len(served.requests) == 1


def test_between_two_runs_stands_how_the_first_ended(authority: trustme.CA) -> None:
    logs = {"a previous": k8s.stamped("before"), "a": k8s.stamped("after")}
    text, _, _ = log_of(k8s.Api(pods=[k8s.pod("a", last=k8s.OOM_KILLED, restarts=1)], logs=logs), authority)
    lines = [line.split(" ", 1)[1] for line in text.splitlines()]
    assert lines == [
        "before",
        "kubernetes: Last State: Terminated, Reason: OOMKilled exited with code 137",
        "after",
    ]


def test_the_log_of_the_run_before_may_be_gone(authority: trustme.CA) -> None:
    known = k8s.Api(pods=[k8s.pod("a", last=k8s.OOM_KILLED, restarts=1)], logs={"a": k8s.stamped("after")})
    text, notes, _ = log_of(known, authority)
    assert "OOMKilled" in text
    assert "after" in text
    assert "previous terminated container" in notes[0]


@pytest.mark.parametrize("lines", [10_000, 60_000])
def test_of_a_long_log_its_beginning_and_its_end(lines: int, authority: trustme.CA) -> None:
    whole = k8s.stamped("\n".join(f"line {n} {'x' * 100}" for n in range(lines)))
    text, notes, _ = log_of(k8s.Api(pods=[k8s.pod("a")], logs={"a": whole}), authority)
    numbers = [int(line.split(" ")[2]) for line in text.splitlines()]
    assert (numbers[0], numbers[-1]) == (0, lines - 1)
    assert numbers == sorted(set(numbers))
    assert len(text) < pod_log.HEAD + pod_log.TAIL
    assert bool(notes) == (len(numbers) < lines)


def test_no_right_to_logs(authority: trustme.CA) -> None:
    known = k8s.Api(pods=[k8s.pod("a")])
    known.override[f"{PODS.path}/a/log"] = lambda request: k8s.forbidden("get pods/log")
    with pytest.raises(SourceError, match="no right to get pods/log"):
        log_of(known, authority)
