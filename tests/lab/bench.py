"""Benchmarks that are made wrongly, and well, against a real vLLM: what the doctor says of each.

usage: python -m tests.lab.bench [NAME...] [--seeds N] [--correct]     these of benchmarks.yaml (all), N seeds each (3)

Each mistake must be found in the saved result and in what the benchmark printed. `--correct` also runs the command that
the doctor prints for the first seed of each, and shows its figure beside the wrong one. 1: a mistake was not found, or
something was found in a sound benchmark. A sound benchmark's client comes before all others on this machine, as one on
a machine of its own would.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.lab.doctor import NO_ANSWER, doctor
from tests.lab.machine import before_all_others
from tests.lab.relay import relayed
from tests.lab.server import LAB, OUT, VLLM, must_be_installed, vllm

HERE = Path(__file__).resolve().parent
KEPT = OUT / "bench"
SERVER = ("--max-num-seqs", "16")
TIME_LIMIT = 600
SOUND_SECONDS = 30.0
_PRINTED = {"output_throughput": "Output token throughput (tok/s)"}
"""Keys of a result, as the benchmark prints them."""


def benchmark(url: str, flags: Sequence[str], name: str, is_first: bool = False) -> Path:
    """Run `vllm bench serve` with these flags; the file with its result, beside it what it printed. `is_first`: the
    client comes before all others."""
    KEPT.mkdir(parents=True, exist_ok=True)
    words = [str(VLLM / "vllm"), "bench", "serve", "--model", "tiny", "--tokenizer", str(LAB / "tiny")]
    words += ["--base-url", url, "--disable-tqdm", "--save-result", "--result-dir", str(KEPT)]
    words += ["--result-filename", f"{name}.json", *flags]
    env = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    running = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if is_first:
        before_all_others(running.pid)
    try:
        stdout, stderr = running.communicate(timeout=TIME_LIMIT)
    finally:
        running.kill()
    (KEPT / f"{name}.txt").write_text(f"$ vllm bench serve {shlex.join(words[3:])}\n{stdout}{stderr}")
    if running.returncode:
        raise RuntimeError(f"{name}: {stderr[-2000:]}")
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
    """The result with some of its figures multiplied, saved and printed."""
    result, printed = json.loads(path.read_text()), path.with_suffix(".txt").read_text()
    other = path.with_name(f"{path.stem}-edited.json")
    for key, factor in factors.items():
        result[key] *= factor
        printed = re.sub(rf"({re.escape(_PRINTED[key])}: +)[\d.]+", rf"\g<1>{result[key]:.2f}", printed)
    other.write_text(json.dumps(result))
    other.with_suffix(".txt").write_text(printed)
    return other


def examined(paths: Sequence[Path], *more: str) -> dict[str, Any]:
    answer = doctor(*map(str, paths), *more, "--json")
    return dict(json.loads(answer.stdout or NO_ANSWER))


def made_by(flags: Sequence[str]) -> tuple[str, str]:
    """The benchmark's command, for the doctor."""
    return "--command", shlex.join(["vllm", "bench", "serve", "--model", "tiny", *flags])


def planted(url: str, name: str, mistake: Mapping[str, Any], common: Sequence[Any], seed: int, correct: bool) -> bool:
    """Whether the mistake is found, in the saved result and in the printed one."""
    flags = [*merged(common, mistake["flags"], mistake.get("without", ())), "--seed", str(seed)]
    with relayed(url, mistake["buffered"]) if "buffered" in mistake else contextlib.nullcontext(url) as asked:
        paths = [benchmark(asked, flags, f"{name}-{seed}")]
        if mistake.get("twice"):
            paths.append(benchmark(asked, flags, f"{name}-{seed}-again"))
    if "edit" in mistake:
        paths = [edited(paths[0], mistake["edit"])]
    beside = (url,) if "server" in mistake else ()
    report = examined(paths, *beside, *made_by(flags))
    found = {finding["rule"]: finding for finding in report["findings"]}
    finding = found.get(mistake["rule"])
    rules = [one["rule"] for one in examined([path.with_suffix(".txt") for path in paths], *beside)["findings"]]
    in_text = mistake["rule"] in rules or bool(mistake.get("not_printed"))
    _show(finding is not None, f"{name:<14}{seed:<6}", report, paths[-1], found)
    if not in_text:
        print(f"FAIL {name:<14}{seed:<6}printed: {', '.join(rules) or 'nothing'}")
    remedies = finding["remedies"] if finding else []
    if correct and (commands := [run for remedy in remedies for run in remedy.get("run", [])]):
        words = shlex.split(commands[0])[3:]
        known = [word for place, word in enumerate(words) if not {"--model", "--base-url"} & {word, words[place - 1]}]
        print(f"     {'corrected':<20}{'':<10}{_figures(benchmark(url, known, f'{name}-{seed}-corrected'))}  {words}")
    return finding is not None and in_text


def sound(url: str, name: str, flags: Sequence[Any], common: Sequence[Any], seed: int, prompts: dict[str, int]) -> bool:
    """Whether nothing is found. `prompts`: how many it takes; a faster server gets more, so that it is long enough."""
    words = [*merged(common, flags), "--seed", str(seed)]
    if name in prompts:
        words = merged(words, ["--num-prompts", prompts[name]])
    path = benchmark(url, words, f"{name}-{seed}", is_first=True)
    result = json.loads(path.read_text())
    if result["duration"] < SOUND_SECONDS:
        prompts[name] = round(1.3 * result["completed"] * SOUND_SECONDS / result["duration"])
        words = merged(words, ["--num-prompts", prompts[name], "--seed", seed + 1000])
        path = benchmark(url, words, f"{name}-{seed}", is_first=True)
    report = examined([path], *made_by(words))
    found = [finding["rule"] for finding in report["findings"]]
    found += [f"printed: {finding['rule']}" for finding in examined([path.with_suffix(".txt")])["findings"]]
    _show(not found, f"{name:<14}{seed:<6}", report, path, found)
    return not found


def _show(is_well: bool, what: str, report: Mapping[str, Any], path: Path, found: Iterable[str]) -> None:
    mark = "ok  " if is_well else "FAIL"
    print(f"{mark} {what}{report['verdict']:<10}{_figures(path)}  {', '.join(found)}", flush=True)


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
    seeds = range(100, 100 + options.seeds)
    own = [name for name in names if "server" in known["mistakes"].get(name, {})]
    prompts: dict[str, int] = {}
    well = True
    if len(own) < len(names):
        with vllm(SERVER, "bench") as url:
            for name, seed in ((name, seed) for name in names if name not in own for seed in seeds):
                correct = options.correct and seed == seeds[0]
                if name in known["mistakes"]:
                    well &= planted(url, name, known["mistakes"][name], known["common"], seed, correct)
                else:
                    well &= sound(url, name, known["sound"][name], known["common"], seed, prompts)
    for name in own:
        mistake = known["mistakes"][name]
        if mistake.get("fresh"):  # a server for each
            for seed in seeds:
                with vllm([*SERVER, *mistake["server"]], f"bench-{name}") as url:
                    well &= planted(url, name, mistake, known["common"], seed, options.correct and seed == seeds[0])
            continue
        with vllm([*SERVER, *mistake["server"]], f"bench-{name}") as url:
            for seed in seeds:
                well &= planted(url, name, mistake, known["common"], seed, options.correct and seed == seeds[0])
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
