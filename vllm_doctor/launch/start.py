"""One start of a server as a text tells it: arguments, environment, what it asks of the host, and its faults."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from vllm_doctor.launch import budget
from vllm_doctor.launch.unexpanded import ARGUMENTS, as_written, is_marked, mark, pieces
from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import Hop
from vllm_doctor.model.reading import Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import command_line
from vllm_doctor.vllm import flags as catalogue
from vllm_doctor.vllm.command_line import MASK, Command, is_secret, masked
from vllm_doctor.vllm.environment import is_shown


class Form(StrEnum):
    """What the command was written as."""

    SHELL = "shell"
    DOCKER_RUN = "docker-run"
    COMPOSE = "compose"
    KUBERNETES = "kubernetes"
    HELM = "helm"
    SYSTEMD = "systemd"
    CONFIG = "config"
    VALUES = "values"
    """Values out of which another program than Helm makes the command."""
    PYTHON = "python"
    LOG = "log"
    DOCKERFILE = "dockerfile"
    QUADLET = "quadlet"
    SUPERVISOR = "supervisor"
    MAKEFILE = "makefile"
    JUSTFILE = "justfile"
    TERRAFORM = "terraform"
    PROCESS_LIST = "process-list"
    FLAGS = "flags"


class Flaw(StrEnum):
    """What can be wrong with the text itself. The list is closed; those that change what runs come first."""

    COMMENT_AFTER_BACKSLASH = "comment-after-backslash"
    SPACE_AFTER_BACKSLASH = "space-after-backslash"
    COMMENT_IN_COMMAND = "comment-in-command"
    MISSING_BACKSLASH = "missing-backslash"
    UNBALANCED_QUOTE = "unbalanced-quote"
    CURLY_QUOTES = "curly-quotes"
    NO_BREAK_SPACE = "no-break-space"
    JOINED_WORDS = "joined-words"
    NOT_TEXT = "not-text"
    STRAY_WORD = "stray-word"
    UNEXPANDED = "unexpanded"


@dataclass(frozen=True, slots=True)
class Fault:
    """`lost`: the flags that therefore never reach vLLM."""

    kind: Flaw
    line: int
    says: str
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """An argument, and the line it stands in. `is_split`: unquoted, so that one piece may become several arguments.

    `start`, `end`: where it stands, in characters of the text that was parted or in items of a list; `start` is -1
    where it does not stand there by itself: one of several words of a variable, or one that was added.
    """

    text: str
    line: int
    is_split: bool = False
    start: int = field(default=-1, compare=False)
    end: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class Resources:
    """What the text asks of the host; None where it asks for nothing."""

    gpus: float | None = None
    cpu_limit: float | None = None
    """Cores."""
    cpu_request: float | None = None
    shm_bytes: float | None = None
    host_ipc: bool = False
    """It has the /dev/shm of the host."""
    other_shm: bool = False
    """It has another /dev/shm, of a size that is not in the text."""
    open_files: float | None = None
    gpu: str | None = None
    """The GPU, or the machine, that it must run on, in its own words."""


@dataclass(frozen=True)
class Start:
    """`place`: where in the document it stands. Nothing in it is secret."""

    form: Form
    place: str
    command: Command
    unknown_flags: frozenset[str] = frozenset()
    """Flags that are given, with a value that the text does not hold."""
    is_open: bool = False
    """A part of the arguments is not in the text, and may hold any flag."""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """None: the value is not in the text, or not told, as it may be secret."""
    is_environment_whole: bool = False
    image: str | None = None
    version: str | None = None
    resources: Resources = field(default_factory=Resources)
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()

    is_engine: bool = False
    """Python makes the engine: what is not given is not what a server takes."""
    benchmark: Mapping[str, float] = field(default_factory=dict)
    variables: Mapping[str, bool] = field(default_factory=dict)
    """Of a text for a shell: the pieces that it expands where it runs, and whether to several words."""
    role: str = ""
    """What it is on the path of a request, where the text tells it (kinds.Hop)."""

    @property
    def argv(self) -> tuple[str, ...]:
        return self.command.argv

    @property
    def written_flags(self) -> tuple[str, ...]:
        """The names of its flags, each as it was written: --disable-x, not --enable-x that is off; and -O3."""
        written = _written_off(self.command)
        names = [text.partition("=")[0].replace("_", "-") for text in self.argv]
        short = next((name for name in names if name.startswith("-O")), None)
        if short is not None and _LEVEL not in names:
            written[_LEVEL] = short
        return tuple(written.get(name, name) for name in (*self.command.flags, *sorted(self.unknown_flags)))

    @property
    def lost(self) -> tuple[str, ...]:
        """The flags that never reach vLLM, in their order."""
        return tuple(dict.fromkeys(flag for fault in self.faults for flag in fault.lost))


@dataclass(frozen=True)
class Launch:
    """What is started, before the text around it is known.

    `inside`: the words that are scripts in which it stands (`bash -c SCRIPT`), outermost first. `assignments`: the
    words of the innermost text that set a variable for it (NAME=VALUE, or -e's value). `image_at`: of `docker run` in
    that text, the word of the image. `is_wrapped`: another program runs it.
    """

    words: Sequence[Word]
    form: Form
    environment: Mapping[str, str | None] = field(default_factory=dict)
    is_environment_whole: bool = False
    image: str | None = None
    version: str | None = None
    """Of the vLLM that is installed for it, where the text names one beside the image."""
    resources: Resources = field(default_factory=Resources)
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    inside: tuple[Word, ...] = ()
    assignments: Mapping[str, Word] = field(default_factory=dict)
    image_at: Word | None = None
    is_wrapped: bool = False
    benchmark: Mapping[str, float] = field(default_factory=dict)
    """Of a benchmark that starts an engine of its own: the tokens that it asks for, as facts."""
    role: str = ""
    """What it is on the path of a request, where the text tells it (kinds.Hop)."""


class Holder:
    """What in a document holds a start, and can be written anew with another; each form has its own."""


@dataclass(frozen=True)
class Written(Launch):
    """A start in its document, before it is judged. Its texts may hold secrets and marks of what is not expanded."""

    place: str = ""
    is_open: bool = False
    config: str | None = None
    """The text of its --config file, where that is what was given."""
    holder: Holder | None = None
    version: str | None = None
    """vLLM's, where the text beside it tells it."""
    of_keywords: bool = False
    """Its words stand for keywords of Python: what is off there needs no flag that turns it off."""

    @classmethod
    def of(cls, launch: Launch, **more: Any) -> Written:
        """The launch, with what the text around it tells; that goes over what the launch has."""
        return cls(**{field.name: getattr(launch, field.name) for field in fields(launch)} | more)


MAX_STARTS = 64
"""That one examination takes."""
MAX_WORDS = 2000
_LEVEL = "--optimization-level"
"""What -O3 sets; the older releases take the short form alone."""
_MOST_CHARACTERS = 128 * 1024
"""Of one argument: MAX_ARG_STRLEN of Linux."""
_STEPS_OF_A_WORD = 10
_NO_LETTERS = frozenset(range(0x20)) | {0x7F}
_PRINTED = 60
_FLAG = re.compile(r"--[A-Za-z][\w.-]*")
_SHORT = re.compile(r"-[A-Za-z]{1,4}(?=$|[=.])")
_DASHES = "–—‒―−‐‑"
_DOUBLE, _SINGLE = "“”„‟″", "‘’‚‛′"
_NO_BREAK = re.compile("[\u00a0\u2007\u202f\u3000\u2002-\u2006\u2008-\u200b\ufeff]")
_JOINED = re.compile(r"(--?[A-Za-z][\w.-]*)[ \t\n]+\S")
_LED_BY_BLANK = re.compile(r"\s+(--?[A-Za-z][\w.-]*)")
_VERSION = r"v?(\d+\.\d+\.\d+(?:\.\d+)?(?:(?:\.?(?:rc|post|dev))\d+)*)(?:[-+_].*)?"
_TAG = re.compile(_VERSION, re.DOTALL)
_NAMED_TAG = re.compile(
    rf"(?:.*[-_.])?vllm[-_]?{_VERSION}", re.IGNORECASE | re.DOTALL
)  # rocm6.4.1_vllm_0.9.0.1_20250605
_OTHERS_TAGS = frozenset({"lmcache", "rhaiis", "ai-dynamo", "vllm-runtime"})
"""Parts of the names of images with vLLM in them, whose tags are versions of something else."""


def judged(written: Written) -> Start:
    """The start without its secrets, with what is wrong in its words. Pure. Raises SourceError: too-large."""
    words = written.words
    if len(words) > MAX_WORDS:
        raise SourceError("too-large", f"a command of {len(words):,} arguments: no server takes so many")
    if max((len(word.text) for word in words), default=0) > _MOST_CHARACTERS:
        raise SourceError("too-large", f"an argument of more than {_MOST_CHARACTERS:,} characters: no system takes it")
    budget.spend(_STEPS_OF_A_WORD * len(words) + len(written.environment))
    command = command_line.parse(_without_hidden(words), lambda path: _config(written))
    flags = {flag: value for flag, value in command.flags.items() if not re.search(r"\s", flag)}
    faults = [*written.faults, *_faults_of(words)]
    faults += [] if faults else _strays(words)
    faults += _unexpanded(written, flags, None if "--model" in flags else command.model)
    unknown = frozenset(
        as_written(flag)
        for flag, value in flags.items()
        if not is_marked(flag) and isinstance(value, str) and is_marked(value)
    )
    unknown |= {as_written(command_line.flag_of_key(key)) for key in command.strange_keys if not is_marked(key)}
    version = (None if written.image is None else version_of(written.image)) or written.version
    shown = _shown(command, flags, unknown)
    if not written.of_keywords:
        shown = replace(shown, flags=_as_taken(shown, version or catalogue.newest()))
    return Start(
        written.form,
        as_written(written.place),
        shown,
        unknown,
        _is_open(written, flags, faults),
        _told(written.environment),
        written.is_environment_whole,
        None if written.image is None else masked(as_written(written.image)),
        version,
        written.resources,
        tuple(sorted(dict.fromkeys(faults), key=lambda fault: (list(Flaw).index(fault.kind), fault.line))),
        (*written.notes, *_of_role(written.role), *shown.notes),
        written.of_keywords and written.form is Form.PYTHON,
        written.benchmark,
        _variables(words) if written.form in (Form.SHELL, Form.DOCKER_RUN) else {},
        written.role,
    )


def _of_role(role: str) -> Iterator[str]:
    if role in (Hop.PREFILL, Hop.DECODE):
        yield f"its role: {role}"


def _config(written: Written) -> Reason | str:
    """The text of the file that --config names."""
    return Reason.NOT_IN_COMMAND if written.config is None else written.config


def _is_open(written: Written, flags: Mapping[str, Value], faults: Sequence[Fault]) -> bool:
    """Whether it may have more flags than those that were read."""
    return (
        written.is_open
        or any(is_marked(flag) for flag in flags)
        or (written.config is None and "--config" in flags)
        or any(fault.kind is Flaw.UNBALANCED_QUOTE for fault in faults)  # what would run is not known
        or _has_open_word(written.words)
    )


def _shown(command: Command, flags: Mapping[str, Value], unknown: Collection[str]) -> Command:
    """The command as it may be printed, without the flags whose values a shell would have to expand."""
    named = (command.model, flags.get("--model"))
    return Command(
        tuple(_in_a_line(as_written(text)) for text in command.argv),
        command.program,
        next((name for name in named if isinstance(name, str) and _is_model(name)), None),
        {flag: value for flag, value in flags.items() if flag not in unknown and not is_marked(flag)},
        tuple(as_written(note) for note in command.notes),
    )


def _variables(words: Sequence[Word]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for word in words:
        for piece in pieces(word.text):
            found[piece] = found.get(piece, False) or word.is_split
    return found


def _in_a_line(text: str) -> str:
    """The text; JSON that was written over several lines in one, as it means the same."""
    if "\n" not in text or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        outside.json(text)
    except ValueError:
        return text
    return " ".join(line for part in text.split("\n") if (line := part.strip()))  # none ends within JSON's own texts


def _as_taken(command: Command, version: str) -> dict[str, Value]:
    """Its flags. What is off was perhaps written as its opposite, which not every version takes: then it stands here as
    it was written."""
    taken = dict(command.flags)
    for name, spelling in _written_off(command).items():
        if False in (catalogue.has(version, spelling), catalogue.has(version, name)):
            del taken[name]
            taken[spelling] = True
    return taken


def _written_off(command: Command) -> dict[str, str]:
    """The flags that are off and were written as their opposite, by name: "--disable-x" of "--enable-x"."""
    written = {text.partition("=")[0].replace("_", "-") for text in command.argv}
    found: dict[str, str] = {}
    for name in (name for name, value in command.flags.items() if value is False):
        verb = "--disable-" if name.startswith("--enable-") else "--enable-"
        bare = name.removeprefix("--enable-").removeprefix("--disable-").removeprefix("--")
        for spelling in sorted({verb + bare, "--no-" + name.removeprefix("--")} & written):
            found.setdefault(name, spelling)
    return found


def _is_model(name: str) -> bool:
    """Whether this can be a model's name: not what a broken line left there, nor a piece that is not expanded."""
    return re.match(r"[\w./~]", name) is not None and not is_marked(name) and not _NO_BREAK.search(name)


def flags_in(texts: Iterable[str]) -> tuple[str, ...]:
    """The names of the flags among these words, also of those with typographic dashes; never a value."""
    found: dict[str, None] = {}
    hidden = False
    for text in texts:
        name = None if hidden else _flag_of(text)
        hidden = name is not None and "=" not in text and is_secret(name.replace("_", "-"))  # its value is no flag
        if name is not None:
            found[name] = None
    return tuple(found)


def _without_hidden(words: Sequence[Word]) -> list[str]:
    """The words, without secrets behind what is meant as a flag but is none, so that no parser sees one there."""
    texts: list[str] = []
    hides = all_of_it = False
    for word in words:
        flag = _flag_of(word.text)
        if flag is None:
            texts.append(MASK if hides else word.text)
            hides = hides and all_of_it
            continue
        hides = is_secret(flag.replace("_", "-"))
        all_of_it = flag.replace("_", "-") == "--api-key"
        joined = re.match(r"(\s*\S+?[\s=])(.*\S.*)", word.text, re.DOTALL)
        if hides and joined:
            texts.append(joined[1] + MASK)
            hides = False
        else:
            texts.append(word.text)
    return texts


def _flag_of(text: str) -> str | None:
    text = text.strip()
    if text[:1] and text[0] in _DASHES:
        text = "--" + text.lstrip(_DASHES + "-")
    match = _FLAG.match(text) or _SHORT.match(text)
    return match[0] if match else None


def printed(text: str) -> str:
    """A piece of a text in a message: short, and without anything a terminal obeys."""
    clean = masked(as_written(text)).translate(dict.fromkeys(_NO_LETTERS, " "))
    return clean if len(clean) <= _PRINTED else clean[: _PRINTED - 1] + "…"


def version_of(image: str) -> str | None:
    """vLLM's version by the tag of an image of vLLM: "0.11.0" of vllm/vllm-openai:v0.11.0-x86_64; None for others.

    Of any image by a tag that names vLLM: "0.8.5" of rocm6.3.1_vllm_0.8.5.
    """
    name = image.partition("@")[0]
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        return None
    path = repository.lower().split("/")
    is_own = path[-1].startswith("vllm") and not _OTHERS_TAGS & set(path)
    match = _NAMED_TAG.fullmatch(tag) or (_TAG.fullmatch(tag) if is_own else None)
    asked, newest = (catalogue.release(match[1]) if match else None), catalogue.release(catalogue.newest())
    is_other = asked is not None and newest is not None and asked[0] > newest[0] + 1  # 25.9.1: a vendor's own count
    return match[1] if match and not is_other else None


def _told(environment: Mapping[str, str | None]) -> dict[str, str | None]:
    told: dict[str, str | None] = {}
    for name, value in environment.items():
        if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
            continue
        known = value is not None and not is_marked(value) and is_shown(name)
        told[name] = masked(value) if known and value is not None else None
    return told


def _has_open_word(words: Sequence[Word]) -> bool:
    """Whether a word that is not expanded stands where any flag may stand: not as a value, nor as the model."""
    texts = [word.text for word in words]
    places = [
        place
        for place, text in enumerate(texts)
        if is_marked(text) and as_written(text) == "".join(pieces(text))
        and not (place and (flag := _flag_of(texts[place - 1])) is not None and is_secret(flag))
    ]  # fmt: skip
    if not places:
        return False
    if any(as_written(texts[place]) in ARGUMENTS for place in places):
        return True
    probes = {place: f"probe {place}" for place in places}
    probed = [mark(probes[place]) if place in probes else text for place, text in enumerate(texts)]
    command = command_line.parse(probed, lambda path: Reason.NOT_IN_COMMAND)
    taken = [None if "--model" in command.flags else command.model, *command.flags.values()]
    seen = {piece for value in taken if isinstance(value, str) for piece in pieces(value)}
    return not seen.issuperset(probes.values())


def _faults_of(words: Sequence[Word]) -> list[Fault]:
    """What single words tell: typographic signs, and words that should have been two."""
    faults: list[Fault] = []
    for word in words:
        text = as_written(word.text)
        if text[:1] and text[0] in _DASHES and (flag := _flag_of(text)):
            says = f"{flag} begins with a typographic dash, so vLLM does not take it for a flag: write {flag}"
            faults.append(Fault(Flaw.CURLY_QUOTES, word.line, says, (flag,)))
        elif any(sign in text for sign in _DOUBLE) or (text and (text[0] in _SINGLE or text[-1] in _SINGLE)):
            says = "typographic quotes quote nothing in a shell, and are no JSON: write plain ones"
            faults.append(Fault(Flaw.CURLY_QUOTES, word.line, says))
        if _NO_BREAK.search(text):
            lost = flags_in(_NO_BREAK.split(text)[1:])
            says = "a no-break space, as web pages have it, does not part words: write plain spaces"
            faults.append(Fault(Flaw.NO_BREAK_SPACE, word.line, says, lost))
        led, joined = _LED_BY_BLANK.match(text), _JOINED.match(text)
        if led:
            says = f"a backslash makes the space before {led[1]} a part of it: vLLM does not take it for a flag"
            faults.append(Fault(Flaw.SPACE_AFTER_BACKSLASH, word.line, says, (led[1],)))
        elif joined:
            says = f"{joined[1]} and its value are one argument: write two, or {joined[1]}=…"
            faults.append(Fault(Flaw.JOINED_WORDS, word.line, says, (joined[1],)))
    return faults


def _strays(words: Sequence[Word]) -> Iterator[Fault]:
    """A second word before the first flag: `vllm serve` takes one, its model."""
    program = command_line.program_of([word.text for word in words])
    at = len(words) if program is None else program[1]
    if len(words) > at + 1 and not any(
        word.text.startswith("-") or is_marked(word.text) for word in words[at : at + 2]
    ):
        says = (
            f"vLLM takes one model, which is {printed(words[at].text)} here, and refuses {printed(words[at + 1].text)}"
        )
        yield Fault(Flaw.STRAY_WORD, words[at + 1].line, says)


def _unexpanded(written: Written, flags: Mapping[str, object], model: str | None) -> list[Fault]:
    faults = []
    told: dict[str, int] = {}
    for word in written.words:
        for piece in pieces(word.text):
            at = mark(piece)
            owners = [flag for flag, value in flags.items() if isinstance(value, str) and at in value]
            place = told[at] = told.get(at, -1) + 1  # two flags may have the value of one variable
            owner = owners[min(place, len(owners) - 1)] if owners else None
            if owner is None and model is not None and at in model:
                owner = "the model"
            if piece in ARGUMENTS:
                owner = "what else it is given"
            what = f"the value of {owner}" if owner and owner.startswith("-") else owner or "an argument"
            says = f"{printed(piece)} is not in the text: {what} is not known"
            faults.append(Fault(Flaw.UNEXPANDED, word.line, says))
    return faults
