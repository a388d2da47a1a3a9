"""The commands: their names, what each is for in a line, and its module."""

from __future__ import annotations

TYPE_CHECKING = False  # as in options.py
if TYPE_CHECKING:
    from types import ModuleType

    from vllm_doctor.cli.options import Parser

ABOUT = {
    "record": "keep what the doctor sees as a file: to replay, to compare, to attach to an issue",
    "compare": "verify a fix: what got better or worse between two examinations",
    "fleet": "every vLLM engine that a Prometheus knows, worst first",
    "profile": "where the processes of a running server spend their time",
    "expect": "what a server with these flags should do, without a server",
    "recipe": "what the published recipe of a model on a GPU sets",
    "regressions": "known faults of a vLLM version; what an upgrade brings",
    "flags": "the flags of a vLLM version",
    "rules": "the list of rules; one rule's page; the check of a folder of rules",
    "alerts": "the rules as alerts for Prometheus, Loki and Grafana",
    "demo": "a recorded sick server, served over HTTP and examined",
    "mcp": "the same answers for an assistant (Model Context Protocol)",
    "completion": "completion of commands and options for bash, zsh or fish",
    "man": "this help as a manual page",
}
"""In the order in which help lists them. The module of a command has its name; `run(arguments)` gives the exit code,
`parser()` its options."""
HELP = "help"


def module(name: str) -> ModuleType:
    """The module of a command; no other is imported."""
    from importlib import import_module

    return import_module(f"vllm_doctor.cli.{name}")


def parser(name: str) -> Parser:
    """The options of a command; "" for the examination, which has no name."""
    made: Parser = module(name or "examine").parser()
    return made


def meant(word: str) -> str | None:
    """The command that this word, which is none, may be meant to be."""
    from vllm_doctor.text import near

    return near.name(word, [*ABOUT, HELP]) if word.isascii() and word.isalpha() else None


def having(option: str) -> list[str]:
    """The commands that have this option, as they are written."""
    names = [name for name in ("", *ABOUT) if option in parser(name).spellings]
    return [f"vllm-doctor {name}".rstrip() for name in names]
