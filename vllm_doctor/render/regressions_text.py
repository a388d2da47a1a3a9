"""Known faults of a release, or what an upgrade brings, for a reader."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vllm_doctor.model.reading import Value
from vllm_doctor.regressions import bench, upgrade
from vllm_doctor.regressions.upgrade import Listed, Upgrade
from vllm_doctor.rules.signal import Signal

_WIDTH = 100
_HEADS = {
    "brings": "It brings",
    "keeps": "It keeps, as far as is known",
    "passes": "Only releases between have",
    "fixes": "It fixes",
    "gains": "It ends, with what it brings",
    "lacks": "It still lacks what came later",
}


@dataclass(frozen=True, slots=True)
class About:
    """`is_told`: whether a setup was given; `told`: what was read of it; `notes`: of the versions; `signals`: what each
    means."""

    is_told: bool
    told: Mapping[str, Value]
    notes: Sequence[str]
    signals: Mapping[str, Signal]

    @property
    def lines(self) -> Iterator[str]:
        """What was read, and what was not, so that nobody takes silence for health."""
        for note in self.notes:
            yield from _wrapped(note, "")
        if self.told:
            said = ", ".join(f"{name} {_value(value)}" for name, value in self.told.items())
            yield from _wrapped(f"Read of this setup: {said}.", "")
        lacking = [name for name in upgrade.NEEDED if self.is_told and name not in self.told]
        if lacking:
            names = " and ".join(f"{name} ({self.signals[name].says})" for name in lacking)
            yield from _wrapped(f"Not known: {names}. An entry of which nothing else is known to hold is left out.", "")


def listed(found: Sequence[Listed], lacking: Sequence[Listed], about: About, version: str | None, of: int) -> str:
    """One release, or all. `lacking`: what came only later."""
    where = f"vLLM {version}" if version else "some vLLM (version unknown)"
    sure = f", {_sure(found)} certainly of this setup" if about.is_told else ""
    head = f"{len(found)} of {of} known faults are those of {where}{sure}."
    lines = [head, *about.lines, "", *(line for one in found for line in _entry(one, about.signals))]
    if lacking:
        only = f", {_sure(lacking)} certainly of this setup" if about.is_told else ""
        lines += [f"{len(lacking)} improvements came after {where if version else 'some vLLM'}{only}:", ""]
        lines += [line for one in lacking for line in _entry(one, about.signals)]
    return _joined(lines)


def upgraded(found: Upgrade, about: About, model: str, is_amd: bool) -> str:
    """From one release to another, and how to find the release that made a difference."""
    lines = [f"From vLLM {found.before} to {found.after}:", *about.lines, ""]
    for becomes in upgrade.BECOMES:
        entries: tuple[Listed, ...] = getattr(found, becomes)
        if entries:
            lines += [f"{_HEADS[becomes]}:", ""]
            lines += [line for one in entries for line in _entry(one, about.signals)]
    if not any(getattr(found, becomes) for becomes in upgrade.BECOMES):
        lines += ["Nothing is known for this setup. That says only that the table has no report of it.", ""]
    return _joined([*lines, *_plan(found, model, is_amd)])


def _value(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plan(found: Upgrade, model: str, is_amd: bool) -> Iterator[str]:
    order = upgrade.bisection(found.before, found.after)
    yield "To bisect a difference that you measured:"
    yield ""
    if not order:
        yield "  No release lies between: try the nightly images of the commits between, in halves."
    else:
        steps = upgrade.most_steps(len(order))
        yield from _wrapped(
            f"{len(order)} releases lie between, and at most {steps} are to be tried. Try the first of this order;"
            " where it is slow, leave out all that are newer, where it is fast, all that are older; then take the next"
            " that is left.",
        )
        for version in order:
            yield f"  {version:<8} {bench.image(version, is_amd)}   or: {bench.wheel(version)}"
    yield ""
    yield "  Each under the same load, three times:"
    yield f"  {bench.command(model)}"


def _entry(one: Listed, signals: Mapping[str, Signal]) -> Iterator[str]:
    yield from _wrapped(f"[{one.fault.id}] {one.says}", "  - ")
    if one.fault.cause:
        yield from _wrapped(f"cause: {one.fault.cause}", "    ")
    if one.unknown:
        names = "; ".join(f"{name} ({signals[name].says})" for name in one.unknown)
        yield from _wrapped(f"not known here: {names}", "    ")
    way = one.fault.way
    if way is not None:
        parts = [
            *(f"{name}={value}" for name, value in way.env.items()),
            *(name if value is True else f"{name} {value}" for name, value in way.set.items()),
            *(f"without {name}" for name in way.unset),
        ]
        word = "until then" if one.fault.is_improvement else "workaround"
        yield from _wrapped(f"{word}: {way.do}" + (f" ({', '.join(parts)})" if parts else ""), "    ")
    yield from (f"    {source.url}" for source in one.fault.sources)
    yield ""


def _sure(found: Sequence[Listed]) -> int:
    return sum(one.held == "certain" for one in found)


def _wrapped(text: str, first: str = "  ") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"
