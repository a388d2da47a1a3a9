"""By what a file is told to hold a benchmark's result, or a server's log, before anything is read in full.

Every log that is named is looked at so: nothing else of this folder is imported for it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from vllm_doctor.text import files

_HEAD = 256 * 1024
SIGNS = re.compile(
    rb"Serving Benchmark Result|Throughput: [\d.]{1,30} requests/s|Avg latency: [\d.]{1,30} seconds|Mean TTFT \(ms\)"
    rb'|request_throughput|"requests_per_second"|"avg_latency"|"generative_benchmark"|"time_to_first_token"'
    rb'|"normalized_time_per_output_token"|time_to_first_token:|Time to First Token \(ms\),'
)
"""One of these stands in every result; a look at a file's beginning and end for them tells most others apart."""
SERVER_LOG = re.compile(
    rb"Avg prompt throughput|\(EngineCore\w{0,20} pid=\d"
    rb"|\[(?:api_server|loggers|metrics|llm_engine|core|launcher)\.py:\d"
)


def may_hold_result(path: Path) -> bool:
    """Whether something that stands in every result stands at the file's beginning or end."""
    return SIGNS.search(ends(path)) is not None


def holds_log(path: Path) -> bool:
    """Whether lines of a server's log stand in the file, too."""
    return SERVER_LOG.search(ends(path)) is not None


def ends(path: Path) -> bytes:
    """The beginning of the file, and its end; nothing where it cannot be read."""
    try:
        handle = files.descriptor(path)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        try:
            head = file.read(_HEAD)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _HEAD))
            return head + file.read(_HEAD)
        except OSError:  # a pipe has one end
            return b""
