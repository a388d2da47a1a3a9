"""The blocks that a server's KV cache stores, as vLLM's events tell of them, and the prompts that they add up to.

An event is msgpack: vllm/distributed/kv_events.py. Nothing in it is believed: what is not of its form is counted, and
left out. Blocks that are dropped later stay: it is the prompts that are looked at, not the cache.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_doctor.model import prefix
from vllm_doctor.model.prefix import Comparison, Key, Numbers, Prefixes, Prompt, Unit

MOST_BLOCKS = 200_000
MOST_UNITS = 4_000_000
_MOST_ROOTS = 1000
_LARGEST_TOKEN = 1 << 40
_FIELDS = (
    "type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    "extra_keys", "group_idx",
)  # fmt: skip
"""Of BlockStored, in the order in which releases before 0.12 or so write them: as an array."""

BlockId = tuple[int, bytes | int]
"""The group of layers, and the hash that the server gives."""


class FormError(ValueError):
    """What came is none of vLLM's events."""


@dataclass(frozen=True, slots=True)
class _Block:
    parent: BlockId | None
    units: array[int] = field(repr=False)
    key: int | None
    """A number for what tells the block apart beside its tokens."""


class Blocks:
    """The tree of all blocks that were stored."""

    def __init__(self, show_text: bool = False) -> None:
        self._numbers, self._keys = Numbers(), Numbers()
        self._show_text = show_text
        self._blocks: dict[BlockId, _Block] = {}
        self._parents: set[BlockId] = set()
        self._units = 0
        self.stored = 0
        """Events that told of a stored block."""
        self.odd = 0
        """Events that are not of the form that is known."""
        self.sparse = 0
        """Those that leave out blocks, as of sliding windows: where their tokens stand is not told."""
        self.left_out = 0
        """Blocks that there was no room for."""

    def add(self, batch: object) -> None:
        """A batch, as it was unpacked: [time, events, rank]. Raises FormError where it is none."""
        if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
            raise FormError
        for event in batch[1]:
            told = _named(event)
            if told is None:
                self.odd += 1
            elif told.get("type") == "BlockStored":
                self._store(told)

    def _store(self, told: Mapping[Any, Any]) -> None:
        hashes, tokens, size = told.get("block_hashes"), told.get("token_ids"), told.get("block_size")
        group, above = told.get("group_idx"), told.get("parent_block_hash")
        group = 0 if group is None else group
        if (
            not isinstance(hashes, list)
            or not isinstance(tokens, list)
            or type(size) is not int
            or size <= 0
            or type(group) is not int
            or not all(map(_is_hash, hashes))
            or not (above is None or _is_hash(above))
            or not all(type(token) is int and 0 <= token < _LARGEST_TOKEN for token in tokens)
        ):
            self.odd += 1
            return
        self.stored += 1
        if len(hashes) * size != len(tokens):
            self.sparse += 1
            return
        extra = told.get("extra_keys")
        adapter = told.get("lora_name") or told.get("lora_id")
        parent = None if above is None else (group, above)
        for place, name in enumerate(hashes):
            key = _key(extra[place] if isinstance(extra, list) and place < len(extra) else None, adapter)
            block = (group, name)
            if block not in self._blocks:
                if len(self._blocks) >= MOST_BLOCKS or self._units + size > MOST_UNITS:
                    self.left_out += len(hashes) - place
                    return
                units = self._numbers.of(tokens[place * size : (place + 1) * size])
                self._blocks[block] = _Block(parent, units, None if key is None else self._keys[key])
                self._units += size
                if parent is not None:
                    self._parents.add(parent)
            parent = block

    # ---- what they add up to -----------------------------------------------------------------------------------------

    def prefixes(self, target: str) -> Prefixes | None:
        """How the prompts part; None where there are no two of them.

        A prompt is what leads to a block that none follows, with what was generated for it. One that goes on behind a
        block that was stored before anybody looked is compared with its like alone.
        """
        compared: dict[BlockId | None, Comparison] = {}
        group, looked_at, left_out = self._most_told(), 0, 0
        for block in self._blocks:
            if block in self._parents or block[0] != group:
                continue
            if looked_at >= prefix.MOST_UNITS or len(compared) >= _MOST_ROOTS:
                left_out += 1
                continue
            root, prompt = self._prompt(block)
            looked_at += len(prompt)
            if root not in compared:
                compared[root] = Comparison(Unit.TOKEN, self._show if self._show_text else None, root is None)
            compared[root].add(prompt)
        found = prefix.summed(target, Unit.TOKEN, list(compared.values()), left_out)
        return found if found.prompts > 1 else None

    def _most_told(self) -> int:
        """The group of layers of which most blocks are told: each tells of the same prompts."""
        counts: dict[int, int] = {}
        for group, _ in self._blocks:
            counts[group] = counts.get(group, 0) + 1
        return max(counts, key=lambda group: counts[group], default=0)

    def _prompt(self, block: BlockId) -> tuple[BlockId | None, Prompt]:
        """What leads to a block, and the block before it that is not known; None: it is whole."""
        way: dict[BlockId, _Block] = {}
        at: BlockId | None = block
        while at is not None and at not in way and (found := self._blocks.get(at)) is not None:
            way[at] = found
            at = found.parent
        units: array[int] = array("I")
        keys: list[tuple[int, int]] = []
        for one in reversed(way.values()):
            if one.key is not None:
                keys.append((len(units), one.key))
            units.extend(one.units)
        return at, Prompt(units, _first_of_equal(keys))

    def _show(self, units: Iterable[int]) -> str:
        return " ".join(map(str, self._numbers.values_of(units)))


def _named(event: object) -> Mapping[Any, Any] | None:
    """An event's fields by their names; None where it is none."""
    if isinstance(event, dict):
        return event if isinstance(event.get("type"), str) else None
    if isinstance(event, list) and event and isinstance(event[0], str):
        return dict(zip(_FIELDS, event, strict=False))
    return None


def _is_hash(value: object) -> bool:
    return type(value) is int or (isinstance(value, bytes) and 0 < len(value) <= 64)


def _key(extra: object, adapter: object) -> str | None:
    """What tells a block apart beside its tokens, as a text; it becomes a number at once."""
    if extra is None and adapter is None:
        return None
    try:
        return repr((extra, adapter))
    except RecursionError:
        return ""


def _first_of_equal(keys: Sequence[tuple[int, int]]) -> Key:
    """Where each key begins: a block with the same one as the block before is no news."""
    return tuple(_changed(keys))


def _changed(keys: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    before = None
    for at, key in keys:
        if key != before:
            yield at, key
        before = key
