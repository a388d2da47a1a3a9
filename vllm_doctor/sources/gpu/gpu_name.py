"""GPUs that the user names (--gpu 8xH100) where none can be seen: what their data sheets say of them."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import gpu_names
from vllm_doctor.vllm import gpus as data_sheets

OPTION = "--gpu"

_MOST = 1024


@dataclass(frozen=True)
class NamedGpu:
    """`text`: as it was given; `count`: None where the user did not say; `gpu`: None where no data sheet is known."""

    text: str
    count: int | None
    gpu: data_sheets.Gpu | None
    notes: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return f"{OPTION} {_shown(self.text)}"

    def examine(self, patient: str) -> Observation:
        """What is known of the GPU by its name."""
        return Observation(SourceKind.GPU_NAME, self.target, facts=facts(self), notes=self.notes, patient=patient)


def parse(text: str) -> NamedGpu:
    """The GPU that is meant by "H100", "NVIDIA A100-SXM4-80GB", "8xL40S", "p5.48xlarge"; of an unknown one, a note.

    Raises UsageError where the text is no name at all, or counts what no server has.
    """
    said = " ".join(text.split())
    told = gpu_names.counted(text)
    for count in (told.count, told.nodes):
        if count is not None and not 1 <= count <= _MOST:
            raise UsageError(f"{OPTION}: {count} GPUs: write a number from 1 to {_MOST}, as in {OPTION} 8xH100")
    if not told.name or not said.isprintable():
        raise UsageError(f"{OPTION} {_shown(text)!r}: write the name of a GPU, as in {OPTION} 8xH100")
    found = gpu_names.named(text)
    if found is None and told.count is not None and gpu_names.is_number_alone(told.name):
        note = f"which GPUs these {told.count} are is unknown; speed is not judged"
        return NamedGpu(said, told.count, None, (note,))
    if found is None:
        near = ", ".join(data_sheets.nearest(told.name))
        is_near = f"; nearest: {near}" if near else ""
        note = f"GPU {_shown(told.name)!r} is not in the table{is_near}; speed is not judged"
        return NamedGpu(said, told.count, None, (note,))
    return NamedGpu(said, found.count, found.gpu, found.assumptions)


def facts(named: NamedGpu) -> dict[str, Reading]:
    """The figures of its data sheet, and gpus_on_host where a number was given."""
    told: dict[str, Value] = {} if named.gpu is None else {**data_sheets.figures(named.gpu)}
    if named.count is not None:
        told["gpus_on_host"] = float(named.count)
    return {name: Known(value, origin=OPTION) for name, value in told.items()}


def _shown(name: str) -> str:
    clean = "".join(char if char.isprintable() else " " for char in name)
    return clean if len(clean) <= 60 else clean[:59] + "…"
