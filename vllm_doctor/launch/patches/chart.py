"""The keys of the production stack's values, and of its operator, with changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_doctor.launch.manifests import Runtime, StackModel
from vllm_doctor.launch.manifests.production_stack import SWITCHES
from vllm_doctor.launch.rewrite import UnwritableError, Wanted
from vllm_doctor.text.secret_names import is_secret
from vllm_doctor.vllm import command_line
from vllm_doctor.vllm.command_line import masked


def of_keys(holder: StackModel | Runtime, wanted: Wanted) -> dict[tuple[str, ...], Any]:
    """What changes of the production stack's keys; None: the key goes. Raises UnwritableError."""
    node = holder.node
    found: dict[tuple[str, ...], Any] = {}
    extra = node.at(*holder.extra)
    if extra and not (extra.kind == "seq" and all(item.is_scalar for item in extra.items)):
        raise UnwritableError("its extraArgs are no list")
    words = ["vllm", "serve", "m", *(item.text for item in extra.items)]
    edits = command_line.edits(words, {}, {*wanted.set, *wanted.unset})
    extras = {edit.name for edit in edits}
    places = {name: holder.keys[name] for name in (*wanted.set, *wanted.unset) if name in holder.keys}
    of_keys = {name: place for name, place in places.items() if node.at(*place) or _is_switch(name, wanted)}
    if lost := wanted.unset - extras - of_keys.keys():
        raise UnwritableError(f"{', '.join(sorted(lost))} is set elsewhere")
    for name, place in of_keys.items():
        found[place] = stack_value(wanted.set[name]) if name in wanted.set else None
    added = {name: text for name, text in wanted.set.items() if name not in of_keys}
    new = list(command_line.changed(words, added, wanted.unset | (extras & of_keys.keys())))[3:]
    if new != words[3:]:
        found[holder.extra] = new
    if wanted.environment:
        items = node.at(*holder.environment).items
        kept = [item.plain for item in items if item["name"].text not in wanted.environment]
        new_ones = ({"name": name, "value": value} for name, value in wanted.environment.items())
        found[holder.environment] = [*kept, *new_ones]
    return found


def _is_switch(name: str, wanted: Wanted) -> bool:
    """Whether a switch is to be set that the production stack turns off where it has no key."""
    return name in SWITCHES and name in wanted.set


def stack_value(words: Sequence[str]) -> Any:
    """A flag's words as a value of the chart: a number, a text, or on and off."""
    if len(words) == 1:
        return not words[0].startswith("--no-")
    for kind in (int, float):
        try:
            return kind(words[1])
        except ValueError:
            continue
    return words[1]


def has_secrets(tree: Any, name: str = "") -> bool:
    """Whether a value of the document may be secret, by its key or by its look."""
    if isinstance(tree, dict):
        named = str(tree.get("name", ""))
        return any(has_secrets(value, named if key == "value" else str(key)) for key, value in tree.items())
    if isinstance(tree, list):
        texts = [str(item) for item in tree]
        return command_line.without_secrets(texts) != texts or any(has_secrets(item, name) for item in tree)
    if not isinstance(tree, str):
        return False
    return masked(tree) != tree or (is_secret(name) and bool(tree))
