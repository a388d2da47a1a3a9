"""Which vLLM server a command starts in the end: behind sudo, env and nohup, in `bash -c`, in a container."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice, tee

from vllm_doctor.launch import budget, docker, dynamo, programs, slurm
from vllm_doctor.launch.shell import Broken, Simple, commands, lost_after
from vllm_doctor.launch.start import MAX_STARTS, Fault, Flaw, Form, Holder, Launch, Word, Written, flags_in
from vllm_doctor.launch.unexpanded import is_marked
from vllm_doctor.vllm.command_line import program_of

_MAX_DEPTH = 5
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "busybox"})
_WRAPPERS = frozenset(
    {
        "sudo", "doas", "env", "nohup", "exec", "time", "command", "builtin", "setsid", "stdbuf", "nice", "ionice",
        "chrt", "taskset", "numactl", "timeout", "tini", "dumb-init", "catchsegv", "unbuffer", "script", "screen",
        "tmux", "ssh", "su", "runuser", "setpriv", "prlimit", "systemd-run", "srun", "mpirun", "torchrun", "ray",
        "singularity", "apptainer", "enroot", "conda", "mamba", "micromamba", "poetry", "pipenv", "pdm", "rye",
        "pixi", "hatch", "uv", "uvx", "nsys", "ncu", "strace", "perf", "py-spy", "gdb", "valgrind", "kubectl", "oc",
        "xargs", "eval", "just", "accelerate", "vllm-wrapper", "entrypoint.sh", "docker-entrypoint.sh",
        "nvidia_entrypoint.sh",
    }
)  # fmt: skip
"""Programs that run another one, which stands among their arguments."""
_TAKES_A_SCRIPT = frozenset({"ssh", "tmux", "screen", "su", "runuser", "script", "eval", "kubectl"})
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")

SAYS: Mapping[Flaw, str] = {
    Flaw.COMMENT_AFTER_BACKSLASH: "a comment after the backslash: the line is not continued, so the command ends there",
    Flaw.SPACE_AFTER_BACKSLASH: "a space after the backslash: the line is not continued, so the command ends there",
    Flaw.COMMENT_IN_COMMAND: "a comment among continued lines ends the command there",
    Flaw.MISSING_BACKSLASH: "the line ends without a backslash, so the command ends there",
    Flaw.UNBALANCED_QUOTE: "nothing closes this quote: the shell waits for its end, and starts nothing",
}


@dataclass(frozen=True)
class Script(Holder):
    """A shell script; `number` counts the servers that it starts from 0."""

    text: str = field(repr=False)
    number: int


def of_script(text: str, line: int = 1, variables: Mapping[str, str | None] | None = None) -> list[Written]:
    """The servers that a shell script starts, in its order; it begins in this line. `variables` are set before it.

    Of too many the first ones, and one more than can be examined: then the rest of the script is not read."""
    launches = islice(_of_script(text, Form.SHELL, line, variables or {}, _MAX_DEPTH), MAX_STARTS + 1)
    return [
        Written.of(launch, place=f"line {launch.words[0].line}", holder=Script(text, number))
        for number, launch in enumerate(launches)
    ]


def of_script_with(
    script: Word, arguments: Sequence[Word], form: Form, environment: Mapping[str, str | None]
) -> list[Launch]:
    """The servers that a script starts which is given these arguments, as "$@"."""
    return list(_of_script(script.text, form, script.line, environment, _MAX_DEPTH, arguments))


def of_words(words: Sequence[Word], form: Form, environment: Mapping[str, str | None]) -> list[Launch]:
    """The servers that one command starts: none, one, or those of a script given to a shell."""
    return list(_of_words(words, form, environment, _MAX_DEPTH))


def broken_before_vllm(text: str) -> Broken | None:
    """Where a command ends too early, of a text in which no vLLM can be found."""
    return next((simple.broken for simple in commands(text) if simple.broken is not None), None)


def _of_script(
    text: str,
    form: Form,
    line: int,
    variables: Mapping[str, str | None],
    depth: int,
    arguments: Sequence[Word] | None = None,
) -> Iterator[Launch]:
    [simples] = tee(commands(text, line, variables, arguments), 1)
    for simple in simples:
        for launch in _of_words(simple.words, form, simple.environment, depth):
            fault = _ended_early(simple, copy(simples))
            set_before = {} if launch.inside or launch.image is not None else simple.assignments
            yield replace(
                launch,
                faults=(*launch.faults, *fault),
                notes=(*launch.notes, *_fallen_back(simple)),
                assignments={**set_before, **launch.assignments},
            )


def _fallen_back(simple: Simple) -> tuple[str, ...]:
    if not simple.defaults:
        return ()
    names = ", ".join(simple.defaults)
    return (f"line {simple.line}: read with the defaults of {names}, which may be set to others where it runs",)


def _ended_early(simple: Simple, following: Iterable[Simple]) -> tuple[Fault, ...]:
    broken, words = lost_after(following, simple)
    lost = flags_in([word.text for word in words] or simple.rest.split())
    if broken is None or (not lost and broken.kind in (Flaw.COMMENT_IN_COMMAND, Flaw.MISSING_BACKSLASH)):
        return ()
    return (Fault(broken.kind, broken.line, SAYS[broken.kind], lost),)


def _of_words(words: Sequence[Word], form: Form, environment: Mapping[str, str | None], depth: int) -> Iterator[Launch]:
    texts = [word.text for word in words]
    if not texts or depth == 0:
        return
    if program_of(texts) is not None:
        yield Launch(words, form, environment)
        return
    if (read := programs.as_serve(words)) is not None:
        yield Launch(read.words, form, environment, notes=read.notes, benchmark=read.benchmark)
        return
    name = posixpath.basename(texts[0])
    if (engine := dynamo.engine(words, form, environment)) is not None:
        yield engine
    elif name in _SHELLS:
        yield from _of_shell(words, form, environment, depth - 1)
    elif name in docker.PROGRAMS:
        yield from _of_container(words, depth - 1)
    elif name in _WRAPPERS:
        yield from _of_wrapped(words, form, environment, depth - 1)


def _of_shell(words: Sequence[Word], form: Form, environment: Mapping[str, str | None], depth: int) -> Iterator[Launch]:
    for place, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-[abd-z]*c[a-z]*", word.text) and place + 1 < len(words):
            at = place + 2 if words[place + 1].text == "--" else place + 1
            if at < len(words):
                yield from _within(words[at], form, environment, depth)
            return
        if not word.text.startswith("-"):
            return


def _within(script: Word, form: Form, environment: Mapping[str, str | None], depth: int) -> Iterator[Launch]:
    """The servers of a script that is one word."""
    for launch in _of_script(script.text, form, script.line, environment, depth):
        yield replace(launch, inside=(script, *launch.inside))


def _of_wrapped(
    words: Sequence[Word], form: Form, environment: Mapping[str, str | None], depth: int
) -> Iterator[Launch]:
    """The command behind the wrapper's own arguments: where the first vLLM, shell or container begins."""
    budget.spend(len(words) + len(environment))
    found = dict(environment)
    assignments: dict[str, Word] = {}
    cores: float | None = None
    name = posixpath.basename(words[0].text)
    for place in range(1, len(words)):
        text = words[place].text
        inner: Iterator[Launch] | None = None
        if _may_start(words, place):
            inner = _of_words(words[place:], form, found, depth)
        elif name in _TAKES_A_SCRIPT and re.search(r"\svllm\s|^vllm\s", text):
            inner = _within(words[place], form, found, depth)
        if inner is not None:
            for launch in inner:
                if name == "srun":
                    by_job = slurm.of_options([word.text for word in words[1:place]])
                    launch = replace(launch, resources=slurm.granted(launch.resources, by_job))
                if cores is not None:
                    launch = replace(launch, resources=replace(launch.resources, cpu_limit=cores))
                if not launch.inside and launch.image is None:
                    launch = replace(launch, is_wrapped=True, assignments={**assignments, **launch.assignments})
                yield launch
            return
        assigned = _ASSIGNED.fullmatch(text)
        if assigned:
            found[assigned[1]] = None if is_marked(assigned[2]) else assigned[2]
            assignments[assigned[1]] = words[place]
        elif name in ("taskset", "numactl") and cores is None:
            cores = _cores(words, place, name)


