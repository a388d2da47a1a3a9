"""What a word k8s://namespace/deployment names. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, urlencode, urlsplit

from vllm_doctor.model.errors import UsageError

SCHEME = "k8s://"
_WRITE = "write k8s://namespace/deployment, or k8s://namespace/pod/NAME"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""RFC 1123, as the API takes it: what fits needs no quoting in a path."""
_OPTIONS = ("context", "container", "port")


class Kind(StrEnum):
    """What owns pods, or is one."""

    POD = "pod"
    DEPLOYMENT = "deployment"
    STATEFUL_SET = "statefulset"
    DAEMON_SET = "daemonset"
    REPLICA_SET = "replicaset"
    LEADER_WORKER_SET = "leaderworkerset"
    INFERENCE_SERVICE = "inferenceservice"
    JOB = "job"


_SHORT = {
    "po": Kind.POD,
    "deploy": Kind.DEPLOYMENT,
    "sts": Kind.STATEFUL_SET,
    "ds": Kind.DAEMON_SET,
    "rs": Kind.REPLICA_SET,
    "lws": Kind.LEADER_WORKER_SET,
    "isvc": Kind.INFERENCE_SERVICE,
}
"""As kubectl abbreviates them."""


@dataclass(frozen=True)
class Target:
    """`namespace`: "" is that of the kubeconfig's context. `context`, `container`, `port`: "" where not given."""

    namespace: str
    kind: Kind
    name: str
    context: str = ""
    container: str = ""
    port: str = ""

    def __str__(self) -> str:
        """As a word that names it again."""
        kind = "" if self.kind is Kind.DEPLOYMENT else f"{self.kind}/"
        asked = {option: value for option in _OPTIONS if (value := getattr(self, option))}
        return f"{SCHEME}{self.namespace}/{kind}{self.name}" + (f"?{urlencode(asked)}" if asked else "")


def kind_of(word: str) -> Kind | None:
    """The kind that kubectl means by this word: deploy, deployment, deployments, deployments.apps."""
    bare = word.lower().partition(".")[0]
    named = {str(kind): kind for kind in Kind} | {f"{kind}s": kind for kind in Kind} | _SHORT
    return named.get(bare)


def within(namespace: str, words: Sequence[str]) -> list[str]:
    """The words, those like kubectl's (deploy/vllm) as what names the same. Raises UsageError where there is none."""
    if not _NAME.fullmatch(namespace):
        raise UsageError(f"-n {namespace}: is no name that Kubernetes gives")
    found = []
    for word in words:
        kind, slash, name = word.partition("/")
        of = kind_of(kind) if slash and name and "/" not in name else None
        found.append(word if of is None else f"{SCHEME}{namespace}/{of}/{name}")
    if found == list(words):
        raise UsageError(f"-n {namespace}: name a workload there: vllm-doctor -n {namespace} deploy/NAME")
    return found


def parse(word: str) -> Target:
    """Raises UsageError for what names nothing."""
    try:
        parts = urlsplit(word)
        asked = parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise UsageError(f"{word}: {_WRITE}") from None
    if "@" in parts.netloc:
        raise UsageError(f"{SCHEME}…: leave out what stands before @: the kubeconfig says who asks; {_WRITE}")
    path = [piece for piece in parts.path.split("/") if piece]
    if len(path) == 1:
        path = [Kind.DEPLOYMENT, *path]
    if len(path) != 2:
        raise UsageError(f"{word}: {_WRITE}")
    kind = kind_of(path[0])
    if kind is None:
        from difflib import get_close_matches  # late: each start reads this module, and few mistype a kind

        near = get_close_matches(path[0].lower(), [*Kind, *_SHORT], 1)
        meant = f"did you mean {near[0]}?" if near else f"one of {', '.join(Kind)}"
        raise UsageError(f"{word}: {path[0]!r} is no kind of object that has pods: {meant}")
    for piece in filter(None, (parts.netloc, path[1])):
        if not _NAME.fullmatch(piece):
            raise UsageError(f"{word}: {piece!r} is no name that Kubernetes gives: {_WRITE}")
    for name, _ in asked:
        if name not in _OPTIONS:
            raise UsageError(f"{word}: {name!r} is not known there: ?context=, ?container= or ?port=")
    given = dict(asked)
    if given.get("port") and not (given["port"].isdigit() and 0 < int(given["port"]) < 65536):
        raise UsageError(f"{word}: {given['port']!r} is no port")
    if given.get("container") and not _NAME.fullmatch(given["container"]):
        raise UsageError(f"{word}: {given['container']!r} is no name of a container")
    return Target(parts.netloc, kind, path[1], **given)
