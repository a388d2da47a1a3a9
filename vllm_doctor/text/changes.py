"""What a remedy changes of a command, a line each: a sign, "-" or "+", and the flag or the variable."""

from __future__ import annotations

from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Correction, Remedy
from vllm_doctor.text import words

Line = tuple[str, str]


def dropped(remedy: Remedy) -> tuple[str, ...]:
    """The flags that it takes out, as they stand on the command line: --swap-space, --no-enable-prefix-caching."""
    flags = (flag for flag in remedy.unset if flag not in remedy.set)
    return tuple(dict.fromkeys(words.flag(f, remedy.was.get(f) is not False) for f in flags))


def diff(remedy: Remedy) -> tuple[Line, ...]:
    """What it changes: ("-", "--max-num-seqs 64"), ("+", "--max-num-seqs 10")."""
    lines = []
    for flag in dict.fromkeys([*remedy.unset, *remedy.set]):
        if flag in remedy.was:
            lines.append(("-", words.flag(flag, remedy.was[flag])))
        elif flag not in remedy.set and not remedy.was:
            lines.append(("-", words.flag(flag, True)))
    return (*lines, *_set(remedy))


def result(remedy: Remedy) -> tuple[Line, ...]:
    """The same without what a flag was that gets another value."""
    return (*(("-", flag) for flag in dropped(remedy)), *_set(remedy))


def brief(remedy: Remedy) -> tuple[Line, ...]:
    """The flags that it sets, or else takes out."""
    flags = tuple(("+", words.flag(flag, value)) for flag, value in remedy.set.items())
    return flags or tuple(("-", flag) for flag in dropped(remedy))


def differences(correction: Correction) -> tuple[Line, ...]:
    """("-", "--max-num-seqs 64"), ("+", "--max-num-seqs 11"), ("+", "OMP_NUM_THREADS=1  (environment)")."""
    return tuple(
        (sign, words.flag(change.name, value) if change.name.startswith("-") else _variable(change.name, value))
        for change in correction.changes
        for sign, value in (("-", change.was), ("+", change.now))
        if value is not None
    )


def _set(remedy: Remedy) -> tuple[Line, ...]:
    flags = tuple(("+", words.flag(flag, value)) for flag, value in remedy.set.items())
    return (*flags, *(("+", _variable(name, value)) for name, value in remedy.env.items()))


def _variable(name: str, value: Value) -> str:
    return f"{words.variable(name, value)}  (environment)"
