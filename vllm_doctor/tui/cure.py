"""What is copied: the corrected command, as far as it is known."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from vllm_doctor.model.report import Finding, Remedy, Report
from vllm_doctor.text import words
from vllm_doctor.text.changes import Line, differences, dropped
from vllm_doctor.tui.ink import fit, plain

_ELSEWHERE = "the file or the environment that sets it"
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
    """The text to paste, and what it is. The whole corrected command, else what the first remedy sets or runs.

    What is to be taken out is a comment: a flag alone, pasted, would set what it is to unset.
    """
    chosen = group[0].rule if group else ""
    correction = report.correction
    if correction is not None and (not chosen or any(change.rule == chosen for change in correction.changes)):
        if correction.settings:
            return _commented(correction.settings, "the call"), "what to change in the call"
        if correction.now == report.command:
            return _commented(differences(correction), _ELSEWHERE, plus=False), "what to change where it is set"
        variables = [words.variable(c.name, c.now) for c in correction.changes if _is_variable(c.name) and c.now]
        command = [words.quoted(word, report.variables) for word in correction.now]
        return " ".join([*variables, *command]), "the corrected command"
    for remedy in group[0].remedies if group else ():
        if remedy.run:
            return "\n".join(remedy.run), "what to run"
        gone = [("-", flag) for flag in dropped(remedy)]
        if remedy.set or remedy.env:
            flags = [words.flag(flag, value) for flag, value in remedy.set.items()]
            added = " ".join([*(words.variable(n, v) for n, v in remedy.env.items()), *flags])
            return _commented([*gone, ("+", added)], "the command"), "what to change" if gone else "what to add"
        if gone:
            return _commented(gone, "the command"), "what to take out"
    return "", ""


def _commented(changed: Sequence[Line], where: str, plus: bool = True) -> str:
    """Lines that can be pasted: what goes as a comment that says so; what comes as it is, or (not `plus`) so, too."""
    lines = []
    for sign, text in changed:
        if sign == "-":
            lines.append(f"# remove {plain(text)} from {where}")  # a line break would end the comment
        else:
            lines.append(text if plus else f"# add {plain(text)} to {where}")
    return "\n".join(lines)


def _is_variable(name: str) -> bool:
    return not name.startswith("-")
