"""The recipes of vllm-project/recipes as rows of facts: what each sets for a model on a GPU where it was verified.

usage: python -m tests.lab.recipes CLONE

CLONE: the repository as git clones it. Writes vllm_doctor/vllm/data/recipes.jsonl. Taken are names, versions, flags and
variables alone; a recipe for another program than `vllm serve`, and hardware of which no one says that it was verified,
are left out. What a recipe calls a feature (parsers, drafts) is a choice of its reader, and left out, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import command_line, flags

OUT = Path(__file__).parents[2] / "vllm_doctor" / "vllm" / "data" / "recipes.jsonl"
GPUS = {
    "a100": "A100", "h100": "H100", "h200": "H200", "h20": "H20", "b200": "B200", "b300": "B300", "gb200": "GB200",
    "gb300": "GB300", "mi300x": "MI300X", "mi325x": "MI325X", "mi350x": "MI350X", "mi355x": "MI355X",
    "dgx_spark_gb10": "GB10", "rtx_pro_6000": "RTX PRO 6000", "rtx_5090": "RTX 5090",
}  # fmt: skip
"""The recipes' words for GPUs of which the doctor knows the figures."""
GENERATIONS = {
    "hopper": ("h100", "h200", "h20"),
    "blackwell": ("b200", "b300", "gb200", "gb300", "dgx_spark_gb10", "rtx_pro_6000", "rtx_5090"),
    "amd": ("mi300x", "mi325x", "mi350x", "mi355x"),
}
SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD")


def git(clone: str, *words: str) -> str:
    return subprocess.run(["git", "-C", clone, *words], text=True, stdout=subprocess.PIPE, check=True).stdout


def overrides(given: Mapping[str, Any] | None, gpu: str) -> Mapping[str, Any]:
    """Those of the GPU, else of its generation or maker."""
    named = given or {}
    wider = [name for name, gpus in GENERATIONS.items() if gpu in gpus]
    wider += [] if gpu in GENERATIONS["amd"] else ["nvidia"]
    found: Mapping[str, Any] = next((named[name] for name in (gpu, *wider, "default") if named.get(name)), {})
    return found


def rows(path: str, recipe: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    model = recipe["model"]
    verified = [
        gpu for gpu, word in (recipe["meta"].get("hardware") or {}).items() if word == "verified" and gpu in GPUS
    ]
    for name, variant in (recipe.get("variants") or {}).items():
        since = str(variant.get("min_vllm_version") or model.get("min_vllm_version") or "")
        if flags.number(since) is None or variant.get("nightly_required") or model.get("nightly_required"):
            continue
        for gpu in verified:
            if variant.get("precision") == "nvfp4" and gpu not in GENERATIONS["blackwell"]:
                continue  # the model was run there, but not in this form
            parts = [model, variant, *(overrides(one.get("hardware_overrides"), gpu) for one in (recipe, variant))]
            words = [str(word) for part in parts for key in ("base_args", "extra_args") for word in part.get(key) or []]
            env = {
                k: str(v)
                for part in parts
                for key in ("base_env", "extra_env")
                for k, v in (part.get(key) or {}).items()
            }
            tp = variant.get("tp")
            tp = tp.get(gpu) if isinstance(tp, dict) else tp
            words += ["--tensor-parallel-size", str(tp)] if tp else []
            named = variant.get("model_id") or model["model_id"]
            parsed = command_line.parse(["vllm", "serve", named, *words], lambda _: Reason.ABSENT).flags
            if any(not flags.is_flag(flag.partition(".")[0]) for flag in parsed):
                continue
            yield {
                "model": named, "gpu": GPUS[gpu], "since": since, "flags": dict(parsed),
                "env": {k: v for k, v in env.items() if not any(word in k for word in SECRET)},
                "source": f"{path} {name}",
            }  # fmt: skip


def main() -> None:
    clone = sys.argv[1]
    commit = git(clone, "rev-parse", "HEAD").strip()
    paths = [
        path for path in git(clone, "ls-tree", "-r", "--name-only", "HEAD").splitlines() if path.startswith("models/")
    ]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    alike: dict[str, dict[str, Any]] = {}
    for path in paths:
        if path.endswith(".yaml") and (recipe := yaml.safe_load(git(clone, "show", f"HEAD:{path}"))):
            for row in rows(path, recipe):
                found.setdefault((row["model"], row["gpu"]), row)
    head = {"repository": "vllm-project/recipes", "commit": commit, "license": "Apache-2.0"}
    for row in found.values():  # GPUs that are set alike stand in one row
        gpu = row.pop("gpu")
        alike.setdefault(json.dumps(row), {**row, "gpus": []})["gpus"].append(gpu)
    OUT.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in (head, *alike.values())))
    print(f"{len(found)} of model and GPU, {len({model for model, _ in found})} models, {len(alike)} rows")


if __name__ == "__main__":
    main()
