"""What the words of the command line and its options hold, sorted by kind: nobody has to say what a file is.

A word that names a server, a recording, a result, a page or a log stays a word, for its opener. Out of all other files
come the commands, the GPUs and the lines of a scrape that stand in them; an option (--command, --nvidia-smi) only says
beforehand what a file is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment, Opener
from vllm_doctor.session.source import Source, failed
from vllm_doctor.session.sources import log, trace
from vllm_doctor.session.sources.log import STDIN
from vllm_doctor.sources.bench import signs

if TYPE_CHECKING:
    from vllm_doctor.intake.inputs import Input
    from vllm_doctor.intake.parts import Parts
    from vllm_doctor.launch.autoscaler import Trigger
    from vllm_doctor.launch.source import StartSource
    from vllm_doctor.session.local import PrintedGpus

_IS_COMMAND = re.compile(r"\s*(?:vllm|python3?|docker|podman)\s+\S")
_HAS_MORE = re.compile(
    r"```|~~~|\bvllm serve |vllm\.entrypoints|\bLLM\(|docker run|NVIDIA-SMI|NVSMI|\bGPU \d{1,2}: |-smi\b"
    r"|Collecting environment|^vllm:[a-z]|sglang|trtllm",
    re.MULTILINE,
)
"""What may stand in a log beside its lines."""
_LOOKED_AT = 64 * 1024
"""Characters at the beginning and at the end, in which a line of a log is looked for."""
_NO_WORD = "not-found"
_IS_HOST = re.compile(r"localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:]+\]")
_NOTHING = "no log line of vLLM, command, output of nvidia-smi, scrape or benchmark result is recognised in it"


@dataclass
class Inputs:
    """`words`: those that an opener takes, logs among them, each with its own."""

    words: list[tuple[Opener, str]] = field(default_factory=list)
    parted: set[str] = field(default_factory=set)
    """Those that name files with more in them than a log."""
    texts: dict[str, bytes] = field(default_factory=dict)
    """Of words that are exports: what people wrote there."""
    commands: list[StartSource] = field(default_factory=list)
    gpus: list[PrintedGpus] = field(default_factory=list)
    environments: list[tuple[str, str]] = field(default_factory=list)
    """Names, and texts in which collect-env's printout stands."""
    scrapes: list[tuple[str, str]] = field(default_factory=list)
    """Names, and lines of /metrics."""
    triggers: list[tuple[str, tuple[Trigger, ...]]] = field(default_factory=list)
    """Names, and what an autoscaler is told to look at."""
    problems: list[Source] = field(default_factory=list)
    """What cannot be read, or is not used: each says why."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was handed over: then this host is looked at."""
        return not (self.words or self.has_parts or self.problems)

    @property
    def has_parts(self) -> bool:
        """Whether something else than a log, a server or a result is there."""
        return bool(self.commands or self.gpus or self.environments or self.scrapes or self.triggers)


def sorted_out(words: Sequence[str], how: Attachment, opener: Callable[[str], Opener | None]) -> Inputs:
    """`opener`: who opens a word, if it is no log. Raises UsageError, where nothing at all
    can be examined."""
    if how.command == STDIN and STDIN in words:
        raise UsageError("--command - and - both read standard input: give one of them as a file")
    found = Inputs()
    sorter = _Sorter(found, how, opener)
    for word in dict.fromkeys(words):
        sorter.add(word)
    sorter.end()
    if found.problems and not (found.words or found.has_parts):
        problem = found.problems[0].look().error
        assert problem is not None
        raise (UsageError(problem.message) if problem.kind == _NO_WORD else SourceError(problem.kind, problem.message))
    return found


