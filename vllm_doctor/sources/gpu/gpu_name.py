"""GPUs that the user names (--gpu 8xH100) where none can be seen: what their data sheets say of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import gpus as data_sheets

OPTION = "--gpu"

_COUNTED = re.compile(r"(?:(\d{1,6})\s*[xX×*]\s*)?(.*)", re.DOTALL)
_MOST = 1024
_NAMED = 4


@dataclass(frozen=True)
class NamedGpu:
    """`text`: as it was given; `count`: None where the user did not say."""

    text: str
    count: int | None
    gpu: data_sheets.Gpu

    @property
    def name(self) -> str:
        """As data/gpus.tsv has it, near to what the driver would say: "A100-SXM4-80GB"."""
        return self.gpu.name

    @property
    def target(self) -> str:
        return f"{OPTION} {self.text}"

    def examine(self, patient: str) -> Observation:
        """What is known of the GPU by its name."""
        return Observation(SourceKind.GPU_NAME, self.target, facts=facts(self), patient=patient)


def parse(text: str) -> NamedGpu:
    """The GPU that is meant by "H100", "NVIDIA A100-SXM4-80GB", "8xL40S". Raises UsageError, with the nearest names."""
    match = _COUNTED.fullmatch(text.strip())
    counted, name = (match[1], match[2]) if match else (None, text)
    count = None if counted is None else int(counted)
    if count is not None and not 1 <= count <= _MOST:
        raise UsageError(f"{OPTION}: {count} GPUs: write a number from 1 to {_MOST}, as in {OPTION} 8xH100")
    found = data_sheets.gpu(name) if name.isprintable() else None
    if found is None:
        raise UsageError(f"{OPTION} {_shown(name)!r}: no GPU of that name is known; the nearest: {_nearest(name)}")
    return NamedGpu(" ".join(text.split()), count, found)


def facts(named: NamedGpu) -> dict[str, Reading]:
    """gpu_name, gpu_memory_total (bytes), gpu_compute_capability, and gpus_on_host where a number was given."""
    gpu = named.gpu
    told: dict[str, Value] = {"gpu_name": named.name}
    if gpu.memory is not None:
        told["gpu_memory_total"] = gpu.memory
    if gpu.capability is not None:
        told["gpu_compute_capability"] = float(gpu.capability)
    if named.count is not None:
        told["gpus_on_host"] = float(named.count)
    return {name: Known(value, origin=OPTION) for name, value in told.items()}


def _nearest(name: str) -> str:
    wanted = name.lower()
    words = {word for word in re.findall(r"[^\W_]+", wanted) if re.search(r"\d", word)}

    def unlike(known: str) -> tuple[bool, float]:
        shares = any(word in known.lower() or known.lower() in word for word in words)
        return not shares, -SequenceMatcher(None, wanted[:100], known.lower()).ratio()

    known = [gpu.name for gpu in data_sheets.gpus()]
    return ", ".join(sorted(known, key=unlike)[:_NAMED])


def _shown(name: str) -> str:
    clean = "".join(char if char.isprintable() else " " for char in name)
    return clean if len(clean) <= 60 else clean[:59] + "…"
