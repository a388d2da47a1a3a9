"""Of which releases of vLLM a command, or a log, can be, where nothing tells its version: by what it has. Pure.

A clue is something that only some releases have: a flag, one of its values, an environment variable, a line of the log.
The releases that all clues have in common are those that are possible. Of vLLM before 0.8.0 only a few releases are
known, so that what 0.7.3 has and 0.6.6 has not came after 0.6.6, in whichever release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vllm_doctor.model.reading import Value
from vllm_doctor.vllm import flags

_NAMED = 2
"""Clues that are told for one end of a stretch of releases."""
_NO_CLUE = re.compile(r"--model|-O.*")
"""`vllm serve` did not take --model for two releases, while the other way to start a server did; -O3 is another flag in
later releases, and was there all the time."""

Places = frozenset[int]
"""Releases, by where they stand in `flags.releases`."""


@dataclass(frozen=True, slots=True)
class Clue:
    """`says`: what it is, as it stands in the command or the log."""

    says: str
    places: Places

    @property
    def is_telling(self) -> bool:
        """Whether it is of some releases and not of others."""
        return bool(self.places) and len(self.places) < len(flags.releases())


@dataclass(frozen=True)
class Dating:
    """The releases that are possible, at least one.

    `by`: the clues that leave out the releases beside them. `contradiction`: of two clues that no release has both,
    in a sentence; then those releases are left that have most of the clues. "" where there is none.
    """

    places: Places
    by: tuple[str, ...] = ()
    contradiction: str = ""

    @property
    def newest(self) -> str:
        return flags.releases()[max(self.places)]

    @property
    def releases(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(flags.releases()[place] for place in sorted(self.places))

    @property
    def says(self) -> str:
        """ "0.9.0 to 0.9.2, by --enable-reasoning and --cuda-graph-sizes"; "" where every release is possible, and
        where the clues contradict each other."""
        if not self.by or self.contradiction:
            return ""
        return f"{', or '.join(_stretch(*ends) for ends in _stretches(self.places))}, by {_listed(self.by)}"


def dated(clues: Iterable[Clue], hints: Iterable[Clue] = ()) -> Dating:
    """By clues that must all hold, where the server starts, and by hints: each counts where the rest allows it."""
    must = [clue for clue in clues if clue.is_telling]
    every = frozenset(range(len(flags.releases())))
    left = every.intersection(*(clue.places for clue in must))
    if not left:
        counts = {place: sum(place in clue.places for clue in must) for place in every}
        most = max(counts.values())
        return Dating(frozenset(place for place in every if counts[place] == most), (), _contradiction(must))
    taken = list(must)
    for hint in hints:
        if hint.is_telling and left & hint.places:
            left &= hint.places
            taken.append(hint)
    return Dating(left, tuple(_bounding(left, taken)))


def of_flags(names: Iterable[str]) -> Iterator[Clue]:
    """The flags, as they are written; one that no release has is no clue.

    Of the oldest releases only long names are known: a short one that is there in the first of which all is known may
    have been there before.
    """
    known_from = flags.releases().index(flags.first())
    for name in names:
        if _NO_CLUE.fullmatch(name):
            continue
        places = _places(flags.spans(name))
        if "." in name:
            places &= _places(flags.spans(":dotted" if name.startswith("--") else ":dotted-short"))
        elif not name.startswith("--") and known_from in places:
            places |= frozenset(range(known_from))
        yield Clue(name, places)


def of_values(given: Mapping[str, Value]) -> Iterator[Clue]:
    """The values, where a flag takes one of a list: a value that stands in none of its lists is no clue."""
    for name, value in given.items():
        if isinstance(value, str):
            yield Clue(f"{name} {value}", _places(flags.value_spans(name, value)))


def of_environment(names: Iterable[str]) -> Iterator[Clue]:
    """The environment variables. One that is gone is often still set, and hurts nobody: only when it came counts."""
    for name in names:
        spans = flags.environment_spans(name)
        since = _places(((spans[0][0], flags.newest()),)) if spans and spans[0][0] != flags.first() else frozenset()
        yield Clue(name, since)


def between(says: str, since: flags.Release | None, until: flags.Release | None) -> Clue:
    """Something that was there from a release to a release; None: open."""
    kept = (
        place
        for place, name in enumerate(flags.releases())
        if (since or (0,)) <= (flags.release(name) or (0,)) <= (until or (10**6,))
    )
    return Clue(says, frozenset(kept))


def _places(spans: Iterable[tuple[str, str]]) -> Places:
    at = {name: place for place, name in enumerate(flags.releases())}
    return frozenset(place for first, last in spans for place in range(at[first], at[last] + 1))


def _stretches(places: Places) -> list[tuple[int, int]]:
    """The first and the last place of each stretch without a gap, oldest first."""
    found: list[tuple[int, int]] = []
    for place in sorted(places):
        if found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return found


def _bounding(places: Places, clues: Sequence[Clue]) -> Iterator[str]:
    """The clues that leave out what is beside a stretch, each once."""
    told: dict[str, None] = {}
    for first, last in _stretches(places):
        for beside in (first - 1, last + 1):
            if 0 <= beside < len(flags.releases()):
                told |= dict.fromkeys([clue.says for clue in clues if beside not in clue.places][:_NAMED])
    yield from (says for says in told if says.partition(" ")[0] not in told or " " not in says)


def _is_gap(place: int) -> bool:
    """Whether releases that are not known lie between this one and the next."""
    return place + 1 < len(flags.releases()) and flags.releases()[place + 1] in flags.samples()


def _stretch(first: int, last: int) -> str:
    names = flags.releases()
    is_first, is_last = first == 0, last == len(names) - 1
    since = "" if is_first else f"after {names[first - 1]}" if _is_gap(first - 1) else names[first]
    until = "" if is_last else f"before {names[last + 1]}" if _is_gap(last) else names[last]
    if not until:
        return since if since.startswith("after") else f"{since} or later"
    if not since or since.startswith("after") or until.startswith("before"):
        up_to = until if until.startswith("before") else f"up to {until}"
        return ", ".join(part for part in (since, up_to) if part)
    return since if since == until else f"{since} to {until}"


def _contradiction(clues: Sequence[Clue]) -> str:
    """The two clues of which one was gone first when the other came."""
    gone, came = min(clues, key=lambda clue: max(clue.places)), max(clues, key=lambda clue: min(clue.places))
    last, first = max(gone.places), min(came.places)
    if last >= first:
        return f"no release has all of {_listed([clue.says for clue in clues])}"
    left = f"{'by' if _is_gap(last) else 'in'} {flags.releases()[last + 1]}"
    since = f"{'by' if _is_gap(first - 1) else 'in'} {flags.releases()[first]}"
    return f"{gone.says} was gone {left}, {came.says} came {since}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