def _may_start(words: Sequence[Word], place: int) -> bool:
    name = posixpath.basename(words[place].text)
    return (
        name in _SHELLS
        or name in docker.PROGRAMS
        or name in _WRAPPERS
        or dynamo.is_worker(words[place : place + 64])
        or program_of(texts := [word.text for word in words[place : place + 64]]) is not None
        or programs.program_of(texts) is not None
    )


def _cores(words: Sequence[Word], place: int, name: str) -> float | None:
    """How many CPUs `taskset -c LIST` or `numactl --physcpubind=LIST` allows."""
    text, before = words[place].text, words[place - 1].text
    if name == "taskset":
        listed = text if before in ("-c", "--cpu-list") else ""
    elif text.startswith(("--physcpubind=", "-C=")):
        listed = text.partition("=")[2]
    else:
        listed = text if before in ("-C", "--physcpubind") else ""
    return docker.cpus_in(listed) if _CPU_LIST.fullmatch(listed) else None


def _of_container(words: Sequence[Word], depth: int) -> Iterator[Launch]:
    run = docker.parse(words)
    if run is None:
        return
    argv, guessed = docker.argv(run.image, run.entrypoint, run.arguments)
    for launch in _of_words(argv, Form.DOCKER_RUN, run.environment, depth):
        own = docker.is_vllm(run.image) and not run.notes
        here = not launch.inside
        yield replace(
            launch,
            image_at=run.image_at if here else None,
            is_wrapped=not here and launch.is_wrapped,
            assignments=run.assignments if here else launch.assignments,
            is_environment_whole=own,
            image=run.image,
            resources=run.resources,
            notes=(*launch.notes, *run.notes, *guessed),
        )
