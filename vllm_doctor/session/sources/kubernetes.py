"""The pods of a workload, each a server: k8s://namespace/deployment. Its /metrics come by the API's proxy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm_doctor.model.errors import DoctorError, SourceError, told
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source, failed, noted
from vllm_doctor.session.sources import log, server
from vllm_doctor.sources.server.route import Route

if TYPE_CHECKING:
    from vllm_doctor.launch.source import StartSource
    from vllm_doctor.sources.kubernetes.api import Api
    from vllm_doctor.sources.kubernetes.pod import Container, Pod
    from vllm_doctor.sources.kubernetes.target import Target

SCHEME = "k8s://"
MOST_PODS = 16
"""Pods that are examined at a time: each costs the API a dozen requests."""
_PATIENCE = 10.0
"""Seconds to find the pods."""
_PORT = "8000"
"""vLLM's own."""
_TEMPLATE = ("image", "command", "args", "env", "envFrom", "resources")
"""What of a container tells how it starts."""


def is_named_by(word: str) -> bool:
    """k8s://namespace/deployment."""
    return word.startswith(SCHEME)


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """Each pod as a server. A word that leads to none is an error of its own, if others are named; of one alone
    UsageError or SourceError."""
    found: list[Source] = []
    for word in words:
        try:
            found += _of_word(word, how, opened)
        except DoctorError as error:
            if len(words) == 1 and not beside:
                raise
            found.append(failed(SourceKind.SERVER, word, *told(error)))
    return found


OPENER = Opener(is_named_by, Turn.SERVER, opened)


def _of_word(word: str, how: Attachment, opened: ExitStack) -> list[Source]:
    from vllm_doctor.sources.kubernetes import cluster, target, workload
    from vllm_doctor.sources.kubernetes.api import Api

    named = target.parse(word)
    chosen = cluster.chosen(named.context)
    api = opened.enter_context(closing(Api(chosen)))
    deadline = min(how.deadline, time.monotonic() + _PATIENCE)
    found = workload.pods(api, named, named.namespace or chosen.namespace, deadline)
    living = [pod for pod in found.pods if not pod.is_over] or list(found.pods)
    sources = [_over(pod, named) for pod in found.pods if pod.is_over and pod not in living]
    commands = _Commands(found.owner)
    for pod in living[:MOST_PODS]:
        sources += _of_pod(api, pod, named, commands, how, opened)
    if len(living) > MOST_PODS:
        note = f"{len(living) - MOST_PODS} more pods are not examined: those that are down or restarted most were taken"
        sources.append(noted(SourceKind.KUBERNETES, word, sources[-1].patient, f"{note}; name one: k8s://…/pod/NAME"))
    for note in found.notes:
        sources.append(noted(SourceKind.KUBERNETES, word, sources[-1].patient, note))
    return sources


def _over(pod: Pod, named: Target) -> Source:
    """A pod of which nothing runs any more, beside others that do."""
    name = _name(pod, named)
    return noted(SourceKind.KUBERNETES, name, name, f"it is {pod.phase}{f' ({pod.reason})' if pod.reason else ''}")


def _name(pod: Pod, named: Target) -> str:
    """As a word that names the pod alone."""
    asked = f"?context={named.context}" if named.context else ""
    return f"{SCHEME}{pod.namespace}/pod/{pod.name}{asked}"


def _of_pod(
    api: Api, pod: Pod, named: Target, commands: _Commands, how: Attachment, opened: ExitStack
) -> Iterator[Source]:
    """What is to be seen of one pod: its server, its log, its command, and what the API says of it."""
    from vllm_doctor.sources.kubernetes import surroundings

    patient = _name(pod, named)
    command, where = commands.of(pod, named.container)
    container = pod.container(where)
    if where not in pod.names:
        raise SourceError("not-found", f"{patient} has no container {where!r}; it has {', '.join(pod.names) or 'none'}")
    if down := pod.why_down(container):
        yield _down(patient, down)
    else:
        flags: Mapping[str, object] = command.starts[0].command.flags if command is not None else {}
        port = named.port or _port(pod.spec_of(where), flags)
        yield _server(api, pod, patient, port, "--ssl-certfile" in flags, how, opened)
    if container.has_run or pod.is_over:
        yield _log(api, pod, container, patient, how)
    if command is not None:
        start = command.starts[0]
        yield Source(SourceKind.COMMAND, command.target(start), patient, partial(command.examine, start, patient))
    yield Source(
        SourceKind.KUBERNETES,
        patient,
        patient,
        lambda: surroundings.examine(api, pod, where, patient, how.deadline),
    )


def _down(patient: str, why: str) -> Source:
    """The server of a pod that cannot answer."""
    problem = Problem("unreachable", f"{patient} does not serve: {why}")
    seen = Observation(SourceKind.SERVER, patient, error=problem, patient=patient)
    return Source(SourceKind.SERVER, patient, patient, lambda: seen)


