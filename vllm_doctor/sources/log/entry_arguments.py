"""The arguments that vLLM logs when it starts, as the flags of its command line.

`non-default args: {...}` (0.9 and later) holds what was set; `args: Namespace(...)` (until 0.8) everything, with the
defaults. Both are Python's repr, often with parts that no parser reads back (`<CompilationMode.VLLM: 3>`), so they are
taken apart at their own commas and never evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Value
from vllm_doctor.vllm import flags as catalogue
from vllm_doctor.vllm.command_line import MASK, is_secret, masked

_OPEN, _CLOSE = "{[(", "}])"
_KEY = re.compile(r"\s*(?:'(\w+)': |(\w+)=)")
_QUOTED = re.compile(r"'(?:[^'\\]++|\\.)*+'?|\"(?:[^\"\\]++|\\.)*+\"?")
_OBJECT = re.compile(r"<|\w\(")
"""The repr of an object, outside of quotes."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_MAX_TEXT = 300
_MODEL = ("model_tag", "model")


@dataclass(frozen=True, slots=True)
class Arguments:
    """`flags` as they would stand on the command line; `whole`: the text did not end in the middle.

    `with_defaults`: among them are also those that were not set. `unwritable`: those whose value no command line takes,
    as an object's repr (CompilationConfig(...)), or as much of a text as is kept.
    """

    flags: Mapping[str, Value]
    model: str | None
    whole: bool
    with_defaults: bool = False
    unwritable: frozenset[str] = frozenset()

    def given(self, version: str | None) -> Arguments:
        """Without this vLLM's own defaults, where those are among them: set or not, they say nothing."""
        if not self.with_defaults:
            return self
        known = version if version is not None and _has_defaults(version) else catalogue.first()
        flags = {flag: value for flag, value in self.flags.items() if not _is_default(known, flag, value)}
        return replace(self, flags=flags)

    @property
    def command(self) -> tuple[str, ...]:
        """The command line that gives these flags; the model first. Empty where it would not start the same server."""
        if not self.whole or self.unwritable & self.flags.keys():
            return ()
        words = ["vllm", "serve", *([self.model] if self.model else [])]
        for flag, value in self.flags.items():
            if flag == "--model":
                continue
            if isinstance(value, bool):
                words.append(flag if value else flag.replace("--", "--no-", 1))
            else:
                words += [flag, f"{value:.12g}" if isinstance(value, float) else value]
        return tuple(words)


def parse(text: str, with_defaults: bool) -> Arguments:
    """The flags in the text that follows "args: ". `with_defaults`: a Namespace, where False and None are not set."""
    flags: dict[str, Value] = {}
    unwritable = set()
    models: dict[str, str] = {}
    items, whole = _items(text)
    for item in items:
        found = _KEY.match(item)
        if found is None:
            continue
        key, raw = found[1] or found[2], item[found.end() :].strip()
        if key in _MODEL and raw[:1] in "'\"":
            models[key] = masked(raw[1:-1])[:_MAX_TEXT]
        flag = f"--{key.replace('_', '-')}"
        if (
            key == "model_tag"
            or not catalogue.is_flag(flag)
            or raw in ("None", "")
            or (with_defaults and raw == "False")
        ):
            continue
        flags[flag] = MASK if is_secret(flag) else _value(raw)
        if _OBJECT.search(_QUOTED.sub("", raw)) or len(str(flags[flag])) == _MAX_TEXT:
            unwritable.add(flag)
    model = next((models[key] for key in _MODEL if key in models), None)
    return Arguments(flags, model, whole, with_defaults, frozenset(unwritable))


def _has_defaults(version: str) -> bool:
    judged = catalogue.judged_as(version)
    return judged is not None and judged not in catalogue.samples()


def _is_default(version: str, flag: str, value: Value) -> bool:
    """Also what no command line could give: an object's repr (<ConfigFormat.AUTO: 'auto'>), an empty text."""
    if isinstance(value, str) and (not value or value.startswith("<")):
        return True
    known = catalogue.flag(version, flag)
    if known is None or known.default is None:
        return False
    return catalogue.is_same(known.default, value) or value == _value(known.default)


def _value(raw: str) -> Value:
    if raw in ("True", "False"):
        return raw == "True"
    if _NUMBER.fullmatch(raw) and (number := outside.number(raw)) is not None:
        return number
    if raw[0] == "{":  # a nested configuration: JSON is what the command line takes
        try:
            return masked(json.dumps(outside.json(_as_json(raw))))[:_MAX_TEXT]
        except ValueError:
            return masked(raw)[:_MAX_TEXT]
    if raw[0] == "[":
        items, _ = _items(raw)
        return masked(" ".join(item.strip().strip("'\"") for item in items))[:_MAX_TEXT]
    return masked(raw.strip("'\""))[:_MAX_TEXT]


def _as_json(raw: str) -> str:
    return re.sub(
        r"'([^'\"\\]*)'|\b(True|False|None)\b",
        lambda m: json.dumps(m[1]) if m[1] is not None else {"True": "true", "False": "false", "None": "null"}[m[2]],
        raw,
    )


def _items(text: str) -> tuple[list[str], bool]:
    """What stands between the commas of the outermost bracket, and whether the bracket was closed."""
    start = next((place for place, char in enumerate(text) if char in _OPEN), None)
    if start is None:
        return [], False
    items: list[str] = []
    begin, depth = start + 1, 0
    for place, char in _structure(text, start):
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
            if depth == 0:
                return [item for item in (*items, text[begin:place]) if item.strip()], True
        elif depth == 1:
            items.append(text[begin:place])
            begin = place + 1
    return items, False  # what was cut in the middle is left out: half a value is a wrong one


def _structure(text: str, start: int) -> Iterator[tuple[int, str]]:
    """The brackets and commas that are not in a quoted text."""
    quote = ""
    place = start
    while place < len(text):
        char = text[place]
        if quote:
            if char == "\\":
                place += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPEN or char in _CLOSE or char == ",":
            yield place, char
        place += 1
