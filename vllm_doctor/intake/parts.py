"""What stands in a text, part by part: each reader is shown all of it and takes what is its own. Pure.

A launch script, what nvidia-smi printed, or an issue that holds both, a log and a scrape: nobody has to say which.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from vllm_doctor.intake.inputs import Input
from vllm_doctor.launch import autoscaler, engines, python_calls
from vllm_doctor.launch import source as launch
from vllm_doctor.launch.autoscaler import Trigger
from vllm_doctor.launch.source import StartSource
from vllm_doctor.launch.start import Form
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.reading import Known
from vllm_doctor.sources.bench import prose_command, prose_setup
from vllm_doctor.sources.collect_env import document as collect_env
from vllm_doctor.sources.gpu import printed
from vllm_doctor.sources.gpu.gpu import GpuSample, GpuView
from vllm_doctor.sources.server import saved_scrape

_MOST_OF_COMMAND = launch.MAX_BYTES
_MOST_OF_DESCRIPTION = 500
_TOO_LARGE = "too-large"
_OF_MANIFESTS = (".yaml", ".yml")
_DESCRIBED = "no command stands in it: only the model and the GPUs that it names are known"
_FENCE = re.compile(r"^[ \t]{0,3}(?:>[ \t]?)?(?:`{3}|~{3})", re.MULTILINE)
_SENTENCE = re.compile(
    r"^[ \t]{0,8}(?:(?:[A-Z][a-z]{0,20}|I|I'm|I've)(?: [\w'’,()/-]{1,30}){4,60}[.?!:]"
    r"|[\u4e00-\u9fff][^\n#=`]{3,200}[，。？！])",
    re.MULTILINE,
)
"""No line of a script, or of a manifest, reads like one."""


@dataclass(frozen=True)
class Parts:
    """What one input holds. Each is None where nothing of the kind stands in it."""

    input: Input
    is_log: bool
    """Whether lines of a server's log stand in it."""
    commands: StartSource | None = None
    gpus: GpuView | None = None
    is_environment: bool = False
    """Whether collect-env printed of it."""
    scrape: str | None = field(default=None, repr=False)
    """Its lines of /metrics, beside other parts."""
    triggers: tuple[Trigger, ...] = ()
    """What an autoscaler is told to look at."""
    other_engines: tuple[str, ...] = ()
    """Commands of engines that are not vLLM: one line each."""
    problem: str = ""
    """Why the GPUs that stand in it cannot be read."""
    unread: SourceError | None = None
    """Why the commands that may stand in it cannot be read."""

    @property
    def is_only_log(self) -> bool:
        """Whether no more than a log is recognised."""
        return not (
            self.commands
            or self.gpus
            or self.is_environment
            or self.scrape
            or self.triggers
            or self.other_engines
            or self.problem
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is recognised."""
        return self.is_only_log and not self.is_log


def of(given: Input, is_log: Callable[[Input], bool]) -> Parts:
    """The parts of a text. `is_log`: whether a reader of logs recognises a line of it."""
    logged = is_log(given)
    gpus, problem = _gpus(given)
    commands, unread = _commands(given, logged)
    others = engines.said(given.text) if commands is None and not logged else ()
    is_environment = collect_env.holds(given.raw)
    if is_environment and gpus is not None and not any(_is_measured(sample) for sample in gpus.samples):
        gpus = None  # it is the list in what collect-env printed
    if commands is not None and gpus is None and not (logged or is_environment or problem):
        commands = _on_named(commands, given.text)
    scrape = saved_scrape.within(given.text)
    return Parts(
        given,
        logged,
        commands,
        gpus,
        is_environment,
        scrape,
        autoscaler.read(given.text),
        tuple(f"{given.name}: {said}" for said in others),
        problem,
        unread,
    )


def _gpus(given: Input) -> tuple[GpuView | None, str]:
    if not printed.holds(given.raw):
        return None, ""
    try:
        return printed.view(given.raw, given.name), ""
    except (UsageError, SourceError) as error:
        return None, str(error)


def described(given: Input) -> StartSource | None:
    """A server that a line or two describe by its model and its GPUs, and by no command."""
    if len(given.text) > _MOST_OF_DESCRIPTION:
        return None
    model, gpu = prose_setup.model(given.text, 0), prose_setup.gpu(given.text)
    if model is None or gpu is None:
        return None
    words, named = gpu
    [start] = launch.read(shlex.join(["vllm", "serve", model.name]))
    asked = replace(start.resources, gpu=words, gpus=None if named.count is None else float(named.count))
    said = replace(start, place="", is_open=True, resources=asked, notes=(*start.notes, _DESCRIBED))
    return StartSource(given.name, (said,))


def _on_named(commands: StartSource, text: str) -> StartSource:
    """The command with the GPUs that the sentences beside it name, where it names none itself."""
    if len(commands.starts) != 1 or commands.starts[0].resources.gpu or not _SENTENCE.search(text):
        return commands
    [start] = commands.starts
    if (found := prose_setup.gpu(text)) is None:
        return commands
    words, named = found
    count = start.resources.gpus if named.count is None else float(named.count)
    asked = replace(start.resources, gpu=words, gpus=count)
    note = f"GPUs from the text: {f'{named.count} × ' if named.count else ''}{named.gpu.name}"
    return replace(commands, starts=(replace(start, resources=asked, notes=(*start.notes, note)),))


def _is_measured(sample: GpuSample) -> bool:
    return isinstance(sample.memory_used, Known) or isinstance(sample.utilization, Known)


def _commands(given: Input, is_log: bool) -> tuple[StartSource | None, SourceError | None]:
    """Those of the text as a whole, by its form; of one that is written for people those of its blocks, else of its
    sentences. And why its form cannot be read, where that is known to be its form."""
    unread = None
    if given.program is not None:
        try:
            return launch.of_text(given.name, given.program), None
        except SourceError as error:
            return None, error
    is_prose = given.is_export or is_log or _SENTENCE.search(given.text) is not None
    is_marked_up = _FENCE.search(given.text) is not None
    is_program = len(given.text) <= _MOST_OF_COMMAND and python_calls.is_python(given.text, given.path or "")
    if (is_program or is_marked_up or not is_prose) and len(given.text) <= _MOST_OF_COMMAND:
        try:
            return launch.of_text(given.name, given.text, given.path or ""), None
        except SourceError as error:
            if error.kind == _TOO_LARGE or (given.path or "").endswith(_OF_MANIFESTS):
                unread = error
    found = tuple(prose_command.starts(given.text)) if is_prose or is_marked_up else ()
    version = prose_setup.version(given.text) if found and not is_log else None
    if is_log:  # what vLLM logged of its arguments is the log's own
        found = tuple(start for start in found if start.form is not Form.LOG)
    if not found:
        return None, unread
    said = StartSource(given.name, found)
    return said if version is None else said.of_version(version), None
