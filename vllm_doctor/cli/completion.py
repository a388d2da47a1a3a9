"""Completion for a shell, by shtab: commands, options, and names of rules and demos."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vllm_doctor.cli import commands
from vllm_doctor.cli.options import Parser
from vllm_doctor.cli.output import say
from vllm_doctor.model.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_FILES = ("FILE", "TEXT|FILE", "SOURCE", "BEFORE", "AFTER")
_FOLDERS = ("DIR",)
_COMMANDS = f"({'|'.join((*commands.ABOUT, commands.HELP))})"
_WITH_FILES: dict[str, tuple[tuple[str, str], ...]] = {
    "bash": (("complete -o bashdefault ", "complete -o bashdefault -o default "),),
    "zsh": (
        ("': :_shtab_vllm_doctor_commands'", "': :{ _shtab_vllm_doctor_commands; _files }'"),
        (
            "  _arguments -C -s $_shtab_vllm_doctor_options\n",
            f"  local -a only=(); [[ ${{words[2]}} == {_COMMANDS} ]] && only=(-A '-*')\n"
            "  _arguments $only -C -s $_shtab_vllm_doctor_options\n",
        ),
        ("_shtab_vllm_doctor_rules_options ;;\n", "_shtab_vllm_doctor_rules_options ;;\n        *) _files ;;\n"),
    ),
    "fish": (
        (
            "complete -c vllm-doctor -f\n",
            "complete -c vllm-doctor -f\ncomplete -c vllm-doctor -n _shtab_vllm_doctor_using -F\n",
        ),
    ),
}
"""Changes in what shtab writes: the first word may be a file as well as a command, and behind a command only its own
options are taken."""


def run(arguments: Sequence[str]) -> int:
    """Print the script; 0, or it raises."""
    options = parser().settled(arguments)
    try:
        import shtab
    except ImportError:
        from vllm_doctor.text import extras  # late: few lack it

        raise UsageError(
            extras.missing("completion", "completion is written by shtab, which is not installed")
        ) from None
    script = shtab.complete(_whole(shtab.FILE, shtab.DIRECTORY), options.shell)
    for shtabs, ours in _WITH_FILES[options.shell]:
        script = script.replace(shtabs, ours)
    say(f"{script}\n")
    return 0


def parser() -> Parser:
    """Its options."""
    parser = Parser(
        "vllm-doctor completion",
        "A script that completes commands, options, rule ids and demo names.",
        "bash|zsh|fish",
        (
            ('eval "$(vllm-doctor completion bash)"', "in this shell; the same line in ~/.bashrc for each one"),
            ("vllm-doctor completion zsh > ~/.zsh/completions/_vllm-doctor", "a folder of your fpath"),
        ),
    )
    parser.epilog = "fish: vllm-doctor completion fish > ~/.config/fish/completions/vllm-doctor.fish"
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    return parser


def _whole(file: object, folder: object) -> argparse.ArgumentParser:
    """All commands as one parser: they are known apart from each other otherwise."""
    names = _names()
    whole = argparse.ArgumentParser("vllm-doctor", parents=[_bare("")], add_help=False)
    each = whole.add_subparsers(metavar="COMMAND")
    for name, about in commands.ABOUT.items():
        each.add_parser(name, help=about, parents=[_bare(name)], add_help=False)
    each.add_parser(commands.HELP, help="the help of a command").add_argument("command", choices=[*commands.ABOUT])
    for made in (whole, *each.choices.values()):
        for action in made._actions:
            place = file if action.metavar in _FILES else folder if action.metavar in _FOLDERS else None
            if place is not None:
                action.complete = place  # type: ignore[attr-defined]
            elif action.choices is None and action.metavar in names:
                action.choices = names[action.metavar]
    return whole


def _bare(name: str) -> Parser:
    """The options of a command; without the sources of the examination: its first word may be a command."""
    made = commands.parser(name)
    if not name:
        made._actions[:] = [action for action in made._actions if action.option_strings]
    return made


def _names() -> dict[str | tuple[str, ...] | None, list[str]]:
    """What the words that help calls so can be."""
    from vllm_doctor.recording import demo
    from vllm_doctor.rules import rule_set

    return {"ID": sorted(rule.id for rule in rule_set.load([]).rules), "NAME": demo.names()}
