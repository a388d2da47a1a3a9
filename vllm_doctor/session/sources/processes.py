"""The processes of a server on this host: its log, its host, its GPUs."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import log

if TYPE_CHECKING:
    from vllm_doctor.sources.host.process import ServerProcess


def of_server(found: ServerProcess, patient: str, how: Attachment, opened: ExitStack) -> list[Source]:
    """What the processes of a server have to say, beside its /metrics."""
    from vllm_doctor.session.local import FollowedGpus, FollowedHost, Local
    from vllm_doctor.sources.host.process_log import ProcessLog

    logs = []
    if found.log is not None and found.files is not None:
        logs.append(opened.enter_context(closing(ProcessLog(found.files, str(found.log)))))
    local = Local(found, patient, kernel=how.kernel, printed=how.printed, state=how.state)
    return [
        *([log.of_files(logs, how, patient)] if logs else []),
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
    ]
