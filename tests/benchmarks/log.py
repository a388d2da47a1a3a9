"""How fast logs are read, beside ripgrep, grep and zcat, as ratios within one run. usage: log.py [--before TREE] [MB …]

Writes made logs of these sizes (20 500 2000) to a folder that is removed at the end. With --before, the program of
another checkout takes turns with this one's. Prints tables; never fails: a bound missed on a busy machine is for a
person to read. Files are in the page cache, the best of some rounds counts, and in a round all commands take turns, so
that a busy moment of the machine falls on all of them. On a busy machine two threads have one processor: read the CPU.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from vllm_doctor.rules import log_lines

ROUNDS = 5
SIZES = (20, 500, 2000)

SCAN = """
import sys
from pathlib import Path
from vllm_doctor.rules import log_lines
from vllm_doctor.sources.log.bytes_unpacked import Blocks
from vllm_doctor.sources.log.bytes_scan import Scanner
table = log_lines.shipped()
scanner = Scanner(table.finds, table.uncounted, is_kept=True)
lines = scanner.lines(Blocks(Path(sys.argv[1])).with_rest(), may_run_ahead=lambda: sys.argv[2] == "2")
print(sum(1 for _ in lines), "lines given of", scanner.tally.lines_read, file=sys.stderr)
"""


def lines(chance: random.Random) -> Iterator[bytes]:
    """95 % of uvicorn's, 4 % statistics, 1 % others, by count."""
    while True:
        kind = chance.random()
        minute, second = chance.randrange(60), chance.randrange(60)
        if kind < 0.95:
            path = chance.choice(("chat/completions", "completions"))
            status = "200 OK" if chance.random() < 0.97 else "400 Bad Request"
            peer = f"10.0.{chance.randrange(4)}.{chance.randrange(255)}:{chance.randrange(30000, 65000)}"
            line = f'INFO:     {peer} - "POST /v1/{path} HTTP/1.1" {status}'
        elif kind < 0.99:
            line = (
                f"INFO 11-20 10:{minute:02}:{second:02} [loggers.py:236] Engine 00{chance.randrange(2)}: "
                f"Avg prompt throughput: {chance.random() * 1000:.1f} tokens/s, "
                f"Avg generation throughput: {chance.random() * 4000:.1f} tokens/s, "
                f"Running: {chance.randrange(99)} reqs, Waiting: {chance.randrange(50)} reqs, "
                f"GPU KV cache usage: {chance.random() * 100:.1f}%, Prefix cache hit rate: {chance.random() * 100:.1f}%"
            )
        else:
            request = f"{chance.getrandbits(128):032x}"
            line = f"INFO 11-20 10:{minute:02}:{second:02} [async_llm.py:{chance.randrange(999)}] Added {request}."
        yield line.encode() + b"\n"


def write(path: Path, megabytes: int) -> None:
    """Of 24 different parts, in any order: writing more than that takes longer than all measuring."""
    chance = random.Random(2)
    source = lines(chance)
    parts = []
    for _ in range(24):
        part = bytearray()
        while len(part) < 500_000:
            part += next(source)
        parts.append(bytes(part))
    with path.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write(chance.choice(parts))


def run(command: list[str] | str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak MB of a command, or of what a shell runs (the largest process's)."""
    with tempfile.TemporaryFile() as output:  # not /dev/null: grep would stop at its first line
        start = time.perf_counter()
        process = subprocess.Popen(command, shell=isinstance(command, str), stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # 1: grep found nothing
        print(f"failed with {os.waitstatus_to_exitcode(status)}: {command}", file=sys.stderr)
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def table(title: str, commands: dict[str, list[str] | str], size: int, reference: str) -> None:
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            runs[name].append(run(command))
    beside = min(wall for wall, _, _ in runs[reference]), min(cpu for _, cpu, _ in runs[reference])
    print(f"\n{title:<36}    wall      CPU     GB/s   peak MB   wall and CPU, of {reference}")
    for name, measured in runs.items():
        wall, cpu = min(wall for wall, _, _ in measured), min(cpu for _, cpu, _ in measured)
        print(
            f"{name:<36} {wall:>6.2f} s {cpu:>6.2f} s {size / wall / 1e9:>8.2f} {max(p for *_, p in measured):>9.0f}"
            f"   {wall / beside[0]:>6.2f} x {cpu / beside[1]:>6.2f} x",
            flush=True,
        )


def doctors(log: Path, before: Path | None) -> dict[str, list[str] | str]:
    """The doctor's commands: this checkout's, and that of an earlier one."""
    tail = [str(log), "--json", "--fail-on", "never"]
    python = [sys.executable, "-m", "vllm_doctor", *tail]
    commands: dict[str, list[str] | str] = {"doctor FILE --json": python}
    commands |= {f"the same, --threads {threads}": [*python, "--threads", threads] for threads in "12"}
    commands |= {f"its scan, {threads} thread(s)": [sys.executable, "-c", SCAN, str(log), threads] for threads in "12"}
    if before is not None:
        commands["doctor FILE --json, before"] = [str(before / ".venv" / "bin" / "vllm-doctor"), *tail]
    return commands


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--before", type=Path)
    options.add_argument("sizes", nargs="*", type=int, default=SIZES)
    given = options.parse_args()
    before = given.before and given.before.absolute()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as where it is installed
    with tempfile.TemporaryDirectory() as folder:
        log, packed = Path(folder, "server.log"), Path(folder, "server.log.gz")
        patterns, sixteen = Path(folder, "patterns"), Path(folder, "16")
        texts = log_lines.shipped().finds
        patterns.write_bytes(b"\n".join(texts) + b"\n")
        sixteen.write_bytes(b"\n".join(texts[:: len(texts) // 16][:16]) + b"\n")
        for megabytes in given.sizes:
            write(log, megabytes)
            size = log.stat().st_size
            commands = doctors(log, before)
            commands |= {"LC_ALL=C grep -c -F -f": f"LC_ALL=C grep -c -F -f {patterns} {log}"}
            commands |= {"wc -l": ["wc", "-l", str(log)]}
            reference = "wc -l"
            if shutil.which("rg"):
                commands["rg -c -F -f"] = ["rg", "-c", "-F", "-f", str(patterns), str(log)]
                reference = "rg -F -f, 16 texts"
                commands[reference] = ["rg", "-F", "-f", str(sixteen), str(log)]
            table(f"{size / 1e6:,.0f} MB, {len(texts)} texts", commands, size, reference)
            with packed.open("wb") as file:
                subprocess.run(["gzip", "-1", "-c", str(log)], stdout=file, check=True)
            commands = doctors(packed, before) | {"zcat | wc -l": f"zcat {packed} | wc -l"}
            table(f"{size / 1e6:,.0f} MB in gzip, {len(texts)} texts", commands, size, "zcat | wc -l")
            packed.unlink()
    print(f"\nbest of {ROUNDS}, in turns; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
