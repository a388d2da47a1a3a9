"""vLLM's own --config file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from vllm_doctor.launch.start import Fault, Flaw, Form, Holder, Word, Written
from vllm_doctor.launch.unexpanded import is_marked
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.vllm import flags as catalogue

_SHARE = 0.5


@dataclass(frozen=True)
class ConfigFile(Holder):
    """vLLM's own --config file."""

    root: Node


def starts(root: Node, name: str) -> Iterable[Written] | None:
    return [_config(root, name)] if _is_config(root) else None


def _is_config(root: Node) -> bool:
    """A flat mapping whose keys are flags of vLLM, most of them."""
    keys = [key for key in root.fields if "." not in key]
    if not keys or (root["apiVersion"] and root["kind"]):
        return False
    known = [key for key in keys if catalogue.is_flag("--" + key.replace("_", "-"))]
    return len(known) >= max(1.0, len(keys) * _SHARE) and set(known) != {"model"}


def _config(root: Node, name: str) -> Written:
    words = [Word(text, root.line) for text in ("vllm", "serve", "--config", name or "config.yaml")]
    faults = [
        Fault(Flaw.UNEXPANDED, node.line, f"the value of --{key.replace('_', '-')} is a template: it is not known")
        for key, node in root.fields.items()
        if is_marked(node.text)
    ]
    return Written(
        words,
        Form.CONFIG,
        faults=tuple(faults),
        place=name,
        config=json.dumps(root.plain, ensure_ascii=False),
        holder=ConfigFile(root),
    )
