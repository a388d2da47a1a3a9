"""The entries of a document as lines: what a cloud or a store of logs exports is an array, an answer, or a table.

Each becomes one line of JSON, as a shipper of logs writes it, which `entry_wrapper` takes apart. The document is read
entry by entry: an answer is never held whole.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from vllm_doctor.model.errors import SourceError

TEXTS = (
    "log", "message", "textpayload", "text_payload", "line", "logentry", "logmessage", "@message", "_raw", "msg",
    "event", "text", "content", "body",
)  # fmt: skip
"""The names under which a logger, a shipper or a store keeps the line, in lower case; the first that holds text."""
TIMES = (
    "time", "timestamp", "@timestamp", "_time", "asctime", "ts", "tsns", "timegenerated", "timegenerated [utc]", "date",
)  # fmt: skip
NESTED = ("jsonPayload", "_source", "attributes", "result")
"""What an entry may keep its line in, beside what its store knows of it."""

_HEAD = 64 * 1024
MOST_OF_ENTRY = 3 << 20
"""Characters of one entry; of Loki, of one stream."""
_STEP, _DROPPED = 1 << 18, 1 << 14
_SHORT, _MANY = 48, 100_000
"""So many entries of fewer characters each are no log's."""
_MOST_CUT, _MOST_BROKEN = 48 * 1024, 10_000
_MOST_PIECE = 1 << 20

_TOO_SHORT = "only its first {:,} entries were read: they are too short to be a log's"

