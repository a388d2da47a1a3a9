"""How long a trace takes, and how much memory: python -m tests.benchmarks.traces [MB] [EVENTS].

A trace of MB megabytes that looks like vLLM's (Python frames, operators, launches, kernels), one of EVENTS events that
are all kernels, and one of EVENTS broken ones; each is examined by the command, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import trace_files

_MEGABYTES, _EVENTS = 200, 10_000_000


def usual(megabytes: int) -> Iterator[str]:
    """Steps of 100 kernels, each with a launch, two operators and ten Python frames beside it."""
    written, step = 0, 0
    while written < megabytes * 1_000_000:
        made = trace_files.Made()
        made._correlation = 100 * step
        at = 10_000.0 * step
        made.step(at, 9000)
        for place in range(100):
            start = at + 90.0 * place
            made.launch(start, (trace_files.GEMM, start + 10, 80.0))
            for operator in ("aten::linear", "aten::addmm"):
                made.add("cpu_op", operator, start, 8.0, {"External id": place, "Sequence number": 7, "Ev Idx": 11})
            for frame in range(10):
                args = {"Python parent id": frame, "Python id": place, "Ev Idx": frame}
                made.add("python_function", f"vllm/model_executor/layers/linear.py({frame}): forward", start, 8.0, args)
        for event in made.events:
            text = json.dumps(event, indent=1)
            written += len(text) + 2
            yield text
        step += 1


def kernels(events: int) -> Iterator[str]:
    for place in range(events):
        args = f'{{"correlation":{place}}}'
        yield f'{{"ph":"X","cat":"kernel","name":"k{place % 50}","pid":0,"ts":{place},"dur":0.9,"args":{args}}}'


def broken(events: int) -> Iterator[str]:
    for _ in range(events):
        yield '{"ph": "X", "cat": "kernel" "name"}'


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else _MEGABYTES
    events = int(sys.argv[2]) if len(sys.argv) > 2 else _EVENTS
    with tempfile.TemporaryDirectory() as folder:
        for name, texts in (
            (f"{megabytes} MB like vLLM's", usual(megabytes)),
            (f"{events:,} kernels", kernels(events)),
            (f"{events:,} broken events", broken(events)),
        ):
            path = Path(folder) / "t.json"
            with path.open("w") as file:
                file.write('{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [\n')
                for place, text in enumerate(texts):
                    file.write(f"{',' if place else ''}\n{text}")
                file.write("\n]}")
            print(f"{name}: {_measured(path)}", flush=True)


def _measured(path: Path) -> str:
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "vllm_doctor", str(path), "--json"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    report = json.loads(child.stdout.read())
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    size = path.stat().st_size / 1e6
    return (
        f"{size:,.0f} MB, {seconds:.1f} s ({used.ru_utime + used.ru_stime:.1f} s of CPU),"
        f" {used.ru_maxrss / 1024:,.0f} MiB at most; {report['verdict']}: {report['headline']}"
    )


if __name__ == "__main__":
    main()
