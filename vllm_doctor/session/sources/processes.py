"""The processes of a server on this host: its log, its host, its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import log

if TYPE_CHECKING:
    from vllm_doctor.sources.host.process import ServerProcess


def of_server(found: ServerProcess, patient: str, how: Attachment) -> list[Source]:
    """What the processes of a server have to say, beside its /metrics."""
    from vllm_doctor.session.local import FollowedGpus, FollowedHost, Local

    local = Local(found, patient, kernel=how.kernel, smi=how.smi, state=how.state)
    return [
        *([log.of_files([str(found.log)], how, patient)] if found.log else []),
        Source(
            SourceKind.HOST,
            local.target,
            patient,
            lambda: local.examine_host(how.host_seconds, how.deadline),
            follow=lambda: FollowedHost(local),
        ),
        Source(
            SourceKind.GPU,
            str(how.smi or "NVIDIA driver"),
            patient,
            lambda: local.examine_gpus(how.host_seconds, how.deadline),
            follow=lambda: FollowedGpus(local),
        ),
    ]
