"""Where prompts that should begin alike part from each other, and what that costs. Pure.

A prompt is a sequence of numbers, one a token (or a character), that stand for nothing outside this run: equal numbers
are equal tokens, and no more is known of them here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from vllm_doctor.model.reading import Known, Reading

MOST_PROMPTS = 1000
MOST_UNITS = 2_000_000
"""Of all prompts that are compared: a few seconds of a CPU."""
_SAMPLED = 8
"""One in so many pieces is looked up to find a prompt's relatives."""
_RELATIVES = 8
_HEAD = 4
"""Pieces from the beginning: what changes before is the head."""
_BEFORE, _AROUND = 16, 48
"""Units that are shown, where text may be."""
_COUNTER = 2
"""Pieces: a date, an id or a counter is not longer."""


class Unit(StrEnum):
    """What a prompt is counted in."""

    TOKEN = "token"
    CHARACTER = "character"

    @property
    def piece(self) -> int:
        """So many in a row that are equal are no coincidence: a block of most servers."""
        return 16 if self is Unit.TOKEN else 64


class Change(StrEnum):
    """What changes where two prompts part. `says`: the same as a phrase."""

    says: str

    def __new__(cls, word: str, says: str) -> Change:
        member = str.__new__(cls, word)
        member._value_, member.says = word, says
        return member

    HEAD = "head", "the beginning changes"
    TOOLS = "tools", "the list of tools changes"
    COUNTER = "counter", "a piece of constant length changes, as a date, an id or a counter"
    ORDER = "order", "the same pieces stand in another order"
    MIDDLE = "middle", "a piece in the middle changes"
    KEYS = "keys", "another LoRA adapter, cache salt or image"
    TAIL = "tail", "what follows is each prompt's own"
    GROWTH = "growth", "one goes on where the other ends"

    @property
    def is_loss(self) -> bool:
        """Whether what follows could have been found in the cache, had it stood before what changes."""
        return self in _LOSSES


_LOSSES = frozenset({Change.HEAD, Change.TOOLS, Change.COUNTER, Change.ORDER, Change.MIDDLE})

Key = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Prompt:
    """`units`: array("I"). `keys`: from which place on something beside the tokens tells it apart (an adapter, a salt),
    and a number for it. `tools`: where its list of tools begins and ends, where that is known."""

    units: array[int] = field(repr=False)
    keys: Key = ()
    tools: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.units)


@dataclass(frozen=True)
class Parting:
    """Where a prompt parts from the earlier one that shares the most with it.

    `length`: how many units change there; `again`: units behind it that are the same again; `other`, `prompt`: the two,
    by their places among all, which part at these places of theirs.
    """

    prompt: int
    other: int
    at: int
    change: Change
    length: int = 0
    again: int = 0


@dataclass(frozen=True)
class PrefixGroup:
    """Prompts that share what they say, and change in the same way. `at`: the first and the last place where two of
    them part; from a block on that was stored before anybody looked where not `from_start`.

    `again`: units behind it that are the same again, of `units` in all of its prompts. `shown`: the text around it,
    where that was asked for.
    """

    prompts: int
    change: Change
    at: int
    at_most: int
    length: int
    again: int
    units: int
    from_start: bool = True
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prefixes:
    """What was learnt of the prompts of one source. `shared`: units that an endless cache finds; `again`: those that it
    would find, too, if what changes stood at the end."""

    target: str
    unit: Unit
    prompts: int
    units: int
    shared: int
    again: int
    groups: tuple[PrefixGroup, ...]
    left_out: int = 0
    """Prompts that there was no room for."""

    @property
    def lost_of_computed(self) -> float | None:
        """The share of what must be computed that could have been found."""
        computed = self.units - self.shared
        return min(1.0, self.again / computed) if computed > 0 else None

    @property
    def lost_share(self) -> float | None:
        """The share of all units that could have been found."""
        return self.again / self.units if self.units else None

    @property
    def worst(self) -> PrefixGroup | None:
        """The group that loses most."""
        losing = [group for group in self.groups if group.change.is_loss and group.again]
        return max(losing, key=lambda group: group.again, default=None)


def facts(seen: Prefixes, origin: str) -> dict[str, Reading]:
    """What rules may know of it."""
    found: dict[str, Reading] = {"prefix_prompts": Known(float(seen.prompts), origin=origin)}
    if seen.lost_share is not None and seen.lost_of_computed is not None:
        found["prefix_lost_share"] = Known(seen.lost_share, origin=origin)
        found["prefix_lost_of_computed"] = Known(seen.lost_of_computed, origin=origin)
    if (worst := seen.worst) is not None:
        found["prefix_groups"] = Known(float(sum(group.change.is_loss for group in seen.groups)), origin=origin)
        found["prefix_parts_at"] = Known(float(worst.at), origin=origin)
        found["prefix_parts_where"] = Known(where(worst, seen.unit), origin=origin)
        found["prefix_changes"] = Known(worst.change.says, origin=origin)
    return found


