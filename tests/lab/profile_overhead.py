"""What sampling costs the server that is sampled: tokens per second with and without it, in turns.

usage: python -m tests.lab.profile_overhead [--rounds 5] [--rate 20] [--free-core]

With --free-core the server and its clients fill one CPU, and the doctor has another; else all share all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

from tests.lab.machine import cpu_times, share_stolen
from tests.lab.server import _tokens_per_second, loaded, must_be_installed, vllm

SECONDS = 15
LOAD = {"clients": 8, "prompt": 256, "out": 200}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=20)
    parser.add_argument("--free-core", action="store_true")
    options = parser.parse_args()
    ours, *others = sorted(os.sched_getaffinity(0))
    if options.free_core:
        os.sched_setaffinity(0, {ours})
    doctor = {others[0]} if options.free_core else {ours, *others}
    must_be_installed()
    pairs = []
    with vllm(["--max-model-len", "2048", "--max-num-seqs", "16"], "profile-overhead") as url, loaded(url, LOAD):
        for turn in range(options.rounds):
            order = (False, True) if turn % 2 == 0 else (True, False)
            found = dict(measured(url, is_sampled, options.rate, doctor) for is_sampled in order)
            pairs.append((found[False], found[True]))
    print(f"| round | tokens/s alone | sampled at {options.rate}/s | sampled / alone | py-spy, cores | stolen |")
    print("|---|---:|---:|---:|---:|---:|")
    for number, (alone, sampled) in enumerate(pairs, 1):
        ratio = sampled[0] / alone[0]
        stolen = max(alone[2], sampled[2])
        print(f"| {number} | {alone[0]:,.0f} | {sampled[0]:,.0f} | {ratio:.3f} | {sampled[1]:.3f} | {stolen:.0%} |")
    print(f"\nmedian of sampled / alone: {statistics.median(s[0] / a[0] for a, s in pairs):.3f}")
    return 0


def measured(url: str, is_sampled: bool, rate: int, cpus: set[int]) -> tuple[bool, tuple[float, float, float]]:
    """Tokens per second, the sampler's cores, and the share of CPU time that other virtual machines took."""
    before, sampling = cpu_times(), None
    if is_sampled:
        words = ["taskset", "--cpu-list", ",".join(map(str, cpus))]
        words += [sys.executable, "-m", "vllm_doctor", "profile", url, "--json", "--rate", str(rate)]
        sampling = subprocess.Popen([*words, "--seconds", str(SECONDS)], stdout=subprocess.PIPE, text=True)
    tokens = _tokens_per_second(url, SECONDS)
    cores = 0.0
    if sampling is not None:
        told = json.loads(sampling.communicate(timeout=60)[0])
        cores = sum(one["sampler_cores"] or 0.0 for one in told["profiles"][0]["processes"])
    return is_sampled, (tokens, cores, share_stolen(before))


if __name__ == "__main__":
    sys.exit(main())