_LISTS = ("data", "entries", "events", "hits", "items", "logs", "records", "result", "results", "tables", "value")
_LIST = re.compile(rb'"(?:%b)"[ \t\r\n]{0,80}:[ \t\r\n]{0,80}\[[ \t\r\n]{0,200}\{' % "|".join(_LISTS).encode())
_ARRAY = re.compile(rb"[ \t\r\n]{0,200}\[[ \t\r\n]{0,200}\{[ \t\r\n]{0,200}[\"}]")
_OBJECT = re.compile(rb'[ \t\r\n]{0,200}\{[ \t\r\n]{0,200}"')
_PRETTY = re.compile(rb'[ \t\r\n]{0,200}\{[ \t]{0,80}\r?\n[ \t\r\n]{0,200}"')
_TO_OBJECT = re.compile(r'(?:[^{"]++|"(?:[^"\\]++|\\.)*+"?)*+', re.DOTALL)
_NEXT_LINE = re.compile(r"\n[ \t]{0,80}\{")
_LINE_ENDS = str.maketrans("\r\n", "  ")
_AMERICAN = re.compile(
    r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4}),? ([0-9]{1,2}):([0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?) ([AP])M", re.ASCII
)
_KIBANA = re.compile(
    r"([A-Z][a-z]{2}) ([0-9]{1,2}), ([0-9]{4}) @ ([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?)", re.ASCII
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def is_one(head: bytes) -> bool:
    """Whether the bytes are a document's first. Lines of a log, each JSON by itself, are none."""
    return _begin(head) is not None or _columns(head) is not None


def entries(head: bytes, blocks: Iterator[bytes], notes: list[str]) -> Iterator[bytes]:
    """The entries of the document in `blocks`, which begin with `head`, each JSON on one line.

    Raises SourceError, while it is read, where it is nested too deeply. What is odd goes to `notes`.
    """
    begin, columns = _begin(head), _columns(head)
    if begin is not None:
        return _of_json(begin, _texts(blocks), notes)
    assert columns is not None
    return _of_table(columns, _texts(blocks), notes)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _begin(head: bytes) -> int | None:
    """Where its first entry is looked for."""
    if _ARRAY.match(head):
        return 0
    if not _OBJECT.match(head):
        return None
    if _is_entry(head.lstrip().partition(b"\n")[0]):
        return None
    within = _LIST.search(head)
    if within is not None:
        return within.end() - 1
    return 0 if _PRETTY.match(head) or _is_answer(head) else None


def _is_entry(line: bytes) -> bool:
    """Whether a line is an entry by itself, as a shipper writes it."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and _holds_text(found)


def _is_answer(head: bytes) -> bool:
    """One object on one line, of which no other follows: the log may be one text in it."""
    first, _, rest = head.strip().partition(b"\n")
    return not rest and first.endswith(b"}") and b'"__REALTIME' not in first


def _of_json(begin: int, texts: Iterator[str], notes: list[str]) -> Iterator[bytes]:
    decode = json.JSONDecoder(strict=False).raw_decode
    text = "".join(_some(texts, _STEP))
    at, given, broken, read, ended = begin, 0, 0, 0, False
    while True:
        if at > _DROPPED and at > len(text) // 8:  # an error in JSON counts the lines before it
            text, read, at = text[at:], read + at, 0
        at = cast("re.Match[str]", _TO_OBJECT.match(text, at)).end()
        if at >= len(text):
            more = "".join(_some(texts, _STEP))
            if not more:
                return
            text, read, at = more, read + len(text), 0
            continue
        try:
            found, end = decode(text, at)
        except RecursionError:
            raise SourceError("not-a-log", "its JSON is nested too deeply to be a log's") from None
        except ValueError as error:
            if not ended and _may_go_on(error, text) and len(text) - at < MOST_OF_ENTRY:
                more = "".join(_some(texts, max(_STEP, len(text) - at)))
                text, ended = text + more, not more
                if more:
                    continue
            after = _NEXT_LINE.search(text, at + 1)
            end = after.start() if after is not None else len(text)
            yield _one_line(text[at : min(end, at + _MOST_CUT)])
            broken += 1
            if broken == 1:
                notes.append("its JSON is broken or cut: read as far as it goes")
            if after is None or broken > _MOST_BROKEN:
                return
            at = after.end() - 1
            continue
        if _is_leaf(found):
            yield _one_line(text[at:end])
        else:
            yield from (json.dumps(entry).encode() for entry in _entries(found))
        at, given = end, given + 1
        if given > _MANY and (read + at) < _SHORT * given:
            notes.append(_TOO_SHORT.format(given))
            return


def _may_go_on(error: ValueError, text: str) -> bool:
    """Whether what is no JSON could be, with what follows."""
    return isinstance(error, json.JSONDecodeError) and (
        error.pos > len(text) - 64 or error.msg.startswith("Unterminated string")
    )


def _one_line(text: str) -> bytes:
    return text.translate(_LINE_ENDS).encode("utf-8", "replace")


def _is_leaf(found: object) -> bool:
    return isinstance(found, dict) and _holds_text(found)


def _holds_text(fields: Mapping[str, object]) -> bool:
    for name in NESTED:
        inner = fields.get(name)
        if isinstance(inner, dict) and any(key.lower() in TEXTS for key in inner):
            return True
    return any(isinstance(value, str) and name.lower() in TEXTS for name, value in fields.items())


def _entries(found: object) -> Iterator[Mapping[str, object]]:
    """The entries in an answer, or in a part of one."""
    if isinstance(found, list):
        for one in found:
            yield from _entries(one)
        return
    if not isinstance(found, dict):
        return
    if _holds_text(found):
        yield found
        return
    stream, values, rows = found.get("stream"), found.get("values"), found.get("rows")
    if isinstance(stream, dict) and isinstance(values, list):
        yield from _of_stream(stream, values)
    elif isinstance(rows, list) and isinstance(found.get("columns"), list):
        names = [column.get("name") if isinstance(column, dict) else column for column in found["columns"]]
        yield from (dict(zip(map(str, names), row, strict=False)) for row in rows if isinstance(row, list))
    else:
        for name in _LISTS:
            if name in found:
                inner = found[name]
                # the lines themselves, as one text or as a list of them
                if isinstance(inner, str):
                    yield {"log": inner}
                elif isinstance(inner, list) and inner and all(isinstance(line, str) for line in inner):
                    yield from ({"log": line} for line in inner)
                else:
                    yield from _entries(inner)


def _of_stream(labels: Mapping[str, object], values: Sequence[object]) -> Iterator[Mapping[str, object]]:
    """Loki's: [nanoseconds as text, line], of each stream the newest first, if not asked for otherwise."""
    told = [(str(value[0]), value[1]) for value in values if isinstance(value, list) and len(value) > 1]
    if told and told[0][0] > told[-1][0]:
        told.reverse()
    yield from ({"ts": at, "line": line, "labels": labels} for at, line in told)


# --- tables ----------------------------------------------------------------------------------------------------------


def _columns(head: bytes) -> tuple[str, list[str]] | None:
    """Delimiter and names, where the first line names a column of times and one of lines."""
    first = head.partition(b"\n")[0].rstrip(b"\r")
    if len(first) > 4096 or b'":' in first:
        return None
    for delimiter in ",;\t":
        names = [name.strip(' "').lower() for name in first.decode("utf-8", "replace").split(delimiter)]
        if len(names) > 1 and _text_column(names) is not None and any(name in TIMES for name in names):
            return delimiter, names
    return None


def _text_column(names: Sequence[str]) -> str | None:
    return next((name for name in TEXTS if name in names), None)


def _of_table(columns: tuple[str, list[str]], texts: Iterator[str], notes: list[str]) -> Iterator[bytes]:
    delimiter, names = columns
    text = _text_column(names)
    given = size = 0
    rows = csv.reader(_lines(texts), delimiter=delimiter)
    try:
        for row in rows:
            fields = dict(zip(names, row, strict=False))
            if text is None or not fields.get(text) or fields[text].lower() == text:  # or the head, perhaps again
                continue
            given, size = given + 1, size + sum(map(len, row)) + len(row)
            if given > _MANY and size < _SHORT * given:
                notes.append(_TOO_SHORT.format(given))
                return
            yield json.dumps({name: _iso(value) if name in TIMES else value for name, value in fields.items()}).encode()
    except csv.Error as error:
        notes.append(f"its table is damaged in line {rows.line_num:,} ({error}): read as far as it goes")


def _iso(text: str) -> str:
    """A time as Kibana and Azure's portal write it, as all others do."""
    if found := _KIBANA.fullmatch(text):
        month = _MONTHS.index(found[1]) + 1 if found[1] in _MONTHS else 0
        return f"{found[3]}-{month:02d}-{int(found[2]):02d}T{found[4]}"
    if found := _AMERICAN.fullmatch(text):
        hour = int(found[4]) % 12 + (12 if found[6] == "P" else 0)
        return f"{found[3]}-{int(found[1]):02d}-{int(found[2]):02d}T{hour:02d}:{found[5]}"
    return text


# --- text ------------------------------------------------------------------------------------------------------------


def _texts(blocks: Iterator[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for block in blocks:
        if text := decoder.decode(block):
            yield text


def _some(texts: Iterator[str], least: int) -> Iterator[str]:
    """As many as hold so many characters; less only at the end."""
    for text in texts:
        yield text
        least -= len(text)
        if least <= 0:
            return


def _lines(texts: Iterator[str]) -> Iterator[str]:
    """With their ends; a line without end comes in pieces."""
    rest = ""
    for text in texts:
        *whole, rest = (rest + text).splitlines(keepends=True) or [""]
        yield from whole
        if rest.endswith("\n") or len(rest) > _MOST_PIECE:
            yield rest
            rest = ""
    if rest:
        yield rest
