"""A pod as the API has it: its containers, how they ended, what it may use. Pure.

Whatever is missing, or not of the type that it should have, is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from vllm_doctor.model import outside, restarts
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.text import durations

ORIGIN = "kubernetes"
OOM_KILLED = "OOMKilled"
_EVICTED = "Evicted"
_SAID = 300
_CRASHING = "CrashLoopBackOff"
_FIRST_TO_GO = "BestEffort"
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def at(document: object, *keys: str) -> Any:
    """What stands there; None where nothing does."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def mapping(document: object, *keys: str) -> Mapping[str, Any]:
    found = at(document, *keys)
    return found if isinstance(found, Mapping) else {}


def listed(document: object, *keys: str) -> list[Mapping[str, Any]]:
    """The mappings in a list."""
    found = at(document, *keys)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def text(document: object, *keys: str) -> str:
    found = at(document, *keys)
    return found if isinstance(found, str) else ""


def whole(document: object, *keys: str) -> int:
    found = at(document, *keys)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def moment(document: object, *keys: str) -> float | None:
    """A time, in POSIX seconds."""
    try:
        read = datetime.fromisoformat(text(document, *keys))
        return read.timestamp() if read.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class End:
    """How a container ended. Times are POSIX seconds."""

    reason: str
    code: int
    started: float | None
    finished: float | None

    @property
    def says(self) -> str:
        """ "OOMKilled, exit code 137"."""
        return f"{self.reason or 'ended'}, exit code {self.code}"

    @property
    def lived(self) -> float | None:
        if self.started is None or self.finished is None or self.finished < self.started:
            return None
        return self.finished - self.started

    @property
    def line(self) -> str:
        """As a line of the container's log, in the words of `kubectl describe pod`."""
        stamp = f"{iso(self.finished)} " if self.finished is not None else ""
        killed = " exited with code 137" if self.code == 137 else " exited with code 143" if self.code == 143 else ""
        return f"{stamp}kubernetes: Last State: Terminated, Reason: {self.reason or 'Unknown'}{killed}\n"


@dataclass(frozen=True)
class Container:
    """One container. `state`: running, waiting, terminated, or "" where the kubelet has not said; `reason` of it.

    `end`: of its run now, if that is over; `last`: of the run before.
    """

    name: str
    state: str
    reason: str
    message: str
    started: float | None
    restarts: int
    is_ready: bool
    end: End | None
    last: End | None

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def has_run(self) -> bool:
        """Whether there is a log."""
        return self.state in ("running", "terminated") or self.last is not None

    @property
    def latest_end(self) -> End | None:
        return self.end or self.last


@dataclass(frozen=True)
class Pod:
    """`document`: all of it, as the API gave it."""

    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        return text(self.document, "metadata", "name")

    @property
    def namespace(self) -> str:
        return text(self.document, "metadata", "namespace")

    @property
    def node(self) -> str:
        return text(self.document, "spec", "nodeName")

    @property
    def phase(self) -> str:
        return text(self.document, "status", "phase")

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more, nor will: it was evicted, or was a job."""
        return self.phase in ("Failed", "Succeeded")

    @property
    def is_leaving(self) -> bool:
        return bool(text(self.document, "metadata", "deletionTimestamp"))

    @property
    def reason(self) -> str:
        """Why it is over: "Evicted: The node was low on resource: memory."; "" where nothing says."""
        status = mapping(self.document, "status")
        return ": ".join(filter(None, (text(status, "reason"), text(status, "message")[:_SAID])))

    @property
    def names(self) -> list[str]:
        """Of its containers, but those that only prepare it."""
        return [text(one, "name") for one in listed(self.document, "spec", "containers")]

    def spec_of(self, container: str) -> Mapping[str, Any]:
        found = (one for one in listed(self.document, "spec", "containers") if text(one, "name") == container)
        return next(found, {})

    def main(self, started: str | None = None) -> str:
        """The container that is looked at: the one that starts vLLM, else kubectl's default, else that with a GPU."""
        names = self.names
        annotated = text(self.document, "metadata", "annotations", _DEFAULT_CONTAINER)
        with_gpu = next((name for name in names if _gpus(self.spec_of(name))), "")
        return next((name for name in (started, annotated, with_gpu) if name in names), names[0] if names else "")

    def container(self, name: str) -> Container:
        told = next(
            (one for one in listed(self.document, "status", "containerStatuses") if text(one, "name") == name), {}
        )
        states = mapping(told, "state")
        state = next((one for one in ("running", "waiting", "terminated") if one in states), "")
        return Container(
            name,
            state,
            text(states, state, "reason"),
            text(states, state, "message")[:_SAID],
            moment(states, state, "startedAt"),
            whole(told, "restartCount"),
            at(told, "ready") is True,
            _end(mapping(states, "terminated")),
            _end(mapping(told, "lastState", "terminated")),
        )

    def why_down(self, container: Container) -> str:
        """Why its server cannot answer, in a sentence; "" where it may."""
        if self.is_over:
            return f"it is {self.phase}{f' ({self.reason})' if self.reason else ''}"
        if container.is_running:
            return ""
        waits = list(self._waits())
        parts = [f"it is {self.phase or 'not there yet'}"]
        if container.reason:
            parts.append(f"{container.reason}{f' ({container.message})' if container.message else ''}")
        elif waits:
            parts.append("; ".join(waits))
        if (end := container.latest_end) is not None:
            parts.append(f"its last run ended: {end.says}")
        return "; ".join(parts)

    def _waits(self) -> Iterator[str]:
        """What it waits for: to be scheduled, or for its first containers."""
        for condition in listed(self.document, "status", "conditions"):
            if text(condition, "type") == "PodScheduled" and text(condition, "status") == "False":
                yield f"{text(condition, 'reason')}: {text(condition, 'message')[:_SAID]}"
        for told in listed(self.document, "status", "initContainerStatuses"):
            for state in ("waiting", "running", "terminated"):
                found = mapping(told, "state", state)
                reason = text(found, "reason")
                if found and reason not in ("Completed", "PodInitializing"):
                    yield f"init container {text(told, 'name')}: {reason or state}"


