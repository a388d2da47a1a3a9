"""The processes of a server on this host: its log, its host, its GPUs."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import cache
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Feed
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import log

if TYPE_CHECKING:
    from vllm_doctor.sources.host.process import ServerProcess
    from vllm_doctor.sources.host.process_log import ProcessLog
    from vllm_doctor.sources.profile.profiler import How


def of_server(found: ServerProcess, patient: str, how: Attachment, opened: ExitStack) -> list[Source]:
    """What the processes of a server have to say, beside its /metrics."""
    from vllm_doctor.session.local import FollowedGpus, FollowedHost, Local
    from vllm_doctor.sources.host.process_log import ProcessLog

    logs = []
    if found.log is not None and found.files is not None:
        logs.append(opened.enter_context(closing(ProcessLog(found.files, str(found.log)))))
    local = Local(found, patient, kernel=how.kernel, printed=how.printed, state=how.state)
    return [
        *(_log(one, how, patient) for one in logs),
        Source(
            SourceKind.HOST,
            local.target,
            patient,
            lambda: local.examine_host(how.host_seconds, how.deadline),
            follow=lambda: FollowedHost(local),
        ),
        Source(
            SourceKind.GPU,
            local.gpus_target,
            patient,
            lambda: local.examine_gpus(how.host_seconds, how.deadline),
            follow=lambda: FollowedGpus(local),
        ),
        *([_profile(found, how.profile, how, patient)] if how.profile is not None else []),
    ]


def _profile(found: ServerProcess, sampling: How, how: Attachment, patient: str) -> Source:
    """Its processes, sampled."""
    from vllm_doctor.session.sources import profile  # late: few look into processes

    return profile.of_server(found, sampling, how, patient)


def _log(output: ProcessLog, how: Attachment, patient: str) -> Source:
    """The server's log. What reads it is loaded while the server is watched: a starved doctor is late with both."""
    reader = cache(lambda: log.of_files([output], how, patient))

    def bytes_read() -> int:
        count = reader().bytes_read if reader.cache_info().currsize else None
        return count() if count is not None else 0

    def follow() -> Feed:
        begun = reader().follow
        assert begun is not None
        return begun()

    return Source(
        SourceKind.LOG, str(output), patient, lambda: reader().look(), bytes_read, follow=follow, logs=(output,)
    )
