"""fixtures/speed/*.tsv: servers that others measured, as what the doctor would know of each: its facts and its load.

A row without a closed loop tells the rate at which requests came: how many ran at a time follows from how long they took
(Little's law; of a run of few prompts, with its ramps).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.model.reading import Known, Value
from vllm_doctor.vllm import checkpoints, gpus

FILE = Path(__file__).parents[2] / "fixtures" / "speed" / "measured-speed.tsv"
_MOST_SEQUENCES = 256
_UNTOLD_MS = 15_000
"""A time to first token from which on nobody knows how many requests ran at a time."""
_QUEUED_MS = 4000
"""A time to first token from which on it is a queue that is measured."""


@dataclass(frozen=True)
class Row:
    """Times in seconds. `concurrency`: requests that ran at a time; `is_open`: as follows from a rate."""

    gpu: str
    model: str
    family: str
    version: int
    concurrency: float
    is_open: bool
    input_tokens: float
    output_tokens: float
    tpot: float
    ttft: float | None
    facts: Mapping[str, Value]
    flags: Mapping[str, Value]
    source: str
    is_doubtful: bool
    """Whether its figures contradict each other: more operations a second than such a GPU makes."""


def load(path: Path = FILE) -> list[Row]:
    """The rows of which everything that counts is known."""
    with path.open(encoding="utf-8") as file:
        rows = (_row(cells) for cells in csv.DictReader(file, delimiter="\t"))
        return [row for row in rows if row is not None]


def _row(cells: Mapping[str, str]) -> Row | None:
    if "regression" in cells["flags"] and _release(cells["vllm_version"]) == 29:
        return None  # sick, as its source says
    flags = _flags(cells)
    model = checkpoints.facts(_name(cells), flags)
    gpu = gpus.gpu(_GPUS.get(cells["gpu"], cells["gpu"]))
    input_tokens, output_tokens = _length(cells["in_len"]), _length(cells["out_len"])
    if gpu is None or not model or not cells["tpot_ms"] or input_tokens is None or output_tokens is None:
        return None
    tpot, ttft = float(cells["tpot_ms"]) / 1000, float(cells["ttft_ms"] or 0) / 1000
    if ttft > _UNTOLD_MS / 1000:
        return None
    rate = re.match(r"open loop ([\d.]+)", cells["concurrency"])
    concurrency = (
        _in_flight(float(rate[1]), _number(r"(\d+) prompts", cells["flags"]), ttft + output_tokens * tpot)
        if rate
        else float(cells["concurrency"]) * float(flags["--data-parallel-size"])  # of each replica, as its times show
    )
    told: dict[str, Value] = {
        "gpu_bandwidth": gpu.bandwidth,
        "gpu_link": gpu.link,
        "vllm_release": float(_release(cells["vllm_version"])),
        "load_requests": concurrency,
        "load_input_tokens": input_tokens,
        "load_output_tokens": output_tokens,
    }
    optional = {
        "gpu_flops": gpu.bf16,
        "gpu_flops_fp8": gpu.fp8,
        "gpu_flops_fp4": gpu.fp4,
        "gpu_memory_total": gpu.memory,
    }
    told |= {name: value for name, value in optional.items() if value is not None}
    if gpu.capability is not None:
        told["gpu_compute_capability"] = float(gpu.capability)
    told |= {name: fact.value for name, fact in model.items() if isinstance(fact, Known)}
    return Row(
        gpu=gpu.name,
        model=cells["model"],
        family=_family(cells["model"]),
        version=_release(cells["vllm_version"]),
        concurrency=concurrency,
        is_open=rate is not None,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        tpot=tpot,
        ttft=ttft if 0 < ttft < _QUEUED_MS / 1000 else None,
        facts=told,
        flags=flags,
        source=cells["source"],
        is_doubtful="gap-analysis" in cells["flags"],
    )


_GPUS = {"H200 SXM": "H200", "B200 SXM": "B200", "H100 SXM 80GB": "H100", "Tesla V100S-PCIE-32GB": "V100S-PCIE-32GB"}


def _flags(cells: Mapping[str, str]) -> dict[str, Value]:
    """What the row says of the server's flags."""
    dtype = cells["dtype"].lower()
    ranks = _number(r"moe_tp=(\d+)", cells["flags"]) * _number(r"moe_ep=(\d+)", cells["flags"])
    data_parallel = _number(r"\bdp=(\d+)", cells["flags"]) or 1
    flags: dict[str, Value] = {
        # Where the two contradict each other (a model that cannot fit), the experts' ranks are right.
        "--tensor-parallel-size": max(float(cells["tp"]), ranks // data_parallel),
        "--data-parallel-size": float(data_parallel),
        "--pipeline-parallel-size": float(_number(r"\bpp=(\d+)", cells["flags"]) or 1),
    }
    name = cells["model"].lower()
    if "fp8" in dtype and "fp8" not in name:
        flags["--quantization"] = "fp8"
    if "InferenceX" in cells["flags"] and ("llama-3.1-70b" in name or "nvfp4" in _name(cells)):
        flags["--kv-cache-dtype"] = "fp8"  # as its scripts and these checkpoints have it
    return flags


def _name(cells: Mapping[str, str]) -> str:
    """The checkpoint: of one that was quantised to NVFP4 the name tells it."""
    is_nvfp4 = "nvfp4" in cells["dtype"].lower() and "gpt-oss" not in cells["model"]
    return f"{cells['model']}-nvfp4" if is_nvfp4 else cells["model"]


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


def _length(text: str) -> float | None:
    """ "1024", "ShareGPT-4 p50 280 p99 2100", "mean 217"."""
    match = re.search(r"(?:p50|mean) (\d+)", text) or re.match(r"~?(\d+)", text)
    return float(match[1]) if match else None


def _release(text: str) -> int:
    """The minor number; of a build without one, the release of its day."""
    match = re.match(r"0\.(\d+)\.", text)
    if match:
        return int(match[1])
    return 11 if "(2025-" in text else 18


def _family(model: str) -> str:
    name = model.rpartition("/")[2].lower()
    for family in ("gpt-oss", "minimax", "kimi", "qwen3.6", "qwen3-235b"):
        if family in name:
            return family
    return "qwen2" if "qwen" in name or "qwq" in name or "acemath" in name else "llama"


def _in_flight(rate: float, prompts: int, latency: float) -> float:
    """Requests that ran at a time, as seen by a request that did."""
    if not prompts:
        return max(1.0, min(rate * latency, _MOST_SEQUENCES))
    arriving = prompts / rate
    ramp, rest = min(latency, arriving), abs(latency - arriving)
    most = rate * ramp
    return max(1.0, min(most * (2 * ramp / 3 + rest) / (ramp + rest), _MOST_SEQUENCES))
