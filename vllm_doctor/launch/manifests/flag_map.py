"""A mapping whose keys are vLLM's flags, in any spelling (`max-model-len`, `maxModelLen`), as words of a command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache

from vllm_doctor.launch import budget
from vllm_doctor.launch.start import Word
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.vllm import flags as catalogue


def flag_of(key: str) -> str:
    """The flag that a key means; one that no release has in its usual spelling."""
    return known(key) or "--" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", key.lstrip("-")).replace("_", "-").lower()


def known(key: str) -> str | None:
    """The flag of some release that a key means: --enable-lora of `enableLoRA`; None where it means none."""
    name = _by_letters().get(re.sub(r"[-_]", "", key).lower())
    off = re.match(r"-{0,2}no[-_]", key)
    if name is None and off and (name := _by_letters().get(re.sub(r"[-_]", "", key[off.end() :]).lower())):
        return "--no-" + name.removeprefix("--")
    return name


def words(node: Node, turns_off: bool = True) -> Iterator[Word]:
    """Its flags. `turns_off`: whether false turns a flag off (--no-x), or leaves it out, as programs differ in that."""
    for key, value in node.fields.items():
        flag = flag_of(key)
        budget.spend()
        if value.kind == "bool":
            off = "--no-" + flag.removeprefix("--")
            if value.plain:
                yield Word(flag, value.line)
            elif turns_off and catalogue.is_flag(off):
                yield Word(off, value.line)
        elif value.kind == "seq" and all(item.is_scalar for item in value.items):
            yield from (Word(text, value.line) for text in (flag, *(item.text for item in value.items)))
        elif value:
            text = value.text if value.is_scalar else json.dumps(value.plain, ensure_ascii=False)
            yield from (Word(flag, value.line), Word(text, value.text_line))


@lru_cache(maxsize=1)
def _by_letters() -> dict[str, str]:
    return {name.replace("-", ""): name for name in catalogue.names()}
