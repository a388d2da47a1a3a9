"""Events of a KV cache, as vLLM 0.32 makes them (vllm/v1/core/block_pool.py), or earlier ones (`is_array`)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any


def stored(
    hashes: Sequence[bytes | int], parent: bytes | int | None, tokens: Sequence[int], size: int
) -> dict[str, Any]:
    """One event of 0.32; defaults are left out."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(tokens),
        "block_size": size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(hashes),
        "group_idx": 0,
    }


class Cache:
    """A cache that never drops a block: what it has is not stored again."""

    def __init__(self, size: int = 16, is_array: bool = False) -> None:
        self._size, self._is_array = size, is_array
        self._known: set[bytes] = set()

    def events(self, *prompts: Sequence[int], keys: Sequence[object] | None = None) -> list[Any]:
        """What is told of prompts that are computed one after the other. `keys`: extra keys of their first block."""
        return [event for prompt in prompts if (event := self._event(list(prompt), keys)) is not None]

    def _event(self, tokens: list[int], keys: Sequence[object] | None) -> Any:
        names: list[bytes] = []
        before, count = repr(keys).encode(), len(tokens) // self._size
        for place in range(count):
            block = tokens[place * self._size : (place + 1) * self._size]
            before = hashlib.sha256(before + repr(block).encode()).digest()
            names.append(before)
        found = next((place for place, name in enumerate(names) if name not in self._known), count)
        if found == count:
            return None
        self._known.update(names)
        given: list[bytes | int] = [self._name(name) for name in names]
        event = stored(
            given[found:],
            given[found - 1] if found else None,
            tokens[found * self._size : count * self._size],
            self._size,
        )
        if keys is not None and not found:
            event["extra_keys"][0] = list(keys)
        if self._is_array:
            return [
                event[name]
                for name in ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id")
            ]
        return event

    def _name(self, name: bytes) -> bytes | int:
        return int.from_bytes(name[:8], "big") if self._is_array else name
