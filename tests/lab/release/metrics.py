"""The metrics that a release defines, read from its sources without running them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_METRIC = re.compile(r"vllm:[a-z][a-z0-9_]*[a-z0-9]")
_SPEAKS_OF_METRICS = re.compile(r"[\"']vllm:\w|(Counter|Gauge|Histogram)Metadata")
_NO_METRICS = ("vllm/benchmarks/", "vllm/v1/metrics/reader.py", "orca_metrics.py", "vllm/compilation/")
_KINDS = ("counter", "gauge", "histogram", "summary")


def metrics_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The metrics that a release's sources define, as its /metrics shows them: a counter ends in _total.

    Each with its kind ("" where the sources do not say it), and whether it is shown only on demand.
    """
    modules: dict[str, ast.Module] = {}
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder).as_posix()
        text = path.read_text("utf-8")
        if _SPEAKS_OF_METRICS.search(text) and not any(part in place for part in _NO_METRICS):
            modules[place] = ast.parse(text)
    constants = {name: text for module in modules.values() for name, text in _constants(module, "")}
    kinds = {name: kind for module in modules.values() for name, kind in _known_kinds(module, constants)}
    metrics: dict[str, dict[str, Any]] = {}
    for place, module in modules.items():
        engine = "V0" if place == "vllm/engine/metrics.py" else "V1"
        for name, kind, is_hidden in _metrics_in(module, kinds):
            shown = name + "_total" if kind == "counter" and not name.endswith("_total") else name
            found = metrics.setdefault(shown, {"kind": kind, "hidden": is_hidden, "engines": []})
            if engine in found["engines"]:
                found["hidden"] = found["hidden"] and is_hidden
            elif engine == "V1":
                found["hidden"] = is_hidden  # what V0 shows, nobody runs where both are
            found["kind"] = found["kind"] or kind
            found["engines"] = sorted({*found["engines"], engine})
    return metrics


def _constants(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, str]]:
    """Names that stand for a metric's: NAME, or Class.NAME."""
    for inner in node.body:
        if isinstance(inner, ast.ClassDef):
            yield from _constants(inner, inner.name + ".")
        elif isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
            text = _metric(inner.value, {})
            if text:
                yield prefix + inner.targets[0].id, text


def _metric(node: ast.AST | None, constants: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) and _METRIC.fullmatch(node.value) else None
    return constants.get(ast.unparse(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None


def _known_kinds(module: ast.Module, constants: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The kind of each metric that is an argument of what makes one, or its key in a table of such."""
    for node in ast.walk(module):
        pairs: list[tuple[ast.AST | None, ast.AST]] = []
        if isinstance(node, ast.Call):
            pairs = [(argument, node) for argument in [*node.args, *(keyword.value for keyword in node.keywords)]]
        elif isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            pairs = [(node.targets[0].slice, node.value)]
        for name, maker in pairs:
            text, kind = _metric(name, constants), _kind_of(maker)
            if text and kind:
                yield text, kind


def _metrics_in(module: ast.Module, kinds: Mapping[str, str]) -> Iterator[tuple[str, str, bool]]:
    parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}
    for node in parents:
        name = _metric(node, {})
        if name is None:
            continue
        above: list[ast.AST] = [node]
        while above[-1] in parents:
            above.append(parents[above[-1]])
        if any(isinstance(parent, (ast.Compare, ast.JoinedStr)) for parent in above):
            continue
        function = next((parent for parent in above if isinstance(parent, ast.FunctionDef)), None)
        is_hidden = any(isinstance(p, ast.If) and "show_hidden" in ast.unparse(p.test) for p in above)
        yield name, kinds.get(name) or _only_kind(function), is_hidden


def _kind_of(node: ast.AST) -> str:
    function = ast.unparse(node.func).lower() if isinstance(node, ast.Call) else ""
    return next((kind for kind in _KINDS if kind in function), "")


def _only_kind(function: ast.FunctionDef | None) -> str:
    """The kind of a name out of a list: the one that the function makes of names it does not spell out."""
    kinds = {
        _kind_of(node)
        for node in ast.walk(function or ast.Module([], []))
        if isinstance(node, ast.Call)
        and any(keyword.arg == "name" and not isinstance(keyword.value, ast.Constant) for keyword in node.keywords)
    } - {""}
    return kinds.pop() if len(kinds) == 1 else ""
