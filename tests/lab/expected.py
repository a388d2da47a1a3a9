"""What is expected of a real vLLM, on a CPU whose bandwidth was measured, beside what it does: healthy, with faults.

usage: python -m tests.lab.expected [NAME...]     healthy loads and faults (expected.yaml; all): 1 if one is not so
       python -m tests.lab.expected --calibrate   measure the loads that the CPU's coefficients are fitted to, into
                                                  fixtures/speed/cpu-speed.tsv; then: python -m tests.speed.fit --write

A healthy server must be within the range, and well. A fault must be outside of it, or be told: its rule is found, or
what is missing is explained.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.lab.doctor import NO_ANSWER, doctor
from tests.lab.run import hogged, limited
from tests.lab.server import LAB, OUT, PAUSE_SECONDS, VLLM, loaded, must_be_installed, vllm

HERE = Path(__file__).resolve().parent
ROWS = HERE.parents[1] / "fixtures" / "speed" / "cpu-speed.tsv"
KEPT = OUT / "expected"
MEASURE_SECONDS = 8.0
LOOKS = 2
_COLUMNS = (
    "gpu", "count", "tp", "model", "params_b", "dtype", "vllm_version", "concurrency", "in_len", "out_len", "out_tok_s",
    "ttft_ms", "tpot_ms", "flags", "source",
)  # fmt: skip
_PARAMETERS = {"lab-256x4": 0.0037, "lab-768x16": 0.115}


def device() -> str:
    """This machine, as --gpu takes it."""
    words = [str(VLLM / "python"), str(HERE / "device.py")]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return f"cpu {told['bandwidth'] / 1e9:.1f}GB/s {told['flops'] / 1e12:.3f}TFLOPS"


# ---- what the coefficients are fitted to


def calibrate(known: Mapping[str, Any], cpu: str) -> None:
    rows = []
    for name, folder in known["models"].items():
        with vllm(known["server"], f"calibrate-{name}", model=LAB / folder) as url:
            for seed, load in enumerate(known["calibrated"]):
                rows.append(measured(name, cpu, url, {**load, "seed": seed}))
                print(rows[-1], flush=True)
    with ROWS.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, _COLUMNS, delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def measured(model: str, cpu: str, url: str, load: Mapping[str, Any]) -> dict[str, Any]:
    with loaded(url, dict(load)):
        before, start = totals(url), time.monotonic()
        time.sleep(MEASURE_SECONDS)
        after, seconds = totals(url), time.monotonic() - start
    grown = {name: after[name] - before.get(name, 0.0) for name in after}

    def mean(name: str) -> str:
        count = grown[f"vllm:{name}_seconds_count"]
        return f"{1000 * grown[f'vllm:{name}_seconds_sum'] / count:.3f}" if count else ""

    return {
        "gpu": cpu, "count": 1, "tp": 1, "model": model, "params_b": _PARAMETERS[model], "dtype": "bf16",
        "vllm_version": "0.32.0", "concurrency": load["clients"], "in_len": load["prompt"], "out_len": load["out"],
        "out_tok_s": f"{grown['vllm:generation_tokens_total'] / seconds:.1f}",
        "ttft_ms": mean("time_to_first_token"), "tpot_ms": mean("inter_token_latency"),
        "flags": f"CPU backend; closed loop, random prompts, ignore_eos; {os.cpu_count()} cores, the client's too",
        "source": f"tests/lab/expected.py --calibrate, {time.strftime('%Y-%m-%d')}",
    }  # fmt: skip


def totals(url: str) -> dict[str, float]:
    """Each counter of /metrics, without its labels."""
    found: dict[str, float] = {}
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("vllm:") and not line.partition("{")[0].endswith("_bucket"):
                name = line.partition("{")[0]
                found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
    return found


# ---- what the doctor says


def examined(name: str, url: str, cpu: str) -> dict[str, Any]:
    answer = doctor(url, "--json", "--gpu", cpu)
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name.replace(' ', '-')}.json").write_text(answer.stdout)
    return dict(json.loads(answer.stdout or NO_ANSWER))


def is_healthy(report: Mapping[str, Any]) -> bool:
    pace = (report.get("expected") or {}).get("tpot_ms") or {}
    told: list[Any] = [pace.get(key) for key in ("low", "measured", "high")]
    return report["verdict"] == "ok" and None not in told and told == sorted(map(float, told))


def is_told(report: Mapping[str, Any], rule: str) -> bool:
    speed = report.get("expected") or {}
    found = [finding["rule"] for finding in report["findings"]]
    return rule in found or speed.get("standing") == "slow" or bool(speed.get("explained"))


def row(name: str, report: Mapping[str, Any], is_well: bool) -> str:
    speed = report.get("expected") or {}
    pace = speed.get("tpot_ms") or {}
    low, typical, high, now = (pace.get(key) for key in ("low", "typical", "high", "measured"))
    found = [finding["rule"] for finding in report["findings"] if finding["role"] != "symptom"]
    explained = [one["rule"] for one in speed.get("explained", [])]
    cells = (
        "ok" if is_well else "FAIL", name, report["verdict"], speed.get("standing") or "-",
        *("-" if value is None else f"{value:.2f}" for value in (now, low, typical, high)),
        "-" if speed.get("missing") is None else f"{speed['missing']:.0%}",
        ", ".join(explained) or "-", ", ".join(found) or "-",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


HEAD = """| | what | verdict | standing | TPOT ms | low | typical | high | missing | explained by | findings |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def healthy(known: Mapping[str, Any], model: str, cpu: str, named: list[str]) -> list[tuple[str, bool]]:
    rows: list[tuple[str, bool]] = []
    shapes = {name: load for name, load in known["shapes"].items() if not named or name in named or model in named}
    if not shapes:
        return []
    with vllm(known["server"], f"healthy-{model}", model=LAB / known["models"][model]) as url:
        for seed, (name, load) in enumerate(shapes.items()):
            with loaded(url, {**load, "seed": 100 + seed}):
                for _ in range(LOOKS):
                    report = examined(f"{model} {name}", url, cpu)
                    if is_healthy(report):
                        break
                    time.sleep(PAUSE_SECONDS)
            rows.append((row(f"{model}, {name}", report, is_healthy(report)), is_healthy(report)))
            print(rows[-1][0], flush=True)
    return rows