def of_list(items: Sequence[Mapping[str, Any]]) -> list[Pod]:
    """Pods, the worst first: those that are down, then those that restarted most."""
    pods = [Pod(item) for item in items]

    def rank(pod: Pod) -> tuple[bool, int, str]:
        told = listed(pod.document, "status", "containerStatuses")
        is_ready = bool(told) and all(at(one, "ready") is True for one in told)
        return is_ready, -sum(whole(one, "restartCount") for one in told), pod.name

    return sorted(pods, key=rank)


def _end(told: Mapping[str, Any]) -> End | None:
    if not told:
        return None
    return End(text(told, "reason"), whole(told, "exitCode"), moment(told, "startedAt"), moment(told, "finishedAt"))


def facts(pod: Pod, container: Container, now: float) -> dict[str, Reading]:
    """What a rule can ask of it: restarts within the last hour, and how the last run ended. `now`: POSIX seconds."""
    found: dict[str, Reading] = {"in_pod": Known(1.0, origin=ORIGIN)}
    found |= _restarts(pod, container, now)
    found["container_restarts"] = Known(float(container.restarts), origin=ORIGIN)
    found["container_down"] = Known(0.0 if container.is_running else 1.0, origin=ORIGIN)
    end = container.latest_end
    killed = end is not None and end.reason == OOM_KILLED
    found["container_oom_killed"] = Known(1.0 if killed else 0.0, origin=ORIGIN)
    if end is not None:
        found["container_end"] = Known(end.says, origin=ORIGIN)
        if end.finished is not None:
            found["container_ended_ago"] = Known(max(0.0, now - end.finished), origin=ORIGIN)
        if end.lived is not None:
            found["container_lived"] = Known(end.lived, origin=ORIGIN)
    limit = at(pod.spec_of(container.name), "resources", "limits", "memory")
    if isinstance(limit, str):
        found["container_memory_limit"] = Known(limit, origin=ORIGIN)
    return found


def _restarts(pod: Pod, container: Container, now: float) -> dict[str, Reading]:
    """Its restarts within an hour, as far as they are certain: all of a young pod, none where the last is older."""
    created = moment(pod.document, "metadata", "creationTimestamp")
    last = container.last
    if not container.restarts:
        return restarts.facts([], ORIGIN)
    if last is None or last.finished is None:
        return {}
    if last.finished < now - restarts.MEMORY:
        return restarts.facts([], ORIGIN)
    if created is None or created < now - restarts.MEMORY:
        # One is certain; two are where it crashes again and again, and each run is as short as the last one.
        lived = last.lived
        crashes = container.reason == _CRASHING and container.restarts > 1 and lived is not None and lived < 600
        count = 2 if crashes else 1
    else:
        count = container.restarts
    found: dict[str, Reading] = {"restarts": Known(float(count), origin=ORIGIN)}
    if last.lived is not None:
        found["lived_before_restart"] = Known(last.lived, origin=ORIGIN)
    if count > 1 and created is not None:
        apart = (now - created) / count if created >= now - restarts.MEMORY else (last.lived or 0.0) + 300.0
        found["restart_interval"] = Known(apart, origin=ORIGIN)
    return found


def notes(pod: Pod, container: Container, now: float) -> list[str]:
    """What is worth saying of it, in sentences."""
    said = []
    if container.restarts:
        times = f"{container.restarts} time{'s' if container.restarts > 1 else ''}"
        said.append(f"container {container.name} was restarted {times}{_ended(container.latest_end, now)}")
    if text(pod.document, "status", "qosClass") == _FIRST_TO_GO:
        said.append(f"QoS class {_FIRST_TO_GO}: it has neither requests nor limits, and is evicted first")
    if not pod.is_leaving and container.is_running and not container.is_ready:
        said.append("it is not ready: no traffic is sent to it")
    if pod.is_leaving:
        said.append("it is being deleted")
    return said


def _ended(end: End | None, now: float) -> str:
    if end is None:
        return ""
    ago = f" {durations.duration(max(0.0, now - end.finished))} ago" if end.finished is not None else ""
    lived = f", after {durations.duration(end.lived)}" if end.lived is not None else ""
    return f"; its last run ended{ago}{lived}: {end.says}"


def _gpus(container: Mapping[str, Any]) -> bool:
    return any("gpu" in name for name in mapping(container, "resources", "limits"))


def eviction_line(pod: Pod) -> str:
    """As a line of its log; "" where it was not evicted."""
    return f"kubernetes: {pod.reason}\n" if text(pod.document, "status", "reason") == _EVICTED else ""


def iso(at: float) -> str:
    """As the kubelet writes times before the lines of a log."""
    return outside.moment(at).strftime("%Y-%m-%dT%H:%M:%S.000000000Z")
