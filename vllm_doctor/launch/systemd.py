"""A systemd unit: ExecStart= with systemd's own continuation, quoting and variables, and what the unit grants."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_doctor.launch import budget, docker, shell
from vllm_doctor.launch.start import Fault, Flaw, Form, Holder, Resources, Word, Written, flags_in
from vllm_doctor.launch.unexpanded import is_marked, mark, pieces
from vllm_doctor.launch.unwrap import SAYS, of_words
from vllm_doctor.text.secret_names import is_secret

_UNIT = re.compile(r"^\[(Unit|Service|Install)\][ \t]*$|^ExecStart=", re.MULTILINE)
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
_SPECIFIER = re.compile(r"%%|%[a-zA-Z]")
_BROKEN = re.compile(r"\\[ \t]+(#.*)?$|\\#")
_STEPS_OF_A_SETTING = 5
_PREFIXES = "@-:+!|"


@dataclass(frozen=True)
class Setting:
    name: str
    value: str
    line: int
    fault: Fault | None
    raw: str
    """The value with its continued lines as they stand, without comments between them."""


@dataclass(frozen=True)
class Unit(Holder):
    """A unit file; `number` counts its ExecStart= from 0."""

    text: str = field(repr=False)
    number: int


def is_unit(text: str) -> bool:
    return _UNIT.search(text) is not None


def starts(text: str, line: int = 1) -> list[Written]:
    """The servers that the unit starts; it begins in this line."""
    given = list(settings(text, line))
    budget.spend(_STEPS_OF_A_SETTING * len(given))
    environment: dict[str, str | None] = {}
    for setting in given:
        if setting.name == "Environment":
            for word in shell.words(setting.value, setting.line)[0]:
                name, equals, value = specified(word.text).partition("=")
                if equals:
                    environment[name] = None if is_marked(value) else value
    files = any(setting.name == "EnvironmentFile" for setting in given)
    notes = ("EnvironmentFile= is not read: what it sets is not known",) if files else ()
    resources = _resources({setting.name: setting.value for setting in given})
    found = []
    for number, setting in enumerate(setting for setting in given if setting.name == "ExecStart" and setting.value):
        words, broken = shell.words(setting.value.lstrip(_PREFIXES), setting.line)
        faults = [] if broken is None else [Fault(broken.kind, broken.line, SAYS[broken.kind])]
        faults += [setting.fault] if setting.fault is not None else []
        for launch in of_words(list(expanded(words, environment)), Form.SYSTEMD, environment):
            granted = resources if launch.image is None else launch.resources
            limit = launch.resources.cpu_limit or granted.cpu_limit
            found.append(
                Written.of(
                    launch,
                    place=f"ExecStart, line {setting.line}",
                    is_environment_whole=launch.is_environment_whole if launch.image is not None else not files,
                    resources=replace(granted, cpu_limit=limit),
                    faults=(*faults, *launch.faults),
                    notes=(*notes, *launch.notes),
                    holder=Unit(text, number),
                )
            )
    return found


def settings(text: str, first: int = 1, commands: Collection[str] = ("ExecStart",)) -> Iterator[Setting]:
    """Its settings; `commands`: those in which the lines of a command may be broken."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line, number = lines[at], at + first
        at += 1
        if not line.strip() or line.lstrip()[0] in "#;[":
            continue
        parts = [line]
        while parts[-1].endswith("\\") and at < len(lines):
            at += 1
            if lines[at - 1].lstrip()[:1] in ("#", ";"):  # systemd leaves it out, and goes on
                continue
            parts[-1] = parts[-1][:-1]
            parts.append(lines[at - 1])
        name, equals, value = " ".join(parts).partition("=")
        if equals:
            fault = _broken(parts[-1], lines, at, first) if name.strip() in commands else None
            raw = "\\\n".join(parts).partition("=")[2].strip()
            yield Setting(name.strip(), value.strip(), number, fault, raw)


def commands(text: str) -> list[str]:
    """What its ExecStart= start, as written."""
    return [setting.raw for setting in settings(text) if setting.name == "ExecStart" and setting.value]


def prefix(command: str) -> str:
    """The signs before the program that systemd itself obeys."""
    return command[: len(command) - len(command.lstrip(_PREFIXES))]


def reads_files(text: str) -> bool:
    return any(setting.name == "EnvironmentFile" for setting in settings(text))


def _broken(last: str, lines: Sequence[str], at: int, first: int) -> Fault | None:
    """What is lost where a line seems to be continued, and is not; `at`: of the line after it."""
    match = _BROKEN.search(last)
    end = at
    while end < len(lines) and lines[end].strip().startswith("-"):
        end += 1
    lost = flags_in(word for line in lines[at:end] for word in line.split())
    if match is None and not lost:
        return None
    kind = Flaw.MISSING_BACKSLASH
    if match is not None:
        kind = Flaw.COMMENT_AFTER_BACKSLASH if "#" in match[0] else Flaw.SPACE_AFTER_BACKSLASH
    return Fault(kind, at + first - 1, SAYS[kind], lost)


def specified(text: str) -> str:
    """With systemd's specifiers marked: `%i`."""
    return _SPECIFIER.sub(lambda match: "%" if match[0] == "%%" else mark(match[0]), text)


def expanded(words: Sequence[Word], environment: Mapping[str, str | None]) -> Iterator[Word]:
    """The words with the unit's variables put in, as systemd does."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1] or match[2]
        found = environment.get(name)
        budget.spend()
        budget.spend_on(found or "")
        return mark(match[0]) if found is None or is_secret(name) else found

    for word in words:
        text = specified(word.text)
        whole = _VARIABLE.fullmatch(text)
        if whole and whole[2] and environment.get(whole[2]) is not None:  # alone and without braces: parted at blanks
            for part in (environment[whole[2]] or "").split():
                budget.spend()
                yield Word(part, word.line)
        else:
            expanded = _VARIABLE.sub(value, text)
            yield Word(expanded, word.line, is_split=bool(whole and pieces(expanded)))


def quoted(text: str, is_command: bool = True) -> str:
    """A word as systemd reads it back: `%` and, in a command, `$` are signs of its own."""
    text = text.replace("%", "%%")
    text = text.replace("$", "$$") if is_command else text
    if re.fullmatch(r"[\w@%+=:,./$-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _resources(settings: Mapping[str, str]) -> Resources:
    quota = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)%", settings.get("CPUQuota", ""))
    listed = settings.get("AllowedCPUs") or settings.get("CPUAffinity") or ""
    limits = [float(quota[1]) / 100 if quota else None, docker.cpus_in(",".join(listed.split())) if listed else None]
    return Resources(
        cpu_limit=min((limit for limit in limits if limit), default=None),
        open_files=docker.number(settings.get("LimitNOFILE", "").partition(":")[0]),
    )
