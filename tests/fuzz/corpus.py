"""What the mutations begin with: pieces of the recordings, of the tests' data and of the shipped rules."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.paths import COMMANDS, DATA, FIXTURES, LOGS, NVIDIA_SMI, ROOT
from tests.serving import recording
from vllm_doctor.recording import archive, metrics

SMALL = 3000
"""Bytes of a piece: what is parsed fast is parsed often."""


def files(*paths: Path) -> list[bytes]:
    """The content of these files."""
    return [path.read_bytes() for path in sorted(paths)]


def pieces(whole: Iterable[bytes], size: int = SMALL, most: int = 6) -> list[bytes]:
    """Each text as its beginning, and as lines of it that lie evenly through it."""
    found: list[bytes] = []
    for text in whole:
        found.append(text[:size])
        lines = text.splitlines(keepends=True)
        mean = max(1, len(text) // max(1, len(lines)))
        step = max(1, mean * len(lines) // size)
        found += [b"".join(lines[start::step])[:size] for start in range(1, min(step, most))]
    return found


@cache
def logs() -> list[bytes]:
    return [gzip.decompress(text) for text in files(*LOGS.glob("*.gz"))]


@cache
def scrapes() -> list[bytes]:
    """One scrape of each recording, its lines of vLLM only, and of each histogram a part."""
    found = []
    for name in ("preemption", "healthy-busy", "data-parallel", "idle"):
        kept: dict[bytes, int] = {}
        lines = []
        for line in recording(name).pages[-1].splitlines(keepends=True):
            metric = line.split(b"{")[0]
            kept[metric] = kept.get(metric, 0) + 1
            if (b"vllm:" in line or b"process_" in line) and kept[metric] <= 3 and not line.startswith(b"# HELP"):
                lines.append(line)
        found.append(b"".join(lines))
    return found


@cache
def commands() -> list[bytes]:
    """As written in shells, manifests and units."""
    return files(*(path for path in COMMANDS.iterdir() if path.is_file()))


SHELL = (
    b"vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 64 --max-num-batched-tokens=2048 --kv-cache-dtype fp8\n",
    b'#!/bin/bash\nset -e\nexport VLLM_USE_V1=1 HF_TOKEN=$TOKEN\nexec vllm serve "$MODEL" \\\n  --port 8000 \\\n'
    b"  --tensor-parallel-size ${TP:-2} # two\n",
    b"docker run --gpus all -v ~/.cache:/root/.cache -e HF_TOKEN=x --shm-size 4g --cpus=2 vllm/vllm-openai:v0.9.1"
    b" --model m --max-model-len 8192\n",
    b"python3 -m vllm.entrypoints.openai.api_server --model m --config c.yaml -tp 2 --no-enable-prefix-caching\n",
    b'nohup env A=b numactl -N 0 vllm serve m --hf-overrides \'{"a": {"b": 1}}\' > log 2>&1 &\n',
    b"cat <<EOF | kubectl apply -f -\nkind: Pod\nspec: {containers: [{name: v, image: vllm/vllm-openai:v0.10.0, args:"
    b" [--model, m]}]}\nEOF\n",
    b"bash -c 'cd /x && vllm serve m --swap-space 4' ; echo $? | tee x\n",
    b"from vllm import LLM\nllm = LLM(model='m', gpu_memory_utilization=0.9, max_num_seqs=8)\n",
    b"ray start --head; for i in 1 2; do vllm serve m --port 800$i & done; wait\n",
)


def rules(pattern: str = "*/*.yaml") -> list[bytes]:
    return [text[:6000] for text in files(*(ROOT / "rules").glob(pattern))]


def texts_below(pattern: str, key: str) -> list[bytes]:
    """The texts that stand behind a key in the rules: `when` conditions, `promql` definitions."""
    found = []
    for text in files(*(ROOT / "rules").glob(pattern)):
        for line in text.splitlines():
            name, colon, rest = line.strip().partition(b": ")
            if colon and name.decode("utf-8", "replace").strip("- {") in key.split("|"):
                found.append(rest.strip(b"'\"}"))
    return sorted(set(found))


def smi() -> list[bytes]:
    return files(*NVIDIA_SMI.iterdir())


def benches() -> list[bytes]:
    """Results of GuideLLM, without most of their single requests; of `vllm bench serve`; and a report."""
    guidellm = [path.read_bytes() for path in sorted((DATA / "guidellm").glob("*.json"))]
    serve = {
        "date": "20251120-101500", "endpoint_type": "openai", "backend": "vllm", "model_id": "m", "num_prompts": 100,
        "request_rate": "inf", "max_concurrency": 16, "duration": 31.5, "completed": 100, "failed": 0,
        "total_input_tokens": 6400, "total_output_tokens": 12800, "request_throughput": 3.2, "output_throughput": 406.0,
        "total_token_throughput": 610.0, "mean_ttft_ms": 80.2, "median_ttft_ms": 70.1, "p99_ttft_ms": 210.0,
        "mean_tpot_ms": 12.1, "median_tpot_ms": 11.9, "p99_tpot_ms": 14.0, "mean_itl_ms": 12.0, "median_itl_ms": 11.8,
        "p99_itl_ms": 30.0, "input_lens": [64, 64], "output_lens": [128, 128], "ttfts": [0.07, 0.08],
        "itls": [[0.01, 0.02], [0.01]], "start_times": [1.0, 2.0], "errors": ["", ""],
    }  # fmt: skip
    return [json.dumps(serve).encode(), *guidellm]


@cache
def parts(name: str = "cpu-hog") -> dict[str, bytes]:
    """The parts of a recording, small: three answers of /metrics, unpacked."""
    found = dict(archive.read(FIXTURES / name))
    for part in list(found):
        if part.endswith(("/metrics.txt", metrics.FILE)):
            del found[part]
    folder = next(part.split("/")[0] for part in found if part.startswith("1-"))
    page = scrapes()[0]
    writer = metrics.MetricsWriter()
    for at in (0.0, 2.0, 4.0):
        writer.add(at, page.decode())
    found[f"{folder}/{metrics.FILE}"] = writer.ended()
    about = json.loads(found["recording.json"])
    about["format"] = "vllm-doctor/recording/v2"
    found["recording.json"] = json.dumps(about).encode()
    return found


def named(contents: dict[str, bytes]) -> list[bytes]:
    """Files as one input each: its name in the first line."""
    return [name.encode() + b"\n" + content for name, content in sorted(contents.items())]


def tars() -> list[bytes]:
    """A recording as a tar that no gzip hides."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, body in sorted(parts().items()):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return [plain.getvalue()]
