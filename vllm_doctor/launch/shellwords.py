"""A command that is one text in a compose file, parted as compose does it: by go-shellwords, which is no shell.

A backslash takes the next sign as it is, within double quotes as well; at the end of a line that is the line's end,
which becomes an argument. Behind `;`, `&`, `|`, `<` or `>` nothing is read.
"""

from __future__ import annotations

import re

from vllm_doctor.launch import budget
from vllm_doctor.launch.shell import Broken
from vllm_doctor.launch.start import Flaw, Word

_BLANKS = " \t\r\n"
_ENDS = ";&|<>"
_LETTERS = re.compile(r"[^ \t\r\n\\'\";&|<>]+")
_WITHIN = {'"': re.compile(r'[^"\\]+'), "'": re.compile(r"[^']+")}
_ESCAPED = {"n": "\n", "t": "\t"}
LINE_END = "\n"
"""The argument that a backslash at the end of a line makes."""


def words(text: str, line: int = 1) -> tuple[list[Word], Broken | None]:
    """The words, and where a quote begins that nothing closes: then compose refuses the file."""
    found: list[Word] = []
    at = 0
    while at < len(text) and text[at] not in _ENDS:
        if text[at] in _BLANKS:
            line += text[at] == "\n"
            at += 1
            continue
        budget.spend()
        word, is_closed = _word(text, at, line)
        if not is_closed:
            return found, Broken(Flaw.UNBALANCED_QUOTE, line)
        found.append(word)
        line += text.count("\n", at, word.end)
        at = word.end
    return found, None


def _word(text: str, start: int, line: int) -> tuple[Word, bool]:
    """The word that begins there; whether its quotes are closed."""
    parts: list[str] = []
    quote, at = "", start
    while at < len(text):
        char = text[at]
        letters = (_WITHIN[quote] if quote else _LETTERS).match(text, at)
        budget.spend()
        if letters:
            parts.append(letters[0])
            at = letters.end()
        elif char == "\\" and quote != "'":
            escaped = text[at + 1 : at + 2]
            parts.append(_ESCAPED.get(escaped, escaped))
            at += 2
        elif char == quote:
            quote, at = "", at + 1
        elif char in "'\"" and not quote:
            quote, at = char, at + 1
        else:
            break
    end = min(at, len(text))
    return Word("".join(parts), line, start=start, end=end), not quote and at <= len(text)
