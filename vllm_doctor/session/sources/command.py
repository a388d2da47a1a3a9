"""Commands as they are written: of the server that is examined, or each a patient of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source, failed
from vllm_doctor.session.sources import gpus

if TYPE_CHECKING:
    from vllm_doctor.launch.source import StartSource
    from vllm_doctor.launch.start import Start
    from vllm_doctor.vllm.command_line import Command


@dataclass(frozen=True)
class Written:
    """The commands that were given. `notes`: which of them are not used, and why."""

    texts: tuple[StartSource, ...]
    notes: tuple[Source, ...] = ()

    @property
    def starts(self) -> list[tuple[StartSource, Start]]:
        """Each, with the text that it stands in."""
        return [(text, start) for text in self.texts for start in text.starts]

    @property
    def only(self) -> Command | None:
        """The command, where there is one alone."""
        starts = self.starts
        return starts[0][1].command if len(starts) == 1 else None

    @property
    def is_whole(self) -> bool:
        """Whether the texts show all of the commands."""
        return not any(start.is_open for _, start in self.starts)

    def alone(self, how: Attachment) -> list[Source]:
        """Each command as a patient, with what this machine has of its model and the GPUs that were printed."""
        found: list[Source] = []
        for given, start in self.starts:
            text = given if how.vllm is None else given.of_version(how.vllm)
            target = text.target(start)
            look = partial(text.examine, text.starts[given.starts.index(start)], target, how.kernel)
            found += [Source(SourceKind.COMMAND, target, target, look), *gpus.of_file(target, how, start.command)]
        return [*found, *self.notes]

    def beside(self, sources: Sequence[Source]) -> list[Source]:
        """The command of the one server that is examined, or of all benchmarks; of several servers each its own, where
        their URLs tell which that is, else only why none is used."""
        patients = list(dict.fromkeys(source.patient for source in sources))
        starts = self.starts
        if not starts:
            return list(self.notes)
        if each := self._each(sources):
            return [*each, *self.notes]
        if len(patients) != 1 and any(source.kind is not SourceKind.BENCH for source in sources):
            says = f"a command is of one server, and {len(patients)} are examined: give one of them with it"
            return [*self.notes, failed(SourceKind.COMMAND, self.texts[0].name, "ambiguous", says)]
        if len(starts) != 1:
            places = ", ".join(text.target(start) for text, start in starts[:4])
            says = f"{len(starts)} different commands of vLLM are given ({places}): say which with --command"
            return [*self.notes, failed(SourceKind.COMMAND, self.texts[0].name, "ambiguous", says)]
        [(text, start)] = starts
        target = text.target(start)
        look = [partial(text.examine, start, patient) for patient in patients]
        found = [Source(SourceKind.COMMAND, target, patient, one) for patient, one in zip(patients, look, strict=True)]
        return [*found, *self.notes]

    def _each(self, sources: Sequence[Source]) -> list[Source]:
        """Of several commands that of each server; none where their URLs do not tell."""
        from vllm_doctor.launch import addressed

        starts = self.starts
        servers = list(dict.fromkeys(source.patient for source in sources if source.kind is not SourceKind.GATEWAY))
        of_each = addressed.paired([start for _, start in starts], servers) if len(starts) > 1 else None
        found: list[Source] = []
        for server, start in zip(servers, of_each or (), strict=False):
            text = next(text for text, one in starts if one is start)
            found.append(Source(SourceKind.COMMAND, text.target(start), server, partial(text.examine, start, server)))
        return found


def chosen(said: Sequence[StartSource], found: Sequence[StartSource]) -> Written:
    """What --command says goes before what was found in files; the same command twice is one."""
    if said:
        return Written(tuple(said))
    kept: list[StartSource] = []
    known: set[tuple[str, ...]] = set()
    for text in found:
        starts = tuple(start for start in text.starts if start.argv not in known)
        known |= {start.argv for start in starts}
        if starts:
            kept.append(text if starts == text.starts else replace(text, starts=starts))
    return Written(tuple(kept))