def _server(api: Api, pod: Pod, patient: str, port: str, is_secure: bool, how: Attachment, opened: ExitStack) -> Source:
    """Its /metrics, by the proxy of the API."""
    from vllm_doctor.sources.kubernetes.api import Ask, is_own, message, refused

    scheme = "https:" if is_secure else ""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{scheme}{pod.name}:{port}/proxy"

    def means(status: int, body: bytes) -> SourceError | None:
        """What the proxy says, and not the server."""
        if not is_own(body):
            return None
        if status == 503:
            told = message(body).partition("error trying to reach service: ")[2] or message(body)
            hint = "does vLLM listen there? else ?port=N; a NetworkPolicy may forbid it to the API server"
            return SourceError("unreachable", f"{patient}: port {port} is not reached ({told}): {hint}")
        if status == 404:
            return SourceError("unreachable", f"{patient} is gone")
        return refused(api.cluster.name, Ask(path, "get", "pods/proxy", pod.namespace), status, body)

    route = Route(name=patient, secured=api.cluster.secured, credentials=api.cluster.credentials, refused=means)
    return server.of_url(server.client(api.cluster.server + path, route, how, opened), how)


def _log(api: Api, pod: Pod, container: Container, patient: str, how: Attachment) -> Source:
    """What it wrote, and how its runs ended."""
    from vllm_doctor.sources.kubernetes import pod_log
    from vllm_doctor.sources.log.bytes_stream import Fetched

    def fetch() -> tuple[bytes, float, list[str]]:
        text, notes = pod_log.read(api, pod, container, how.deadline)
        return text, _written(text), notes

    fetched = Fetched(f"log of {patient}", fetch)

    def look() -> Observation:
        try:
            notes = fetched.notes
        except SourceError as error:
            problem = Problem(error.kind, str(error))
            return Observation(SourceKind.LOG, str(fetched), error=problem, patient=patient)
        seen = log.of_files([fetched], how, patient).look()
        return replace(seen, notes=(*notes, *seen.notes))

    return Source(SourceKind.LOG, str(fetched), patient, look, logs=(fetched,))


def _written(text: bytes) -> float:
    """When its last line was written, by the time that the kubelet puts before it."""
    last = text.rstrip(b"\n").rpartition(b"\n")[2].partition(b" ")[0].decode("ascii", "replace")
    try:
        return datetime.fromisoformat(last).timestamp()
    except (ValueError, OverflowError):
        return time.time()


def _port(spec: Mapping[str, Any], flags: Mapping[str, object]) -> str:
    """By its command, else its only port, else vLLM's."""
    from vllm_doctor.sources.kubernetes.pod import listed, whole

    given = flags.get("--port")
    if isinstance(given, float) and 0 < given < 65536:
        return f"{given:.0f}"
    ports = [str(whole(one, "containerPort")) for one in listed(spec, "ports")]
    return ports[0] if len(ports) == 1 and ports[0] != "0" else _PORT


class _Commands:
    """How the containers of pods are started: in the words of what makes the pods, where the pod has the same."""

    def __init__(self, owner: Mapping[str, Any] | None) -> None:
        self._owner = owner
        self._of_owner: dict[str, StartSource | None] = {}

    def of(self, pod: Pod, asked: str) -> tuple[StartSource | None, str]:
        """The command of its container that starts vLLM, and that container. `asked`: the one that was named."""
        for name in [asked] if asked else pod.names:
            found = self._of_container(pod, name)
            if found is not None:
                return found, name
        return None, asked or pod.main()

    def _of_container(self, pod: Pod, name: str) -> StartSource | None:
        from vllm_doctor.sources.kubernetes.pod import listed, text

        template = listed(self._owner, "spec", "template", "spec", "containers")
        own = pod.spec_of(name)
        made = next((one for one in template if text(one, "name") == name), None)
        if made is None or any(made.get(key) != own.get(key) for key in _TEMPLATE):
            return _read(pod.document, name, "Pod")
        if name not in self._of_owner:
            assert self._owner is not None
            self._of_owner[name] = _read(self._owner, name, text(self._owner, "kind") or "Deployment")
        return self._of_owner[name]


def _read(document: Mapping[str, Any], container: str, kind: str) -> StartSource | None:
    """The start of this container alone; None where it starts no vLLM that can be read."""
    import yaml

    from vllm_doctor.launch import source
    from vllm_doctor.sources.kubernetes.pod import mapping, text

    api_version = text(document, "apiVersion") or ("v1" if kind == "Pod" else "apps/v1")
    metadata = {
        key: value for key in ("name", "namespace", "labels") if (value := mapping(document, "metadata").get(key))
    }
    spec = _only(mapping(document, "spec"), container)
    written = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
    name = f"{kind} {text(document, 'metadata', 'namespace')}/{text(document, 'metadata', 'name')}"
    try:
        found = source.of_text(name, yaml.safe_dump(written, sort_keys=False))
    except (SourceError, yaml.YAMLError):
        return None
    return found


def _only(spec: Mapping[str, Any], container: str) -> dict[str, Any]:
    """The spec with this container alone."""
    from vllm_doctor.sources.kubernetes.pod import listed, mapping, text

    if "template" in spec:
        template = {**mapping(spec, "template")}
        template["spec"] = _only(mapping(template, "spec"), container)
        return {**spec, "template": template}
    return {**spec, "containers": [one for one in listed(spec, "containers") if text(one, "name") == container]}
