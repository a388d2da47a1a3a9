"""What a field of nvidia-smi says, in whichever form it was printed: as XML or as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu.gpu import NOT_TOLD, Gpu, GpuProcess, GpuSample

ORIGIN = "nvidia-smi"
MAX_GPUS = 256  # MIG instances count
MAX_TOLD = 20_000  # GPUs times samples
ENOUGH = 5_000  # of those of a log of many: the others tell nothing more
HOW = "make it with: nvidia-smi -q -x > smi.xml"

_UNITS = {
    "": 1.0,
    "%": 0.01,
    "x": 1.0,
    "C": 1.0,
    "W": 1.0,
    "MHz": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "MB": 2.0**20,  # what drivers before 340 called it
    "GiB": 2.0**30,
    "GB": 2.0**30,  # of AMD's tools, which mean GiB
}
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(\S*)")
_SWITCH = {"enabled": True, "disabled": False, "yes": True, "no": False, "on": True, "off": False}
_BROKEN = frozenset({"unknown error", "err!", "gpu is lost", "gpu requires reset"})
_RESET = frozenset({"reset", "gpu reset", "reboot", "node reboot"})
_NOTHING_SAID = _BROKEN | {"", "-", "n/a", "none", "not found", "not supported", "insufficient permissions"}


def clean(text: str) -> str:
    """One line that a terminal can show."""
    return "".join(c if c.isprintable() else " " for c in text[:1000]).strip()[:200]


def name(said: str) -> str:
    """What was said, "" where that is a way to say nothing."""
    return "" if said.strip("[]").lower() in _NOTHING_SAID else said


def unknown(said: str) -> Unknown:
    """Why this is no number."""
    return Unknown(Reason.DENIED) if "insufficient permissions" in said.lower() else NOT_TOLD


def quantity(said: str, unit: str = "", origin: str = ORIGIN) -> Reading:
    """ "71.53 W", "16x", "35 %", "47C" -> 71.53, 16, 0.35, 47. `unit`: of a number that stands alone."""
    found = _QUANTITY.fullmatch(said)
    if found is None or (found[2] or unit) not in _UNITS:
        return unknown(said)
    return Known(round(float(found[1]) * _UNITS[found[2] or unit], 6), origin=origin)


def switch(said: str) -> Reading:
    """ "Enabled", "Off" -> True, False."""
    is_on = _SWITCH.get(said.lower())
    return unknown(said) if is_on is None else Known(is_on, origin=ORIGIN)


def bus_id(said: str) -> str:
    """ "00000000:84:00.0" -> "0000:84:00.0"; "" for what is no PCI address."""
    found = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", said.lower())
    return f"{int(found[1], 16):04x}:{found[2]}" if found else ""


def moment(text: str) -> datetime | None:
    """ "Thu Apr 25 10:41:15 2024", of the host's own clock."""
    try:
        return datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y")
    except ValueError:
        return None


def times(moments: Sequence[datetime | None]) -> list[float]:
    """Seconds since the first; never backwards, and a second each where there is no timestamp."""
    found: list[float] = []
    first = moments[0] if moments else None
    for place, time in enumerate(moments):
        at = (time - first).total_seconds() if time and first else float(place)
        found.append(max(at, found[-1]) if found else 0.0)
    return found


def broken(index: int, fields: Iterable[str]) -> str:
    """What to note of a GPU that answers with an error; "" where it does not."""
    said = next((said for said in (field.strip("[]") for field in fields) if said.lower() in _BROKEN), "")
    return f'GPU {index} answers "{said}": it is lost, or needs a reset' if said else ""


def reset(index: int, required: str, action: str, drain: str = "") -> tuple[str, str]:
    """What to note of a GPU that asks for a reset: where it has to come now, and where it should be drained first.

    `required` and `drain`: yes, no; `action`: what newer drivers say in their place.
    """
    if required.lower() == "yes" or action.lower() in _RESET:
        return f'GPU {index} says "{action if action.lower() in _RESET else "Reset Required"}": it needs a reset', ""
    if drain.lower() == "yes" or action.lower() in ("drain and reset", "drain p2p"):
        said = action if action.lower().startswith("drain") else "Drain and Reset Recommended"
        return "", f'GPU {index} says "{said}": it should be drained, and reset'
    return "", ""


Place = tuple[str, str]
"""GPU instance and compute instance, as a process and a MIG device name them."""


def here(
    processes: list[tuple[Place, GpuProcess]] | Reason, place: Place | None = None
) -> tuple[GpuProcess, ...] | Reason:
    """Those on one MIG instance; all where `place` is None."""
    if isinstance(processes, Reason):
        return processes
    return tuple(process for where, process in processes if place is None or where == place)


def instance_uuid(parent: str, place: Place) -> str:
    """How CUDA named a MIG instance before drivers gave it a UUID of its own."""
    return f"MIG-{parent}/{'/'.join(place)}"


def instance(
    gpu: Gpu,
    sample: GpuSample,
    uuid: str,
    processes: tuple[GpuProcess, ...] | Reason,
    total: Reading = NOT_TOLD,
    used: Reading = NOT_TOLD,
    free: Reading = NOT_TOLD,
) -> tuple[Gpu, GpuSample]:
    """A MIG instance in its GPU's place: it shares what is measured on the board only. Memory in bytes."""
    return (
        replace(gpu, uuid=uuid, memory_total=total),
        replace(sample, uuid=uuid, utilization=NOT_TOLD, memory_used=used, memory_free=free, processes=processes),
    )