def faulty(name: str, known: Mapping[str, Any], fault: Mapping[str, Any], cpu: str) -> tuple[str, bool]:
    rule = fault["by"] if "by" in fault else fault["finds"][0]
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(vllm(fault.get("sick", known["server"]), f"expected-{name}", fault.get("env")))
        stack.enter_context(loaded(url, fault["load"]))
        stack.enter_context(hogged(fault.get("hogs", 0)))
        stack.enter_context(limited(fault.get("quota"), url))
        for _ in range(LOOKS):
            report = examined(name, url, cpu)
            if is_told(report, rule):
                break
            time.sleep(PAUSE_SECONDS)
    told = row(name, report, is_told(report, rule)), is_told(report, rule)
    print(told[0], flush=True)
    return told


def main() -> int:
    must_be_installed()
    known = yaml.safe_load((HERE / "expected.yaml").read_text())
    cpu = device()
    print(f"--gpu '{cpu}'", flush=True)
    if sys.argv[1:] == ["--calibrate"]:
        calibrate(known, cpu)
        return 0
    named = sys.argv[1:]
    rows = [row for model in known["models"] for row in healthy(known, model, cpu, named)]
    faults = {fault["name"]: fault for fault in yaml.safe_load((HERE / "faults.yaml").read_text())}
    of_all = {name: faults[name] for name in known["faults"]} | known["of_machine"]
    rows += [faulty(name, known, fault, cpu) for name, fault in of_all.items() if not named or name in named]
    print("\n".join((f"--gpu '{cpu}'", HEAD, *(line for line, _ in rows))))
    return 0 if all(is_well for _, is_well in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
