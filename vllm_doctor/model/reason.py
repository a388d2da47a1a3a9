"""Why a signal is unknown, and how to learn it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """Why a signal is unknown. The list is closed: hooks may depend on it."""

    ABSENT = "absent"  # the server does not export it (this version, or not switched on)
    FIRST_SCRAPE = "first-scrape"  # a rate needs two scrapes
    IDLE = "idle"  # nothing happened in the window: 0/0
    INVALID = "invalid"  # exported as NaN, not a number, or not what the signal is of (its `where`)
    UNREACHABLE = "unreachable"
    DENIED = "denied"
    STALE = "stale"  # was there, is gone; or the last look (--state) was too long ago
    NOT_IN_LOG = "not-in-log"
    NO_LOG = "no-log"  # the server's log was not given
    NOT_IN_COMMAND = "not-in-command"  # a command alone does not hold it, or not its value
    NOT_LOCAL = "not-local"  # only visible on the server's host
    NOT_GIVEN = "not-given"  # the user has not said (--slo)
    BETWEEN = "between-buckets"  # the histogram's bucket straddles the threshold
    NOT_SUPPORTED = "not-supported"  # this device, driver or kernel does not tell
    NO_DRIVER = "no-driver"  # no NVIDIA driver, or one that does not answer
    TIMEOUT = "timeout"  # there was no time to judge all engines
    NOT_IN_BENCH = "not-in-bench"  # the benchmark's result does not hold it, or there is none
    NOT_IN_TRACE = "not-in-trace"  # the profiler's trace does not hold it, or there is none
    NOT_IN_PATH = "not-in-path"  # no source has this part of the path of a request
    NO_VERSION = "no-version"  # nothing tells which vLLM it is
    NO_EQUAL_LOAD = "no-equal-load"  # the same load was not seen early and late within hours
    NOT_SET = "not-set"  # not on the command line: vLLM's default holds, which depends on the host


HOW_TO_LEARN: Mapping[Reason, str] = {
    Reason.ABSENT: "it is not there: not on this server's /metrics, or not on this host",
    Reason.FIRST_SCRAPE: "a rate needs two scrapes: --window 3",
    Reason.IDLE: "nothing happened in the window: sample under load, or longer (--window 30)",
    Reason.INVALID: "the value is no number, or too little was measured (sample longer: --window 30)",
    Reason.UNREACHABLE: "the server did not answer",
    Reason.DENIED: "permission denied: run vllm-doctor as the server's user, or as root",
    Reason.STALE: "it vanished during the window, or the last scrape (--state) is of another start or too old",
    Reason.NOT_IN_LOG: "a log does not carry it: ask /metrics",
    Reason.NO_LOG: "only the server's log holds it: add the log as another argument",
    Reason.NOT_IN_COMMAND: "the command alone does not hold it: examine the server once it runs (its URL, or its pid)",
    Reason.NOT_LOCAL: "/metrics does not carry it: run vllm-doctor on the server's own host",
    Reason.NOT_GIVEN: "no target was given: --slo ttft=2s --slo itl=50ms",
    Reason.BETWEEN: "only known within bounds that are too wide: a histogram's buckets, all of a machine's CPUs",
    Reason.NOT_SUPPORTED: "the device, driver or kernel does not report it",
    Reason.NO_DRIVER: "no GPU was found: run vllm-doctor on the GPU host, or give --nvidia-smi FILE, or --gpu NAME",
    Reason.NOT_IN_BENCH: "no benchmark result has it: add one with its command, or the server's URL or log",
    Reason.NOT_IN_TRACE: "no trace has it: add the files that /start_profile writes, one a rank",
    Reason.NOT_IN_PATH: "no source is this part of the path: --role gateway=URL, router=URL, prefill=URL, decode=URL",
    Reason.NO_EQUAL_LOAD: "the same load, with few prompts, was not seen early and late: use more hours",
    Reason.TIMEOUT: "not all engines could be judged in time: raise --timeout",
    Reason.NO_VERSION: "the vLLM version is unknown: add the start of its log, or the image with its tag in --command",
    Reason.NOT_SET: "it is not on the server's command line, so vLLM's own default holds",
}

IN_SHORT: Mapping[Reason, str] = {
    Reason.ABSENT: "not exported",
    Reason.FIRST_SCRAPE: "one scrape only",
    Reason.IDLE: "no activity",
    Reason.INVALID: "no usable value",
    Reason.UNREACHABLE: "no answer",
    Reason.DENIED: "permission denied",
    Reason.STALE: "vanished during the window",
    Reason.NOT_IN_LOG: "not in this log",
    Reason.NO_LOG: "needs the log",
    Reason.NOT_IN_COMMAND: "not in the command",
    Reason.NOT_LOCAL: "needs the host",
    Reason.NOT_GIVEN: "no target given",
    Reason.BETWEEN: "its bounds are too wide",
    Reason.NOT_SUPPORTED: "not reported here",
    Reason.NO_DRIVER: "no GPU found",
    Reason.TIMEOUT: "no time",
    Reason.NOT_IN_BENCH: "not in the result",
    Reason.NOT_IN_TRACE: "not in the trace",
    Reason.NOT_IN_PATH: "not on the path given",
    Reason.NO_VERSION: "vLLM version unknown",
    Reason.NO_EQUAL_LOAD: "no equal load early and late",
    Reason.NOT_SET: "left to vLLM's default",
}
"""The same in a few words, behind the name of a signal."""
