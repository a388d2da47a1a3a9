"""How vllm-doctor fleet grows with the engines of a real Prometheus. usage: fleet.py [ENGINES...]

Each engine is a recorded one (one in fifty is sick), under a name of its own: all 127 series that the doctor asks for,
three scrapes of each, backfilled with promtool. 10,000 of them are 1.3 million series: 0.7 GB of disk and two minutes
before anything is measured. Prints a table; never fails: a bound missed on a busy machine is for a person to read.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.real_prometheus import END, blocks, labelled, running, wanted
from tests.serving import recording

SICK = ("preemption", "max-num-seqs-cap", "prefix-cache-off", "aborts")
HEALTHY = ("healthy-busy", "client-limited", "idle")
BOUND_S, BOUND_MB = 15.0, 600.0
AT = datetime.fromtimestamp(END, UTC).isoformat()
JSON_ENGINES = 1_000
"""Of more engines the reports are a hundred megabytes: their time grows with their size."""
LAUNCHER = (
    "import os, resource, subprocess, sys; subprocess.run(sys.argv[1:]);"
    " u = resource.getrusage(resource.RUSAGE_CHILDREN); print(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024)"
)
"""A small process between: the peak of a child is never told to be below that of its parent."""
NOBODY = "host-?:8000"


@cache
def series(name: str) -> str:
    """The first, a middle and the last scrape of a recording, of an engine that has no name yet."""
    taken = recording(name)
    lines: list[str] = []
    for place in (0, len(taken.times) // 2, -1):
        when = END - taken.times[-1] + taken.times[place]
        page = wanted(taken.pages[place].decode())
        lines += [labelled(line, {"job": "vllm", "instance": NOBODY}, when) for line in page]
    return "\n".join(lines)


def fleet(engines: int) -> Iterator[str]:
    for place in range(engines):
        name = SICK[place // 50 % len(SICK)] if place % 50 == 0 else HEALTHY[place % len(HEALTHY)]
        yield series(name).replace(NOBODY, f"host-{place}:8000")


def measured(url: str, *arguments: str) -> tuple[float, float, float, str]:
    """Seconds, CPU seconds, peak MB, and what was written."""
    with tempfile.NamedTemporaryFile("r") as output:
        command = [sys.executable, "-m", "vllm_doctor", "fleet", url, "-o", output.name, "--timeout", "600"]
        begun = time.monotonic()
        command += ["--at", AT, "--window", "30", *arguments]
        ran = subprocess.run([sys.executable, "-c", LAUNCHER, *command], stdout=subprocess.PIPE, text=True, check=True)
        wall = time.monotonic() - begun
        cpu, megabytes = map(float, ran.stdout.split())
        return wall, cpu, megabytes, Path(output.name).read_text()


def main(sizes: list[int]) -> None:
    print(" engines  queries     wall  the server's     ours      CPU  per engine     MB   as JSON", flush=True)
    for engines in sizes:
        with tempfile.TemporaryDirectory() as folder:
            blocks(Path(folder) / "data", fleet(engines))
            with running(Path(folder), {}) as url:
                wall, cpu, megabytes, text = measured(url)
                told = re.search(r"(\d+) queries in ([\d.]+) s, judged in ([\d.]+) s", text)
                assert told is not None, text
                asked = float(told[2])
                line = f"{engines:>8,} {told[1]:>8} {wall:>6.1f} s {asked:>11.1f} s {wall - asked:>6.1f} s"
                line += f" {cpu:>6.1f} s {cpu / engines * 1000:>8.2f} ms {megabytes:>6.0f}"
                if engines <= JSON_ENGINES:
                    wall, cpu, megabytes, document = measured(url, "--json")
                    found = json.loads(document)
                    line += f"   {cpu:.1f} s CPU, {megabytes:.0f} MB"
                    line += f", {len(document) / 1e6:.1f} MB written, {found['counts']}"
                print(line, flush=True)
    print(f"bounds: {BOUND_S:.0f} s besides the server's own time, {BOUND_MB:.0f} MB, for 10,000 engines")


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100, 1_000, 10_000])
