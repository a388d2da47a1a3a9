"""Of the known faults, those that a release has, or that an upgrade brings, takes away, keeps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules.regression import Held, Regression
from vllm_doctor.vllm import flags

Read = Callable[[str], Reading]
Becomes = Literal["brings", "passes", "keeps", "fixes"]
BECOMES: tuple[Becomes, ...] = ("brings", "keeps", "passes", "fixes")


@dataclass(frozen=True, slots=True)
class Listed:
    """A fault, and how surely it is this setup's. `is_there`: None where nobody looked at the later release."""

    fault: Regression
    held: Held
    is_there: bool | None

    @property
    def says(self) -> str:
        """In a line or two, what is not sure said first."""
        possibly = "" if self.held == "certain" else "possibly: "
        later = " Nobody says whether this release still has it." if self.is_there is None else ""
        return f"{possibly}{self.fault.says}{later}"


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From one release to another: what becomes of each fault."""

    before: str
    after: str
    brings: tuple[Listed, ...]
    keeps: tuple[Listed, ...]
    passes: tuple[Listed, ...]
    """Those that only releases between have."""
    fixes: tuple[Listed, ...]


def unknown(_: str) -> Reading:
    """Of a setup of which nothing is told."""
    return Unknown(Reason.ABSENT)


def release(version: str) -> str:
    """As the table orders releases: without a v. Raises UsageError: it is none that is known."""
    plain = version.removeprefix("v")
    if plain not in flags.releases() or flags.number(plain) is None:
        raise UsageError(f"{version!r} is no release of vLLM that is known: {flags.first()} to {flags.newest()}")
    return plain


def listing(faults: Iterable[Regression], version: str | None, read: Read = unknown) -> tuple[Listed, ...]:
    """What a release has, None: what any has. Without what is known not to be this setup's, and that of which nobody
    says that this release has it."""
    found = []
    for fault in faults:
        held = _held(fault, read)
        if held and (version is None or fault.is_in(version)):
            found.append(Listed(fault, held, True))
    return tuple(sorted(found, key=_first))


def upgrade(faults: Iterable[Regression], before: str, after: str, read: Read = unknown) -> Upgrade:
    """What becomes of each. Raises UsageError where the second release is not the later one."""
    first, last = flags.number(before), flags.number(after)
    if first is None or last is None or first >= last:
        raise UsageError(f"an upgrade goes to a later release: {after} does not come after {before}")
    found: dict[Becomes, list[Listed]] = {becomes: [] for becomes in BECOMES}
    for fault in faults:
        becomes, held = _becomes(fault, before, after), _held(fault, read)
        if becomes and held:
            found[becomes].append(Listed(fault, held, fault.is_in(after)))
    sorted_ = {becomes: tuple(sorted(listed, key=_first)) for becomes, listed in found.items()}
    return Upgrade(before, after, sorted_["brings"], sorted_["keeps"], sorted_["passes"], sorted_["fixes"])


def bisection(before: str, after: str) -> list[str]:
    """The releases between, in the order in which they halve what is left."""
    every = list(flags.releases())
    left: list[Sequence[str]] = [every[every.index(before) + 1 : every.index(after)]]
    order = []
    while left:
        part, *left = left
        if part:
            middle = len(part) // 2
            order.append(part[middle])
            left += [part[:middle], part[middle + 1 :]]
    return order


def most_steps(count: int) -> int:
    """How many of so many releases are tried at most."""
    return count.bit_length()


def _becomes(fault: Regression, before: str, after: str) -> Becomes | None:
    was, is_there = fault.is_in(before), fault.is_in(after)
    if was is None:  # seen in older ones alone
        return None
    if was:
        return "fixes" if is_there is False else "keeps"
    if is_there is not False:
        return "brings"
    first, since, last = (flags.number(version) or 0.0 for version in (before, fault.since, after))
    return "passes" if first < since < last else None


def _held(fault: Regression, read: Read) -> Held | None:
    holds, _ = fault.when.judge(read)
    if holds is False:
        return None
    return "certain" if holds and not fault.also else "possible"


def _first(listed: Listed) -> tuple[bool, bool, float, str]:
    """The sure ones first, warnings before hints, the newest before the oldest."""
    fault = listed.fault
    return (listed.held != "certain", fault.severity != "warning", -(flags.number(fault.since) or 0.0), fault.id)


def lines(found: Upgrade) -> Iterator[str]:
    """One each, as another page quotes them: what it brings and takes away, where that is certain."""
    for word, listed in (("brings", found.brings), ("fixes", found.fixes)):
        for one in listed:
            if one.held == "certain" and one.is_there is not None:
                yield f"{found.before} to {found.after} {word}: {one.fault.says}"
