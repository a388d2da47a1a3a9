"""A changed text as a diff of its lines, and a changed command as one flag a line; without what may be a secret."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence

from vllm_doctor.launch import (
    diff,
    rewrite,
    shell,
)
from vllm_doctor.launch import unwrap as launching
from vllm_doctor.launch.rewrite import UnwritableError
from vllm_doctor.launch.start import Form, Launch, Word
from vllm_doctor.launch.unexpanded import as_written
from vllm_doctor.vllm import command_line
from vllm_doctor.vllm.command_line import MASK, masked
from vllm_doctor.vllm.environment import is_shown

_HIDDEN = "\0"
_MOST_LINES = 2000
_ASSIGNED = re.compile(r"((?:-e|--env=)?([A-Za-z_]\w*)=).+", re.DOTALL)


def diff_of_file(text: str, new: str, launches: Sequence[Launch], path: str) -> tuple[str, ...]:
    """A unified diff of the file without context, which might hold a secret; none where a changed line might."""
    around = _around(text, launches)
    if around is None or not _can_be_named(path):
        return ()
    was, now, rest = text.split("\n"), new.split("\n"), around.split("\n")
    same = next((n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), 0)
    if len(was) - same > _MOST_LINES and was[same + _MOST_LINES :] != now[len(now) - len(was) + same + _MOST_LINES :]:
        return ()  # so many lines between two changes would take long to compare
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, was[same : same + _MOST_LINES], _but_end(was, now, same), autojunk=False)
    for tag, *places in matcher.get_opcodes():
        if tag == "equal":
            continue
        i, j, k, m = (place + same for place in places)
        if j == len(was) or m == len(now):
            return ()  # the file's last line has no end
        if _may_tell("\n".join(rest[i:j]), launches):
            return ()
        lines.append(f"@@ -{i + (j > i)},{j - i} +{k + (m > k)},{m - k} @@")
        lines += [f"-{line}" for line in was[i:j]] + [f"+{line}" for line in now[k:m]]
    name = path.lstrip("/").removeprefix("./")
    ending = "\t" if " " in name else ""
    return (f"--- a/{name}{ending}", f"+++ b/{name}{ending}", *lines) if lines else ()


def _can_be_named(path: str) -> bool:
    """Whether `patch` takes the path as it is written."""
    return path.isprintable() and ".." not in path.split("/") and not set(path) & set('"\\\t')


def _around(text: str, launches: Sequence[Launch]) -> str | None:
    """The text without the words of its commands: blanks in the place of those that may be shown, _HIDDEN in the place
    of the others. None where a script within it may tell a secret."""
    around = text
    for launch in launches:
        if launch.inside:
            if rewrite.may_tell(text, launch):
                return None
            continue
        hidden = set(rewrite.hides(launch))
        for place, word in enumerate(launch.words):
            if word.start >= 0:
                sign = _HIDDEN if place in hidden else " "
                blank = re.sub(r"[^\n]", sign, text[word.start : word.end])
                around = around[: word.start] + blank + around[word.end :]
    return around


def _may_tell(changed: str, launches: Sequence[Launch]) -> bool:
    """Whether these lines, without the words of the commands, may hold a secret."""
    return _HIDDEN in changed or any(not launch.inside and rewrite.tells(changed, launch) for launch in launches)


def _but_end(was: Sequence[str], now: Sequence[str], same: int) -> Sequence[str]:
    """The new lines that stand in the place of those that are compared."""
    return now[same : len(now) - max(0, len(was) - same - _MOST_LINES)]


def diff_of_command(holder: launching.Script, launch: Launch, new: str) -> tuple[str, ...]:
    """A diff of the command that starts the server, one flag a line, without secrets."""
    if launch.inside and rewrite.may_tell(holder.text, launch):
        raise UnwritableError("it may hold a secret")
    return diff.between(_lines_of(holder.text, holder.number), _lines_of(new, holder.number))


def _lines_of(text: str, number: int) -> list[str]:
    for simple in shell.commands(text):
        count = len(launching.of_words(simple.words, Form.SHELL, simple.environment))
        if number < count:
            before = list(simple.assignments.values())
            told = command_line.without_secrets([word.text for word in simple.words])
            words = [_shown(text, word, word.text) for word in before]
            words += [_shown(text, word, tells) for word, tells in zip(simple.words, told, strict=True)]
            return diff.lines(words)
        number -= count
    return []


def _shown(text: str, word: Word, tells: str) -> str:
    """The word as it was written, without what may be a secret."""
    match = _ASSIGNED.fullmatch(tells)
    if match and not is_shown(match[2]):
        return match[1] + MASK
    if word.start < 0 or masked(tells) != word.text:
        return shlex.quote(masked(as_written(tells)))
    return text[word.start : word.end]
