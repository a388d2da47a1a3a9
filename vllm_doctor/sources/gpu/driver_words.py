"""What NVIDIA's driver says of GPUs that it cannot reach: nvidia-smi's own excuses, and the Xids of a kernel's log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import GpuView
from vllm_doctor.sources.gpu.looks import Look
from vllm_doctor.sources.gpu.printed_lines import Line

NO_GPU = "No devices were found"
NO_DRIVER = ("Failed to initialize NVML", "NVIDIA-SMI has failed", "Unable to determine the device handle")
MARKS = (NO_GPU, *NO_DRIVER, "NVRM: Xid (")

_MOST_XIDS = 1000
_LONG = 300
# "GPU1: 0000:34:00.0: Unknown Error" of new drivers, "GPU 0000:3B:00.0: GPU is lost." of old ones
_HANDLE = re.compile(
    r"Unable to determine the device handle for GPU ?(?:(\d{1,3})(?=: |:?$))?:? ?"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])?:? ?(.{0,60})"
)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{1,20})\): ([0-9]{1,5})\b")


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """The GPUs that do not answer."""
    found: list[Look] = []
    for line in lines:
        handle = _HANDLE.search(line.text) if NO_DRIVER[2] in line.text else None
        if handle is None or len(found) >= smi.MAX_GPUS:
            continue
        look = Look(line=line.number)
        why = smi.clean(handle[3].strip(" .`\"'"))
        if handle[1] is not None:
            index = int(handle[1])
            look.broken[index] = f'GPU {index} answers "{why or "nothing"}": it is lost, or needs a reset'
        else:
            look.lost_at = smi.bus_id(handle[2] or "")
        found += [look] if look.tells else []
    return found


def xids(lines: Sequence[Line]) -> tuple[tuple[int, str], ...]:
    """The Xids, each with the bus address of its GPU, in their order."""
    found = [(int(xid[2]), xid[1].lower()) for line in lines if (xid := _XID.search(line.text))]
    return tuple(found[-_MOST_XIDS:])


def excuse(lines: Sequence[Line]) -> GpuView | None:
    """The view that nvidia-smi's own excuse gives, where it stands as a line."""
    for place, line in enumerate(lines):
        text = line.text.strip(" \t>`")
        if text.startswith(NO_GPU):
            return GpuView(smi.ORIGIN, missing=Reason.ABSENT, detail=smi.clean(text))
        if text.startswith(NO_DRIVER):
            denied = "permission" in text.lower()
            after = lines[place + 1].text.strip() if place + 1 < len(lines) else ""
            detail = f"{text} {after}" if after.startswith("NVML library") else text
            why = Reason.DENIED if denied else Reason.NO_DRIVER
            return GpuView(smi.ORIGIN, missing=why, detail=smi.clean(detail[:_LONG]))
    return None
