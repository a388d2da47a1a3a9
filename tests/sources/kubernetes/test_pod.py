"""What a pod's own JSON tells."""

from __future__ import annotations

from typing import Any

import pytest

from tests import kubernetes_api as k8s
from vllm_doctor.model.reading import Known
from vllm_doctor.sources.kubernetes import pod as pods
from vllm_doctor.sources.kubernetes.pod import Pod

NOW = k8s.NOW.timestamp()


def facts_of(document: dict[str, Any]) -> dict[str, Any]:
    found = pods.facts(Pod(document), Pod(document).container("vllm"), NOW)
    return {name: fact.value for name, fact in found.items() if isinstance(fact, Known)}


def test_a_pod_that_was_never_restarted() -> None:
    found = facts_of(k8s.pod("a"))
    assert (found["restarts"], found["container_down"], found["container_oom_killed"]) == (0, 0, 0)
    assert found["container_memory_limit"] == "48Gi"
    assert "container_end" not in found
    assert Pod(k8s.pod("a")).why_down(Pod(k8s.pod("a")).container("vllm")) == ""


def test_one_that_was_killed_for_its_memory() -> None:
    found = facts_of(k8s.pod("a", k8s.CRASHING, k8s.OOM_KILLED, 4, created=k8s.ago(minutes=50)))
    assert (found["container_oom_killed"], found["container_down"], found["restarts"]) == (1, 1, 4)
    assert found["container_end"] == "OOMKilled, exit code 137"
    assert found["container_lived"] == 1200
    assert found["container_ended_ago"] == pytest.approx(720, abs=2)


def test_of_an_old_pod_only_the_last_restart_is_certain() -> None:
    found = facts_of(k8s.pod("a", last=k8s.OOM_KILLED, restarts=17, created=k8s.ago(days=9)))
    assert found["restarts"] == 1
    assert "restart_interval" not in found


def test_a_restart_of_yesterday_is_none_within_the_hour() -> None:
    last = {
        "terminated": {"exitCode": 1, "reason": "Error", "finishedAt": k8s.ago(days=1), "startedAt": k8s.ago(days=3)}
    }
    assert facts_of(k8s.pod("a", last=last, restarts=17, created=k8s.ago(days=9)))["restarts"] == 0


def test_restarts_whose_end_nobody_knows_are_unknown() -> None:
    assert "restarts" not in facts_of(k8s.pod("a", restarts=3))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            k8s.pod(
                "a",
                {},
                phase="Pending",
                containerStatuses=[],
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/5 nodes are available: 5 Insufficient nvidia.com/gpu.",
                    }
                ],
            ),
            "it is Pending; Unschedulable: 0/5 nodes are available: 5 Insufficient nvidia.com/gpu.",
        ),
        (
            k8s.pod(
                "a", {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}, phase="Pending"
            ),
            "it is Pending; ImagePullBackOff (Back-off pulling image)",
        ),
        (
            k8s.pod(
                "a",
                {"waiting": {"reason": ""}},
                phase="Pending",
                initContainerStatuses=[
                    {"name": "fetch-model", "state": {"running": {"startedAt": k8s.ago(minutes=4)}}}
                ],
            ),
            "it is Pending; init container fetch-model: running",
        ),
        (
            k8s.pod("a", {}, phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
            "it is Failed (Evicted: The node was low on resource: memory.)",
        ),
    ],
)
def test_why_a_pod_does_not_serve(document: dict[str, Any], says: str) -> None:
    assert Pod(document).why_down(Pod(document).container("vllm")) == says


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": None, "spec": [], "status": "x"},
        {"spec": {"containers": ["x", {"name": 7}]}, "status": {"containerStatuses": [{"name": "vllm", "state": []}]}},
        {
            "status": {
                "containerStatuses": [{"name": "vllm", "restartCount": True, "lastState": {"terminated": {"x": 1}}}]
            }
        },
        {"metadata": {"creationTimestamp": "9999999-01-01T00:00:00Z"}, "status": {"conditions": {}}},
    ],
)
def test_what_is_not_as_it_should_be_is_as_if_it_were_not_there(document: dict[str, Any]) -> None:
    pod = Pod(document)
    container = pod.container("vllm")
    assert pod.why_down(container)
    assert pods.notes(pod, container, NOW) is not None
    assert isinstance(pods.facts(pod, container, NOW)["in_pod"], Known)
    assert isinstance(pod.main(), str)


def test_the_container_that_is_looked_at() -> None:
    proxy = {"name": "istio-proxy", "image": "istio/proxyv2"}
    document = k8s.pod("a")
    document["spec"]["containers"] = [proxy, k8s.CONTAINER]
    assert Pod(document).main() == "vllm"
    document["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "istio-proxy"}
    assert Pod(document).main() == "istio-proxy"
    assert Pod(document).main("vllm") == "vllm"


def test_the_worst_pod_is_the_first() -> None:
    well, restarted, down = k8s.pod("a"), k8s.pod("b", restarts=2), k8s.pod("c", k8s.CRASHING, k8s.OOM_KILLED, 4)
    assert [pod.name for pod in pods.of_list([well, restarted, down])] == ["c", "b", "a"]
