"""The LoRA adapters that a command names (--lora-modules), and the rank that an adapter's own file tells. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_doctor.model.reading import Known, Reading

FLAG = "--lora-modules"
FILE = "adapter_config.json"
NAMED = "lora_named"
_MOST = 20_000
_LOGGED = re.compile(r"LoRAModulePath\(name=.{0,200}?, path=['\"]([^'\"]{1,1000})")
_WRITTEN = re.compile(
    r"\"path\"\s{0,9}:\s{0,9}\"(?P<json>[^\"]{1,1000})\"|(?:^|\s)[^\s={}\"',:]{1,200}=(?P<plain>\S{1,1000})"
)


def paths(value: str) -> tuple[str, ...]:
    """Where each of the adapters is, by the flag's value or as a log has it: a folder, or a name on the Hub."""
    entry = _LOGGED if _LOGGED.search(value[:_MOST]) else _WRITTEN
    return tuple(found[found.lastindex or 0] for found in entry.finditer(value[:_MOST]))


def of_facts(facts: Mapping[str, Reading]) -> dict[str, Reading]:
    """How many the flag among the facts names."""
    given = facts.get(FLAG)
    if not isinstance(given, Known) or not isinstance(given.value, str):
        return {}
    count = len(paths(given.value))
    return {NAMED: Known(float(count), origin=given.origin)} if count else {}


def rank(config: Mapping[str, Any]) -> float | None:
    """The largest rank within one adapter, by its adapter_config.json; None where that tells none."""
    found = list(_ranks(config))
    return float(max(found)) if found else None


def _ranks(config: Mapping[str, Any]) -> Iterator[int]:
    of_modules = config.get("rank_pattern")
    for told in (config.get("r"), *(of_modules.values() if isinstance(of_modules, dict) else ())):
        if type(told) is int and 0 < told < 2**20:
            yield told
