"""What the findings of all engines come to: the verdict, and its headline. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vllm_doctor.model.kinds import GRAVE, Role, Severity, Stage
from vllm_doctor.model.reading import Subject
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Finding, Verdict, Vital, worst, worst_speed
from vllm_doctor.model.speed import Expected, Standing
from vllm_doctor.rules import explain
from vllm_doctor.rules.causes import Places


@dataclass(frozen=True)
class Complaint:
    """A symptom that holds on an engine, and the least verdict it makes where nothing explains it."""

    least: Verdict
    says: str
    subject: Subject
    of_speed: bool


def concluded(
    findings: Sequence[Finding],
    complaints: Sequence[Complaint],
    vitals: tuple[Vital, ...],
    told: Collection[str],
    speeds: Sequence[Expected],
) -> tuple[Verdict, str]:
    """The verdict and its headline. `told`: the rules that make a headline of a server that is well."""
    blind = next((finding for finding in findings if finding.role is Role.BLIND), None)
    if blind is not None:
        return Verdict.UNKNOWN, blind.title
    grave = [finding for finding in findings if finding.is_grave]
    unexplained = _unexplained(complaints, grave)
    missing = [vital for vital in vitals if vital.needed and isinstance(vital.seen, Reason)]
    reasons = worst(*(one.least for one in unexplained), Verdict.UNKNOWN if missing else Verdict.OK)
    if grave:
        verdict = worst(reasons, *(Verdict(f.severity) for f in findings if f.severity in GRAVE))
        slow = next((one for one in unexplained if one.of_speed), None)
        return verdict, slow.says if slow is not None and _is_less(grave[0], speeds) else grave[0].title
    if unexplained:
        return reasons, unexplained[0].says
    if missing:
        what = ", ".join(f"{vital.says} ({vital.seen})" for vital in missing)
        return Verdict.UNKNOWN, f"Key metrics could not be read: {what}"
    return Verdict.OK, _aside(findings, told, speeds)


def _unexplained(complaints: Sequence[Complaint], grave: Sequence[Finding]) -> list[Complaint]:
    """Those of engines on which no finding explains them."""
    every = Places((place, finding.subject) for place, finding in enumerate(grave))
    of_speed = Places((place, finding.subject) for place, finding in enumerate(grave) if _slows(finding))
    return [one for one in complaints if (of_speed if one.of_speed else every).first(dict(one.subject)) is None]


def _slows(finding: Finding) -> bool:
    """Whether it is enough of an explanation for a server that is slow."""
    return explain.may_explain(finding) or finding.stage is Stage.BROKEN


def _is_less(finding: Finding, speeds: Sequence[Expected]) -> bool:
    """Whether a finding that lengthens no step is less than what is missing of the speed: it explains too little, or
    its queue is no longer than the slow steps would make it."""
    if finding.severity is Severity.CRITICAL or finding.stage is Stage.BROKEN:
        return False
    if finding.is_minor:
        return True
    missing = max((one.missing or 0.0 for one in speeds if one.standing is Standing.SLOW), default=0.0)
    return missing > 0.5


def _aside(findings: Sequence[Finding], told: Collection[str], speeds: Sequence[Expected]) -> str:
    """The headline of a server of which no harm is known. It claims no more than was seen: that a server is well, or
    waits for its clients, only where the speed that requests get is known and as it should be."""
    worth = [f for f in findings if f.role in (Role.NOT_SERVER, Role.INFO, Role.SYMPTOM) and f.rule in told]
    first = next(iter(sorted(worth, key=lambda finding: finding.role is Role.SYMPTOM)), None)
    speed = worst_speed(speeds)
    if speed is None:
        said = "No limit found in what could be checked"
    elif speed.standing.is_fine:
        said = "No limit found, and requests get the speed that is expected"
    elif speed.standing is Standing.IDLE:
        return "Nothing wrong seen; idle, so its speed is not judged"
    else:
        why = speed.lacks[0] if speed.lacks else "it is beyond what the assumed GPU and model can do"
        said = first.title if first is not None and first.role is not Role.NOT_SERVER else "Nothing wrong seen"
        return f"{said}; speed not judged: {why}"
    if first is None:
        return said
    return f"{first.title}: {first.here}" if first.here else first.title
