"""Run by a vLLM's own Python, not imported: the parser of its `vllm serve`, written to a file as JSON.

    python parser_dump.py FILE

Imports nothing but the standard library, and vLLM. It starts vLLM's command line as the console script does and takes
the parser at the moment vLLM would use it; nothing is served, no device is opened. Told by behaviour, not by name:
what a value is read as (each type is tried on sample texts), and which ways of writing a flag the parser takes.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import importlib
import importlib.metadata
import io
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

FORMAT = 1
_MAIN = ("vllm.entrypoints.cli.main", "main")
_LONG = 400  # of a default, as text: more is a whole configuration


class _Caught(BaseException):
    """Carries the parser out of vLLM's command line."""


def serve_parser() -> argparse.ArgumentParser:
    """The parser of `vllm serve`. Raises what vLLM raises, RuntimeError where it has no such command."""
    module, function = _MAIN
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for point in importlib.metadata.distribution("vllm").entry_points:
            if point.group == "console_scripts" and point.name == "vllm":
                module, _, function = point.value.partition(":")
    with contextlib.suppress(ImportError, AttributeError):  # newer parsers do not come to be without a device's name
        platforms = importlib.import_module("vllm.platforms.interface")
        platforms.UnspecifiedPlatform.device_type = platforms.UnspecifiedPlatform.device_type or "cuda"
    main = getattr(importlib.import_module(module), function)
    taken = argparse.ArgumentParser.parse_args

    def catch(self: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise _Caught(self)

    arguments = sys.argv
    sys.argv = ["vllm", "serve", "model"]
    argparse.ArgumentParser.parse_args = catch  # type: ignore[method-assign,assignment]
    try:
        main()
    except _Caught as caught:
        parser = caught.args[0]
    else:
        raise RuntimeError("this vLLM asks no argparse parser")
    finally:
        argparse.ArgumentParser.parse_args = taken  # type: ignore[method-assign]
        sys.argv = arguments
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and "serve" in action.choices:
            found: argparse.ArgumentParser = action.choices["serve"]
            return found
    raise RuntimeError("this vLLM has no serve command")


def flags_of(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Each flag of the parser, "off" being the spellings for off; a value that is not to be had as text is None."""
    deprecated = getattr(parser, "_deprecated", ())
    flags = []
    for action in parser._actions:
        # What is accepted: an action may leave some of it out of its option strings, and so out of --help.
        accepted = [text for text, taken in parser._option_string_actions.items() if taken is action]
        if not accepted:
            continue
        off = [text for text in accepted if _turns_off(parser, action, text)]
        spellings = [text for text in accepted if text not in off]
        marked = action in deprecated or action.dest in deprecated or getattr(action, "deprecated", False)
        flags.append(
            {
                "spellings": sorted(spellings, key=lambda s: not s.startswith("--")),
                "off": off,
                "kind": _kind(action),
                "choices": _choices(action),
                "default": _default(action),
                "deprecated": bool(marked or re.match(r"\W*deprecated\b", _help(action), re.IGNORECASE)),
            }
        )
    return flags


def _turns_off(parser: argparse.ArgumentParser, action: argparse.Action, spelling: str) -> bool:
    """Whether this spelling of an on-off switch is one of those for off."""
    if not isinstance(action, argparse.BooleanOptionalAction):
        return False
    namespace = argparse.Namespace()
    action(parser, namespace, [], spelling)
    return getattr(namespace, action.dest) is False


def syntax_of(parser: argparse.ArgumentParser) -> list[str]:
    """The ways of writing a flag, beyond argparse's own, that the parser takes."""
    small = type(parser)(add_help=False)
    small.add_argument("--probe-it", "-pi", type=json.loads)
    small.add_argument("--compilation-config", "-cc", "-O")
    small.add_argument("--optimization-level")
    tried = {
        "underscore": (["--probe_it", "7"], "probe_it", 7),
        "abbreviation": (["--probe-i", "7"], "probe_it", 7),
        "dotted": (["--probe-it.key", "x"], "probe_it", {"key": "x"}),
        "dotted-short": (["-pi.key", "x"], "probe_it", {"key": "x"}),
        "dotted-list": (["--probe-it.key+", "x"], "probe_it", {"key": ["x"]}),
        "-O3": (["-O3"], "optimization_level", "3"),
        "-O.": (["-O.mode=x"], "compilation_config", '{"mode": "x"}'),
    }
    return [name for name, (argv, dest, wanted) in tried.items() if _parsed(small, argv, dest) == wanted]


def _parsed(parser: argparse.ArgumentParser, argv: list[str], dest: str) -> Any:
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            return getattr(parser.parse_args(argv), dest)
        except (Exception, SystemExit):
            return None


def _help(action: argparse.Action) -> str:
    return action.help if isinstance(action.help, str) else ""


def _kind(action: argparse.Action) -> str | None:
    if isinstance(action, argparse._HelpAction):
        return "help"
    if isinstance(action, argparse.BooleanOptionalAction):
        return "on-off"
    if action.nargs == 0:
        return "switch"
    kind = _value_kind(action)
    if kind is None:
        return None
    if action.nargs in ("+", "*") or isinstance(action.nargs, int):
        return f"list of {kind}"
    return f"optional {kind}" if action.nargs == "?" else kind


def _value_kind(action: argparse.Action) -> str | None:
    """What a value is read as: int, size (an int that may be written 2k), float, text, json, bool, and "a or b"."""
    if type(action).__name__ == "StoreBoolean":
        return "bool"
    read = action.type
    if read is None or read is str:
        return "text"
    if read is bool or getattr(read, "__name__", "") == "str_to_bool":
        return "bool"
    return _kind_read(read, action) if callable(read) else None


def _kind_read(read: Callable[[str], Any], action: argparse.Action) -> str | None:
    """What a function that reads a value takes, by what it makes of samples."""

    def reads(text: str) -> Any:
        """None where the function refuses the text: whatever vLLM's code raises then, it does not take it."""
        try:
            return read(text)
        except Exception:
            return None

    number, broken, size = reads("7"), reads("7.5"), reads("2k")
    nested, word = reads('{"a": {"b": 1}}'), reads("pro-be")
    is_json = isinstance(nested, dict) or _reads_json(read)
    if is_json and isinstance(word, str):
        return "json or text"
    if is_json:
        return "json"
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        kind = "size" if isinstance(size, int) else "float" if isinstance(broken, float) else "int"
        return f"{kind} or text" if isinstance(word, str) else kind
    if isinstance(word, str) and not isinstance(word, enum.Enum):
        return "text"
    if isinstance(reads("a=1"), dict):
        return "name=value list"
    if isinstance(word, list) or isinstance(number, list):
        return "comma list"
    if action.choices is not None:
        return "text"  # a name that becomes an object
    return None


def _reads_json(read: Any, depth: int = 3) -> bool:
    """Whether a type's function, or one that it wraps, is by its name a reader of JSON: a configuration whose
    fields no sample text fits."""
    name = getattr(read, "__qualname__", "")
    if name.endswith(("loads", "from_cli")) or re.search("dataclass|json", name):
        return True
    if "loads" in getattr(getattr(read, "__code__", None), "co_names", ()):
        return True
    inner = [cell.cell_contents for cell in getattr(read, "__closure__", None) or ()]
    return depth > 0 and any(_reads_json(function, depth - 1) for function in inner if callable(function))


def _choices(action: argparse.Action) -> list[str] | None:
    if action.choices is None:
        return None
    choices = [_text(choice) for choice in action.choices]
    return None if not choices or None in choices else [str(choice) for choice in choices]


def _default(action: argparse.Action) -> str | None:
    if action.default is argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
        return None
    return _text(action.default)


def _text(value: Any) -> str | None:
    """A value as one would write it on the command line; None where it has no such text."""
    if isinstance(value, enum.Enum):
        value = value.value if isinstance(value.value, (str, int, float)) else value.name
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return value if value.isprintable() and len(value) <= _LONG else None
    if dataclasses.is_dataclass(value) or not isinstance(value, (list, tuple, set, frozenset, dict)):
        return None
    try:
        text = json.dumps(sorted(value) if isinstance(value, (set, frozenset)) else value)
    except (TypeError, ValueError):
        return None
    return text if len(text) <= _LONG else None


def dump() -> str:
    """All of it, as JSON."""
    parser = serve_parser()
    try:
        version = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    return json.dumps({"format": FORMAT, "version": version, "flags": flags_of(parser), "syntax": syntax_of(parser)})


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file: vLLM's modules must not meet ours
    answer = dump()
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(answer)
    os._exit(0)  # vLLM's threads are not waited for
