"""A printout of collect-env as an observation: the machine's GPUs and CPUs, the vLLM that is installed there, and the
variables of the shell that ran it. None of it need be the server's own, so a log and a command are believed before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.sources.collect_env import document
from vllm_doctor.sources.collect_env.document import CollectEnv
from vllm_doctor.sources.gpu import gpu, looks, printed
from vllm_doctor.sources.gpu.gpu import GpuUse, GpuView
from vllm_doctor.vllm import gpu_names, gpus
from vllm_doctor.vllm.environment import is_shown, number_or_text

ORIGIN = "collect-env"

_VERSION = re.compile(r"v?(\d{1,4}\.\d{1,4}[\w.+-]{0,80})")
_UNTAGGED = "0.1.dev"
"""How a build calls itself that was made without the tags of its releases."""
_DEVICES = frozenset({"cpu", "tpu", "xpu", "hpu", "npu", "neuron"})
_OF_PACKAGES = {"torch-xla": "tpu", "torch_xla": "tpu", "torch-npu": "npu", "torch_npu": "npu"}
_MAX_WORDS = 80
"""Characters of a version that a note repeats."""
_SPAN = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)


def examine(text: str, target: str, patient: str, wanted: int | None = None) -> Observation:
    """What the first printout in the text tells. `wanted`: GPUs that the server uses, where a command says so.

    Raises SourceError where there is none.
    """
    told = document.read(text)
    if not told.fields:
        raise SourceError("no-collect-env", f"{target}: no output of collect-env stands in it")
    view = _view(told, target)
    return Observation(
        SourceKind.COLLECT_ENV,
        target,
        facts={name: _of_here(reading) for name, reading in _facts(told, view, wanted).items()},
        notes=tuple(_notes(told, view)),
        patient=patient,
    )


def _of_here(reading: Reading) -> Reading:
    return replace(reading, origin=ORIGIN) if isinstance(reading, Known) else reading


def _facts(told: CollectEnv, view: GpuView | None, wanted: int | None) -> dict[str, Reading]:
    found = _cpus(told)
    if version := _version(told):
        found["vllm_version"] = Known(version)
    if device := _device(told):
        found["device_written"] = Known(device)
    for name, text in told.variables.items():
        if is_shown(name):
            found[f"${name}"] = Known(number_or_text(text))
    if view is not None:
        found |= _nvidia(view, GpuUse(visible=told.variables.get("CUDA_VISIBLE_DEVICES"), wanted=wanted))
    return found | _amd(told)


# --- vLLM -----------------------------------------------------------------------------------------------------------


def _version(told: CollectEnv) -> str:
    """The release, or the commit after one; "" where neither is told."""
    match = _VERSION.match(told.told("vllm version"))
    return "" if match is None or match[1].startswith(_UNTAGGED) else match[1]


def _device(told: CollectEnv) -> str:
    """What vLLM runs on there, where it is no GPU of NVIDIA's or AMD's; "" where nothing says so."""
    said = [told.variables.get("VLLM_TARGET_DEVICE", ""), told.platform]
    if told.told("neuron sdk version").startswith("("):  # an exit code and a table; torch-xla is there, too
        said.append("neuron")
    if "PYTORCH_NPU_INSTALL_PATH" in told.variables or "vllm ascend version" in told.fields:
        said.append("npu")
    said += [device for package, device in _OF_PACKAGES.items() if package in told.packages]
    if "+cpu" in told.told("pytorch version") + told.packages.get("torch", ""):
        said.append("cpu")
    return next((device for device in said if device in _DEVICES), "")


# --- GPUs -----------------------------------------------------------------------------------------------------------


def _view(told: CollectEnv, target: str) -> GpuView | None:
    """The GPUs of NVIDIA's that it lists, with the matrix of how they are linked."""
    try:
        view = printed.view("\n".join(told.lines).encode("utf-8", "replace"), target)
    except UsageError as error:
        raise SourceError("no-collect-env", str(error)) from None
    return view if view is not None and view.gpus else None


def _nvidia(view: GpuView, use: GpuUse) -> dict[str, Reading]:
    """What the list and the matrix tell, and the data sheet of the rest; of a part of a GPU there is none."""
    seen: dict[str, Reading] = {
        fact: reading for fact, reading in gpu.facts(view, use).items() if isinstance(reading, Known)
    }
    is_part = any(one.mig_profile for one in view.gpus)
    names = {one.name for one in view.gpus}
    named = gpu_names.named(names.pop()) if len(names) == 1 and not is_part else None
    sheet: dict[str, Reading] = {} if named is None else {n: Known(v) for n, v in gpus.figures(named.gpu).items()}
    return sheet | seen


