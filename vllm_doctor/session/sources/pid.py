"""A server that is named by the pid of one of its processes; or every server of this host."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from vllm_doctor.model.errors import DoctorError, UsageError, told
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source, failed
from vllm_doctor.session.sources import processes, server

if TYPE_CHECKING:
    from vllm_doctor.sources.host.process import ServerProcess

NOBODY = (
    "no vLLM server was found on this host; name one: vllm-doctor http://host:8000, or vllm-doctor PID"
    " (or try: vllm-doctor demo)"
)
HIDDEN = (
    "no vLLM server was found: /proc hides the processes of other users here (mounted with hidepid);"
    " run vllm-doctor as the server's user, or as root, or name it: vllm-doctor http://host:8000"
)
NOT_LINUX = (
    "processes can be looked for on Linux only (there is no /proc here); name a server: vllm-doctor http://host:8000"
)


def is_named_by(word: str) -> bool:
    """A number."""
    return word.isascii() and word.isdigit() and len(word) < 20


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """Each server that has such a process. Where there is none that is its error; of one alone, SourceError."""
    from vllm_doctor.sources.host import process

    found: list[Source] = []
    for word in words:
        try:
            found += _of_server(process.of_pid(how.kernel, int(word)), how, opened)
        except DoctorError as error:
            if len(words) == 1 and not beside:
                raise
            found.append(failed(SourceKind.SERVER, f"pid {word}", *told(error)))
    return found


OPENER = Opener(is_named_by, Turn.SERVER, opened)


def every(how: Attachment, opened: ExitStack) -> list[Source]:
    """All servers of this host. Raises UsageError where there is none."""
    from vllm_doctor.sources.host import process

    here = process.find(how.kernel)
    if not here:
        if not how.kernel.path("proc").is_dir():
            raise UsageError(NOT_LINUX)
        raise UsageError(HIDDEN if process.hides_others(how.kernel) else NOBODY)
    return [source for found in here for source in _of_server(found, how, opened)]


def _of_server(found: ServerProcess, how: Attachment, opened: ExitStack) -> list[Source]:
    """A server found by its processes: its URL and its host."""
    if found.url is not None:
        reached = server.client(found.url, found.route, how, opened)
        return [server.of_url(reached, how), *processes.of_server(found, reached.target, how, opened)]
    patient = f"pid {found.root}"
    problem = Problem(
        "no-url",
        f"{patient} is a vLLM, but no port of it is reachable"
        f" ({'; '.join(found.notes) or 'permission denied?'}): give its URL too, if it has one",
    )
    nowhere = Observation(SourceKind.SERVER, patient, error=problem, patient=patient)
    unreached = Source(SourceKind.SERVER, patient, patient, lambda: nowhere)
    return [unreached, *processes.of_server(found, patient, how, opened)]
