"""How vllm-doctor fleet grows with the engines: 100, 1,000, 10,000. usage: fleet.py [ENGINES...]

The Prometheus is generated: rows of recorded engines (one in fifty is sick), copied to as many instances, and sent by a
process of its own. Prints a table; never fails: a bound missed on a busy machine is for a person to read.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.fake_prometheus import AT, FakePrometheus, targets
from tests.serving import Answer, Request, serving

SICK = ("preemption", "max-num-seqs-cap", "prefix-cache-off", "aborts")
HEALTHY = ("healthy-busy", "client-limited", "idle")
BOUND_S, BOUND_MB = 15.0, 600.0
JSON_ENGINES = 1_000
"""Of more engines the reports are a hundred megabytes: their time grows with their size."""


class Many(FakePrometheus):
    """Many engines: `copies` of each recorded one, in answers made once."""

    def __init__(self, engines: int) -> None:
        kinds = [*SICK, *HEALTHY]
        super().__init__(zip(targets(len(kinds)), kinds, strict=True))
        self.kinds = [SICK[n // 50 % len(SICK)] if n % 50 == 0 else HEALTHY[n % len(HEALTHY)] for n in range(engines)]
        self.numbers = [kinds.index(kind) for kind in self.kinds]
        self.answers: dict[str, Answer] = {}

    def answer(self, request: Request) -> Answer:
        query = super()._form(request)["query"]
        if query not in self.answers:
            self.answers[query] = self._many(query)
        return self.answers[query]

    def _many(self, query: str) -> Answer:
        rows: dict[str, list[str]] = {}
        alike = []
        for labels, value in self.result(query):
            text = json.dumps({"metric": dict(labels), "value": [AT, repr(value).replace("nan", "NaN")]})
            found = re.search(r'"host-(\d+):8000"', text)
            if found is None:
                alike.append(text)
            else:
                rows.setdefault(found[1], []).append(text)
        copied = [
            text.replace(f"host-{number}:", f"host-{place}:")
            for place, number in enumerate(self.numbers)
            for text in rows.get(str(number), ())
        ]
        body = f'{{"status":"success","data":{{"resultType":"vector","result":[{",".join([*alike, *copied])}]}}}}'
        return Answer(body.encode(), headers={"Content-Type": "application/json"})


def serve(engines: int) -> None:
    with serving(Many(engines).routes()) as served:
        print(served.url, flush=True)
        sys.stdin.read()


def measured(url: str, *arguments: str) -> tuple[float, float, str]:
    """CPU seconds, peak MB, and what was written."""
    with tempfile.NamedTemporaryFile("r") as output:
        command = [sys.executable, "-m", "vllm_doctor", "fleet", url, "-o", output.name, "--timeout", "600", *arguments]
        process = subprocess.Popen(command)
        _, _, usage = os.wait4(process.pid, 0)
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, Path(output.name).read_text()


def main(sizes: list[int]) -> None:
    print(" engines  queries    asked   judged      CPU  per engine     MB   as JSON", flush=True)
    for engines in sizes:
        server = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(engines)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        measured(url)  # the server's answers are made once
        cpu, megabytes, text = measured(url)
        told = re.search(r"(\d+) queries in ([\d.]+) s, judged in ([\d.]+) s", text)
        assert told is not None, text
        asked, judged = float(told[2]), float(told[3])
        line = f"{engines:>8,} {told[1]:>8} {asked:>6.1f} s {judged:>6.1f} s {cpu:>6.1f} s"
        line += f" {cpu / engines * 1000:>8.2f} ms {megabytes:>6.0f}"
        if engines <= JSON_ENGINES:
            cpu, megabytes, document = measured(url, "--json")
            counts = json.loads(document)["counts"]
            line += f"   {cpu:.1f} s CPU, {megabytes:.0f} MB, {len(document) / 1e6:.1f} MB written, {counts}"
        print(line, flush=True)
        server.communicate("")
    print(f"bounds: {BOUND_S:.0f} s besides the server's own time, {BOUND_MB:.0f} MB, for 10,000 engines")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
    else:
        main([int(size) for size in sys.argv[1:]] or [100, 1_000, 10_000])
