"""Pages and exports as the text that people wrote: an issue as JSON or HTML, a chat; as markdown with fences. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import NamedTuple

from vllm_doctor.model import outside

_WRITTEN = frozenset({"title", "body", "text", "content", "message", "description", "question", "answer", "cooked"})
"""Keys under which GitHub, chats and forums keep what was written."""
_OF_ISSUE = frozenset({"title", "body"})
_MOST_PIECES = 2_000
_OF_LOGS = frozenset({"textPayload", "jsonPayload", "insertId", "ingestionTime", "logStreamName"})
"""Keys that entries of a store of logs have, and nothing that people write."""
_DEPTH = 12
_MOST_CHARS = 12 << 20
_MOST_OF_PAGE = 3 << 19
_ESCAPED = re.compile(r"&(?:lt|gt|amp);")
_FENCE_BEFORE = re.compile(r"```(?=[^\s`][^\n`]{0,2000}[ `])")
"""One that a command follows, and no language."""
_FENCE_BEHIND = re.compile(r"(?<=[^\n`])```")
_IS_PAGE = re.compile(r"\s{0,200}<(?:!doctype html|html|body|div|article|section|head)\b", re.IGNORECASE)
_SKIPPED = frozenset({"script", "style", "svg", "head", "nav", "button", "form", "noscript"})
_BLOCKS = frozenset(
    {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "details", "summary", "blockquote", "table"}
)


class Export(NamedTuple):
    """What people wrote, and how many more issues the export holds: each is about a server of its own."""

    text: str
    left_out: int = 0


def read(raw: str) -> Export | None:
    """What people wrote in an export, of several issues in the first; None: it is none, but a text of its own."""
    if _IS_PAGE.match(raw):
        return Export(_of_page(raw))
    if raw.lstrip()[:1] not in ("{", "["):
        return None
    try:
        document = outside.json(raw)
    except ValueError:
        return None
    issues = _issues(document)
    written = _of_json(issues[0] if issues else document)
    return Export(written, max(0, len(issues) - 1)) if written is not None else None


def _issues(document: object) -> Sequence[object]:
    """The issues in a list of them, or in the answer of a search."""
    listed = document.get("items") if isinstance(document, dict) else document
    if not isinstance(listed, list):
        return ()
    return listed if all(isinstance(one, dict) and one.keys() >= _OF_ISSUE for one in listed) else ()


def _of_json(document: object) -> str | None:
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("vllm-doctor/"):
        return None
    if _is_of_logs(document):
        return None
    pieces: list[str] = []
    for piece in _written(document, _DEPTH):
        pieces.append(piece)
        if len(pieces) == _MOST_PIECES:
            break
    is_told = any("\n" in piece for piece in pieces)
    return "\n\n".join(map(_fenced, pieces)).replace("\r\n", "\n")[:_MOST_CHARS] if is_told else None


def _is_of_logs(document: object) -> bool:
    """Whether a store of logs has exported it: its reader takes the entries apart."""
    lists = [document, *document.values()] if isinstance(document, dict) else [document]
    entries = [entry for one in lists if isinstance(one, list) for entry in one[:3]]
    return any(isinstance(entry, dict) and not _OF_LOGS.isdisjoint(entry) for entry in entries)


def _fenced(piece: str) -> str:
    """A message with each fence on a line of its own, and without a chat's escapes."""
    if _ESCAPED.search(piece):
        piece = html.unescape(piece)
    return _FENCE_BEHIND.sub("\n```", _FENCE_BEFORE.sub("```\n", piece))


def _written(value: object, depth: int) -> Iterator[str]:
    """The texts under keys of people's words, in their order."""
    if depth == 0:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str) and key in _WRITTEN:
                yield inner
            elif isinstance(inner, (dict, list)):
                yield from _written(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _written(inner, depth - 1)


def _of_page(raw: str) -> str:
    page = _Page()
    page.feed(raw[:_MOST_OF_PAGE])
    page.close()
    return page.told()


class _Page(HTMLParser):
    """The text of a page: what is preformatted between fences, cells of a table between bars."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._skipped = self._preformatted = 0

    def told(self) -> str:
        return re.sub(r"\n{3,}", "\n\n", "".join(self._pieces)).strip() + "\n"

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _SKIPPED:
            self._skipped += 1
        elif tag == "pre" and not self._preformatted:
            self._preformatted = 1
            self._pieces.append("\n```\n")
        elif self._preformatted:
            self._preformatted += tag == "pre"
            if tag == "br":
                self._pieces.append("\n")
        elif tag in _BLOCKS:
            self._pieces.append("\n")
        elif tag in ("td", "th"):
            self._pieces.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED:
            self._skipped = max(0, self._skipped - 1)
        elif tag == "pre" and self._preformatted:
            self._preformatted -= 1
            if not self._preformatted:
                self._pieces.append("\n```\n")
        elif tag in _BLOCKS and not self._preformatted:
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._pieces.append(data if self._preformatted else re.sub(r"\s{1,1000}", " ", data))
