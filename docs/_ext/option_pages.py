"""A page for each command, from the parser that reads its options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from marks import block, code, page, plain, table, toctree

from vllm_doctor.cli import commands
from vllm_doctor.cli.options import Parser, value_of

_EXAMINE = "examine"


def pages() -> dict[str, str]:
    """Path below reference/ -> text."""
    made = {f"options/{name or _EXAMINE}.md": _page(commands.parser(name)) for name in ("", *commands.ABOUT)}
    rows = [
        (
            "[`vllm-doctor SOURCE...`](examine.md)",
            "examine a server, a log, a recording, a command: what limits it, and what fixes it",
        )
    ]
    rows += [(f"[{code(f'vllm-doctor {name}')}]({name}.md)", plain(about)) for name, about in commands.ABOUT.items()]
    made["options/index.md"] = page(
        "# Commands and options",
        "As `--help` of each has them. The configuration file, completion and the manual page:"
        " [](../../command-line.md). Exit codes: [](../../hooks.md).",
        table(("command", "what for"), rows),
        toctree((_EXAMINE, *commands.ABOUT)),
    )
    return made


def _page(parser: Parser) -> str:
    return page(
        f"# {parser.prog}",
        plain(parser.about),
        block(parser.format_usage().removeprefix("usage: ")),
        "\n".join(f"- {code(command)}: {plain(purpose)}" for command, purpose in parser.examples),
        *_groups(parser),
    )


def _groups(parser: Parser) -> Iterator[str]:
    for group in parser._action_groups:
        rows = [_row(action) for action in group._group_actions if action.help != argparse.SUPPRESS]
        if rows:
            title = "Arguments" if group.title == "positional arguments" else (group.title or "options").capitalize()
            yield f"## {title}"
            yield table(("option", "what it does"), rows)


def _row(action: argparse.Action) -> tuple[str, str]:
    takes = "" if action.nargs == 0 else f" {value_of(action)}"
    spelled = ", ".join(code(f"{option}{takes}") for option in action.option_strings) or code(value_of(action))
    return spelled, plain((action.help or "").replace("%%", "%"))