def where(group: PrefixGroup, unit: Unit) -> str:
    """ "token 37", "tokens 37 to 39": counted from 0."""
    at = f"{unit} {group.at:,}" if group.at == group.at_most else f"{unit}s {group.at:,} to {group.at_most:,}"
    return at if group.from_start else f"{at} behind what was cached before"


class Numbers(dict[object, int]):
    """A number for each value, by its first sight in this run: nothing of the value is in it."""

    def __missing__(self, value: object) -> int:
        self[value] = number = len(self)
        return number

    def of(self, values: Iterable[object]) -> array[int]:
        return array("I", map(self.__getitem__, values))

    def values_of(self, numbers: Iterable[int]) -> list[object]:
        """What they stand for: only where text may be shown."""
        values = list(self)
        return [values[number] for number in numbers]


def summed(target: str, unit: Unit, comparisons: Sequence[Comparison], left_out: int = 0) -> Prefixes:
    """What all comparisons of one source give."""
    groups = [group for comparison in comparisons for group in comparison.groups()]
    groups.sort(key=lambda group: (not group.change.is_loss, -group.again, -group.prompts))
    return Prefixes(
        target,
        unit,
        sum(len(comparison.prompts) for comparison in comparisons),
        sum(comparison.units for comparison in comparisons),
        sum(comparison.shared for comparison in comparisons),
        sum(comparison.again for comparison in comparisons),
        tuple(groups),
        left_out + sum(comparison.left_out for comparison in comparisons),
    )


