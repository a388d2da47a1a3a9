"""The command without a name: examine servers, once or at a terminal."""

from __future__ import annotations

import os

from vllm_doctor.cli import commands
from vllm_doctor.cli.options import Parser, add_config, add_examining, words_of
from vllm_doctor.cli.output import is_interactive
from vllm_doctor.model.errors import UsageError

TYPE_CHECKING = False  # as in options.py
if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES = (
    ("vllm-doctor http://127.0.0.1:8000", "examine a running server: a live view at a terminal, else text"),
    ("vllm-doctor vllm.log deployment.yaml --json", "examine a log together with the command of its server, as JSON"),
)
_EXIT_CODES = "exit codes: 0 ok, 1 warning, 2 critical, 3 no verdict or wrong usage."


def run(arguments: Sequence[str]) -> int:
    """Examine what was named; the exit code is that of the verdict."""
    options = parser().settled(arguments)
    words = words_of(options)
    _check(words)
    if is_interactive(options):
        from vllm_doctor.cli import terminal  # with textual, which nobody else pays for

        return terminal.run(words, options)
    if not any(map(os.path.exists, words)):  # a live server; what is read from files may take long
        from vllm_doctor.sources.server import own_time

        own_time.hurry()
    from vllm_doctor.cli import one_shot  # with rules and sources: a terminal is drawn before these are loaded

    return one_shot.run(words, options)


def _check(words: Sequence[str]) -> None:
    """Raises UsageError where the first word is meant to be a command."""
    if words and not os.path.exists(words[0]) and (meant := commands.meant(words[0])) is not None:
        raise UsageError(f"no command {words[0]!r}; did you mean 'vllm-doctor {meant}'?")


def parser() -> Parser:
    """The options of an examination; the help lists the commands, too."""
    parser = Parser(
        "vllm-doctor",
        "What limits a vLLM server, on what evidence, and what fixes it.",
        "[SOURCE]... [options]\n       vllm-doctor COMMAND [options]",
        _EXAMPLES,
    )
    listed = "".join(f"  {name:<13}{about}\n" for name, about in commands.ABOUT.items())
    parser.epilog = f"commands (vllm-doctor help COMMAND):\n{listed}\n{_EXIT_CODES}"
    parser.add_argument(
        "source",
        nargs="*",
        metavar="SOURCE",
        help="a vLLM server: its URL (http://host:8000) or a pid of it; a file of it, or - for standard input, of any"
        " kind and in any order: its log, its command or manifest, what nvidia-smi or collect-env printed, a page of"
        " its /metrics, a benchmark's result, an issue that holds several of them; a recording: a folder or a .tar.gz;"
        " prom+http://host:9090/?pod=x: what a Prometheus knows of it; k8s://namespace/deployment: its pods;"
        " none: every vLLM server of this host",
    )
    add_examining(parser)
    add_config(parser, "window", "theme")
    return parser
