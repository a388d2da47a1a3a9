"""Of the known faults, those that a release has, or that an upgrade brings, takes away, keeps; of what came only with a
later release, what an upgrade gains, and what is still not there. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vllm_doctor.expr.condition import Condition
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules.regression import Held, Regression
from vllm_doctor.vllm import flags

Read = Callable[[str], Reading]
Becomes = Literal["brings", "passes", "keeps", "fixes", "gains", "lacks"]
BECOMES: tuple[Becomes, ...] = ("brings", "keeps", "passes", "fixes", "gains", "lacks")
SETUP = (
    "model_type", "weights_kind", "gpu_name", "gpu_capability", "gpu_architecture", "tensor_parallel_size",
    "speculative_method", "kv_cache_dtype", "attention_backend",
)  # fmt: skip
"""Signals on which most faults depend."""
NEEDED = ("model_type", "gpu_capability")
"""Those without which hardly any can be told."""
_SHORT = re.compile(r"v?(\d+\.\d+)")
_IS_VERSION = re.compile(r"v?\d+\.\d+(?:\.\d+)*(?:\.?(?:post|rc|dev)\d+)*(?:\+[\w.]+)?")
_QUOTED = 3


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry, and how surely it is this setup's. `is_there`: None where nobody looked at the later release.

    `unknown`: the signals on which it depends, and of which nothing is known."""

    fault: Regression
    held: Held
    is_there: bool | None
    unknown: tuple[str, ...] = ()

    @property
    def says(self) -> str:
        """In a line or two, what is not sure said first."""
        possibly = "" if self.held == "certain" else "possibly: "
        later = " Whether this release still has it is not known." if self.is_there is None else ""
        return f"{possibly}{self.fault.says}{later}"


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From one release to another: what becomes of each entry."""

    before: str
    after: str
    brings: tuple[Listed, ...]
    keeps: tuple[Listed, ...]
    passes: tuple[Listed, ...]
    """Those that only releases between have."""
    fixes: tuple[Listed, ...]
    gains: tuple[Listed, ...] = ()
    """What was not there before."""
    lacks: tuple[Listed, ...] = ()
    """What is not there yet."""


def is_version(word: str) -> bool:
    """Whether a word is written as a version, known or not."""
    return _IS_VERSION.fullmatch(word) is not None


def release(version: str) -> str:
    """As the table orders releases: 0.26 and v0.26.0+cpu are 0.26.0; what leads to a release is judged as that. Raises
    UsageError: nothing is known of it."""
    short = _SHORT.fullmatch(version)
    plain = f"{short[1]}.0" if short else version.removeprefix("v").partition("+")[0]
    known = plain if flags.is_named_release(plain) else flags.judged_as(plain)
    if known is None or flags.number(known) is None or not is_version(plain):
        raise UsageError(f"{version!r} is no release of vLLM that is known: {flags.first()} to {flags.newest()}")
    newest = flags.newest()
    if known == newest and plain != newest and not plain.startswith(newest):
        raise UsageError(f"{version!r} is newer than all that is known of vLLM: {flags.first()} to {newest}")
    return known


def is_release(version: str) -> bool:
    """Whether it is one that the table knows, and not a build on the way to one."""
    return _SHORT.fullmatch(version) is not None or flags.is_named_release(version.removeprefix("v").partition("+")[0])


def setup(read: Read) -> dict[str, Value]:
    """What is known of it, of that on which most faults depend."""
    readings = {name: read(name) for name in SETUP}
    return {name: reading.value for name, reading in readings.items() if isinstance(reading, Known)}


def as_build(found: Iterable[Listed]) -> tuple[Listed, ...]:
    """The same of a build between releases, of which nothing is certain."""
    return tuple(replace(one, held="possible") for one in found)


def of_builds(found: Upgrade) -> Upgrade:
    """The same from or to a build."""
    return Upgrade(
        found.before,
        found.after,
        as_build(found.brings),
        as_build(found.keeps),
        as_build(found.passes),
        as_build(found.fixes),
        as_build(found.gains),
        as_build(found.lacks),
    )


def listing(faults: Iterable[Regression], version: str | None, read: Read | None = None) -> tuple[Listed, ...]:
    """Of faults what a release has, of improvements what it lacks; None: what any does. `read`: how to read a setup,
    None: nothing is told of one. Without what is not this setup's, or of which no part is known to be, and that of
    which nobody says that this release has it."""
    found = []
    for fault in faults:
        held = _held(fault, read)
        if held and (version is None or fault.is_in(version)):
            found.append(Listed(fault, held, True, _unknown(fault, read)))
    return tuple(sorted(found, key=_first))


def upgrade(faults: Iterable[Regression], before: str, after: str, read: Read | None = None) -> Upgrade:
    """What becomes of each. Raises UsageError where the second release is not the later one."""
    first, last = flags.number(before), flags.number(after)
    if first is None or last is None or first >= last:
        raise UsageError(f"an upgrade goes to a later release: {after} does not come after {before}")
    found: dict[Becomes, list[Listed]] = {becomes: [] for becomes in BECOMES}
    for fault in faults:
        becomes, held = _becomes(fault, before, after), _held(fault, read)
        if becomes and held:
            found[becomes].append(Listed(fault, held, fault.is_in(after), _unknown(fault, read)))
    sorted_ = {becomes: tuple(sorted(listed, key=_first)) for becomes, listed in found.items()}
    return Upgrade(before, after, **sorted_)


def bisection(before: str, after: str) -> list[str]:
    """The releases between, in the order in which they halve what is left."""
    first, last = flags.number(before) or 0.0, flags.number(after) or 0.0
    left: list[Sequence[str]] = [[one for one in flags.releases() if first < (flags.number(one) or 0.0) < last]]
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


def lines(found: Upgrade) -> Iterator[str]:
    """One each, as another page quotes them: what it brings and takes away, where that is certain, and the first of
    what it possibly brings."""
    for word, listed in (("brings", found.brings), ("fixes", found.fixes), ("ends", found.gains)):
        for one in listed:
            if one.held == "certain" and one.is_there is not None:
                yield f"{found.before} to {found.after} {word}: {one.fault.says}"
    for one in [one for one in found.brings if one.held != "certain"][:_QUOTED]:
        yield f"{found.before} to {found.after} possibly brings: {one.fault.says}"


def _becomes(fault: Regression, before: str, after: str) -> Becomes | None:
    was, is_there = fault.is_in(before), fault.is_in(after)
    if was is None:  # seen in older ones alone
        return None
    if fault.is_improvement:
        return None if not was else "lacks" if is_there else "gains"
    if was:
        return "fixes" if is_there is False else "keeps"
    if is_there is not False:
        return "brings"
    first, since, last = (flags.number(version) or 0.0 for version in (before, fault.since, after))
    return "passes" if first < since < last else None


def _held(fault: Regression, read: Read | None) -> Held | None:
    if read is None:
        return "possible"
    holds, _ = fault.when.judge(read)
    if holds:
        return "certain" if fault.can_be_certain else "possible"
    if holds is False or not any(Condition(part).judge(read)[0] for part in fault.parts):
        return None
    return "possible"


def _unknown(fault: Regression, read: Read | None) -> tuple[str, ...]:
    if read is None:
        return ()
    return tuple(sorted(name for name in fault.when.names if isinstance(read(name), Unknown)))


def unknown(_: str) -> Reading:
    """Of a setup of which nothing is told."""
    return Unknown(Reason.ABSENT)


def _first(listed: Listed) -> tuple[bool, bool, bool, float, str]:
    """The sure ones first, those of which all that can be known is known, warnings before hints, the newest first."""
    fault = listed.fault
    newest = -(flags.number(fault.since) or 0.0)
    return (listed.held != "certain", bool(listed.unknown), fault.severity != "warning", newest, fault.id)
