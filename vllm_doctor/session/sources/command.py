"""A command as it is written (--command): of the server that is examined, or a patient of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import gpus

if TYPE_CHECKING:
    from vllm_doctor.launch.source import StartSource
    from vllm_doctor.vllm.command_line import Command


@dataclass(frozen=True)
class Written:
    """What --command holds: at least one command of vLLM."""

    text: StartSource

    @property
    def only(self) -> Command | None:
        """Its command, where it holds one alone."""
        return self.text.starts[0].command if len(self.text.starts) == 1 else None

    def alone(self, how: Attachment) -> list[Source]:
        """Each command as a patient, with what this machine has of its model and the GPUs of --nvidia-smi."""
        found: list[Source] = []
        text = self.text if how.vllm is None else self.text.of_version(how.vllm)
        for start in text.starts:
            target = text.target(start)
            look = partial(text.examine, start, target, how.kernel)
            found += [Source(SourceKind.COMMAND, target, target, look), *gpus.of_file(target, how, start.command)]
        return found

    def beside(self, sources: Sequence[Source]) -> list[Source]:
        """The command of the one server that is examined, or of all benchmarks. Raises UsageError where there are
        several servers, or commands."""
        patients = list(dict.fromkeys(source.patient for source in sources))
        if len(patients) != 1 and any(source.kind is not SourceKind.BENCH for source in sources):
            raise UsageError(f"--command is of one server, and {len(patients)} are examined: give one of them")
        starts = self.text.starts
        if len(starts) != 1:
            places = ", ".join(start.place for start in starts[:4])
            raise UsageError(f"--command holds {len(starts)} commands of vLLM ({places}): give the server's own")
        target = self.text.target(starts[0])
        return [
            Source(SourceKind.COMMAND, target, patient, partial(self.text.examine, starts[0], patient))
            for patient in patients
        ]


def written(given: str, words: Sequence[str], until: float) -> Written:
    """What --command names; a pipe is read until then. Raises UsageError and SourceError."""
    from vllm_doctor.launch import source

    if given == source.STDIN and source.STDIN in words:
        raise UsageError("--command - and a log of - both read standard input: give one of them as a file")
    return Written(source.open_command(given, until))
