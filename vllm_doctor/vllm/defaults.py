"""vLLM's own defaults: where they depend on the device (data/device_defaults.tsv), and those of a server's version.

Of `vllm serve`, which takes others than the LLM class. Nothing is read until the first question.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vllm_doctor.model.facts import COMMAND
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import flags
from vllm_doctor.vllm.flags import release
from vllm_doctor.vllm.kv_cache import draft_method

MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = "--max-num-seqs", "--max-num-batched-tokens"
UTILIZATION = "--gpu-memory-utilization"

_PATH = Path(__file__).parent / "data" / "device_defaults.tsv"
_SINCE = (0, 11, 0)
"""Before it the V0 engine, which has other defaults, may have been taken."""
_GIB = 1024.0**3


@dataclass(frozen=True)
class DeviceDefault:
    """What some releases take for a flag on some devices.

    `until`: "" where the newest release still does. `device`: GPU, or CPU worker: `value` is that of each worker.
    `min_gib`: of a GPU's memory. `gpus`: parts of the names that are meant, empty: all but those of `but_not`.
    """

    flag: str
    since: str
    until: str
    device: str
    min_gib: int | None
    gpus: tuple[str, ...]
    but_not: tuple[str, ...]
    value: int

    def is_on(self, memory: float | None, name: str) -> bool:
        """Whether a device is meant; `memory` in bytes, None on the CPU backend."""
        if memory is None or self.device != "GPU":
            return memory is None and self.device == "CPU worker"
        if memory < (self.min_gib or 0) * _GIB:
            return False
        is_named = not self.gpus or any(part.lower() in name.lower() for part in self.gpus)
        return is_named and not any(part.lower() in name.lower() for part in self.but_not)


def max_num_seqs(version: str, memory: float | None, name: str, world_size: int) -> int | None:
    """The --max-num-seqs of a server that was not given one; None where this version's rule is not known.

    `memory`: bytes of a GPU, None on the CPU backend. `name`: the GPU's. `world_size`: tensor times pipeline parallel.
    """
    asked, newest = release(version), release(flags.newest())
    if asked is None or newest is None or asked > newest:
        return None
    return by_device(version, MAX_NUM_SEQS, memory, name, world_size)


def by_device(version: str, flag: str, memory: float | None, name: str, world_size: int) -> int | None:
    """What the version (as flags.judged_as) takes for the flag on this device; the rest as of `max_num_seqs`."""
    asked = release(version)
    if asked is None or asked < _SINCE:
        return None
    found = next((row for row in of_flag(version, flag) if row.is_on(memory, name)), None)
    return None if found is None else found.value * (world_size if found.device == "CPU worker" else 1)


def of_flag(version: str, flag: str) -> tuple[DeviceDefault, ...]:
    """What the version (as flags.judged_as) takes for the flag by device, the first that fits counts; empty: not known,
    or the same everywhere."""
    rows = (row for row in _rows() if row.flag == flag)
    return tuple(row for row in rows if flags.is_within(version, row.since, row.until))


@cache
def _rows() -> tuple[DeviceDefault, ...]:
    lines = [line for line in _PATH.read_text("utf-8").splitlines() if not line.startswith("#")]
    return tuple(
        DeviceDefault(
            row["flag"],
            row["since"],
            row["until"],
            row["device"],
            int(row["min_gib"]) if row["min_gib"] else None,
            tuple(row["gpus"].split("|")) if row["gpus"] else (),
            tuple(row["but_not"].split("|")) if row["but_not"] else (),
            int(row["value"]),
        )
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    )


def of_version(known: Mapping[str, Reading]) -> dict[str, Reading]:
    """What follows from a server's version alone.

    vllm_release (0.23.1 as 23, 1.2 as 1002), for rules that hold up to a release, and gpu_memory_utilization_default.
    Where a command tells no version, the one that judges its flags counts. vllm_number (0.23.1 as 2301) is of a
    version that is told, and a release.
    """
    version = _text(known, "vllm_version") or _text(known, "flags_judged_as")
    number = release(version) if version is not None else None
    if version is None or number is None:
        return {}
    found: dict[str, Reading] = {"vllm_release": _told(1000 * number[0] + number[1])}
    exact = flags.number(_text(known, "vllm_version") or "")
    if exact is not None:
        found["vllm_number"] = _told(exact)
    utilization = flags.flag(version, UTILIZATION)
    if utilization is not None and utilization.default is not None:
        found["gpu_memory_utilization_default"] = _told(float(utilization.default))
    return found


def of_flags(known: Mapping[str, Reading]) -> dict[str, Reading]:
    """What follows from a command line that was read whole: speculative_method ("none" without drafts)."""
    if not isinstance(known.get(COMMAND), Known):
        return {}
    given: dict[str, Value] = {
        name: fact.value for name, fact in known.items() if name.startswith("--") and isinstance(fact, Known)
    }
    method = draft_method(given)
    return {} if method is None else {"speculative_method": Known(method, origin="cmdline")}


def of_device(known: Mapping[str, Reading]) -> dict[str, Reading]:
    """What a server with these flags, on this GPU, takes where it is not given: max_num_seqs_default and
    max_num_batched_tokens_default; each bounds the other, as the flags that are given do.

    Unknown (no-driver) without a GPU, not-supported where nothing is known of this version, or of an engine in Python.
    Source: vllm/engine/arg_utils.py, _set_default_max_num_seqs_and_batched_tokens_args.
    """
    wanted = {"max_num_seqs_default": MAX_NUM_SEQS, "max_num_batched_tokens_default": MAX_NUM_BATCHED_TOKENS}
    version = _text(known, "vllm_version") or _text(known, "flags_judged_as")
    if _text(known, "usage_context") is not None:  # of Python, which takes others than a server
        return dict.fromkeys(wanted, Unknown(Reason.NOT_SUPPORTED))
    memory, name = _number(known, "gpu_memory_total"), _text(known, "gpu_name")
    if memory is None or name is None:
        return dict.fromkeys(wanted, Unknown(Reason.NO_DRIVER))
    values = {flag: by_device(version or "", flag, memory, name, 1) for flag in wanted.values()}
    seqs, tokens = values[MAX_NUM_SEQS], values[MAX_NUM_BATCHED_TOKENS]
    if seqs is None or tokens is None:
        return dict.fromkeys(wanted, Unknown(Reason.NOT_SUPPORTED))
    factor = 2 if _text(known, "--performance-mode") == "throughput" else 1
    given_seqs, given_tokens = _number(known, MAX_NUM_SEQS), _number(known, MAX_NUM_BATCHED_TOKENS)
    length = _number(known, "--max-model-len")
    most = factor * float(tokens)
    if length is not None and length > 0:
        most = min(most, (given_seqs or factor * seqs) * length)
    return {
        "max_num_seqs_default": _told(min(factor * float(seqs), given_tokens or most)),
        "max_num_batched_tokens_default": _told(most),
    }


def _told(value: float) -> Known:
    return Known(float(value), origin="computed")


def _text(known: Mapping[str, Reading], name: str) -> str | None:
    reading = known.get(name)
    return reading.value if isinstance(reading, Known) and isinstance(reading.value, str) else None


def _number(known: Mapping[str, Reading], name: str) -> float | None:
    reading = known.get(name)
    is_number = isinstance(reading, Known) and type(reading.value) in (int, float)
    return float(reading.value) if is_number and isinstance(reading, Known) else None
