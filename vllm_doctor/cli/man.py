"""The manual page, made of the same options as the help."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from vllm_doctor.cli import commands
from vllm_doctor.cli.options import Parser, value_of
from vllm_doctor.cli.output import say
from vllm_doctor.model.version import __version__

_END = """\
.SH FILES
.TP
\\fI~/.config/vllm\\-doctor/config.toml\\fR
Defaults of options (below \\fBXDG_CONFIG_HOME\\fR where that is set): window, goal, slo, rules, skip, theme.
\\fB\\-\\-no\\-config\\fR does without.
.SH ENVIRONMENT
.TP
.B TEXTUAL_THEME
The theme of the terminal view.
.TP
.B NO_COLOR
No colour.
.TP
.B VLLM_DOCTOR_DEBUG
Where the doctor itself fails: show where.
.SH EXIT STATUS
0 ok, 1 warning, 2 critical, 3 no verdict or wrong usage.
"""


def run(arguments: Sequence[str]) -> int:
    """Print it; 0, or it raises."""
    parser().settled(arguments)
    say("\n".join(_lines()) + "\n" + _END)
    return 0


def parser() -> Parser:
    """Its options."""
    return Parser(
        "vllm-doctor man",
        "The manual page, as man reads it.",
        "",
        (
            ("vllm-doctor man | man -l -", "to read it"),
            ("vllm-doctor man > ~/.local/share/man/man1/vllm-doctor.1", "to keep it: then man vllm-doctor"),
        ),
    )


def _lines() -> Iterator[str]:
    examination = commands.parser("")
    yield f'.TH VLLM\\-DOCTOR 1 "" "vllm\\-doctor {_text(__version__)}"'
    yield ".SH NAME"
    yield f"vllm\\-doctor \\- {_text(examination.about)}"
    yield ".SH SYNOPSIS"
    yield from _synopsis(examination)
    yield ".SH OPTIONS"
    yield from _options(examination)
    yield ".SH EXAMPLES"
    yield from _examples(examination)
    yield ".SH COMMANDS"
    for name in commands.ABOUT:
        parser = commands.parser(name)
        yield f'.SS "{_text(parser.prog)}"'
        yield _text(parser.about)
        yield ".PP"
        yield from _synopsis(parser)
        yield from _options(parser)
        yield from _examples(parser)


def _synopsis(parser: Parser) -> Iterator[str]:
    for line in parser.format_usage().removeprefix("usage: ").strip().splitlines():
        yield f".B {_text(line.strip())}"
        yield ".br"


def _options(parser: Parser) -> Iterator[str]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        yield ".TP"
        spelled = ", ".join(action.option_strings)
        takes = "" if action.nargs == 0 else value_of(action)
        yield f".B {_text(f'{spelled} {takes}'.strip())}"
        yield _text((action.help or "").replace("%%", "%")) or "\\&"


def _examples(parser: Parser) -> Iterator[str]:
    for command, purpose in parser.examples:
        yield ".TP"
        yield f".B {_text(command)}"
        yield _text(purpose)


def _text(text: str) -> str:
    """As roff has it on a line of its own: no command, and a dash that can be copied."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
