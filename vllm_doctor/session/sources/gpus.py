"""GPUs that cannot be seen from here: as nvidia-smi printed them into a file, or by their name alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source

if TYPE_CHECKING:
    from vllm_doctor.vllm.command_line import Command


def check(how: Attachment) -> None:
    """Raise now what is wrong with the file or the name, before anybody is asked."""
    if how.smi is not None:
        from vllm_doctor.sources.gpu import printed

        printed.read(how.smi)
    if how.gpu is not None:
        from vllm_doctor.sources.gpu import gpu_name

        gpu_name.parse(how.gpu)


def of_file(patient: str, how: Attachment, command: Command | None = None) -> list[Source]:
    """The GPUs of a server whose processes cannot be seen, from --nvidia-smi; `command`: as it is written."""
    if how.smi is None:
        return []
    from vllm_doctor.session.local import Local
    from vllm_doctor.sources.host.process import ServerProcess

    server = ServerProcess.unseen() if command is None else ServerProcess(root=0, command=command)
    nobody = Local(server, patient, kernel=how.kernel, smi=how.smi)
    return [Source(SourceKind.GPU, str(how.smi), patient, lambda: nobody.examine_gpus(0, how.deadline))]


def named(how: Attachment, beside: Sequence[Source]) -> Iterator[Source]:
    """The GPU that --gpu names, for each patient."""
    if how.gpu is None:
        return
    from vllm_doctor.sources.gpu import gpu_name

    gpu = gpu_name.parse(how.gpu)
    for patient in dict.fromkeys(source.patient for source in beside):
        yield Source(SourceKind.GPU_NAME, gpu.target, patient, partial(gpu.examine, patient))
