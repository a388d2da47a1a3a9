"""What a recording costs. usage: record.py [seconds]

A recorded server answers in a process of its own; the command `record` looks at it for a minute. Prints a table; never
fails: a bound missed on a busy machine is for a person to read.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.benchmarks.run import run, timed
from vllm_doctor.recording import bundle
from vllm_doctor.rules import catalogue, rule

ROOT = Path(__file__).parents[2]
REPEAT = 5


def again() -> str:
    """A server that plays its recording over and over, so that each scrape differs."""
    return (
        "import sys\nfrom vllm_doctor.recording import demo\n"
        "with demo.serving(demo.find('preemption'), again=True) as url:\n"
        "    print(url, flush=True)\n    sys.stdin.read()"
    )


def main(seconds: float) -> None:
    rows: list[tuple[str, str, str, bool]] = []

    def row(what: str, measured: float, bound: float, unit: str) -> None:
        rows.append((what, f"{measured:.3g} {unit}", f"<= {bound:g} {unit}", measured <= bound))

    doctor = [sys.executable, "-m", "vllm_doctor"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.tar.gz"
        short = Path(folder) / "short.tar.gz"
        server = subprocess.Popen(
            [sys.executable, "-c", again()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            _, start, _ = run([*doctor, "record", url, "-o", str(short), "--duration", "0.1"])
            _, cpu, peak = run([*doctor, "record", url, "-o", str(path), "--duration", f"{seconds:g}"])
        finally:
            server.communicate("")
        row(f"{seconds:.0f} s of one engine, size", path.stat().st_size / 1e6, seconds / 60, "MB")
        row("record, CPU beyond its start and its verdict", (cpu - start) / seconds * 100, 2, "% of a core")
        row("record, all its CPU", cpu / seconds * 100, 5, "% of a core")
        row("record, peak memory", peak, 100, "MB")
        signals = catalogue.load(rule.shipped())

        def opened() -> None:
            for source in bundle.read(path).sources:
                source.observation(signals.metrics)

        row("opening it, wall", min(timed(opened) for _ in range(REPEAT)), 0.3, "s")
        both = [(run([*doctor, "--version"])[0], run([*doctor, str(path), "--json"])[0]) for _ in range(REPEAT)]
        compared = [run([*doctor, "compare", str(path), str(path)])[0] for _ in range(REPEAT)]
        row("comparing two, whole command, wall", min(compared), 0.5, "s")
        row("its report, whole command, wall", min(wall for _, wall in both), 1.0, "s")
    for what, measured, bound, good in rows:
        print(f"{'ok  ' if good else 'MISS'} {what:<46}{measured:>18}   {bound}")


if __name__ == "__main__":
    began = time.perf_counter()
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
    print(f"took {time.perf_counter() - began:.0f} s")
