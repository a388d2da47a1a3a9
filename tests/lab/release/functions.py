"""Which functions the modules of a release define, read from its sources without running them.

tests/data/functions.tsv.gz holds those of some releases, by which the frames of rules/profile/parts.yaml are checked:
a line with the releases; then of each module its path and its releases, and below it, indented, the releases of some of
its functions, and their names. Spans of releases are written as in the tables of vllm_doctor/vllm/data.
"""

from __future__ import annotations

import ast
import gzip
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.lab.release import tables

LEFT_OUT = (
    "vllm/third_party/",
    "vllm/vllm_flash_attn/",
    "vllm/benchmarks/",
    "vllm/model_executor/models/",
    "vllm/model_executor/layers/fused_moe/",
    "vllm/model_executor/layers/quantization/",
    "vllm/models/",
    "vllm/transformers_utils/configs/",
)
"""Packages of others, and folders of which each module is the model's own work, or is not served with."""

Modules = Mapping[str, frozenset[str]]
"""Of one release: the functions of each module, by its path from where vllm lies."""


def functions(folder: Path) -> dict[str, frozenset[str]]:
    """Those of a release, out of its sources."""
    found = {}
    for path in sorted((folder / "vllm").rglob("*.py")):
        place = path.relative_to(folder).as_posix()
        if not place.startswith(LEFT_OUT):
            tree = ast.walk(ast.parse(path.read_text("utf-8")))
            found[place] = frozenset(
                node.name for node in tree if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            )
    return found


def write(path: Path, by_release: Mapping[str, Modules]) -> None:
    order = sorted(by_release, key=tables.order_of)
    modules: dict[str, list[int]] = defaultdict(list)
    named: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, release in enumerate(order):
        for module, names in by_release[release].items():
            modules[module].append(place)
            for name in names:
                named[module][name].append(place)
    lines = [f"# releases: {' '.join(order)}"]
    for module, at in sorted(modules.items()):
        lines.append(f"{module}\t{tables.spans(at, order)}")
        by_span: dict[str, list[str]] = defaultdict(list)
        for name, places in sorted(named[module].items()):
            by_span[tables.spans(places, order)].append(name)
        lines += [f"\t{span}\t{' '.join(names)}" for span, names in sorted(by_span.items())]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


def read(path: Path) -> dict[str, dict[str, frozenset[str]]]:
    """The modules of each release, the oldest release first."""
    title, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    order = title.partition(":")[2].split()
    found: dict[str, dict[str, set[str]]] = {release: {} for release in order}
    module = ""
    for line in lines:
        first, span, *names = line.split("\t")
        module = first or module
        for release in tables.releases_of(span, order):
            found[release].setdefault(module, set()).update(names[0].split() if names else ())
    return {
        release: {module: frozenset(names) for module, names in modules.items()} for release, modules in found.items()
    }
