"""Which finding explains how much of the speed that is missing: a cause must explain the size of the loss. Pure.

The loss of an engine is what its output tokens take longer than is typical, where that is more than a healthy server
may take. A finding explains the part of it that its cause costs at most; one whose cost nobody can bound may explain
all of it. What only makes requests queue (no `costs`) explains nothing of it, and is judged as on any other server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vllm_doctor.model.kinds import Role, Severity, Stage
from vllm_doctor.model.report import Finding
from vllm_doctor.model.speed import Expected, Share, Standing
from vllm_doctor.rules.diagnosis_file import SpeedRule

_UNKNOWN = 0.5
"""Where a finding of unknown cost stands among those whose share is known."""
_SUSPECTS = (Stage.BROKEN, Stage.HOST)
"""The stages of what can cost any amount, although nobody can bound it: the device and the host, no flag."""


def explained(
    findings: Sequence[Finding], speeds: Sequence[Expected], rule: SpeedRule, worthwhile: float
) -> tuple[list[Finding], tuple[Expected, ...]]:
    """The findings with their shares of what is missing, and the speeds with what explains them.

    `worthwhile`: the gain from which on a finding is told for its own sake, whatever it adds to a step.
    """
    slow = _Engines([speed for speed in speeds if speed.standing is Standing.SLOW])
    told: list[Finding] = []
    causes: dict[int, dict[str, Share]] = {}
    for finding in findings:
        mine = slow.of(finding.subject) if _is_cause(finding) else []
        for speed in mine:
            causes.setdefault(id(speed), {})[finding.rule] = Share(finding.rule, _share(finding, speed))
        told.append(_told(finding, mine, rule, worthwhile) if mine else finding)
    return told, tuple(
        replace(speed, explained=tuple(sorted(causes[id(speed)].values(), key=_rank))) if id(speed) in causes else speed
        for speed in speeds
    )


class _Engines:
    """The engines that are slow, by their labels."""

    def __init__(self, speeds: Sequence[Expected]) -> None:
        self._speeds = speeds
        self._known: dict[frozenset[tuple[str, str]], list[Expected]] = {
            frozenset(speed.subject.items()): [speed] for speed in speeds
        }

    def of(self, finding: Mapping[str, str]) -> list[Expected]:
        """Those that a finding is about: no label contradicts."""
        key = frozenset(finding.items())
        if key not in self._known:
            self._known[key] = [
                speed
                for speed in self._speeds
                if all(speed.subject.get(label, value) == value for label, value in finding.items())
            ]
        return self._known[key]


def may_explain(finding: Finding) -> bool:
    """Whether it can be what a slow server's headline says: it lengthens steps, and by enough."""
    return _is_cause(finding) and not finding.is_minor


def weight(finding: Finding) -> float:
    """How much of what is missing it explains: the order of a slow server's causes; 0 where nothing is missing."""
    if finding.cost is None or not finding.cost.is_asked or finding.is_minor:
        return 0.0
    return -_rank(Share(finding.rule, finding.cost.share))


def _rank(share: Share) -> float:
    return -_UNKNOWN if share.share is None else -share.share


def _is_cause(finding: Finding) -> bool:
    """Whether it lengthens steps, and nothing else explains it."""
    return finding.role is Role.ROOT and finding.cost is not None


def _share(finding: Finding, speed: Expected) -> float | None:
    """The part of an engine's loss that the finding explains at most; None: nobody can bound it."""
    measured, typical = speed.tpot.measured, speed.tpot.typical
    if finding.cost is None or finding.cost.at_most is None or measured is None or typical is None:
        return None
    return min(1.0, finding.cost.at_most / (measured - typical))


def _told(finding: Finding, slow: Sequence[Expected], rule: SpeedRule, worthwhile: float) -> Finding:
    """The finding with the largest of its shares, and whether that is too little for a headline."""
    assert finding.cost is not None
    shares = [_share(finding, speed) for speed in slow]
    known = [share for share in shares if share is not None]
    share = max(known) if len(known) == len(shares) else None
    beyond_flags = all(speed.is_beyond_flags for speed in slow)
    if share is None:
        is_small = beyond_flags and finding.stage not in _SUSPECTS
    else:
        is_small = share < (rule.share_there if beyond_flags else rule.least_share)
    pays = finding.gain is not None and finding.gain.at_most >= worthwhile
    leads = share is not None and share >= rule.leads and finding.severity is Severity.INFO
    return replace(
        finding,
        severity=Severity.WARNING if leads else finding.severity,  # a note elsewhere; here it is the cause
        cost=replace(finding.cost, share=share, is_asked=True),
        is_minor=is_small and not pays,
    )
