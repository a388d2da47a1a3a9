"""The GPUs in a file, as any of the tools printed them that people have: alone, or amid the text of an issue or a log.

nvidia-smi in all its forms, gpustat, nvtop and nvitop; rocm-smi and amd-smi; xpu-smi; npu-smi. Each has its module,
which reads its own forms as looks; here they are found, and put together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.outside import json
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu import (
    amd_smi,
    driver_words,
    gpustat,
    looks,
    npu_smi,
    nvidia_smi,
    nvidia_smi_csv,
    nvidia_smi_dmon,
    nvidia_smi_query,
    nvidia_smi_text,
    nvtop,
    rocm_smi,
    xpu_smi,
)
from vllm_doctor.sources.gpu import nvidia_smi_fields as fields
from vllm_doctor.sources.gpu.gpu import GpuView
from vllm_doctor.sources.gpu.looks import Look
from vllm_doctor.sources.gpu.printed_lines import MOST, Line, lines
from vllm_doctor.text import files
from vllm_doctor.text.encoding import decoded, utf16

MAX_FILE = 16 * 1024 * 1024

_Reader = Callable[[Sequence[Line], list[str]], list[Look]]
_READERS: tuple[tuple[tuple[str, ...], _Reader], ...] = (
    (nvidia_smi_text.MARKS, nvidia_smi_text.looks),
    (nvidia_smi_query.MARKS, nvidia_smi_query.looks),
    (nvidia_smi_csv.MARKS, nvidia_smi_csv.looks),
    (nvidia_smi_dmon.MARKS, nvidia_smi_dmon.looks),
    (driver_words.MARKS, driver_words.looks),
    (gpustat.MARKS, gpustat.looks),
    (nvtop.MARKS, nvtop.looks),
    (rocm_smi.MARKS, rocm_smi.looks),
    (amd_smi.MARKS, amd_smi.looks),
    (xpu_smi.MARKS, xpu_smi.looks),
    (npu_smi.MARKS, npu_smi.looks),
)
"""Each with words of which one stands in whatever it reads."""
_XML = "<nvidia_smi_log"
_SIGNS = tuple(dict.fromkeys(mark.encode() for mark in (_XML, *(mark for marks, _ in _READERS for mark in marks))))
_MAX_JSON = 4 * 1024 * 1024


def holds(text: bytes) -> bool:
    """Whether something of GPUs may stand there: cheap, and never wrong where it says no."""
    if utf16(text) is not None:
        text = decoded(text).encode("utf-8", "replace")
    return any(sign in text for sign in _SIGNS)


def view(raw: bytes, name: str) -> GpuView | None:
    """What stands there of a host's GPUs; None where nothing does. `name`: of the file, for messages.

    Raises UsageError for the XML of nvidia-smi that is broken, and where more GPUs are told than a host can have.
    """
    text = decoded(raw)
    if _XML in text:
        return nvidia_smi.view(name, text)
    if not any(mark in text for marks, _ in _READERS for mark in marks):
        return None
    own, is_whole = lines(text)
    notes = [] if is_whole else [f"only the first {MOST:,} lines of {name} were read"]
    found = _of_json(text) or [
        look for marks, read in _READERS if any(mark in text for mark in marks) for look in read(own, notes)
    ]
    xids = driver_words.xids(own) if "NVRM: Xid (" in text else ()
    if found and any(look.gpus or look.driver or look.apps for look in found):
        return replace(looks.view(name, found, notes), xids=xids)
    silent = looks.view(name, found, notes) if found else None
    excuse = driver_words.excuse(own)
    if excuse is not None and silent is not None:
        return replace(excuse, lost=silent.lost, lost_at=silent.lost_at, xids=xids)
    if excuse is not None or silent is not None:
        told = excuse or silent
        return None if told is None else replace(told, xids=xids)
    return GpuView(fields.ORIGIN, missing=Reason.NOT_SUPPORTED, xids=xids) if xids else None


def _of_json(text: str) -> list[Look]:
    """The looks of AMD's tools with --json."""
    start = text.lstrip("\ufeff \t\r\n")
    if start[:1] not in ("{", "[") or len(text) > _MAX_JSON:
        return []
    try:
        document = json(start)
    except ValueError:
        return []
    return rocm_smi.of_json(document) or amd_smi.of_json(document)


# --- a file that the user names -------------------------------------------------------------------------------------


def read(path: Path) -> GpuView:
    """What the file says of the host's GPUs.

    Where nvidia-smi itself wrote that it found no driver or no GPU, the view's `missing` and `detail` say so.
    Raises UsageError if the file cannot be read or tells of no GPU: what it is, and how to make the right one.
    """
    data = _bytes(path)
    found = view(data, str(path))
    if found is None:
        raise UsageError(f"{path} {_kind(decoded(data))}; {fields.HOW}")
    return found


def _bytes(path: Path) -> bytes:
    try:
        data = files.read(path, MAX_FILE)
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory, not the output of nvidia-smi; {fields.HOW}") from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"{path} cannot be read ({why}); {fields.HOW}") from None
    if len(data) > MAX_FILE:
        raise UsageError(f"{path} is larger than {MAX_FILE // 2**20} MB; log less often (-l) or shorter")
    return data


def _kind(text: str) -> str:
    """What a file is that should have told of GPUs: "is empty"."""
    start = text[:100_000].strip()
    lower = start[:1000].lower()
    if not start:
        return "is empty"
    if "NVSMI LOG" in start:
        return "is the text of nvidia-smi -q, and lists no GPU"
    if "ROCm System Management" in start or "AMD-SMI" in start:
        return "is the output of rocm-smi or amd-smi, and lists no GPU"
    if lower.startswith(("<!doctype html", "<html")):
        return "is an HTML page, not the output of nvidia-smi"
    if start[0] in "{[":
        return "is JSON, not the output of nvidia-smi"
    if re.search(r"<gpu[\s>]", start):
        return "is only a part of the output of nvidia-smi -q -x: its beginning is missing"
    if start.startswith("<"):
        return "is XML, but not of nvidia-smi"
    if "\0" in start or start.count("\ufffd") > len(start) / 20:
        return "is a binary file, not the output of nvidia-smi"
    return "is not the output of nvidia-smi"
