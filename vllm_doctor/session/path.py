"""Several sources with roles as one path of a request: what each tells, as facts of the whole. Pure.

A signal of the path is a fact named ROLE.SIGNAL: the signal as the sources of this role tell it together. What is
counted adds up over them; of all else it is the mean, weighted by their requests. ROLE.sources is how many they are,
ROLE.SIGNAL.largest the share that the largest of them has. Everything else, and what is too long, is in the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.model.kinds import FRONTS, Hop, SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.path import HopSeen, PathSeen, PathSource
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Finding, Problem
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.window import Window
from vllm_doctor.rules.catalogue import LARGEST, Catalogue
from vllm_doctor.rules.diagnosis_file import HopRule, PathRule
from vllm_doctor.session.patients import Examined
from vllm_doctor.text import words

_ADDS_UP = frozenset({"requests", "tokens", "1/s", "bytes", "blocks", "engines"})
"""Units of what is counted."""
_SOURCES = "sources"
_SERVING = frozenset(Hop) - FRONTS
_FEWEST = 2
"""Without a gateway it takes two servers to make a path."""


@dataclass(frozen=True)
class Part:
    """A source on the path, and its signals."""

    role: str
    target: str
    product: str
    snapshot: Snapshot


@dataclass(frozen=True)
class Path:
    """The parts, and what they tell of the whole."""

    parts: tuple[Part, ...]
    snapshot: Snapshot


def of(
    observations: Sequence[Observation], examined: Sequence[tuple[Examined, Snapshot]], catalogue: Catalogue
) -> Path | None:
    """The path that these sources are; None where they are none: servers side by side, and nothing says more.

    What was only written is none, either: nothing takes time there.
    """
    rule = catalogue.path_of_requests
    if rule is None or not any(o.window.times or o.evaluated for o in observations):
        return None
    parts = tuple(_parts(observations, examined, catalogue, rule))
    roles = {part.role for part in parts}
    is_told = any(observation.role for observation in observations) or {Hop.PREFILL, Hop.DECODE} <= roles
    is_told = is_told or _share_requests(parts, rule)
    if not (roles & FRONTS or (is_told and len(parts) >= _FEWEST)):
        return None
    facts = dict(_facts(parts, catalogue, rule))
    name = " → ".join(dict.fromkeys(part.product or part.role for part in parts))
    snapshot = catalogue.snapshot(Window(), facts, (("path", name),))
    return Path(parts, replace(snapshot, is_path=True))


def _parts(
    observations: Sequence[Observation],
    examined: Sequence[tuple[Examined, Snapshot]],
    catalogue: Catalogue,
    rule: PathRule,
) -> Iterator[Part]:
    """The sources that are part of it, in the order in which a request meets them."""
    found: list[Part] = []
    if fronts := [o for o in observations if o.kind is SourceKind.GATEWAY]:
        of_fronts = catalogue.narrowed(_named_by(catalogue, FRONTS))
        for front in fronts:
            snapshot = of_fronts.snapshot(front.window, {})
            found.append(Part(front.role or Hop.ROUTER.value, front.target, front.product, snapshot))
    for patient, snapshot in examined:
        role = next((o.role for o in patient.observations if o.role), "") or _told(snapshot, rule, _SERVING)
        role = role or Hop.SERVER.value
        found.append(Part(role, patient.name, "", snapshot))
        if role := _told(snapshot, rule, FRONTS):  # Ray shows both on one page
            found.append(Part(role, patient.name, "", snapshot))
    order = list(Hop)
    yield from sorted(found, key=lambda part: order.index(Hop(part.role)))


def _told(snapshot: Snapshot, rule: PathRule, among: frozenset[Hop]) -> str:
    """What a server is by its own metrics, its flags or its manifest; "" where they do not tell."""
    return next((role for role, signal in rule.told if role in among and _is_above_0(snapshot, signal)), "")


def _share_requests(parts: Sequence[Part], rule: PathRule) -> bool:
    """Whether these are ranks of one deployment; the first of them may not tell so."""
    ranks = sum(_is_above_0(part.snapshot, rule.ranks) for part in parts)
    return 0 < ranks >= len(parts) - 1


def _is_above_0(snapshot: Snapshot, signal: str) -> bool:
    reading = _read(snapshot, signal)
    return isinstance(reading, Known) and isinstance(reading.value, float) and reading.value > 0


def _read(snapshot: Snapshot, signal: str) -> Reading:
    """A signal of a whole server."""
    return snapshot.read(signal, ())[1]


def _named_by(catalogue: Catalogue, roles: frozenset[Hop]) -> list[str]:
    """The signals that the path's facts take from sources of these roles."""
    return [signal for role, signal, _ in catalogue.of_path if role in roles]


