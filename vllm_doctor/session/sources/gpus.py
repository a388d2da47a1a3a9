"""GPUs that cannot be seen from here: as a program printed them into a file, or by their name alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source, failed, noted

if TYPE_CHECKING:
    from vllm_doctor.session.local import PrintedGpus
    from vllm_doctor.vllm.command_line import Command


def checked(how: Attachment, problems: list[Source] | None) -> Attachment:
    """Without a --gpu that is no name of a GPU: that is one of the `problems` beside what can be examined; where there
    is nothing else, None, it raises UsageError."""
    if how.gpu is None:
        return how
    from vllm_doctor.sources.gpu import gpu_name

    try:
        gpu_name.parse(how.gpu)
    except UsageError as error:
        if problems is None:
            raise
        problems.append(failed(SourceKind.GPU_NAME, gpu_name.OPTION, "usage", str(error)))
        return replace(how, gpu=None)
    return how


def of_file(patient: str, how: Attachment, command: Command | None = None) -> list[Source]:
    """The GPUs of a server whose processes cannot be seen, as they were printed; `command`: as it is written."""
    if how.printed is None:
        return []
    from vllm_doctor.session.local import Local
    from vllm_doctor.sources.host.process import ServerProcess

    server = ServerProcess.unseen() if command is None else ServerProcess(root=0, command=command)
    nobody = Local(server, patient, kernel=how.kernel, printed=how.printed)
    look = partial(nobody.examine_gpus, 0, how.deadline)
    return [Source(SourceKind.GPU, nobody.gpus_target, patient, look, was_there=True)]


def of_unseen(found: Sequence[Source], how: Attachment) -> list[Source]:
    """The GPUs that were printed: of the servers of which no other source tells any. They are of one host: of several
    servers only benchmarks can be of the same."""
    is_used = any(source.was_there or (source.kind is SourceKind.HOST and not source.is_past) for source in found)
    if how.printed is None or is_used:
        return []
    kinds: dict[str, set[SourceKind]] = {}
    for source in found:
        kinds.setdefault(source.patient, set()).add(source.kind)
    unseen = [patient for patient, of in kinds.items() if patient and not of & {SourceKind.GPU, SourceKind.HOST}]
    if len(unseen) == 1 or (unseen and all(SourceKind.BENCH in kinds[patient] for patient in unseen)):
        return [source for patient in unseen for source in of_file(patient, how, how.written)]
    why = "it is of one host, and several servers are examined" if unseen else "what its server has is known"
    return [noted(SourceKind.GPU, how.printed.name, "", f"{how.printed.name} is not used: {why}")]


def named(how: Attachment, beside: Sequence[Source]) -> Iterator[Source]:
    """The GPU that --gpu names, for each patient."""
    if how.gpu is None:
        return
    from vllm_doctor.sources.gpu import gpu_name

    gpu = gpu_name.parse(how.gpu)
    for patient in dict.fromkeys(source.patient for source in beside):
        yield Source(SourceKind.GPU_NAME, gpu.target, patient, partial(gpu.examine, patient))


def unused(printed: Sequence[PrintedGpus]) -> Iterator[Source]:
    """What else was printed of GPUs: one host is examined."""
    for one in printed:
        says = f"{one.name} lists GPUs, too: only the first file is used"
        yield noted(SourceKind.GPU, one.name, "", says)