class Comparison:
    """Prompts in the order of their arrival, each compared with those before it."""

    def __init__(self, unit: Unit, show: Callable[[Iterable[int]], str] | None = None, from_start: bool = True) -> None:
        """`show`: what the units stand for, where that may be shown. `from_start`: their beginnings are seen."""
        self._unit, self._show, self._from_start = unit, show, from_start
        self.prompts: list[Prompt] = []
        self.partings: list[Parting | None] = []
        self.left_out = 0
        self._units = 0
        self._sorted: dict[Key, list[tuple[bytes, int]]] = {}
        self._with_piece: dict[int, list[int]] = {}
        self._families: list[int] = []

    @property
    def units(self) -> int:
        return self._units

    @property
    def is_full(self) -> bool:
        return len(self.prompts) >= MOST_PROMPTS or self._units >= MOST_UNITS

    def add(self, prompt: Prompt) -> None:
        """Compare it with those before it; left out where there is no room."""
        if self.is_full or self._units + len(prompt) > MOST_UNITS:
            self.left_out += 1
            return
        raw = prompt.units.tobytes()
        pieces = _pieces(raw, self._unit.piece)
        place = len(self.prompts)
        relative = self._relative(prompt, pieces)
        parting = self._parting(prompt, place, raw, pieces, relative)
        self.prompts.append(prompt)
        self.partings.append(parting)
        self._units += len(prompt)
        self._families.append(place if parting is None else self._families[parting.other])
        insort(self._sorted.setdefault(prompt.keys, []), (raw, place))
        for piece in {piece for piece in pieces if piece % _SAMPLED == 0}:
            with_it = self._with_piece.setdefault(piece, [])
            with_it.append(place)
            del with_it[:-_RELATIVES]

    def groups(self) -> list[PrefixGroup]:
        """Those that part in the same way together."""
        found: dict[tuple[int, Change], list[Parting]] = {}
        for parting in self.partings:
            if parting is not None:
                found.setdefault((self._families[parting.prompt], parting.change), []).append(parting)
        return [self._group(each) for each in found.values()]

    def _group(self, partings: Sequence[Parting]) -> PrefixGroup:
        members = {place for parting in partings for place in (parting.prompt, parting.other)}
        widest = max(partings, key=lambda parting: parting.again)
        return PrefixGroup(
            len(members),
            widest.change,
            min(parting.at for parting in partings),
            max(parting.at for parting in partings),
            max(parting.length for parting in partings),
            sum(parting.again for parting in partings),
            sum(len(self.prompts[place]) for place in members),
            self._from_start,
            tuple(self._around(place, widest.at) for place in (widest.other, widest.prompt)) if self._show else (),
        )

    def _around(self, place: int, at: int) -> str:
        """What stands around that place: only where text may be shown."""
        units = self.prompts[place].units[max(0, at - _BEFORE) : at + _AROUND]
        assert self._show is not None
        return self._show(units)

    @property
    def shared(self) -> int:
        return sum(parting.at for parting in self.partings if parting is not None)

    @property
    def again(self) -> int:
        return sum(p.again for p in self.partings if p is not None and p.change.is_loss)

    # ---- one prompt ----------------------------------------------------------------------------------------------

    def _neighbours(self, prompt: Prompt, raw: bytes) -> list[int]:
        """Those that may share its longest beginning: in the order of what they say they stand beside it."""
        found = []
        for ordered in list(self._sorted.values())[:_RELATIVES]:
            at = bisect_left(ordered, (raw, -1))
            found += [place for _, place in ordered[max(0, at - 1) : at + 1]]
        if prompt.keys in self._sorted:
            ordered = self._sorted[prompt.keys]
            at = bisect_left(ordered, (raw, -1))
            found += [place for _, place in ordered[max(0, at - 1) : at + 1]]
        return found

    def _relative(self, prompt: Prompt, pieces: Sequence[int]) -> int | None:
        """The earlier one that says most of the same, wherever; of several that which begins most alike."""
        seen: Counter[int] = Counter()
        for piece in {piece for piece in pieces if piece % _SAMPLED == 0}:
            seen.update(self._with_piece.get(piece, ()))
        if not seen:
            return None
        most = seen.most_common(_RELATIVES)
        alike = [place for place, count in most if count >= 0.8 * most[0][1]]
        return max(alike, key=lambda place: (_shared(self.prompts[place], prompt), place))

    def _parting(
        self, prompt: Prompt, place: int, raw: bytes, pieces: Sequence[int], relative: int | None
    ) -> Parting | None:
        near = max(
            [*self._neighbours(prompt, raw), *([] if relative is None else [relative])],
            key=lambda other: (_shared(self.prompts[other], prompt), other == relative, other),
            default=None,
        )
        if near is None:
            return None
        relative = near if relative is None else relative
        other, at = self.prompts[near], _shared(self.prompts[near], prompt)
        shorter = min(len(other), len(prompt))
        if at < shorter and other.units[at] == prompt.units[at]:
            same = _common(other.units, prompt.units) - at
            return Parting(place, near, at, Change.KEYS, 0, same) if same >= min(self._unit.piece, shorter) else None
        runs = _runs(self.prompts[relative], prompt, at, pieces, self._unit.piece) if at < len(prompt) else []
        if not runs and at == shorter:
            return Parting(place, near, at, Change.GROWTH) if at else None
        if not runs:
            is_related = at >= min(self._unit.piece, (shorter + 1) // 2)
            return Parting(place, near, at, Change.TAIL) if is_related else None
        again = sum(length for _, _, length in runs)
        mine, theirs = runs[0][0] - at, runs[0][1] - _shared(self.prompts[relative], prompt)
        change = self._change(prompt, at, mine, theirs, runs)
        return Parting(place, relative, at, change, max(mine, theirs, 1), again)

    def _change(self, prompt: Prompt, at: int, mine: int, theirs: int, runs: Sequence[tuple[int, int, int]]) -> Change:
        if prompt.tools is not None and prompt.tools[0] <= at < prompt.tools[1]:
            return Change.TOOLS
        if any(after[1] < before[1] for before, after in pairwise(runs)):
            return Change.ORDER
        if self._from_start and at < _HEAD * self._unit.piece:
            return Change.HEAD
        if mine == theirs and mine <= _COUNTER * self._unit.piece:
            return Change.COUNTER
        return Change.MIDDLE


def _shared(one: Prompt, other: Prompt) -> int:
    """For how long both begin alike, with what else tells them apart."""
    units = _common(one.units, other.units)
    if one.keys == other.keys:
        return units
    mine, theirs = dict(one.keys), dict(other.keys)
    return min(units, *(at for at in mine.keys() | theirs.keys() if mine.get(at) != theirs.get(at)))


def _common(one: array[int], other: array[int]) -> int:
    """For how long two sequences begin alike."""
    low, high = 0, min(len(one), len(other))
    mine, theirs = memoryview(one), memoryview(other)
    if mine[:high] == theirs[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if mine[low:middle] == theirs[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _pieces(raw: bytes, length: int) -> list[int]:
    """A hash of each piece of that length, one from each place."""
    size = array("I").itemsize
    return [hash(raw[at : at + length * size]) for at in range(0, len(raw) - length * size + 1, size)]


def _runs(other: Prompt, prompt: Prompt, at: int, pieces: Sequence[int], least: int) -> list[tuple[int, int, int]]:
    """What the prompt says behind `at` that the other says, too, behind where they part: its place in the prompt, in
    the other, and how long it is."""
    start = _common(other.units, prompt.units)
    places: dict[int, int] = {}
    for place, piece in enumerate(_pieces(other.units[start:].tobytes(), least), start):
        places.setdefault(piece, place)
    mine, theirs = prompt.units, other.units
    found = []
    place = at
    while place < len(pieces):
        there = places.get(pieces[place])
        if there is not None:
            length = _common(mine[place:], theirs[there:])
            if length >= least:
                found.append((place, there, length))
                place += length
                continue
        place += 1
    return found
