"""The corrected command: the server's own, with what the findings' remedies change, merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_doctor import words
from vllm_doctor.report import Change, Correction, Finding, Remedy
from vllm_doctor.sources.command_line import changed

_CURED = ("critical", "warning")


def corrected(findings: Sequence[Finding], command: Sequence[str]) -> Correction | None:
    """What to start instead of `command`; None where no remedy changes it.

    Of each root finding, and of one that hides all others, in their order, the first remedy that changes flags or
    environment, that is complete, and that does not contradict what was taken before. What it explains goes with it;
    what is only a chance or a note is left to the reader.
    """
    taken: dict[str, Change] = {}
    for finding in findings:
        if not (finding.role == "blind" or (finding.role == "root" and finding.severity in _CURED)):
            continue
        for remedy in finding.remedies:
            changes = {change.name: change for change in _changes(finding, remedy)}
            if changes and all(taken[name].now == changes[name].now for name in changes.keys() & taken.keys()):
                taken = changes | taken
                break
    if not taken or not command:
        return None
    flags = {name: change for name, change in taken.items() if name.startswith("-")}
    set = {name: words.setting(name, change.now) for name, change in flags.items() if change.now is not None}
    return Correction(
        changed(command, set, {name for name, change in flags.items() if change.now is None}),
        tuple(sorted(taken.values(), key=lambda change: _order(findings, change))),
    )


def _changes(finding: Finding, remedy: Remedy) -> Iterator[Change]:
    """What the remedy changes; nothing where its values are not known, or another has to do it.

    Nor where it is not known whether this vLLM has the flags that it sets: such a command might not start.
    """
    unchecked = remedy.set and remedy.validated_for is None
    if remedy.needs or unchecked or remedy.by != "you" or remedy.cost == "capacity":
        return
    for name in remedy.unset:
        if name not in remedy.set and name in remedy.was:
            yield Change(name, remedy.was[name], None, finding.rule)
    for name, value in {**remedy.set, **remedy.env}.items():
        if remedy.was.get(name) != value:
            yield Change(name, remedy.was.get(name), value, finding.rule)


def _order(findings: Sequence[Finding], change: Change) -> int:
    return next(place for place, finding in enumerate(findings) if finding.rule == change.rule)