@dataclass
class _Sorter:
    found: Inputs
    how: Attachment
    opener: Callable[[str], Opener | None]
    has_log: bool = False
    refused: dict[str, SourceError] = field(default_factory=dict)
    """Files that cannot be opened as logs."""
    said: list[str] = field(default_factory=list)
    """Texts in which people say how fast it was, and nothing measured stands."""
    unknown: list[str] = field(default_factory=list)
    """Texts in which nothing is recognised."""

    def end(self) -> None:
        """A text in which nothing is recognised may be a log that has just begun, whose reader says what it is; beside
        what else a server left it is not used. What a log measured goes before what people say."""
        if self.said and not self.has_log and len(self.said) == 1:
            self._add_log(self.said[0])
        if not (self.has_log or self.found.has_parts):
            for word in (*self.unknown, *self.refused):  # whose reader says what is wrong
                self._add_log(word)
            return
        for word, error in self.refused.items():
            self._fail(SourceKind.LOG, word, error.kind, str(error))
        for word in self.unknown:
            self._fail(SourceKind.LOG, word, "not-known", f"{word}: {_NOTHING}")

    def add(self, word: str) -> None:
        if word == STDIN:
            self._add_stdin()
        elif (opener := self.opener(word)) is not None:
            self.found.words.append((opener, word))
            if os.path.isfile(word):
                self._add_beside(word)
        elif os.path.isdir(word):
            self._add_folder(word)
        elif os.path.exists(word):
            self._add_file(word)
        elif _IS_COMMAND.match(word):
            self._add_text_of_command(word)
        else:
            says = f"{word!r} is neither a file nor a folder, nor a URL (http://host:8000), nor a pid"
            if not self.how.gpu and word.isprintable() and _is_gpu(word):
                says += f"; for GPUs by name: --gpu {word}"
            elif meant := _meant(word):
                says += f"; did you mean {meant!r}?"
            self._fail(SourceKind.LOG, word, _NO_WORD, says)

    def _add_folder(self, word: str) -> None:
        from vllm_doctor.intake import inputs

        names = inputs.within(Path(word))
        if not names:
            says = f"{word} is a folder with no recording.json, and no file"
            self._fail(SourceKind.LOG, word, "not-a-recording", says)
        for name in names:
            self.add(name)

    def _add_stdin(self) -> None:
        from vllm_doctor.intake import inputs
        from vllm_doctor.sources.log import bytes_unpacked

        raw = bytes_unpacked.begin_stdin(inputs.MOST_BYTES)
        if trace.begins(bytes_unpacked.begun_stdin()):
            self.found.words.append((trace.OPENER, STDIN))
            return
        given = inputs.of_bytes("standard input", raw) if raw is not None else None
        self._add(STDIN, given)

    def _add_file(self, word: str) -> None:
        from vllm_doctor.intake import inputs

        self._add(word, inputs.of_file(Path(word)))

    def _add(self, word: str, given: Input | None) -> None:
        """A text is parted; what is none is a log, whose reader says what is wrong with it."""
        if given is None:
            self._add_log_at(word)
            return
        given = self._with_lines(given)
        if signs.SERVER_LOG.search(given.raw) and not given.is_export and not _HAS_MORE.search(given.text):
            self._add_log(word)
            return
        from vllm_doctor.intake import parts, report  # late: most logs hold nothing else

        if report.holds(given.raw):
            self._fail(SourceKind.LOG, word, "report", report.said(given.raw, given.name))
            return
        told = parts.of(given, self._is_log)
        if given.left_out:
            says = f"{given.name}: of its issues the first was read, {given.left_out:,} not: give them one by one"
            self._fail(SourceKind.LOG, word, "several", says)
        if given.is_export:
            self.found.texts[word] = given.raw
        self._add_parts(told)
        if not told.is_only_log:
            self.found.parted.add(word)
        if told.is_log:
            self._add_log(word)
        elif _says_something(given.text):
            self.said.append(word)
        elif told.is_empty and (server := self._described(given)) is not None:
            self.found.commands.append(server)
        elif told.is_empty and told.unread is not None:
            self._fail(SourceKind.COMMAND, word, told.unread.kind, f"{given.name}: {told.unread}")
        elif told.is_empty:
            self.unknown.append(word)

    def _with_lines(self, given: Input) -> Input:
        """The text, with records on lines of their own where no line can be read as a log's."""
        if not signs.SERVER_LOG.search(given.raw):
            return given
        from vllm_doctor.intake import lost_lines

        restored = lost_lines.restored(given.text)
        if restored is None or self._reads_as_log(given):
            return given
        return replace(given, text=restored, path=None, is_export=True)

    def _described(self, given: Input) -> StartSource | None:
        """A server that a line or two describe; with --measured such a line is read as what people say of a speed."""
        from vllm_doctor.intake import parts

        return parts.described(given) if self.how.measured is None else None

    def _add_log_at(self, word: str) -> None:
        """A file that is no short text: a log, if it can be opened as one."""
        from vllm_doctor.sources.log.bytes_unpacked import Blocks

        try:
            if word != STDIN:
                next(iter(Blocks(Path(word))))
        except SourceError as error:
            self.refused[word] = error
        else:
            self._add_log(word)

    def _add_log(self, word: str) -> None:
        self.found.words.append((log.OPENER, word))
        self.has_log = True

    def _add_parts(self, told: Parts) -> None:
        name = told.input.name
        if told.commands is not None:
            self.found.commands.append(told.commands)
        if told.gpus is not None:
            from vllm_doctor.session.local import PrintedGpus

            self.found.gpus.append(PrintedGpus(name, told.gpus))
        if told.is_environment:
            self.found.environments.append((name, told.input.text))
        if told.triggers:
            self.found.triggers.append((name, told.triggers))
        if told.scrape is not None:
            self.found.scrapes.append((name, told.scrape))
        for said in told.other_engines:
            self._fail(SourceKind.COMMAND, name, "not-vllm", said)
        if told.problem:
            self._fail(SourceKind.GPU, name, "unreadable", told.problem)

    def _add_beside(self, word: str) -> None:
        """What stands in a file beside the result or the page that it holds."""
        from vllm_doctor.intake import inputs, parts

        given = None if inputs.is_document(Path(word)) else inputs.of_file(Path(word))
        if given is not None:
            told = parts.of(given, lambda _: False)
            self._add_parts(replace(told, scrape=None))

    def _add_text_of_command(self, word: str) -> None:
        from vllm_doctor.launch import source

        try:
            self.found.commands.append(source.of_text("the command line", word))
        except SourceError as error:
            self._fail(SourceKind.COMMAND, "the command line", error.kind, str(error))

    def _fail(self, kind: SourceKind, target: str, what: str, says: str) -> None:
        self.found.problems.append(failed(kind, target, what, says))

    def _is_log(self, given: Input) -> bool:
        """Whether a reader of logs recognises a line."""
        return signs.SERVER_LOG.search(given.raw) is not None or self._reads_as_log(given)

    def _reads_as_log(self, given: Input) -> bool:
        from vllm_doctor.rules import log_lines, rule
        from vllm_doctor.sources.log import source
        from vllm_doctor.sources.log.bytes_stream import Held

        table = log_lines.load(rule.shipped(), *self.how.folders)
        text = (
            given.text
            if len(given.text) <= 2 * _LOOKED_AT
            else f"{given.text[:_LOOKED_AT]}\n{given.text[-_LOOKED_AT:]}"
        )
        held = Held(given.name, text.encode("utf-8", "replace"), 0.0)
        return source.Log([held], table, threads=1).examine("").error is None