def _amd(told: CollectEnv) -> dict[str, Reading]:
    """AMD's GPUs: PyTorch tells the name of the first, rocm-smi how many there are and what links them."""
    if not told.told("rocm used to build pytorch"):
        return {}
    named = _amd_named(told)
    figures: dict[str, Value] = {} if named is None else {**gpus.figures(named.gpu)}
    count = len(told.rocm_links)
    links = {link for row in told.rocm_links for link in row} & {"XGMI", "PCIE"}
    if count:
        figures["gpus_on_host"] = float(count)
    if count == 1:
        figures["gpus"] = 1.0
    if len(links) == 1:
        is_linked = links == {"XGMI"}
        figures |= {"nvlink": is_linked, "gpu_link": "nvlink" if is_linked else "pcie"}
    return {fact: Known(value) for fact, value in figures.items()}


def _amd_named(told: CollectEnv) -> gpu_names.Named | None:
    """The GPU of "AMD Instinct MI250X/MI250 (gfx90a:sramecc+:xnack-)"; of two names the first."""
    name, other, _ = told.told("gpu models and configuration").partition(" (")[0].partition("/")
    named = gpu_names.named(name) if name else None
    return replace(named, assumptions=(f"the GPU is taken for {named.gpu.name}",)) if named and other else named


# --- CPUs -----------------------------------------------------------------------------------------------------------


def _cpus(told: CollectEnv) -> dict[str, Reading]:
    """The machine's CPUs. lscpu shows all of them in a container, too, which may be granted fewer; and the clock that
    it shows is that of CPUs at rest."""
    online, last = _online(told.cpu.get("online", ""))
    if not online:
        return {}
    found: dict[str, Reading] = {"last_cpu": Known(float(last))}
    if told.nodes:
        found["numa_nodes"] = Known(float(told.nodes))
    found |= {name: _at_most(float(online)) for name in ("cpus_usable", "cpus_allowed")}
    threads = _count(told.cpu.get("threads", ""))
    if threads is not None:
        cores = max(1.0, online // threads)
        found |= {"threads_per_core": Known(threads), "cores_of_host": Known(cores), "cores_usable": _at_most(cores)}
    return found


def _at_most(count: float) -> Known:
    return Known(count, low=1.0, high=count)


def _online(text: str) -> tuple[int, int]:
    """How many CPUs a list like "0-23,48-71" has, and the last of them; (0, 0) of what is no such list."""
    count, last = 0, -1
    for part in text.split(","):
        span = _SPAN.fullmatch(part.strip())
        first, final = (int(span[1]), int(span[2] or span[1])) if span else (0, -1)
        if not last < first <= final:
            return 0, 0
        count, last = count + final - first + 1, final
    return count, last


def _count(text: str) -> float | None:
    """A whole number above 0; a dash is how lscpu writes that it does not know."""
    return float(text) if re.fullmatch(r"[1-9]\d{0,4}", text, re.ASCII) else None


# --- in words -------------------------------------------------------------------------------------------------------


def _notes(told: CollectEnv, view: GpuView | None) -> Iterator[str]:
    installed = ", ".join(part for part in _installed(told) if part)
    if installed:
        yield installed
    if told.told("vllm version").startswith(_UNTAGGED):
        yield f"vLLM {told.told('vllm version').split()[0]}: a build without a release's number"
    if told.others:
        yield f"{told.others + 1} outputs of collect-env stand in it: the first is read"
    if told.told("rocm used to build pytorch") and (amd := _amd_named(told)):
        yield from amd.assumptions
    if view is not None:
        yield from (note for note in view.notes if note not in (looks.NO_TABLE, looks.NO_CLOCKS))
    if told.variables:
        yield "its variables are of the shell that ran it: the server's may be others"


def _installed(told: CollectEnv) -> Iterator[str]:
    """ "PyTorch 2.9.1+cu129"."""
    for name, said in (
        ("PyTorch", told.told("pytorch version")),
        ("CUDA", told.told("cuda used to build pytorch")),
        ("ROCm", told.told("rocm used to build pytorch")),
        ("NCCL", next((told.packages[name] for name in sorted(told.packages) if "-nccl-" in name), "")),
        ("Transformers", told.packages.get("transformers", "")),
        ("FlashInfer", told.packages.get("flashinfer-python", told.packages.get("flashinfer", ""))),
        ("Triton", told.packages.get("triton", "")),
        ("driver", told.told("nvidia driver version")),
        ("Python", told.told("python version").split(" ")[0]),
        ("", told.told("os")),
    ):
        yield f"{name} {said[:_MAX_WORDS]}".strip() if said else ""
