"""The corrected command: the server's own, with what the findings' remedies change, merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from vllm_doctor.model.kinds import GRAVE, Role
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Change, Correction, Finding, LeftOut, Remedy
from vllm_doctor.text import words
from vllm_doctor.vllm import flags
from vllm_doctor.vllm.command_line import changed

_UNCHECKED = "it is not known whether this vLLM has the flag, so a command with it might not start"

Refuses = Callable[[Mapping[str, Value | None]], str | None]
"""Why vLLM would not start with its flags changed like this (None: not given); None: nothing is known against it."""


def _starts(_: Mapping[str, Value | None]) -> str | None:
    return None


def corrected(
    findings: Sequence[Finding], command: Sequence[str], goal: Value | None = None, refuses: Refuses = _starts
) -> Correction | None:
    """What to start instead of `command`; None where no remedy changes it.

    Of each root finding, and of one that hides all others, the first remedy that changes flags or environment, that is
    complete, of flags that this vLLM is known to have, that does not contradict what was taken before, and with which
    vLLM still starts. They are taken in their
    order, by cause; those that serve the other goal than the user's, at its cost, after all others. What a finding
    explains goes with it; what is only a chance or a note is left to the reader. A finding that has a remedy of flags
    and is not cured all the same is told, with the reason.
    """
    taken, left = _taken(findings, goal, refuses)
    if not taken or not command:
        return None
    changed_flags = _flags(taken)
    written = {name: words.setting(name, value) for name, value in changed_flags.items() if value is not None}
    return Correction(
        changed(command, written, {name for name, value in changed_flags.items() if value is None}),
        tuple(sorted(taken.values(), key=lambda change: _order(findings, change))),
        left,
    )


def _taken(
    findings: Sequence[Finding], goal: Value | None, refuses: Refuses
) -> tuple[Mapping[str, Change], tuple[LeftOut, ...]]:
    """The changes that go together, by name; and the findings that they do not cure."""
    taken: dict[str, Change] = {}
    left: dict[int, LeftOut] = {}
    cured: set[int] = set()
    for for_the_other in (False, True):
        for place, finding in enumerate(findings):
            if place in cured or not _is_cured(finding):
                continue
            for remedy in finding.remedies:
                if (goal is not None and remedy.goal not in ("", goal)) != for_the_other:
                    continue
                changes = {change.name: change for change in _changes(finding, remedy)}
                if not changes:
                    continue
                reason = _against(remedy, changes, taken, refuses)
                if reason is None:
                    taken = changes | taken
                    cured.add(place)
                    break
                left.setdefault(place, LeftOut(finding.rule, remedy.do, reason))
    rules = {change.rule for change in taken.values()}  # of several engines with one fault one is enough
    return taken, tuple(left[at] for at in sorted(left) if at not in cured and left[at].rule not in rules)


def _against(
    remedy: Remedy, changes: Mapping[str, Change], taken: Mapping[str, Change], refuses: Refuses
) -> str | None:
    """Why the remedy cannot be taken as well; None: nothing is known against it."""
    if remedy.set and remedy.validated_for is None:
        return _UNCHECKED
    return _conflict(changes, taken) or refuses(_flags({**changes, **taken}))


def _is_cured(finding: Finding) -> bool:
    return finding.role is Role.BLIND or (finding.role is Role.ROOT and finding.severity in GRAVE)


def _changes(finding: Finding, remedy: Remedy) -> Iterator[Change]:
    """What the remedy changes; nothing where its values are not known, or another has to do it."""
    if remedy.needs or remedy.by != "you" or remedy.cost == "capacity":
        return
    for name in remedy.unset:
        if name not in remedy.set and name in remedy.was:
            yield Change(name, remedy.was[name], None, finding.rule)
    for name, value in {**remedy.set, **remedy.env}.items():
        if not _in_force(name, value, remedy):
            yield Change(name, remedy.was.get(name), value, finding.rule)


def _in_force(name: str, value: Value, remedy: Remedy) -> bool:
    """Whether that is so already: given, in whatever spelling, or vLLM's default where it is not given."""
    if name in remedy.was:
        return flags.is_same(remedy.was[name], value)
    known = flags.flag(remedy.validated_for, name) if remedy.validated_for and name.startswith("-") else None
    return known is not None and known.default not in (None, "None") and flags.is_same(known.default, value)


def _conflict(changes: Mapping[str, Change], taken: Mapping[str, Change]) -> str | None:
    """What was taken before and contradicts this: the same flag, or one of its keys, with another value."""
    for name, change in changes.items():
        for other in taken.values():
            is_key = name.startswith(f"{other.name}.") or other.name.startswith(f"{name}.")
            if is_key or (name == other.name and not flags.is_same(other.now, change.now)):
                was = f"without {other.name}" if other.now is None else words.flag(other.name, other.now)
                return f"{was} fixes {other.rule}"
    return None


def _flags(changes: Mapping[str, Change]) -> dict[str, Value | None]:
    return {name: change.now for name, change in changes.items() if name.startswith("-")}


def _order(findings: Sequence[Finding], change: Change) -> int:
    return next(place for place, finding in enumerate(findings) if finding.rule == change.rule)