def _facts(parts: Sequence[Part], catalogue: Catalogue, rule: PathRule) -> Iterator[tuple[str, Reading]]:
    for hop in Hop:
        yield f"{hop}.{_SOURCES}", Known(float(sum(part.role == hop for part in parts)), origin="computed")
    for role, name, fact in catalogue.of_path:
        of_role = [part.snapshot for part in parts if part.role == role]
        if not of_role:
            yield fact, Unknown(Reason.NOT_IN_PATH)
        elif fact.endswith(LARGEST):
            yield fact, _largest([_read(snapshot, name) for snapshot in of_role])
        elif catalogue.signals[name].unit in _ADDS_UP:
            yield fact, _sum([_read(snapshot, name) for snapshot in of_role])
        else:
            yield fact, _mean(of_role, name, rule)


def _numbers(readings: Sequence[Reading]) -> list[float] | Unknown:
    """All of them; where one is not known, why."""
    numbers = []
    for reading in readings:
        if isinstance(reading, Unknown):
            return reading
        if not isinstance(reading.value, float):
            return Unknown(Reason.INVALID)
        numbers.append(reading.value)
    return numbers


def _sum(readings: Sequence[Reading]) -> Reading:
    numbers = _numbers(readings)
    return numbers if isinstance(numbers, Unknown) else Known(sum(numbers))


def _largest(readings: Sequence[Reading]) -> Reading:
    numbers = _numbers(readings)
    if isinstance(numbers, Unknown):
        return numbers
    return Known(max(numbers) / sum(numbers)) if sum(numbers) > 0 else Unknown(Reason.IDLE)


def _mean(snapshots: Sequence[Snapshot], name: str, rule: PathRule) -> Reading:
    """Over those that had requests: one that had none says nothing of how long they took."""
    told: list[tuple[float, float]] = []
    for snapshot in snapshots:
        reading, weight = _read(snapshot, name), _weight(snapshot, rule)
        if weight == 0.0:
            continue
        if isinstance(reading, Unknown) or not isinstance(reading.value, float):
            return reading if isinstance(reading, Unknown) else Unknown(Reason.INVALID)
        told.append((reading.value, weight if weight is not None else 1.0))
    whole = sum(weight for _, weight in told)
    return Known(sum(value * weight for value, weight in told) / whole) if whole > 0 else Unknown(Reason.IDLE)


def _weight(snapshot: Snapshot, rule: PathRule) -> float | None:
    """Requests of a source; None where it does not tell."""
    for signal in rule.weight:
        reading = _read(snapshot, signal)
        if isinstance(reading, Known) and isinstance(reading.value, float):
            return reading.value
    return None


def seen(path: Path, findings: Sequence[Finding], catalogue: Catalogue) -> PathSeen:
    """The path as the report has it: the time of each hop, and which of them the findings name."""
    rule = catalogue.path_of_requests
    assert rule is not None
    total, requests = _read(path.snapshot, rule.total), _read(path.snapshot, rule.requests)
    blaming = {finding.rule for finding in findings}
    hops = tuple(hop for one in rule.hops if (hop := _hop(one, path.snapshot, total, blaming, catalogue)) is not None)
    times = [hop.seen.value for hop in hops if isinstance(hop.seen, Known)]
    whole = total.value if isinstance(total, Known) and isinstance(total.value, float) else None
    is_whole = whole is not None and len(times) == len(hops)
    spent = sum(time for time in times if isinstance(time, float))
    return PathSeen(
        tuple(PathSource(part.role, part.target, part.product) for part in path.parts),
        total if isinstance(total, Known) else total.reason,
        requests.value if isinstance(requests, Known) and isinstance(requests.value, float) else None,
        hops,
        whole - spent if is_whole and whole is not None else None,
    )


def _hop(rule: HopRule, snapshot: Snapshot, total: Reading, blaming: set[str], catalogue: Catalogue) -> HopSeen | None:
    """A hop with its time; None of one that the path has not."""

    def worded(name: str) -> tuple[Reading, str]:
        return _read(snapshot, name), catalogue.signals[name].unit

    reading = _read(snapshot, rule.signal)
    if isinstance(reading, Unknown):
        is_lacking = rule.is_optional and reading.reason in (Reason.ABSENT, Reason.IDLE)
        if reading.reason is Reason.NOT_IN_PATH or is_lacking:
            return None
    share = None
    if isinstance(reading, Known) and isinstance(total, Known) and total.value:
        share = float(reading.value) / float(total.value)
    blamed = next((id for id in rule.rules if id in blaming), None)
    says = rule.by if isinstance(reading, Known) else rule.lacks
    by = words.fill(says, worded) or "" if says else ""
    return HopSeen(rule.hop, rule.says, reading if isinstance(reading, Known) else reading.reason, share, by, blamed)


def without_fronts(observations: Sequence[Observation]) -> list[Observation]:
    """Those of servers: what stands in front of them is no patient."""
    return [observation for observation in observations if observation.kind is not SourceKind.GATEWAY]


def servers_lacking(observations: Sequence[Observation], examined: Sequence[Examined]) -> Problem | None:
    """What to say where only what stands in front of servers was looked at."""
    fronts = [o.target for o in observations if o.kind is SourceKind.GATEWAY and o.error is None]
    if not fronts or examined:
        return None
    return Problem("no-server", f"{fronts[0]} stands in front of servers, and none of them was named: add their URLs")
