"""Hostile texts of each form that the doctor reads: what each costs, and that nothing of it ends in a traceback.

    python -m tests.inputs.hostile [NAME]...     a table: CPU seconds and peak memory of a whole `vllm-doctor FILE`

Each is made here, of the size that its form may have at most or beyond it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT
from vllm_doctor.launch import source as launch

MOST_SECONDS = 2.0
MOST_BYTES = 300 << 20
_MB = 1 << 20
_COMMAND = "vllm serve org/m-7B --max-num-seqs 8 --enforce-eager"
_STATISTICS = (
    "INFO 11-20 10:00:00 [loggers.py:257] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput:"
    " 20.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%"
)
_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: a
    image: vllm/vllm-openai:v0.11.0
    args: [--model, org/m-7B, --max-num-seqs, "8"]
"""
_SMI = """\
| NVIDIA-SMI 550.54  Driver Version: 550.54  CUDA Version: 12.4 |
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   45C    P0             120W /  400W |   70000MiB /  81920MiB |     30%      Default |
"""
_RESULT = """\
============ Serving Benchmark Result ============
Successful requests:                     100
Benchmark duration (s):                  10.00
Total input tokens:                      1000
Total generated tokens:                  1000
Output token throughput (tok/s):         100.00
==================================================
"""


def times(text: str, size: int) -> str:
    return text * (size // len(text) + 1)


def _nested(opens: str, closes: str, depth: int, within: str = "") -> str:
    return opens * depth + within + closes * depth


def _yaml_bomb(_: int) -> str:
    lines = ['a0: &a0 ["--max-num-seqs", "8"]']
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join([*lines, "args: *a11", _POD])


def _notebook(size: int) -> str:
    source = ["from vllm import LLM\n", "llm = LLM('org/m-7B', max_num_seqs=8)\n"]
    cell = {"cell_type": "code", "source": source, "outputs": [{"output_type": "stream", "text": [_STATISTICS]}]}
    picture = {"output_type": "display_data", "data": {"image/png": "A" * (size // 1000)}}
    return json.dumps({"nbformat": 4, "cells": [{**cell, "outputs": [*cell["outputs"], picture]}] * 1000})


def _doubling(size: int) -> str:
    lines = ["A=--max-num-seqs", *('A="$A $A"' for _ in range(40)), "vllm serve m $A"]
    return "\n".join(lines) + "\n" + times("# a comment\n", size)


TEXTS: Mapping[str, Callable[[int], str]] = {
    # commands and scripts
    "starts": lambda size: times(f"{_COMMAND}\n", size),
    "short-starts": lambda size: times("vllm serve m\n", size),
    "docker-runs": lambda size: times("docker run --gpus all vllm/vllm-openai:v0.11.0 --model org/m-7B\n", size),
    "one-command": lambda size: "vllm serve m " + times("--max-num-seqs 8 ", size),
    "substitutions": lambda size: "vllm serve m " + _nested("$(", ")", size // 3, "echo"),
    "doubling": _doubling,
    "heredocs": lambda size: times("cat <<EOF\nvllm serve m\nEOF\n", size),
    "quotes": lambda size: "vllm serve '" + times("\"'`", size),
    "bare-flags": lambda size: times("--max-num-seqs 8 -tp 2 ", size),
    "process-list": lambda size: times(f"root 1 0.0 0.0 0 0 ? Ssl 10:00 0:00 python3 /usr/bin/{_COMMAND}\n", size),
    # Python
    "python-brackets": lambda size: "from vllm import LLM\nLLM(" + _nested("[", "]", size // 2) + ")\n",
    "python-unary": lambda size: "from vllm import LLM\nLLM('m', max_num_seqs=" + "-" * size + "1)\n",
    "python-sums": lambda size: "from vllm import LLM\nLLM('m', max_num_seqs=1" + "+1" * (size // 2) + ")\n",
    "python-calls": lambda size: "from vllm import LLM\n" + times("llm = LLM('org/m-7B', max_num_seqs=8)\n", size),
    "python-doubling": lambda size: (
        "from vllm import LLM\na = 'm'\n" + times("a = a + a\n", min(size, 400)) + "LLM(a, max_num_seqs=8)\n"
    ),
    "python-power": lambda _: "from vllm import LLM\nLLM('m', max_num_seqs=9**9**9**9, seed='a' * 10**12)\n",
    "python-functions": lambda size: (
        "from vllm import LLM\n" + times("def f(a=1):\n    return f(a)\n", size) + "LLM(f())"
    ),
    "notebook": _notebook,
    "notebook-nested": lambda size: '{"nbformat": 4, "cells": ' + _nested("[", "]", size // 2) + "}",
    # manifests and files of other programs
    "yaml-bomb": _yaml_bomb,
    "yaml-flow": lambda size: "args: " + _nested("[", "]", size // 2, "vllm serve m"),
    "yaml-blocks": lambda size: "".join(f"{' ' * n}a:\n" for n in range(min(1400, size))) + _POD,
    "yaml-documents": lambda size: times(f"{_POD}---\n", size),
    "yaml-anchors": lambda size: times("- &a {<<: *a, command: vllm serve m}\n", size),
    "compose": lambda size: (
        "services:\n" + times("  a:\n    image: vllm/vllm-openai:v0.11.0\n    command: --model m ${A:-${A:-b}}\n", size)
    ),
    "dockerfile": lambda size: "FROM vllm/vllm-openai:v0.11.0\n" + times('ENV A=$A$A\nCMD ["--model", "m"]\n', size),
    "dockerfile-lines": lambda size: "FROM a\nCMD vllm serve m \\\n" + times("  --seed 1 \\\n", size),
    "quadlet": lambda size: "[Container]\nImage=vllm/vllm-openai:v0.11.0\n" + times("Exec=--model m \\\n", size),
    "systemd": lambda size: "[Service]\n" + times(f"ExecStart=/usr/bin/{_COMMAND}\n", size),
    "supervisor": lambda size: times(f"[program:a]\ncommand={_COMMAND}\n", size),
    "makefile": lambda size: "A := $(A)$(A)\nall:\n" + times(f"\t{_COMMAND} $(A)\n", size),
    "justfile": lambda size: 'a := "b" + "b"\nserve:\n' + times(f"    {_COMMAND} {{{{a}}}}\n", size),
    "terraform": lambda size: (
        'resource "a" "b" {\n' + times('image = "vllm/vllm-openai:v0.11.0"\nargs = ["--model", "m"]\n', size)
    ),
    "scenario": lambda size: times('export LLMDBENCH_VLLM_MODELSERVICE_EXTRA_ARGS="--seed 1"\n', size),
    # what other programs print
    "nvidia-smi": lambda size: times(_SMI, size),
    "nvidia-smi-xml": lambda size: "<nvidia_smi_log>" + times("<gpu><fb_memory_usage>", size),
    "nvidia-smi-entities": lambda _: (
        "<!DOCTYPE a [<!ENTITY a0 'x'>"
        + "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 10))
        + "]><nvidia_smi_log>&a9;</nvidia_smi_log>"
    ),
    "topo": lambda size: "\tGPU0\tGPU1\n" + times("GPU0\t X \tNV4\n", size),
    "collect-env": lambda size: "Collecting environment information...\n" + times("GPU 0: NVIDIA A100\n", size),
    "scrape": lambda size: times('vllm:num_requests_running{engine="0",model_name="m"} 1.0\n', size),
    "labels": lambda size: "".join(
        f'vllm:num_requests_running{{engine="{n}",model_name="m"}} 1.0\n' for n in range(size // 60)
    ),
    "result": lambda size: times(_RESULT, size),
    # logs
    "log": lambda size: times(f"{_STATISTICS}\n", size),
    "log-one-line": lambda size: times(f"{_STATISTICS} ", size),
    "log-newest-first": lambda size: "".join(
        f"{_STATISTICS.replace('10:00:00', f'{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}')}\n"
        for n in range(size // len(_STATISTICS), 0, -1)
    ),
    "log-wrapped": lambda size: times(f"{_STATISTICS[:80]}\n{_STATISTICS[80:160]}\n{_STATISTICS[160:]}\n", size),
    "log-arguments": lambda size: "INFO 11-20 10:00:00 args: Namespace(" + times("a=[", size),
    "log-gcloud": lambda size: json.dumps([{"textPayload": _STATISTICS, "insertId": "a"}] * (size // 280)),
    "log-loki": lambda size: json.dumps(
        {"data": {"result": [{"stream": {"pod": "a"}, "values": [["1", _STATISTICS]] * (size // 280)}]}}
    ),
    "pasted": lambda size: times("vllm serve org/m-7B\n--max-num-seqs 8\n--max-model-len\n8192\n", size),
    "pasted-once": lambda size: "docker run -d\n--gpus all\nvllm/vllm-openai:v0.11.0\n" + times("--seed 1\n", size),
    # pages of people
    "fences": lambda size: times("```\n", size),
    "fence-open": lambda size: "It is slow.\n```yaml\nvllm:\n  command: [\n" + times('    "--seed", "1",\n', size),
    "fence-open-nested": lambda size: "It is slow.\n```yaml\nargs: " + _nested("[", "]", size)[: size // 2],
    "fenced-shorts": lambda size: times("```\nvllm serve m\n```\n", size),
    "fenced-starts": lambda size: times(f"It is slow.\n```\n{_COMMAND}\n```\n", size),
    "fenced-everything": lambda size: times(
        f"It is slow.\n```\n{_COMMAND}\n```\n```\n{_SMI}```\n{_STATISTICS}\n", size
    ),
    "sentences": lambda size: times("It gives 17 tokens/s on 4x H100 with org/m-7B, and I think that is slow.\n", size),
    "compared": lambda size: times(
        "Normally 20 tok/s; after upgrading vLLM from 0.8.4 to 0.9.0 slow: from 20 to 1 tok/s, Ollama 30 tok/s.\n", size
    ),
    "respectively": lambda size: times("a/Qwen3-8B and a/Qwen3-14B get 3 tok/s and 2 tok/s respectively, ", size),
    "issue-json": lambda size: json.dumps({"title": "a", "body": times(f"```\n{_COMMAND}\n```\n", size)}),
    "json-nested": lambda size: _nested('{"body":', "}", size // 9, '"a"'),
    "html": lambda size: "<html><body>" + times(f"<pre>{_COMMAND}", size),
    "html-nested": lambda size: "<html>" + times("<div>", size),
    "engines": lambda size: times("python -m sglang.launch_server --model-path m\n", size),
}
"""By name: what makes a text of about so many characters."""
SIZES = (launch.MAX_BYTES - 10_000, 10 * _MB)
"""Just below the size up to which commands are looked for, and far beyond it."""


@dataclass(frozen=True)
class Cost:
    name: str
    size: int
    code: int
    seconds: float
    peak: int
    said: str

    @property
    def is_within(self) -> bool:
        return self.seconds <= MOST_SECONDS and self.peak <= MOST_BYTES and "Traceback" not in self.said


def examined(name: str, size: int, *options: str) -> Cost:
    """A whole process that reads the text as a file, with the CPU seconds and the memory that it took."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(TEXTS[name](size), encoding="utf-8")
        out = Path(folder) / "out"
        with out.open("wb") as file:
            words = [sys.executable, "-m", "vllm_doctor", "--text", str(path), *options]
            process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said = out.read_text(encoding="utf-8", errors="replace")
        length = path.stat().st_size
    return Cost(name, length, process.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss << 10, said)


def main(arguments: Sequence[str] | None = None) -> int:
    names = list(arguments if arguments is not None else sys.argv[1:]) or list(TEXTS)
    failed = 0
    for name in names:
        for size in SIZES:
            cost = examined(name, size)
            failed += not cost.is_within
            first = next((line for line in cost.said.splitlines() if line.strip()), "")
            mark = " " if cost.is_within else "!"
            print(
                f"{mark} {name:20} {cost.size / _MB:5.1f} MiB  exit {cost.code}  {cost.seconds:5.2f} s"
                f"  {cost.peak / _MB:4.0f} MiB  {first[:70]}",
                flush=True,
            )
    print(f"{len(names) * len(SIZES)} files, {failed} beyond {MOST_SECONDS:g} s or {MOST_BYTES >> 20} MiB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
