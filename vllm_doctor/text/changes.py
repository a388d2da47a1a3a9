"""What a remedy changes of a command, in lines."""

from __future__ import annotations

from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Correction, Remedy
from vllm_doctor.text import words


def dropped(remedy: Remedy) -> tuple[str, ...]:
    """The flags that it takes out, as they stand on the command line: --swap-space, --no-enable-prefix-caching."""
    flags = (flag for flag in remedy.unset if flag not in remedy.set)
    return tuple(dict.fromkeys(words.flag(f, False) if remedy.was.get(f) is False else f for f in flags))


def diff(remedy: Remedy) -> list[str]:
    """What it changes, a line each: "- --max-num-seqs 64", "+ --max-num-seqs 10"."""
    lines = []
    for flag in dict.fromkeys([*remedy.unset, *remedy.set]):
        if flag in remedy.was:
            lines.append(f"- {words.flag(flag, remedy.was[flag])}")
        elif flag not in remedy.set and not remedy.was:
            lines.append(f"- {flag}")
    lines += [f"+ {words.flag(flag, value)}" for flag, value in remedy.set.items()]
    return lines + [f"+ {name}={words.plain(value)}  (environment)" for name, value in remedy.env.items()]


def brief(remedy: Remedy) -> list[str]:
    """What it sets, or else takes out, a line each: "+ --max-num-seqs 10"."""
    return [f"+ {words.flag(flag, value)}" for flag, value in remedy.set.items()] or [
        f"- {flag}" for flag in dropped(remedy)
    ]


def differences(correction: Correction) -> tuple[str, ...]:
    """Line by line: "-  --max-num-seqs 64", "+  --max-num-seqs 11", "+  OMP_NUM_THREADS=1  (environment)"."""
    return tuple(
        f"{sign}  {_written(change.name, value)}"
        for change in correction.changes
        for sign, value in (("-", change.was), ("+", change.now))
        if value is not None
    )


def _written(name: str, value: Value) -> str:
    return words.flag(name, value) if name.startswith("-") else f"{name}={words.plain(value)}  (environment)"
