"""placeholder until the branch is merged"""

from __future__ import annotations

import re
from pathlib import Path

from vllm_doctor.sources.gpu import nvidia_smi_text
from vllm_doctor.sources.gpu.gpu import GpuView


def holds(raw: bytes) -> bool:
    return re.search(rb"NVIDIA-SMI|NVSMI|GPU \d+: |\d+MiB", raw) is not None


def view(raw: bytes, name: str) -> GpuView | None:
    return nvidia_smi_text.view(Path(name), raw.decode("utf-8", "replace"))
