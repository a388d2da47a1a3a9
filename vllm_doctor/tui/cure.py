"""What is copied: the corrected command, as far as it is known."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from vllm_doctor.model.report import Finding, Remedy, Report
from vllm_doctor.text import words
from vllm_doctor.text.changes import dropped
from vllm_doctor.tui.ink import fit

_FEW_WORDS = 12
"""Cells without which the words say nothing."""


def changes(remedy: Remedy) -> list[str]:
    """What a remedy changes, a line each: "+ --max-num-seqs 10", "- --swap-space"."""
    found = [f"- {flag}" for flag in dropped(remedy)]
    found += [f"+ {words.flag(flag, value)}" for flag, value in remedy.set.items()]
    found += [f"+ {words.variable(name, value)}" for name, value in remedy.env.items()]
    return found + [f"$ {command}" for command in remedy.run]


def brief(finding: Finding, width: int) -> str:
    """The first remedy in so many cells: what to do, and what that changes; of the two the words give way."""
    if not finding.remedies:
        return ""
    remedy = finding.remedies[0]
    changed = "  ".join(changes(remedy))
    if not changed:
        return remedy.do
    told = f"{remedy.do}:  {changed}"
    room = width - cell_len(changed) - 2
    if cell_len(told) <= width or room < _FEW_WORDS:
        return told
    return f"{fit(remedy.do, room)}  {changed}"


def to_copy(report: Report, group: Sequence[Finding]) -> tuple[str, str]:
    """The text to paste, and what it is. The whole corrected command, else what the first remedy sets or runs."""
    chosen = group[0].rule if group else ""
    correction = report.correction
    if correction is not None and (not chosen or any(change.rule == chosen for change in correction.changes)):
        if correction.settings:
            added = [text for sign, text in correction.settings if sign == "+"]
            gone = [text for sign, text in correction.settings if sign == "-"]
            return "\n".join(added or gone), "what the call gets" if added else "what to take out of the call"
        variables = [words.variable(c.name, c.now) for c in correction.changes if _is_variable(c.name) and c.now]
        command = [words.quoted(word, report.variables) for word in correction.now]
        return " ".join([*variables, *command]), "the corrected command"
    for remedy in group[0].remedies if group else ():
        if remedy.run:
            return "\n".join(remedy.run), "what to run"
        if remedy.set or remedy.env:
            flags = [words.flag(flag, value) for flag, value in remedy.set.items()]
            return " ".join([*(words.variable(n, v) for n, v in remedy.env.items()), *flags]), "what to add"
        if dropped(remedy):
            return " ".join(dropped(remedy)), "what to take out"
    return "", ""


def _is_variable(name: str) -> bool:
    return not name.startswith("-")