def _meant(word: str) -> str | None:
    """The source that a word, which names none, may be meant to be: a file beside, or a server without its port."""
    from vllm_doctor.text import near

    if _IS_HOST.fullmatch(word):
        return f"http://{word}:8000"
    return near.path(word)


def _says_something(text: str) -> bool:
    from vllm_doctor.sources.bench import prose

    told = prose.told(text)
    return bool(told.own) or (told.upgrade is not None and told.upgrade.is_worse)


def _is_gpu(word: str) -> bool:
    from vllm_doctor.vllm import gpu_names

    return gpu_names.named(word) is not None


def _triggers_beside(commands: StartSource) -> list[tuple[str, tuple[Trigger, ...]]]:
    """What an autoscaler is told to look at in the file of a command."""
    from vllm_doctor.launch import autoscaler

    told = autoscaler.read(commands.document.text) if commands.document is not None else ()
    return [(commands.name, told)] if told else []


def of_options(how: Attachment, found: Inputs) -> tuple[list[StartSource], list[PrintedGpus]]:
    """What --command and --nvidia-smi name. Where that cannot be read, it is a problem beside what can. Raises
    UsageError and SourceError, where there is nothing else."""
    commands: list[StartSource] = []
    gpus: list[PrintedGpus] = []
    if how.command is not None:
        from vllm_doctor.launch import source

        try:
            commands.append(source.open_command(how.command, how.deadline))
            found.triggers += _triggers_beside(commands[-1])
        except SourceError as error:
            if found.is_empty:
                raise
            found.problems.append(failed(SourceKind.COMMAND, "--command", error.kind, str(error)))
    if how.smi is not None:
        from vllm_doctor.session.local import PrintedGpus
        from vllm_doctor.sources.gpu import printed

        try:
            gpus.append(PrintedGpus(str(how.smi), printed.read(how.smi)))
        except UsageError as error:
            if found.is_empty and not commands:
                raise
            found.problems.append(failed(SourceKind.GPU, str(how.smi), "unreadable", str(error)))
    return commands, gpus
