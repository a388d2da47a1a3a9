"""fixtures/speed/*.tsv: servers that others measured, as what the doctor would know of each: facts and load.

A row without a closed loop tells the rate at which requests came: how many ran at a time follows from how long they
took (Little's law; of a run of few prompts, with its ramps).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import checkpoints, gpu_names, gpus, kv_cache, model_config, parameters

FOLDER = Path(__file__).parents[2] / "fixtures" / "speed"
FILES = (FOLDER / "measured-speed.tsv", FOLDER / "public-speed.tsv")
"""Of four benchmark collections, with all conditions; and what people publish, one by one, of all kinds of GPUs."""
ON_CPU = FOLDER / "cpu-speed.tsv"
"""Of one machine, the lab's (tests/lab/expected.py): its columns are the same, and `gpu` tells its figures."""
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
    """Whether its conditions are not all certain, or its figures contradict each other (more operations than such a GPU
    makes): it counts less."""


def load(*paths: Path) -> list[Row]:
    """The rows of which everything that counts is known."""
    found: list[Row] = []
    for path in paths or FILES:
        with path.open(encoding="utf-8") as file:
            rows = (_row(cells, path != FILES[0]) for cells in csv.DictReader(file, delimiter="\t"))
            found += [row for row in rows if row is not None]
    return found


def _row(cells: Mapping[str, str], is_public: bool) -> Row | None:
    if "regression" in cells["flags"] and _release(cells["vllm_version"]) == 29:
        return None  # sick, as its source says
    flags = _flags(cells)
    model = _of_lab(cells["model"]) or checkpoints.facts(_name(cells), flags)
    gpu = gpus.gpu(_GPUS.get(cells["gpu"], cells["gpu"])) or _stated(cells["gpu"])
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
        "vllm_release": float(_release(cells["vllm_version"])),
        "load_requests": concurrency,
        "load_input_tokens": input_tokens,
        "load_output_tokens": output_tokens,
    }
    told |= gpus.figures(gpu)
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
        is_doubtful="gap-analysis" in cells["flags"] or is_public,
    )


def _stated(name: str) -> gpus.Gpu | None:
    """A CPU with its figures."""
    named = gpu_names.named(name) if name.startswith("cpu ") else None
    return None if named is None else named.gpu


def _of_lab(name: str) -> dict[str, Reading]:
    """The facts of a model of the lab, in bfloat16, from its config.json."""
    path = FOLDER / f"{name}.json"
    if not name.startswith("lab-") or not path.exists():
        return {}
    config = outside.json(path.read_text("utf-8"))
    counted = parameters.of_model(config)
    told = model_config.facts(config) | parameters.facts(config) | kv_cache.facts(config, {})
    return told | {"model_weights": Known(2.0 * counted.all)}


_GPUS = {"H200 SXM": "H200", "B200 SXM": "B200", "H100 SXM 80GB": "H100", "Tesla V100S-PCIE-32GB": "V100S-PCIE-32GB"}


def _flags(cells: Mapping[str, str]) -> dict[str, Value]:
    """What the row says of the server's flags."""
    ranks = _number(r"moe_tp=(\d+)", cells["flags"]) * _number(r"moe_ep=(\d+)", cells["flags"])
    data_parallel = _number(r"\bdp=(\d+)", cells["flags"]) or 1
    flags: dict[str, Value] = {
        # Where the two contradict each other (a model that cannot fit), the experts' ranks are right.
        "--tensor-parallel-size": max(float(cells["tp"]), ranks // data_parallel),
        "--data-parallel-size": float(data_parallel),
        "--pipeline-parallel-size": float(_number(r"\bpp=(\d+)", cells["flags"]) or 1),
    }
    name = cells["model"].lower()
    if "InferenceX" in cells["flags"] and ("llama-3.1-70b" in name or "nvfp4" in _name(cells)):
        flags["--kv-cache-dtype"] = "fp8"  # as its scripts and these checkpoints have it
    return flags


def _name(cells: Mapping[str, str]) -> str:
    """The checkpoint, whose name then tells how its weights are stored."""
    name, dtype = cells["model"].split(" (")[0], cells["dtype"].lower()
    is_native = any(native in name.lower() for native in ("gpt-oss", "kimi", "deepseek-r1-0528", "deepseek-v3"))
    if (is_native and "nvfp4" not in dtype) or "gpt-oss" in name:
        return name
    for word, suffix in _FORMS.items():
        if word in dtype:
            return name if any(form in name.lower() for form in _FORMS) else f"{name}-{suffix}"
    return name


_FORMS = {
    "nvfp4": "nvfp4", "mxfp4": "mxfp4", "awq": "awq", "int8 gptq": "gptq-int8", "gptq": "gptq", "w8a8": "w8a8",
    "w4a16": "w4a16", "int4": "w4a16", "fp8": "fp8",
}  # fmt: skip


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


def _length(text: str) -> float | None:
    """ "1024", "ShareGPT-4 p50 280 p99 2100", "mean 217"."""
    match = re.search(r"(?:p50|mean) (\d+)", text) or re.match(r"~?(\d+)", text)
    return float(match[1]) if match else None


def _release(text: str) -> int:
    """The minor number; of a build without one, the newest release of its month."""
    match = re.match(r"0\.(\d+)", text)
    if match and int(match[1]) > 1:
        return int(match[1])
    month = re.search(r"(20\d\d)-(\d\d)", text)
    day = f"{month[1]}-{month[2]}" if month else "2026-04"
    return max((minor for since, minor in _RELEASES.items() if since <= day), default=5)


_RELEASES = {
    "2025-01": 7, "2025-03": 8, "2025-05": 9, "2025-07": 10, "2025-10": 11, "2025-12": 12, "2026-01": 14,
    "2026-02": 16, "2026-03": 17, "2026-04": 19, "2026-05": 20, "2026-06": 23, "2026-07": 25, "2026-08": 27,
}  # fmt: skip


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
