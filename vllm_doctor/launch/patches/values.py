"""The list of words, or the mapping of flags, out of which another program makes the command, with changes."""

from __future__ import annotations

from typing import Any

from vllm_doctor.launch import (
    docker,
    rewrite,
)
from vllm_doctor.launch.manifests import Values, flag_map
from vllm_doctor.launch.patches.chart import has_secrets, stack_value
from vllm_doctor.launch.patches.containers import has_marks
from vllm_doctor.launch.rewrite import UnwritableError, Wanted
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.vllm import command_line


def arguments(holder: Values, wanted: Wanted) -> tuple[str, list[str] | dict[str, Any]]:
    """Where its words or its flags stand, and what is to stand there. Raises UnwritableError."""
    if wanted.environment:
        raise UnwritableError("its environment is made by the program that reads the document")
    node = holder.arguments or holder.flags
    if node is None or node.kind not in ("seq", "map"):
        raise UnwritableError("its command is made by the program that reads the document")
    if has_marks(node):
        raise UnwritableError("it is a template")
    new = _of_flags(node, wanted) if holder.arguments is None else _of_list(node, wanted)
    if has_secrets(new):
        raise UnwritableError(rewrite.SECRET)
    return node.path or "the document", new


def _of_list(node: Node, wanted: Wanted) -> list[str]:
    words = [*docker.SERVE, "m", *(item.text for item in node.items)]
    if lost := wanted.unset - {edit.name for edit in command_line.edits(words, {}, wanted.unset)}:
        raise UnwritableError(f"{', '.join(sorted(lost))} is set elsewhere")
    return list(command_line.changed(words, wanted.set, wanted.unset))[3:]


def _of_flags(node: Node, wanted: Wanted) -> dict[str, Any]:
    keys = {command_line.flag_of_key(flag_map.flag_of(key).removeprefix("--")): key for key in node.fields}
    new: dict[str, Any] = dict(node.plain)
    for name, words in wanted.set.items():
        off = "--no-" + name.removeprefix("--")
        if off in keys:
            new.pop(keys[off])
        new[keys.get(name) or name.removeprefix("--")] = stack_value(words)
    for name in wanted.unset:
        off = "--no-" + name.removeprefix("--")
        key = keys.get(name) or keys.get(off)
        if key is None:
            raise UnwritableError(f"{name} is set elsewhere")
        new.pop(key)
    return new
