"""How fast the doctor is, as ratios and bounds within one run. usage: run.py

Prints a table; never fails: a bound missed on a busy machine is for a person to read.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests import fake_nvml
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.window import Window
from vllm_doctor.recording import demo
from vllm_doctor.rules import catalogue, rule
from vllm_doctor.rules.diagnose import diagnose
from vllm_doctor.sources.host.host import Host
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.process import Member, ServerProcess
from vllm_doctor.sources.server.exposition import parse

REPEAT = 7
DOCTOR = Path(sys.executable).parent / "vllm-doctor"


def run(command: list[str]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds, peak MB of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def best(function: Callable[[], float], repeat: int = REPEAT) -> float:
    return min(function() for _ in range(repeat))


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@contextmanager
def served_elsewhere() -> Iterator[str]:
    """The demo's server in a process of its own, so that its work is not counted."""
    code = (
        "import sys, time\nfrom vllm_doctor.recording import demo\n"
        "with demo.serving(demo.find('preemption')) as url:\n    print(url, flush=True)\n    sys.stdin.read()"
    )
    server = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.communicate("")


def host_sample() -> float:
    """CPU seconds of one sample of this host, with 12 of its processes taken for a server's."""
    kernel = Kernel()
    pids = sorted((int(name) for name in kernel.names("proc") if name.isdigit()), reverse=True)[:12]
    host = Host(ServerProcess(pids[-1], tuple(Member(pid, "worker", "", 0) for pid in pids)), kernel)
    start = time.process_time()
    host.sample()
    return time.process_time() - start


def gpu_sample() -> float:
    """CPU seconds of one sample of 8 GPUs, in a process of its own: the driver is loaded once a process."""
    code = (
        "import time\nfrom vllm_doctor.sources.gpu.nvml import Nvml\nnvml = Nvml()\nnvml.open()\ntimes = []\n"
        "for _ in range(20):\n    start = time.process_time()\n    nvml.sample()\n"
        "    times.append(time.process_time() - start)\n"
        "assert len(nvml.view().gpus) == 8\nprint(min(times))"
    )
    environment = os.environ | fake_nvml.environment("h100x8")
    return float(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)


def page_with(engines: int, number: int = 5) -> str:
    """The recorded page as a server with so many engines would give it."""
    text = demo.find("preemption").pages[number].decode()
    lines = text.splitlines(keepends=True)
    ours = [line for line in lines if line.startswith("vllm:")]
    others = [line for line in lines if not line.startswith("vllm:")]
    return "".join(others + [line.replace('engine="0"', f'engine="{n}"') for n in range(engines) for line in ours])


def main() -> None:
    rows: list[tuple[str, str, str, bool]] = []

    def row(what: str, measured: float, bound: float, unit: str) -> None:
        rows.append((what, f"{measured:.3g} {unit}", f"<= {bound:g} {unit}", measured <= bound))

    # In turns, so that a busy moment of the machine falls on both.
    pairs = [(run([sys.executable, "-c", "pass"])[0], run([str(DOCTOR), "--version"])[0]) for _ in range(REPEAT * 3)]
    row("--version, wall, of python -c pass", min(b for _, b in pairs) / min(a for a, _ in pairs), 3, "x")
    with served_elsewhere() as url:
        once = [run([str(DOCTOR), url, "--json", "--window", "0"]) for _ in range(REPEAT)]
        row("--json --window 0, CPU", min(cpu for _, cpu, _ in once), 0.25, "s")
        row("--json --window 0, peak memory", max(peak for _, _, peak in once), 60, "MB")
        row("--json --window 3, wall", best(lambda: run([str(DOCTOR), url, "--json"])[0], 3), 3.5, "s")

    row("a sample of this host, 12 processes of a server, CPU", best(host_sample) * 1000, 15, "ms")
    row("a sample of 8 GPUs (the fake driver), CPU", gpu_sample() * 1000, 15, "ms")
    signals = catalogue.load(rule.shipped())
    rules = rule.load([rule.shipped()], signals)
    facts: dict[str, Reading] = {"vllm_version": Known("0.32.0"), "stats_published": Known(True)}
    scaling = []
    for engines in (1, 8, 64):
        text = page_with(engines)
        page = parse(text, signals.metrics)
        parsing = best(lambda text=text: timed(lambda: Window().add(0.0, parse(text, signals.metrics).samples)))  # type: ignore[misc]
        window = Window()
        for at in range(4):
            window.add(float(at), page.samples)
        snapshot = signals.snapshot(window, facts)
        reading = best(lambda window=window: timed(lambda: signals.snapshot(window, facts)))  # type: ignore[misc]
        judging = best(lambda snapshot=snapshot: timed(lambda: diagnose(rules, signals, [snapshot])))  # type: ignore[misc]
        scaling.append((engines, len(text), parsing, reading, judging))
    row("one page of 50 KB parsed and stored", scaling[0][2] * 1000, 10, "ms")
    row("all rules judged on a snapshot", scaling[0][4] * 1000, 10, "ms")
    width = max(len(what) for what, *_ in rows)
    for what, measured, bound, kept in rows:
        print(f"{what:<{width}}  {measured:>12}  {bound:>10}  {'ok' if kept else 'MISSED'}")
    print("\nengines      page    parse and store   signals (4 scrapes)   rules        each per engine")
    for engines, size, parsing, reading, judging in scaling:
        each = " + ".join(f"{seconds * 1000 / engines:.2f}" for seconds in (parsing, reading, judging))
        print(
            f"{engines:>7}  {size / 1000:>6,.0f} KB  {parsing * 1000:>12.1f} ms  {reading * 1000:>16.1f} ms"
            f"  {judging * 1000:>8.1f} ms   {each} ms"
        )
    print(
        f"\nbest of {REPEAT}; peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
    )


if __name__ == "__main__":
    main()
