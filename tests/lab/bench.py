"""Benchmarks that are made wrongly, and well, against a real vLLM: what the doctor says of each.

usage: python -m tests.lab.bench [NAME...] [--seeds N] [--correct]     these of benchmarks.yaml (all), N seeds each (3)

`--correct` also runs the command that the doctor prints for each mistake, and shows its figure beside the wrong one.
1: a mistake was not found, or something was found in a sound benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.lab.doctor import NO_ANSWER, doctor
from tests.lab.server import LAB, OUT, VLLM, must_be_installed, vllm

HERE = Path(__file__).resolve().parent
KEPT = OUT / "bench"
SHARED_CORES = "bench-client-limit"
"""True in the lab, where the client has no cores of its own."""
TIME_LIMIT = 600
SOUND_SECONDS = 30.0


def benchmark(url: str, flags: Sequence[str], name: str) -> Path:
    """Run `vllm bench serve` with these flags; the file with its result, beside it what it printed."""
    KEPT.mkdir(parents=True, exist_ok=True)
    words = [str(VLLM / "vllm"), "bench", "serve", "--model", "tiny", "--tokenizer", str(LAB / "tiny")]
    words += ["--base-url", url, "--disable-tqdm", "--save-result", "--result-dir", str(KEPT)]
    words += ["--result-filename", f"{name}.json", *flags]
    env = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=TIME_LIMIT)
    (KEPT / f"{name}.txt").write_text(f"$ {shlex.join(words)}\n{done.stdout}{done.stderr}")
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return KEPT / f"{name}.json"


def merged(common: Sequence[Any], flags: Sequence[Any], without: Sequence[str] = ()) -> list[str]:
    """The flags, each once: the later one wins."""
    found: dict[str, list[str]] = {}
    for word in map(str, (*common, *flags)):
        if word.startswith("--"):
            found[word] = []
            last = word
        else:
            found[last].append(word)
    return [word for name, values in found.items() if name not in without for word in (name, *values)]


def edited(path: Path, factors: Mapping[str, float]) -> Path:
    """The result with some of its figures multiplied."""
    result = json.loads(path.read_text())
    other = path.with_name(f"{path.stem}-edited.json")
    other.write_text(json.dumps(result | {key: result[key] * factor for key, factor in factors.items()}))
    return other


def examined(paths: Sequence[Path], flags: Sequence[str]) -> dict[str, Any]:
    made_by = shlex.join(["vllm", "bench", "serve", "--model", "tiny", *flags])
    answer = doctor(*map(str, paths), "--command", made_by, "--json")
    return dict(json.loads(answer.stdout or NO_ANSWER))


def planted(url: str, name: str, mistake: Mapping[str, Any], common: Sequence[Any], seed: int, correct: bool) -> bool:
    """Whether the mistake is found."""
    flags = [*merged(common, mistake["flags"], mistake.get("without", ())), "--seed", str(seed)]
    paths = [benchmark(url, flags, f"{name}-{seed}")]
    if mistake.get("twice"):
        paths.append(benchmark(url, flags, f"{name}-{seed}-again"))
    if "edit" in mistake:
        paths = [edited(paths[0], mistake["edit"])]
    report = examined(paths, flags)
    found = {finding["rule"]: finding for finding in report["findings"]}
    finding = found.get(mistake["rule"])
    _show(finding is not None, f"{name:<14}{seed:<6}", report, paths[-1], found)
    remedies = finding["remedies"] if finding else []
    if correct and (commands := [run for remedy in remedies for run in remedy.get("run", [])]):
        words = shlex.split(commands[0])[3:]
        known = [word for place, word in enumerate(words) if not {"--model", "--base-url"} & {word, words[place - 1]}]
        print(f"     {'corrected':<20}{'':<10}{_figures(benchmark(url, known, f'{name}-{seed}-corrected'))}")
    return finding is not None


def sound(url: str, name: str, flags: Sequence[Any], common: Sequence[Any], seed: int) -> bool:
    """Whether nothing is found. A faster server gets more requests, so that it takes long enough."""
    words = [*merged(common, flags), "--seed", str(seed)]
    path = benchmark(url, words, f"{name}-{seed}")
    result = json.loads(path.read_text())
    if result["duration"] < SOUND_SECONDS:
        more = round(1.3 * result["completed"] * SOUND_SECONDS / result["duration"])
        words = [*merged(words, ["--num-prompts", more]), "--seed", str(seed + 1000)]
        path = benchmark(url, words, f"{name}-{seed}")
    report = examined([path], words)
    found = [finding["rule"] for finding in report["findings"] if finding["rule"] != SHARED_CORES]
    _show(not found, f"{name:<14}{seed:<6}", report, path, found)
    return not found


def _show(is_well: bool, what: str, report: Mapping[str, Any], path: Path, found: Iterable[str]) -> None:
    print(f"{'ok  ' if is_well else 'FAIL'} {what}{report['verdict']:<10}{_figures(path)}  {', '.join(found)}")


def _figures(path: Path) -> str:
    result = json.loads(path.read_text())
    return (
        f"{result['completed']:>5} in {result['duration']:6.1f} s {result['output_throughput']:8.0f} tok/s"
        f"  TTFT {result['mean_ttft_ms']:7.1f} ms  TPOT {result['mean_tpot_ms']:6.2f} ms"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--correct", action="store_true")
    options = parser.parse_args()
    must_be_installed()
    known = yaml.safe_load((HERE / "benchmarks.yaml").read_text())
    names = options.names or [*known["mistakes"], *known["sound"]]
    well = True
    with vllm(["--max-num-seqs", "16"], "bench") as url:
        for name in names:
            for seed in range(100, 100 + options.seeds):
                if name in known["mistakes"]:
                    well &= planted(url, name, known["mistakes"][name], known["common"], seed, options.correct)
                else:
                    well &= sound(url, name, known["sound"][name], known["common"], seed)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
