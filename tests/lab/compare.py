"""Did the cure work? Asked of recordings of a real vLLM: preempting, cured by the printed command, under another load.

usage: python -m tests.lab.compare

1. A preempting server is recorded, the command that the recording's report prints is started in its place, and that is
   recorded under the same load: PASS. 2. The cured server under another load: INCONCLUSIVE. 3. The same two again, by
   `record --bench`, with the real `vllm bench serve` in the clients' place: PASS. Needs tests/lab/install.sh. Ends with
   1 where an outcome is another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.lab.machine import cpu_times, share_stolen
from tests.lab.server import OUT, VLLM, loaded, must_be_installed, started, vllm

LIMITS = ("--max-model-len", "2048", "--max-num-seqs", "64", "--no-enable-prefix-caching")
SICK = (*LIMITS, "--num-gpu-blocks-override", "80")
HEAVY = {"clients": 24, "prompt": 256, "out": 700}
OTHER = {"clients": 6, "prompt": 64, "out": 100}
BENCH = (
    "--dataset-name random --random-input-len 256 --random-output-len 700 --ignore-eos --num-prompts 120"
    " --max-concurrency 24 --disable-tqdm --seed 1"
)
SECONDS = "120"
FOLDER = OUT / "compare"


def doctor(*arguments: str) -> int:
    """Run the doctor; what it says is shown. Its exit code."""
    words = [word if " " not in word else repr(word) for word in arguments]
    print(f"$ vllm-doctor {' '.join(words)}", flush=True)
    env = os.environ | {"PATH": f"{VLLM}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run([sys.executable, "-m", "vllm_doctor", *arguments], text=True, env=env, stdout=subprocess.PIPE)
    print(done.stdout, flush=True)
    return done.returncode


def record(url: str, name: str, *more: str) -> Path:
    path = FOLDER / f"{name}.tar.gz"
    before = cpu_times()
    if doctor("record", url, "-o", str(path), *(more or ("--duration", SECONDS))) != 0:
        sys.exit(f"{name} was not recorded")
    print(f"of the CPU, {share_stolen(before):.0%} went to other virtual machines\n", flush=True)
    return path


def cure_of(path: Path) -> list[str]:
    """The command that its report prints, in words."""
    done = subprocess.run([sys.executable, "-m", "vllm_doctor", str(path), "--json"], text=True, stdout=subprocess.PIPE)
    command = json.loads(done.stdout)["command"]
    if not command or command["now"] == command["was"]:
        sys.exit("no cure was printed")
    words: list[str] = command["now"]
    print(f"{' '.join(command['was'])}\n{' '.join(words)}\n", flush=True)
    return words


def main() -> None:
    must_be_installed()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with vllm(SICK, "compare-sick") as url:
        with loaded(url, HEAVY):
            before = record(url, "before")
        bench_before = record(url, "bench-before", "--bench", BENCH)
    cure = cure_of(before)
    with started(cure, int(url.rsplit(":", 1)[1]), "compare-cured") as url:
        with loaded(url, HEAVY):
            after = record(url, "after")
        with loaded(url, OTHER):
            other = record(url, "other-load")
        bench_after = record(url, "bench-after", "--bench", BENCH)
    wanted = {(before, after): 0, (before, other): 3, (bench_before, bench_after): 0}
    wrong = 0
    for (one, two), code in wanted.items():
        found = doctor("compare", str(one), str(two))
        wrong += found != code
        print(f"exit code {found}, wanted {code}\n", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
