"""A corrected command as lines to read and to paste, and as keys of vLLM's --config file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Change, Patch
from vllm_doctor.text import words as wording
from vllm_doctor.vllm.command_line import Command, changed

_CONTEXT = 3


def lines(words: Iterable[str]) -> list[str]:
    """The words (as a shell takes them) with one flag a line."""
    found: list[str] = []
    for word in words:
        if not found or word.startswith("-"):
            found.append(word)
        else:
            found[-1] += f" {word}"
    folded = [f"{'  ' if place else ''}{line}" for place, line in enumerate(found)]
    return [part for line in [*(f"{line} \\" for line in folded[:-1]), *folded[-1:]] for part in line.split("\n")]


def between(was: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """A unified diff of a command's lines."""
    import difflib  # late: a report in JSON shows no difference

    return tuple(difflib.unified_diff(was, now, "command", "corrected", n=_CONTEXT, lineterm=""))


def of_config(keys: Mapping[str, str], changes: Sequence[Change], file: str, place: str) -> Patch:
    """A merge patch (RFC 7396) of a --config file. `keys`: its flags, as they are written there."""
    has_underscores = sum("_" in key for key in keys.values()) > sum("-" in key for key in keys.values())
    found: dict[str, Value | None] = {}
    for change in changes:
        name = change.name.removeprefix("--")
        key = keys.get(change.name, name.replace("-", "_") if has_underscores else name)
        found[key] = None if change.now is None else wording.plain(change.now)
    name = shlex.quote(file)
    drop = "with_entries(select(.value != null))"
    apply = [
        f"yq 4: yq ea '. as $i ireduce ({{}}; . * $i) | {drop}' {name} PATCH > new.yaml",
        f"yq of Debian and PyPI: yq -y -s '.[0] * .[1] | {drop}' {name} PATCH > new.yaml",
    ]
    if None in found.values():
        apply.append("null takes a key out (RFC 7396); left in the file, vLLM would read it as the text None")
    from vllm_doctor.text import yaml  # late, as it takes a while to import: few are configured by a file

    return Patch("config", file, {place: tuple(changes)}, tuple(apply), tuple(yaml.dump(found)))


@dataclass(frozen=True)
class Running:
    """The command of a server that was found running. Nothing in it is secret."""

    command: Command
    target: str

    def patched(self, changes: Mapping[int, Sequence[Change]]) -> tuple[Patch, ...]:
        """Of what stands in its --config file, that; of all else the command line."""
        all_of_it = changes.get(0, ())
        keys = self.command.config_keys
        of_file = [change for change in all_of_it if change.name in keys]
        rest = [change for change in all_of_it if change not in of_file]
        found = []
        if rest:
            found.append(of_words(self.command.argv, rest, self.target))
        if of_file and self.command.config is not None:
            found.append(of_config(keys, of_file, self.command.config, self.target))
        return tuple(found)


def of_words(argv: Sequence[str], changes: Sequence[Change], place: str) -> Patch:
    """The command line with the changes, as a diff to read."""
    set = {
        change.name: wording.setting(change.name, change.now)
        for change in changes
        if change.now is not None and change.name.startswith("-")
    }
    now = changed(argv, set, {change.name for change in changes if change.now is None})
    variables = [
        f"{change.name}={shlex.quote(str(wording.plain(change.now)))}"
        for change in changes
        if change.now is not None and not change.name.startswith("-")
    ]
    was = lines(map(shlex.quote, argv))
    patch = Patch("shell", None, {place: tuple(changes)}, ("start it with the lines of +",))
    return replace(patch, lines=between(was, lines([*variables, *map(shlex.quote, now)])))
