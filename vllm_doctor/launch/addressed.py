"""Which of several starts in a text each of several servers is, by their URLs. Pure.

On one host a port is of one server, so a script's ports tell. In Kubernetes each pod has ports of its own, and may be
reached by any other, so the names of pods and Services tell: they begin with the name of the object that makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from vllm_doctor.launch.start import Form, Start

_OF_ONE_HOST = frozenset({Form.SHELL, Form.SYSTEMD, Form.SUPERVISOR, Form.PROCESS_LIST, Form.MAKEFILE, Form.JUSTFILE})
_PORT = 8000.0
"""vLLM's own."""


def paired(starts: Sequence[Start], targets: Sequence[str]) -> list[Start] | None:
    """The start of each target; None unless each has one, and another one."""
    found = [_one(starts, target) for target in targets]
    chosen = [start for start in found if start is not None]
    is_apart = len({id(start) for start in chosen}) == len(targets)
    return chosen if is_apart and len(chosen) == len(targets) else None


def _one(starts: Sequence[Start], target: str) -> Start | None:
    try:
        url = urlsplit(target)
        host, port = (url.hostname or "").partition(".")[0], url.port
    except ValueError:
        return None
    if not host:
        return None
    matching = [start for start in starts if _is_at(start, host, port)]
    if len(matching) > 1:  # the roles of one object
        matching = [start for start in matching if start.role and start.role in host.split("-")]
    return matching[0] if len(matching) == 1 else None


def _is_at(start: Start, host: str, port: int | None) -> bool:
    if start.form is Form.KUBERNETES:
        name = start.place.partition(" ")[0].partition("/")[2].lower()
        return bool(name) and f"{host}-".startswith(f"{name}-")
    is_told = not start.is_open and "--port" not in start.unknown_flags
    return start.form in _OF_ONE_HOST and is_told and start.command.flags.get("--port", _PORT) == port
