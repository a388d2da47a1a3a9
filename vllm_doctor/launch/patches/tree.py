"""A value within a document of mappings and lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_doctor.launch.rewrite import UnwritableError

Path = tuple[str | int, ...]


def put(tree: Any, keys: Sequence[str], value: Any, keeps_null: bool = False) -> None:
    """`keeps_null`: of a merge patch, in which null takes a key out. Raises UnwritableError where one of the keys is of
    no mapping."""
    for place, key in enumerate(keys):
        if not isinstance(tree, dict):
            raise UnwritableError(f"what holds {'.'.join(keys[place:])} is no mapping")
        if place < len(keys) - 1:
            if tree.get(key) is None:  # not there, or there without a value
                tree[key] = {}
            tree = tree[key]
    if value is None and not keeps_null:
        tree.pop(keys[-1], None)
    else:
        tree[keys[-1]] = value


def value_at(tree: Any, keys: Path) -> Any:
    for key in keys:
        tree = tree[key]
    return tree
