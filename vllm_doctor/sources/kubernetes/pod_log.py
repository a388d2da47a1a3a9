"""A container's log by the API: its beginning and its end, of the run before and of this one, as one text.

How a run ended stands in no log. The API knows it, and it is written between the two, as `kubectl describe` words it.
"""

from __future__ import annotations

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.kubernetes.api import Api, Ask
from vllm_doctor.sources.kubernetes.pod import Container, End, Pod, eviction_line

HEAD = 1 << 20
"""Bytes of the beginning, where the version and the flags stand."""
TAIL = 4 << 20
"""Bytes of the end, at most."""
_LINES = 20_000
_FEWER = 8
"""By how much fewer lines are asked for, where so many are more than may be read."""


def read(api: Api, pod: Pod, container: Container, deadline: float) -> tuple[bytes, list[str]]:
    """The text, and what is to be said of it. Raises SourceError where not even the run of now can be read."""
    notes: list[str] = []
    parts: list[bytes] = []
    if container.is_running and container.restarts:
        try:
            parts.append(_run(api, pod, container, deadline, notes, is_previous=True))
        except SourceError as error:  # the kubelet keeps it as long as it has the dead container
            notes.append(f"the log of the run before is not read: {error}")
        parts.append(_ended(container.last))
    parts.append(_run(api, pod, container, deadline, notes))
    if not container.is_running:
        parts.append(_ended(container.latest_end))
    parts.append(eviction_line(pod).encode())
    return b"".join(parts), notes


def _run(
    api: Api, pod: Pod, container: Container, deadline: float, notes: list[str], is_previous: bool = False
) -> bytes:
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
    ask = Ask(path, "get", "pods/log", pod.namespace)
    query = {"container": container.name, "timestamps": "true"} | ({"previous": "true"} if is_previous else {})
    head = api.text(ask, deadline, **query, limitBytes=str(HEAD))
    if len(head) < HEAD:
        return _ending(head)
    head = head[: head.rfind(b"\n") + 1]
    lines = _LINES
    while True:
        # A limit of bytes counts from the first of these lines: what is cut off is the end, which matters most.
        tail = api.text(ask, deadline, **query, tailLines=str(lines), limitBytes=str(TAIL))
        if len(tail) < TAIL or lines < _FEWER:
            break
        lines //= _FEWER
    last = head[head.rfind(b"\n", 0, -1) + 1 :].partition(b" ")[0]
    after = _after(tail, last)
    if after is None:
        which = "the run before" if is_previous else "this run"
        notes.append(f"of the log of {which} its first {HEAD >> 20} MiB and its last {lines:,} lines were read")
    return head + _ending(tail if after is None else after)


def _after(tail: bytes, last: bytes) -> bytes | None:
    """What comes after the line with this time; None where the tail begins later."""
    if tail.partition(b" ")[0] > last:
        return None
    place = 0
    while place < len(tail):
        end = tail.find(b"\n", place)
        end = len(tail) if end < 0 else end + 1
        if tail[place:end].partition(b" ")[0] > last:
            break
        place = end
    return tail[place:]


def _ending(text: bytes) -> bytes:
    return text if not text or text.endswith(b"\n") else text + b"\n"


def _ended(end: End | None) -> bytes:
    return b"" if end is None else end.line.encode()
