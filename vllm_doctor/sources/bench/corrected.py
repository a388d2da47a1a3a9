"""The command with which to measure again, made from the one that was used; complete where none is known.

It warms up, sends enough requests for about a minute and for percentiles, keeps a fixed number in flight, lets no
answer end early, and takes prompts that no cache has seen. Only flags that the tool has are taken over, each with one
word as its value: what stands in a text from anywhere becomes part of a command that a person runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from vllm_doctor.model.reading import Value
from vllm_doctor.sources.bench.run import LATENCY, SERVE, THROUGHPUT, BenchRun

SECONDS = 60.0
_LEAST_PROMPTS, _MOST_PROMPTS = 100.0, 50_000.0
_WAVES = 10
"""Requests for each that is in flight: the first and the last of them are a small part then."""
_LEAST_OUTPUT, _OUTPUT, _INPUT = 16.0, 128.0, 1024.0
_CONCURRENCY = 16.0
_LARGEST = 1e9
_WORD = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")

_KEPT = (
    "--model", "--served-model-name", "--tokenizer", "--tokenizer-mode", "--trust-remote-code", "--backend",
    "--base-url", "--host", "--port", "--endpoint", "--dataset-name", "--dataset-path", "--hf-name", "--hf-subset",
    "--hf-split", "--hf-output-len", "--sharegpt-output-len", "--custom-output-len", "--random-prefix-len",
    "--random-range-ratio", "--prefix-repetition-prefix-len", "--prefix-repetition-suffix-len",
    "--prefix-repetition-num-prefixes", "--prefix-repetition-output-len", "--temperature", "--top-p", "--top-k",
    "--percentile-metrics", "--metric-percentiles", "--insecure",
)  # fmt: skip
_ENGINE = (
    "--model", "--tokenizer", "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--dtype",
    "--quantization", "-q", "--kv-cache-dtype", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens",
    "--gpu-memory-utilization", "--enforce-eager", "--trust-remote-code", "--dataset-name", "--dataset-path",
)  # fmt: skip
"""Of the tools that start an engine of their own."""
_DEFAULTS = {
    "--backend": "openai", "--host": "127.0.0.1", "--port": "8000", "--endpoint": "/v1/completions",
    "--tokenizer-mode": "auto", "--random-prefix-len": "0", "--random-range-ratio": "0.0", "--metric-percentiles": "99",
}  # fmt: skip


def corrected(run: BenchRun) -> Mapping[str, Value | None]:
    """The command as words (`bench_command_corrected`), and as releases before 0.11.1 take it (`…_early`)."""
    if run.tool == LATENCY:
        words = _latency(run)
        return {"bench_command_corrected": words, "bench_command_early": words}
    if run.tool == THROUGHPUT:
        return {"bench_command_corrected": _throughput(run, True), "bench_command_early": _throughput(run, False)}
    is_script = run.program[:1] not in ((), ("vllm",))
    return {
        "bench_command_corrected": _serve(run, has_warmups=not is_script),
        "bench_command_early": _serve(run, has_warmups=False),
    }


def _serve(run: BenchRun, has_warmups: bool) -> str:
    asked = run.asked
    limit = _concurrency(run)
    flags: dict[str, str] = _kept(run, _KEPT) if run.tool == SERVE else _model(run)
    dataset = flags.get("--dataset-name") or asked.dataset or "random"
    if "--dataset-path" not in flags:
        flags["--dataset-name"] = dataset if _WORD.fullmatch(dataset) else "random"
    if flags.get("--dataset-name") == "random":
        flags["--random-input-len"] = _whole(asked.input_len or run.input_len or _INPUT)
        output = asked.output_len or run.output_len or _OUTPUT
        flags["--random-output-len"] = _whole(output if output >= _LEAST_OUTPUT else _OUTPUT)
    flags["--ignore-eos"] = ""
    flags["--num-prompts"] = _whole(_prompts(run, limit))
    flags["--max-concurrency"] = _whole(limit)
    if has_warmups:
        flags["--num-warmups"] = _whole(limit)
    flags["--seed"] = _whole((asked.seed or 0.0) + 1)
    return _command(run.program or tuple(SERVE.split()), flags)


def _throughput(run: BenchRun, has_warmups: bool) -> str:
    flags = _kept(run, _ENGINE) if run.flags else _model(run)
    if "--dataset-path" not in flags:
        flags["--dataset-name"] = flags.get("--dataset-name", "random")
    if flags.get("--dataset-name") == "random":
        flags["--random-input-len"] = _whole(run.asked.input_len or run.input_len or _INPUT)
        output = run.asked.output_len or run.output_len or _OUTPUT
        flags["--random-output-len"] = _whole(output if output >= _LEAST_OUTPUT else _OUTPUT)
    flags["--num-prompts"] = _whole(_prompts(run, 1.0))
    if has_warmups:
        flags["--num-warmups"] = "16"
    flags["--seed"] = _whole((run.asked.seed or 0.0) + 1)
    return _command(run.program or tuple(THROUGHPUT.split()), flags)


def _latency(run: BenchRun) -> str:
    flags = _kept(run, _ENGINE) if run.flags else _model(run)
    asked = run.asked
    for flag, value in (("--input-len", asked.input_len), ("--batch-size", asked.concurrency)):
        if value is not None and math.isfinite(value):
            flags[flag] = _whole(value)
    output = asked.output_len or _OUTPUT
    flags["--output-len"] = _whole(output if output >= _LEAST_OUTPUT else _OUTPUT)
    flags["--num-iters-warmup"], flags["--num-iters"] = "10", "30"
    return _command(run.program or tuple(LATENCY.split()), flags)


def _kept(run: BenchRun, names: tuple[str, ...]) -> dict[str, str]:
    kept = {
        name: value
        for name in names
        if (value := run.flags.get(name)) is not None
        and (not value or _WORD.fullmatch(value))
        and _DEFAULTS.get(name) != value
    }
    return kept if "--model" in kept else _model(run) | kept


def _model(run: BenchRun) -> dict[str, str]:
    """vLLM's own tool asks the server where no model is named."""
    return {"--model": run.model} if run.model and _WORD.fullmatch(run.model) else {}


