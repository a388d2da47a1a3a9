"""What of a log a recording may keep: its lines without secrets, and without what clients sent or were answered.

A line stays a line, so that numbers of lines hold. Of a long log the start and the end are kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from vllm_doctor.sources.log import entry
from vllm_doctor.sources.log.bytes_stream import Origin, blocks
from vllm_doctor.sources.log.bytes_unpacked import read
from vllm_doctor.sources.log.entry import Record
from vllm_doctor.text import redact

HEAD, TAIL = 1 << 20, 3 << 20
"""Bytes of the start and of the end that are kept."""
_MAX_LINE = 64 * 1024
_REQUEST_LOGGERS = ("request_logger.py:", "logger.py:")
_REQUEST = re.compile(
    r"(?P<head>.{0,2000}?\b(?:(?:Received|Finished) request|Generated response|Request)"
    r" (?!\[masked\])(?=[\w-]*\d)[\w-]{1,200}(?: \([a-z ]{1,40}\))?)(?P<it>(?:: | details: | JSON body: ).*)"
)
_MAY_HIDE = re.compile(
    r"(?i)prompt(?! throughput)|output|token_ids|messages|content|input_value|key|token(?!s/s|s?: \d)|secret|passw"
    r"|credential|bearer|basic |authorization|cookie|://|hf_|sk-|gh[pousr]_|github_pat|glpat|xox|nvapi|npm_|gsk_|r8_"
    r"|AKIA|ASIA|AROA|AIDA|AIza|ya29|GOCSPX|account|sharedaccess|eyJ|[?&]\w|-----"
)
"""Without any of these a line hides nothing that `redact` knows."""
_PROMPT = "prompt"


def text(path: Origin, notes: list[str], masked: Counter[str], until: float | None = None) -> bytes:
    """The log as it may be kept, as UTF-8. Raises SourceError where it cannot be read."""
    head, tail, left_out = b"", b"", 0
    for block in read(blocks(path, notes, until, True)):
        tail += bytes(block)
        if not head and len(tail) > HEAD + TAIL:
            at = tail.rfind(b"\n", 0, HEAD) + 1 or HEAD
            head, tail = tail[:at], tail[at:]
        if head and len(tail) > 2 * TAIL:
            left_out += len(tail) - TAIL
            tail = tail[-TAIL:]
    if head and len(tail) > TAIL:
        left_out += len(tail) - TAIL
        tail = tail[-TAIL:]
    if left_out:
        cut = tail.find(b"\n") + 1
        left_out, tail = left_out + cut, tail[cut:]
        notes.append(f"the recording holds its start and its end: {left_out:,} bytes between are left out")
    lines = (head + tail).decode("utf-8", "replace").split("\n")
    return "\n".join(_lines(lines, masked)).encode()


def _lines(lines: list[str], masked: Counter[str]) -> Iterator[str]:
    spoken = False  # it is what a client sent, up to the next record
    in_key = 0
    for line in lines:
        line = line[:_MAX_LINE]
        if in_key:
            in_key = 0 if "-----END" in line else in_key - 1
            yield redact.MASK
            continue
        if spoken or "ogger.py:" in line:
            records = entry.records(line.encode())
            begins = bool(records) and (bool(records[0].level) or records[0].message.startswith("INFO: "))
            if spoken and not begins:
                yield redact.MASK if line.strip() else line
                masked[_PROMPT] += bool(line.strip())
                continue
            spoken = bool(records) and _is_request(records[-1])
            if spoken and not _REQUEST.search(line):
                masked[_PROMPT] += 1
                message = records[-1].message[:200].rstrip()
                at = line.rfind(message) if message else -1
                yield line[:at] + redact.MASK if at >= 0 else redact.MASK
                continue
        if "-----BEGIN" in line and "PRIVATE KEY" in line:
            in_key = 200 if "-----END" not in line else 0
        yield _clean(line, masked)


def _is_request(this: Record) -> bool:
    return this.source.startswith(_REQUEST_LOGGERS)


def _clean(line: str, masked: Counter[str]) -> str:
    if "equest " in line or "response " in line:
        line, count = _REQUEST.subn(rf"\g<head>: {redact.MASK}", line)
        masked[_PROMPT] += count
    return redact.secrets(line, masked) if _MAY_HIDE.search(line) else line
