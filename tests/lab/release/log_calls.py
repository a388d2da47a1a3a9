"""The calls that write a release's log, read from its sources without running them.

tests/data/log_calls.tsv.gz holds those of the newest release: a line with its name, then file, line, level, format.
"""

from __future__ import annotations

import ast
import gzip
from collections.abc import Iterator
from pathlib import Path

_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_ELSEWHERE = ("third_party/", "vllm_flash_attn/")
"""Folders with packages of others, which only a wheel holds."""

Call = tuple[str, int, str, str]
"""The file below vllm/, the line, the level as it is called, the format; what an f-string fills in stands in braces."""


def log_calls(folder: Path) -> list[Call]:
    """All calls with a text, of `logger.info` and its like, `warnings.warn`, and functions named log_fn; in order."""
    calls: list[Call] = []
    root = folder / "vllm"
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root).as_posix()
        if not place.startswith(_ELSEWHERE):
            calls += [(place, line, level, text) for line, level, text in _calls_in(ast.parse(path.read_text("utf-8")))]
    return calls


def _calls_in(module: ast.Module) -> Iterator[tuple[int, str, str]]:
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and node.args:
            level, text = _level(node.func), _text(node.args[0])
            if level and text:
                found.append((node.lineno, level, text))
    return iter(sorted(found))


def _level(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return "log_fn" if function.id == "log_fn" else ""
    if not isinstance(function, ast.Attribute):
        return ""
    base = function.attr.removesuffix("_once").removesuffix("_warn_once")
    owner = ast.unparse(function.value)
    if owner == "warnings" and function.attr == "warn":
        return "warnings.warn"
    return function.attr if base in _LEVELS and "log" in owner.lower() else ""


def _text(node: ast.expr) -> str:
    """The format, in one line; "" where the call has none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        text = "".join(map(_part, node.values))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        text = _text(node.left) + _text(node.right)
    else:
        text = ""
    return text.replace("\t", " ").replace("\n", r"\n")


def _part(part: ast.expr) -> str:
    return f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else _text(part)


def write(path: Path, release: str, calls: list[Call]) -> None:
    lines = [f"# vLLM {release}", *("\t".join(map(str, call)) for call in calls)]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


def read(path: Path) -> tuple[str, list[Call]]:
    """The release, and its calls."""
    title, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    rows = (line.split("\t") for line in lines)
    return title.removeprefix("# vLLM "), [(place, int(line), level, text) for place, line, level, text in rows]
