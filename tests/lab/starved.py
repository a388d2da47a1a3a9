"""The doctor on a starved host: beside a real vLLM under load and 24 busy loops, all of the doctor's own priority.

usage: python -m tests.lab.starved [WINDOW...]   a run for each window (3 s seven times, 15 s three times)

Each run must end within its window and 8 s, say of no server that answers that it did not, name one root or none, and
never say ok of a server that lost nearly all of its speed.
Every second run has no right to go before others (CAP_SYS_NICE), which root's doctor has.
Prints a line for each; 1 if one fails. The machine has little left for anybody else meanwhile: about three minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.lab.doctor import NO_ANSWER
from tests.lab.run import hogged
from tests.lab.server import loaded, must_be_installed, tokens_per_second, vllm

LOOPS = 24
SPARE = 8.0
"""Seconds that a run may take beside its window, from its start to its end."""
WINDOWS = (3.0, 15.0, 3.0, 3.0, 15.0, 3.0, 3.0, 15.0, 3.0, 3.0)
LOAD = {"clients": 16, "prompt": 128, "out": 200, "vary": True}
STARVED = {"cpu-contention", "cpu-underprovisioned", "none"}
"""What may lead the report: the loops take the CPU, and 2 cores are too few for 3 processes."""
LATE = ("did not answer", "does not answer")


AS_INSTALLED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With it each start compiles the whole doctor anew, as none that pip installed does."""
AS_ANY = ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice")


def run(url: str, window: float, rights: Sequence[str]) -> bool:
    """One examination, told in a line; whether it was as it must be."""
    began = time.monotonic()
    command = [*rights, sys.executable, "-m", "vllm_doctor", url, "--json", "--window", str(window)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=AS_INSTALLED)
    seconds = time.monotonic() - began
    report = json.loads(answer.stdout or NO_ANSWER)
    roots = [found["rule"] for found in report["findings"] if found["role"] == "root"]
    [server] = [source for source in report.get("sources", ()) if source["kind"] == "server"] or [{}]
    is_in_time = seconds <= window + SPARE
    is_fair = not any(late in answer.stdout for late in LATE)
    leads = roots[0] if roots else "none"
    is_seen = bool(server.get("scrapes")) or (server.get("error") or {}).get("kind") == "starved"
    is_right = is_in_time and is_fair and is_seen and leads in STARVED and report["verdict"] != "ok"
    own = [note for note in server.get("notes", ()) if "itself" in note]
    print(
        f"{'ok  ' if is_right else 'FAIL'} window {window:4.0f}  wall {seconds:6.1f}  exit {answer.returncode}"
        f"  {report['verdict']:<9}{leads:<24}{server.get('scrapes')} scrapes over {server.get('window_s') or 0:.1f} s"
        f"  {server.get('error') or ''}{' '.join(own)}{answer.stderr.strip()[:300]}",
        flush=True,
    )
    return is_right


def main(windows: list[float]) -> int:
    must_be_installed()
    with vllm(["--max-model-len", "2048", "--max-num-seqs", "64"], "starved") as url, loaded(url, LOAD):
        print(f"alone: {tokens_per_second(url, 5):.0f} tokens/s")
        with hogged(LOOPS):
            print(f"beside {LOOPS} busy loops: {tokens_per_second(url, 5):.0f} tokens/s", flush=True)
            results = [run(url, window, AS_ANY if place % 2 else ()) for place, window in enumerate(windows)]
    print(f"{sum(results)} of {len(results)} as they must be")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main([float(word) for word in sys.argv[1:]] or list(WINDOWS)))
