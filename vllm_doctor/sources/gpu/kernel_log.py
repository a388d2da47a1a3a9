"""What the kernel's log says of the GPUs: the Xids, by which NVIDIA's driver reports that one is ill.

The log is /dev/kmsg, which holds this boot's messages as far as the kernel's buffer reaches; most systems let only
root read it, and containers do not have it. It is read, never waited for, and nothing in it is consumed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel, reason_of

ORIGIN = "kernel-log"
MAX_LOG = 16 * 1024 * 1024
MAX_SECONDS = 0.2  # of CPU time; what has been read until then counts
_RECORD = 16 * 1024  # more than the kernel writes into one message
_MAX_NAMED = 5

# https://docs.nvidia.com/deploy/xid-errors/
GRAVE = frozenset({48, 63, 64, 74, 79, 94, 95})
"""The hardware's own faults: memory, NVLink, bus. Others come from programs as well."""
_MEANING = {
    13: "exception in a kernel",
    31: "memory page fault",
    43: "stopped processing",
    45: "program ended",
    48: "double-bit memory error",
    61: "microcontroller breakpoint",
    62: "microcontroller halt",
    63: "memory page or row retired",
    64: "memory page or row not retired",
    74: "NVLink error",
    79: "fallen off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP timeout",
    120: "GSP error",
}
# "6,1234,5678,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1234, name=python, GPU has fallen off the bus."
_LINE = re.compile(
    r"(?P<priority>[0-9]{1,4}),[^;\n]{0,200};NVRM: Xid \((?:PCI:)?(?P<bus>[0-9A-Fa-f:.]{1,20})\): (?P<xid>[0-9]{1,5})\b"
)
_KERNEL = 8  # a line's number is its facility times 8 and its level: below, the kernel itself wrote it


def xids(kernel: Kernel) -> dict[str, Reading]:
    """`gpu_xids`: which Xids this boot's log holds, for people, the newest last; `idle` where there is none.

    `gpu_xid_grave`: how many of them are of the hardware (GRAVE). Unknown with the reason where the log cannot be
    read: denied, or not-supported where there is no log here (a container).
    """
    log = _log(kernel)
    if isinstance(log, Reason):
        return {"gpu_xids": Unknown(log), "gpu_xid_grave": Unknown(log)}
    found = [
        (int(match["xid"]), match["bus"].lower())
        for line in log.split("\n")
        if (match := _LINE.match(line)) and int(match["priority"]) < _KERNEL
    ]
    return facts(found, ORIGIN)


def facts(found: Sequence[tuple[int, str]], origin: str) -> dict[str, Reading]:
    """The same of Xids that were found, each with the bus address of its GPU, the newest last."""
    newest_first = dict.fromkeys(reversed(found))
    named = [_described(*pair) for pair in newest_first][:_MAX_NAMED]
    grave = sum(xid in GRAVE for xid, _ in found)
    return {
        "gpu_xids": Known(", ".join(reversed(named)), origin=origin) if named else Unknown(Reason.IDLE),
        "gpu_xid_grave": Known(float(grave), origin=origin),
    }


def _described(xid: int, bus: str) -> str:
    """ "79 (fallen off the bus) on 0000:17:00"."""
    meaning = f" ({_MEANING[xid]})" if xid in _MEANING else ""
    return f"{xid}{meaning} on {bus}"


def _log(kernel: Kernel) -> str | Reason:
    """All records there are, a line each; only the oldest where it is too much."""
    path = kernel.path("dev/kmsg")
    try:
        if not _is_log(os.stat(path)):
            return Reason.NOT_SUPPORTED
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        reason = reason_of(error)
        return Reason.NOT_SUPPORTED if reason is Reason.ABSENT else reason
    try:
        return _records(log).decode("utf-8", "replace") or Reason.NOT_SUPPORTED  # a kernel always has something to say
    except OSError as error:
        return reason_of(error)
    finally:
        os.close(log)


def _is_log(status: os.stat_result) -> bool:
    """Containers put /dev/null or a console there, which must not be read. Tests give a file."""
    return stat.S_ISREG(status.st_mode) or (stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(1, 11))


def _records(log: int) -> bytes:
    records = bytearray()
    until = time.thread_time() + MAX_SECONDS
    while len(records) < MAX_LOG and time.thread_time() < until:
        try:
            record = os.read(log, _RECORD)
        except BlockingIOError:  # no more yet
            break
        except BrokenPipeError:  # the kernel wrote over the record that was next: the one after it follows
            continue
        if not record:
            break
        records += record
    return bytes(records)
