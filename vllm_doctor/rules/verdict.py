"""What the findings of all engines come to: the verdict, and its headline. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vllm_doctor.model.kinds import Role, Severity, Stage
from vllm_doctor.model.reading import Subject
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Finding, Verdict, Vital, worst, worst_speed
from vllm_doctor.model.speed import Expected, Standing
from vllm_doctor.rules import explain
from vllm_doctor.rules.causes import Places
from vllm_doctor.text import words


@dataclass(frozen=True)
class Complaint:
    """A symptom that holds on an engine, and the least verdict it makes where nothing explains it."""

    least: Verdict
    says: str
    subject: Subject
    of_speed: bool


@dataclass(frozen=True)
class Conclusion:
    """`is_of_speed`: the headline is of the speed that is missing, which outweighs what was found."""

    verdict: Verdict
    headline: str
    is_of_speed: bool = False


def concluded(
    findings: Sequence[Finding],
    complaints: Sequence[Complaint],
    vitals: tuple[Vital, ...],
    told: Collection[str],
    speeds: Sequence[Expected],
    outweighs: float,
    worthwhile: float = 1.0,
) -> Conclusion:
    """The verdict and its headline: as grave as the gravest cause, whatever its consequences are.

    `told`: the rules that make a headline of a server that is well. `outweighs`: the share of the speed from which on,
    where it is missing, it comes before requests that queue. `worthwhile`: the gain below which a cause costs nothing.
    """
    blind = next((finding for finding in findings if finding.role is Role.BLIND), None)
    if blind is not None:
        return Conclusion(Verdict.UNKNOWN, blind.title)
    grave = [finding for finding in findings if finding.is_grave]
    unexplained = _unexplained(complaints, grave)
    missing = [vital for vital in vitals if vital.needed and isinstance(vital.seen, Reason)]
    reasons = worst(*(one.least for one in unexplained), Verdict.UNKNOWN if missing else Verdict.OK)
    if grave:
        verdict = worst(reasons, *(Verdict(finding.severity) for finding in grave))
        slow = next((one for one in unexplained if one.of_speed), None)
        if slow is not None and _is_outweighed(grave[0], speeds, outweighs):
            return Conclusion(verdict, _slow(slow, speeds, findings), is_of_speed=True)
        return Conclusion(verdict, grave[0].title)
    if unexplained:
        first = unexplained[0]
        return Conclusion(reasons, _slow(first, speeds, findings) if first.of_speed else first.says, first.of_speed)
    speed = worst_speed(speeds)
    reached = _reached(findings, worthwhile) if speed is not None and speed.standing is Standing.UNKNOWN else None
    if reached is not None:
        return Conclusion(Verdict.UNKNOWN, f"{reached.title}; what that costs is not known, as the speed is not judged")
    if missing:
        what = ", ".join(f"{vital.says} ({vital.seen})" for vital in missing)
        return Conclusion(Verdict.UNKNOWN, f"Key metrics could not be read: {what}")
    return Conclusion(Verdict.OK, _aside(findings, told, speeds))


def _reached(findings: Sequence[Finding], worthwhile: float) -> Finding | None:
    """A limit that is reached although nobody was seen to wait for it, unless it is known to cost next to nothing:
    who has found one has not found that all is well."""
    return next(
        (
            finding
            for finding in findings
            if finding.role is Role.ROOT
            and finding.stage is Stage.LIMIT
            and (finding.gain is None or finding.gain.at_most >= worthwhile)
        ),
        None,
    )


def _slow(complaint: Complaint, speeds: Sequence[Expected], findings: Sequence[Finding]) -> str:
    """The complaint of a slow engine, with how much of it is explained by what was found."""
    speed = next((one for one in speeds if one.subject == dict(complaint.subject)), None)
    if speed is None or not speed.explained:
        is_told = speed is not None and speed.is_beyond_flags
        return complaint.says if is_told else f"{complaint.says}; no finding explains it"
    if speed.unexplained is None:
        open_ = [share.rule for share in speed.explained if share.share is None]
        suspected = dict.fromkeys(f.title for f in findings if f.rule in open_ and not f.is_minor)
        if suspected:
            return f"{complaint.says}; suspected: {', '.join(suspected)}"
        return f"{complaint.says}; what {', '.join(open_)} costs is not known"
    return f"{complaint.says}; what was found explains at most {words.number(1 - speed.unexplained, 'share')}"


def _unexplained(complaints: Sequence[Complaint], grave: Sequence[Finding]) -> list[Complaint]:
    """Those of engines on which no finding explains them, a missing speed first."""
    every = Places((place, finding.subject) for place, finding in enumerate(grave))
    of_speed = Places((place, finding.subject) for place, finding in enumerate(grave) if _slows(finding))
    left = [one for one in complaints if (of_speed if one.of_speed else every).first(dict(one.subject)) is None]
    return sorted(left, key=lambda one: not one.of_speed)


def _slows(finding: Finding) -> bool:
    """Whether it is enough of an explanation for a server that is slow."""
    return explain.may_explain(finding) or finding.stage is Stage.BROKEN


def _is_outweighed(finding: Finding, speeds: Sequence[Expected], outweighs: float) -> bool:
    """Whether a finding that explains no missing speed is less than what is missing: it lengthens steps by too little,
    or its queue would be as much shorter as the steps should be."""
    if finding.severity is Severity.CRITICAL or finding.stage is Stage.BROKEN:
        return False
    missing = max((one.missing or 0.0 for one in speeds if one.standing is Standing.SLOW), default=0.0)
    return finding.is_minor or missing >= outweighs


def _aside(findings: Sequence[Finding], told: Collection[str], speeds: Sequence[Expected]) -> str:
    """The headline of a server of which no harm is known: what is worth knowing of it, a cause before a symptom."""
    worth = [f for f in findings if f.role in (Role.NOT_SERVER, Role.INFO, Role.SYMPTOM) and f.rule in told]
    first = next(iter(sorted(worth, key=lambda finding: finding.role is Role.SYMPTOM)), None)
    speed = worst_speed(speeds)
    standing = speed.standing if speed is not None else None
    why = speed.lacks[0] if speed is not None and speed.lacks else ""
    beside = tuple(dict.fromkeys(finding.rule for finding in findings if _may_cost(finding)))
    if first is None:
        return of_the_well("", "", None, standing, why, beside)
    return of_the_well(first.title, first.here, first.role, standing, why, beside)


def _may_cost(finding: Finding) -> bool:
    """Whether it lengthens steps, and nobody knows by how much."""
    return finding.role is Role.ROOT and finding.cost is not None and finding.cost.at_most is None


def of_the_well(
    title: str, here: str, role: Role | None, standing: Standing | None, why: str, beside: Sequence[str] = ()
) -> str:
    """The headline of a server of which no harm is known. It claims no more than was seen: that nothing limits it, or
    that it waits for its clients, only where the speed that requests get is known and as it should be.

    `title`, `here`, `role`: of what is worth knowing, if there is something. `standing` None: no speed is asked of it.
    `why` its speed is not known. `beside`: rules of whose findings nobody knows what they cost.
    """
    match standing:
        case Standing.IDLE:
            return "Nothing wrong found; idle, so its speed is not judged"
        case Standing.UNKNOWN | Standing.BEYOND:
            said = "Nothing wrong found" if not title or role is Role.NOT_SERVER else title
            if beside:
                said += f" besides {', '.join(beside[:2])}, whose cost is not known"
            return f"{said}; speed not judged: {why or 'it is beyond what the assumed GPU and model can do'}"
        case Standing.SLOW:
            return f"{title or 'No limit found'}; slower than expected"
    if title:
        return f"{title}: {here}" if here else title
    if standing is None:
        return "No limit found in what could be checked"
    return "No limit found, and requests get the speed that is expected"
