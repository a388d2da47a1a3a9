"""The JSON, from its schemas: a page for each, a table for each object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from marks import code, page, plain, table, toctree

from vllm_doctor import render

Schema = Mapping[str, Any]

SCHEMAS = {
    "report": "vllm-doctor SOURCE... --json",
    "fleet": "vllm-doctor fleet URL --json",
    "compare": "vllm-doctor compare BEFORE AFTER --json",
    "expect": "vllm-doctor expect --json",
    "profile": "vllm-doctor profile --json",
}
"""Schema -> the command whose output it describes."""
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


def pages() -> dict[str, str]:
    """Path below reference/ -> text."""
    made = {f"json/{name}.md": _page(name, command) for name, command in SCHEMAS.items()}
    made["json/index.md"] = page(
        "# JSON",
        "Version 1 of each form only grows: keys are added, none is changed or removed. Units are SI, and what is not"
        " known is null. `--json=v1` pins the version.",
        table(("command", "form"), [(code(command), f"[](./{name}.md)") for name, command in SCHEMAS.items()]),
        toctree(SCHEMAS),
    )
    return made


def _page(name: str, command: str) -> str:
    path = Path(render.__file__).parent / f"{name}.v1.schema.json"
    schema = json.loads(path.read_text("utf-8"))
    shared = schema.get("$defs", {})
    return page(
        f"# {plain(schema.get('title', name))}",
        plain(schema.get("description", "")),
        f"The output of {code(command)}, by {code(f'vllm_doctor/render/{path.name}')}.",
        _table(schema),
        *(f"(json-{name}-{key})=\n## {plain(key)}\n\n{_described(part)}" for key, part in shared.items()),
    ).replace("](#json-", f"](#json-{name}-")


def _described(part: Schema) -> str:
    rows = _table(part)
    return page(plain(part.get("description", "")), rows or f"{_type(part)}")


def _table(schema: Schema) -> str:
    rows = list(_rows(schema, ""))
    return table(("key", "type", "what it is"), rows) if rows else ""


def _rows(schema: Schema, above: str) -> Iterator[tuple[str, str, str]]:
    """A row for each key of an object, those of objects within it below, as "key.inner"; of arrays as "key[].inner"."""
    for part in _alternatives(schema):
        for key, inner in part.get("properties", {}).items():
            yield code(f"{above}{key}"), _type(inner), plain(_description(inner))
            yield from _rows(inner, f"{above}{key}.")
        if isinstance(items := part.get("items"), dict):
            yield from _rows(items, f"{above.removesuffix('.')}[].")
        if isinstance(others := part.get("additionalProperties"), dict):
            yield from _rows(others, f"{above}*.")


def _alternatives(schema: Schema) -> Iterator[Schema]:
    """A schema and what it may be, without what is described elsewhere."""
    yield schema
    for word in _ALTERNATIVES:
        for part in schema.get(word, ()):
            yield from _alternatives(part)


def _description(schema: Schema) -> str:
    return str(schema.get("description", "") or next(filter(None, map(_description, schema.get("anyOf", ()))), ""))


def _type(schema: Schema) -> str:
    """In words: a type, a choice, or a link to what is described once."""
    if "$ref" in schema:
        whole, _, name = str(schema["$ref"]).rpartition("/")
        if not whole.startswith("#"):
            return "[a report](report.md)"
        return f"[{plain(name)}](#json-{name})"
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    for word in _ALTERNATIVES:
        if word in schema and "type" not in schema:
            return " or ".join(dict.fromkeys(_type(part) for part in schema[word] if part))
    named = schema.get("type", "any")
    kinds = [named] if isinstance(named, str) else list(named)
    if "array" in kinds and isinstance(schema.get("items"), dict):
        kinds[kinds.index("array")] = f"array of {_type(schema['items'])}"
    return " or ".join(kinds)