def _concurrency(run: BenchRun) -> float:
    """The limit that was asked for; without one, what the server ran at a time, as a power of two."""
    limit = run.asked.concurrency
    if limit is not None and math.isfinite(limit) and limit >= 1:
        return limit
    rate, each = run.output_rate, run.tpot.usual
    running = rate * each if rate and each else 0.0
    is_rated = run.asked.rate is not None and math.isfinite(run.asked.rate)
    least = _CONCURRENCY if is_rated or not running else 1.0
    return float(2 ** math.ceil(math.log2(min(max(running * 0.9, least), 4096.0))))


def _prompts(run: BenchRun, limit: float) -> float:
    """For about a minute, for percentiles, and for many requests in each slot; rounded up to two digits."""
    rate = (run.requests_per_second or 0.0) * _shortened(run)
    wanted = max(_LEAST_PROMPTS, _WAVES * limit, run.asked.prompts or 0.0, SECONDS * rate)
    wanted = min(wanted, max(_MOST_PROMPTS, run.asked.prompts or 0.0))
    step = 10.0 ** max(0, math.floor(math.log10(wanted)) - 1)
    return math.ceil(wanted / step) * step


def _shortened(run: BenchRun) -> float:
    """How much of the new answers' length the old ones had: longer answers are fewer in a minute."""
    length = run.output_len
    if length is None:
        return 1.0
    asked = run.asked.output_len or length
    return min(1.0, length / (asked if asked >= _LEAST_OUTPUT else _OUTPUT))


def _whole(value: float) -> str:
    return str(round(min(value, _LARGEST)))


def _command(program: tuple[str, ...], flags: Mapping[str, str]) -> str:
    return " ".join([*program, *(word for name, value in flags.items() for word in (name, value) if word)])
