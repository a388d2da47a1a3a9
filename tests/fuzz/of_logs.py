"""Harnesses of logs, from bytes to the runs of a server."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.harness import file_of, harness, seen, text_of


@cache
def _log_table() -> Any:
    from vllm_doctor.rules import log_lines, rule

    return log_lines.load(rule.shipped())


@cache
def scanner() -> Any:
    from vllm_doctor.sources.log.bytes_scan import Scanner

    return Scanner(_log_table().finds, _log_table().uncounted)


_WRAPPED = (
    b'{"log":"INFO 11-20 10:15:00 [core.py:1] x\\n","stream":"stderr","time":"2025-11-20T10:15:00.123456789Z"}\n',
    b"2025-11-20T10:15:00.123456789Z stderr F (EngineCore_0 pid=12) INFO 11-20 10:15:00 [core.py:1] x\n",
    b"Nov 20 10:15:00 host vllm[12]: (APIServer pid=1) INFO 11-20 10:15:00 [loggers.py:1] Engine 000: x\n",
    b'{"__REALTIME_TIMESTAMP":"1763633700000000","MESSAGE":[73,78,70,79],"_HOSTNAME":"h","SYSLOG_IDENTIFIER":"v"}\n',
    b"vllm-1  | \x1b[36m(VllmWorker rank=0 pid=3)\x1b[0;0m WARNING 11-20 10:15:00 [x.py:1] y\n",
    b"(raylet, ip=10.0.0.1) [2025-11-20 10:15:00,123 E 1 2] x\n",
    b'<14>1 2025-11-20T10:15:00Z h vllm 12 - - INFO: 10.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n',
    b'[\n  {\n    "textPayload": "INFO 11-20 10:15:00 [core.py:1] x\\n",\n'
    b'    "timestamp": "2025-11-20T10:15:00Z"\n  }\n]\n',
    b'{"data":{"result":[{"stream":{"pod":"p"},'
    b'"values":[["1763633700000000000","INFO 11-20 10:15:00 [core.py:1] x"]]}]}}',
    b'"@timestamp",message\n"Nov 20, 2025 @ 10:15:00.123","INFO 11-20 10:15:00 [core.py:1] ""x"""\n',
    b"[11/20/25 10:15:00] INFO     Engine 000: Avg prompt throughput:    loggers.py:236\n                    50.0\n",
    b"Traceback (most recent call last):\n  File \"x.py\", line 1, in y\n    z\nValueError: a: 'b'\n",
)


def texts() -> list[bytes]:
    return [*corpus.pieces(corpus.logs(), 1500, 4), *_WRAPPED]


TOKENS = (
    "INFO 11-20 10:15:00 [", "ERROR ", "Engine 000: ", "Traceback (most recent call last):", "Received request ",
    "prompt: '", "non-default args: {", "(EngineCore_DP0 pid=12) ", "stderr F ", '"MESSAGE":', '{"log":"',
)  # fmt: skip


@harness(texts, *TOKENS, weight=3)
def log(data: bytes) -> Hashable:
    """A log, from bytes to the runs of a server."""
    from vllm_doctor.rules import postmortem
    from vllm_doctor.sources.log.bytes_stream import Held

    read = log_of([Held("a.log", data, 1.79e9)]).examine("h")
    postmortem.seen(read.runs)
    postmortem.timeline(read.runs)
    return seen(read)


@cache
def log_class() -> Any:
    """A log whose texts are compiled once, not for each input."""
    from vllm_doctor.sources.log import source

    class Log(source.Log):
        def __post_init__(self) -> None:
            self._scanner = scanner()

    return Log


def log_of(paths: list[Any]) -> Any:
    return log_class()(paths, _log_table())


@harness(texts, *TOKENS)
def log_entry(data: bytes) -> Hashable:
    """One line: its wrappers, its time, its level, its message."""
    from vllm_doctor.sources.log import entry
    from vllm_doctor.sources.log.entry_clock import Clock

    clock = Clock(datetime(2025, 11, 20, tzinfo=UTC))
    found = entry.records(data)
    for one in found:
        if one.stamp is not None:
            assert math.isfinite(clock.seconds(one.stamp))
    return len(found), found[-1].level if found else None, found[-1].process[:9] if found else None


_ARGUMENTS = (
    b"{'model_tag': 'm', 'port': 8000, 'max_num_seqs': 64, 'compilation_config': CompilationConfig(level=3), 'x': 0}",
    b"Namespace(model='m', enable_lora=True, seed=0, gpu_memory_utilization=0.9, allowed_origins=['*'], f=<fun x>)",
)


@harness(lambda: list(_ARGUMENTS), "'", "Namespace(", "=", ": ", "None", "<", ">", "[", "]", "{", "}", "\\'")
def log_arguments(data: bytes) -> Hashable:
    """The arguments as vLLM logs them at its start."""
    from vllm_doctor.sources.log import entry_arguments

    found = entry_arguments.parse(text_of(data), data[:1] == b"N")
    found.given("0.11.0")
    return len(found.flags), found.whole, bool(found.command), len(found.unwritable)


@harness(texts, "prompt: '", "-----BEGIN PRIVATE KEY-----", "logger.py:", "Received request x: ", "api_key=", "hf_")
def log_redacted(data: bytes) -> Hashable:
    """The log of a recording: twice masked is once masked."""
    from vllm_doctor.sources.log import entry_redact
    from vllm_doctor.sources.log.bytes_stream import Held

    masked: Counter[str] = Counter()
    text = entry_redact.text(Held("a.log", data, 1.79e9), [], masked)
    return tuple(sorted(masked)), text.count(b"[masked]")


def _packed_logs() -> list[bytes]:
    import bz2
    import gzip
    import lzma

    text = corpus.logs()[0][:1500]
    utf16 = text.decode().encode("utf-16")
    found = [text, utf16, gzip.compress(text), bz2.compress(text), lzma.compress(text), gzip.compress(text) * 2]
    return [*found, corpus.parts()["1-server/metrics.prom.zst"]]


@harness(_packed_logs, "\x1f\x8b\x08\x00", "BZh9", "\x28\xb5\x2f\xfd", "\xfd7zXZ", weight=0.5)
def log_file(data: bytes) -> Hashable:
    """A file, packed or not."""
    return seen(log_of([file_of(data, "some.log")]).examine("h"))
