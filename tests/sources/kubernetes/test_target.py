"""The words that name a workload."""

from __future__ import annotations

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.sources.kubernetes import target
from vllm_doctor.sources.kubernetes.target import Kind, Target


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("k8s://inference/vllm", Target("inference", Kind.DEPLOYMENT, "vllm")),
        ("k8s:///vllm", Target("", Kind.DEPLOYMENT, "vllm")),
        ("k8s://inference/deploy/vllm", Target("inference", Kind.DEPLOYMENT, "vllm")),
        ("k8s://inference/deployments.apps/vllm", Target("inference", Kind.DEPLOYMENT, "vllm")),
        ("k8s://inference/pod/vllm-0", Target("inference", Kind.POD, "vllm-0")),
        ("k8s://inference/sts/vllm", Target("inference", Kind.STATEFUL_SET, "vllm")),
        ("k8s://inference/lws/vllm", Target("inference", Kind.LEADER_WORKER_SET, "vllm")),
        (
            "k8s://inference/vllm?context=prod&container=server&port=8080",
            Target("inference", Kind.DEPLOYMENT, "vllm", "prod", "server", "8080"),
        ),
    ],
)
def test_a_word_names_a_workload(word: str, named: Target) -> None:
    assert target.parse(word) == named
    assert target.parse(str(named)) == named


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("k8s://inference", "write k8s://namespace/deployment"),
        ("k8s://a/b/c/d", "write k8s://namespace/deployment"),
        ("k8s://inference/deploymnt/vllm", "did you mean deployment?"),
        ("k8s://inference/secret/vllm", "no kind of object that has pods"),
        ("k8s://inference/../vllm", "no kind"),
        ("k8s://inference/pod/..", "'..' is no name"),
        ("k8s://inference/pod/a%2f..%2fsecrets", "is no name"),
        ("k8s://INFERENCE/vllm", "is no name"),
        ("k8s://inference/vllm?token=x", "'token' is not known"),
        ("k8s://inference/vllm?port=0", "no port"),
        ("k8s://inference/vllm?container=../x", "no name of a container"),
        ("k8s://me:secret@inference/vllm", "leave out what stands before @"),
    ],
)
def test_what_names_nothing_is_refused(word: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        target.parse(word)
    assert says in str(refused.value)
    assert "secret@" not in str(refused.value)


def test_words_as_kubectl_has_them_within_a_namespace() -> None:
    assert target.within("inference", ["deploy/vllm", "pod/vllm-0", "vllm.log"]) == [
        "k8s://inference/deployment/vllm",
        "k8s://inference/pod/vllm-0",
        "vllm.log",
    ]


@pytest.mark.parametrize(
    ("namespace", "words"), [("inference", ["vllm.log"]), ("inference", []), ("a/b", ["deploy/x"])]
)
def test_a_namespace_without_a_workload_is_refused(namespace: str, words: list[str]) -> None:
    with pytest.raises(UsageError):
        target.within(namespace, words)
