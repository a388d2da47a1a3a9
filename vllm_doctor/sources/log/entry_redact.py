"""What of a log a recording may keep: its lines without secrets, and without what clients sent or were answered.

A line stays a line, so that numbers of lines hold. Of a long log the start and the end are kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from vllm_doctor.model.errors import SourceError
from vllm_doctor.rules import log_lines
from vllm_doctor.sources.host.process_log import ProcessLog
from vllm_doctor.sources.log import bytes_order, entry
from vllm_doctor.sources.log.bytes_stream import Origin, blocks
from vllm_doctor.sources.log.bytes_unpacked import read
from vllm_doctor.sources.log.entry import Record
from vllm_doctor.sources.log.entry_raised import Raised
from vllm_doctor.text import redact

HEAD, TAIL = 1 << 20, 3 << 20
"""Bytes of the start and of the end that are kept."""
_MAX_LINE = 64 * 1024
_MOST_LOOKED_AT = 5000
_REQUEST_LOGGERS = ("request_logger.py:", "logger.py:")
_REQUEST = re.compile(
    r"\b(?:(?:Received|Finished) request|Generated response|Request)"
    r" (?!\[masked\])(?=[\w-]{0,200}\d)[\w-]{1,200}(?: \([a-z ]{1,40}\))?(?=: | details: | JSON body: )"
)
_SPEAKERS = re.compile(
    r"(?<!\w)\w{0,60}(?:serving|parser|renderer|chat|preprocess)\w{0,60}\.py:|(?:protocol|harmony\w{0,60}|api_router|hf)\.py:"
)
"""Sources of vLLM's that read requests and write answers: what they print to debug is of both."""
_SAID = re.compile(r"(?:: |\brequest |rejected the request)(?!\d+\b|\[masked\])")
_CLIENTS_WORDS = re.compile(
    r"(?:rejected the request|Input prompt|delta_text|delta text|delta_token_ids|payload"
    r"|Convert\w{0,60} to OpenAI request"
    r"|(?:current|previous)_text|Received (?:messages|chat|completion|Cohere v2 chat) request):?\s{1,3}(?!\[masked\])"
)
_PARAMETERS = re.compile(r"\b(?:Sampling|Pooling|GuidedDecoding|StructuredOutputs)Params\(")
_QUOTED = re.compile(r"""'(?!\[masked)(?:[^'\\]|\\.)++(?:'|\\?\Z)|"(?!\[masked)(?:[^"\\]|\\.)++(?:"|\\?\Z)""")
"""What nothing closes reaches to the end."""
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
    if bytes_order.TOO_LONG in notes:  # what a client sent stands before the line that says so
        raise SourceError("not-a-log", f"{path} runs backwards, and is too long to be kept: turn it round (tac FILE)")
    lines = (head + tail).decode("utf-8", "replace").split("\n")
    if isinstance(path, ProcessLog) and not _is_a_servers(lines):
        raise SourceError("not-vllm", f"{path}: none of its lines is vLLM's, so it is not kept; is it the log? Name it")
    return "\n".join(_lines(lines, masked)).encode()


def kept(lines: list[str]) -> list[str]:
    """Lines of a log, as many, as they may be shown."""
    return list(_lines(lines, Counter()))


def _is_a_servers(lines: list[str]) -> bool:
    """Whether a record is among them, or they are none yet."""
    shown = [line for line in lines if line.strip()][:_MOST_LOOKED_AT]
    return not shown or any(found.level for line in shown for found in entry.records(line[:_MAX_LINE].encode()))


def _lines(lines: list[str], masked: Counter[str]) -> Iterator[str]:
    raised = Raised(log_lines.shipped())
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
        kept = raised.kept(line)
        masked[_PROMPT] += kept is not line
        yield _clean(kept, masked)


def _is_request(this: Record) -> bool:
    return this.source.startswith(_REQUEST_LOGGERS)


def _clean(line: str, masked: Counter[str]) -> str:
    for cut in _cuts(line):
        line = f"{line[:cut].rstrip(': ')}: {redact.MASK}"
        masked[_PROMPT] += 1
        break
    parameters = _PARAMETERS.search(line) if "Params(" in line else None
    if parameters is not None:  # stop words, and what an answer must look like
        clean, count = _QUOTED.subn(redact.MASK, line[parameters.end() :])
        line = line[: parameters.end()] + clean
        masked[_PROMPT] += count
    return redact.secrets(line, masked)


def _cuts(line: str) -> Iterator[int]:
    """From where on a line is what a client sent, or was answered."""
    found = None
    if "equest " in line or "response " in line:
        found = _REQUEST.search(line)
    if found is None and (
        "_text" in line or "prompt: " in line or "delta" in line or "ayload" in line or "equest" in line
    ):
        found = _CLIENTS_WORDS.search(line)
    if found is None and "DEBUG " in line and _SPEAKERS.search(line):
        this = entry.records(line.encode())
        if this and this[-1].level == "DEBUG" and _SPEAKERS.match(this[-1].source):
            at = line.rfind(this[-1].message[:200])
            found = _SAID.search(line, max(0, at))
    if found is not None:
        yield found.end()
