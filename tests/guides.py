"""docs/guides.md: what five public guides tell people to start, and what the doctor says of it.

    python -m tests.guides > docs/guides.md

Written by running the doctor; tests/test_guides.py compares. M stands for the model.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
import textwrap
from dataclasses import dataclass

from vllm_doctor.cli import main
from vllm_doctor.vllm import flags as catalogue

HEAD = """\
# Five public guides, judged

The flags and names that five public guides give to make vLLM faster, and what `vllm-doctor` says of each: first the
command that was asked, then the verdict with the exit code, then each finding. Nothing is measured here: what only a
running server shows is not said, and a command without a finding is unknown (3), not ok. `M` is the model.

Written by `python -m tests.guides > docs/guides.md`; a test compares. The newest release known then: {newest}.
"""


_INDENT = " " * 9


@dataclass(frozen=True)
class Claim:
    """`advice`: what the guide says; `ask`: the arguments of vllm-doctor; `note`: what is to be known besides."""

    advice: str
    ask: tuple[str, ...]
    note: str = ""


def _started(written: str, *more: str) -> tuple[str, ...]:
    return ("--command", written, *more)


def _serve(flags: str, *more: str) -> tuple[str, ...]:
    return _started(f"vllm serve M {flags}", *more)


def _image(version: str, flags: str, *more: str) -> tuple[str, ...]:
    return _started(f"docker run --gpus all --ipc=host vllm/vllm-openai:v{version} --model M {flags}", *more)


H100 = ("--gpu", "H100")
GUIDES: tuple[tuple[str, tuple[Claim, ...]], ...] = (
    (
        "The first guide",
        (
            Claim(
                "`--max-num-batched-tokens 8192`, to run more sequences at once",
                _serve("--max-num-batched-tokens 8192 --gpu-memory-utilization 0.85", *H100),
                "8,192 is what vLLM takes on this GPU anyway; the number of sequences is another flag, --max-num-seqs.",
            ),
            Claim(
                "`--enable-chunked-prefill --max-num-batched-tokens 4096`, as prefix caching",
                _serve("--enable-chunked-prefill --max-num-batched-tokens 4096", *H100),
            ),
            Claim("`--num-speculative-decoder-samples 4`", _serve("--num-speculative-decoder-samples 4")),
            Claim(
                "`--num-speculative-decoder-samples 0`, to switch it off", _serve("--num-speculative-decoder-samples 0")
            ),
            Claim("`--block-size 32`", _serve("--block-size 32")),
            Claim("`--gpu-memory-utilization 0.85`", _serve("--gpu-memory-utilization 0.85")),
            Claim("`--gpu-memory-utilization 0.88`", _serve("--gpu-memory-utilization 0.88")),
            Claim("the same, with a vLLM whose default was 0.9", _image("0.19.1", "--gpu-memory-utilization 0.88")),
            Claim("`vllm:num_generate_tokens_total`", ("flags", "0.32.0", "vllm:num_generate_tokens_total")),
        ),
    ),
    (
        "The second guide",
        (
            Claim(
                "`python -m vllm.benchmarks.benchmark_serving --backend openai`",
                _started("python -m vllm.benchmarks.benchmark_serving --backend openai"),
                "There is no such module: `vllm bench serve`.",
            ),
            Claim(
                "`python -m vllm.entrypoints.openai.api_server --model M`",
                _started("python -m vllm.entrypoints.openai.api_server --model M"),
                "It still starts a server; `vllm serve M` is what is documented.",
            ),
            Claim("`--max-num-seqs 256`", _serve("--max-num-seqs 256", *H100)),
            Claim("the same on an A100", _serve("--max-num-seqs 256", "--gpu", "A100-SXM4-80GB")),
            Claim("the same, and the GPU is not named", _serve("--max-num-seqs 256")),
            Claim("`--max-num-batched-tokens 32768`", _serve("--max-num-batched-tokens 32768", *H100)),
            Claim("`--quantization awq`, until vLLM 0.23", _image("0.23.0", "--quantization awq")),
            Claim(
                "`--quantization awq`, from vLLM 0.24 on",
                _image("0.24.0", "--quantization awq"),
                "It takes the fast kernel too, so nothing is said.",
            ),
            Claim(
                "`--dtype half`",
                _serve("--dtype half"),
                "Whether it casts depends on the model's own type: known where the model's files are on this machine.",
            ),
            Claim("`--gpu-memory-utilization 0.95`", _serve("--gpu-memory-utilization 0.95")),
            Claim("`--enable-prefix-caching`", _serve("--enable-prefix-caching"), "It is on by itself."),
        ),
    ),
    (
        "The third guide",
        (
            Claim(
                "`# comments` after `\\`",
                _started(
                    "vllm serve M \\\n"
                    "  --dtype float16 \\  # half precision\n"
                    "  --gpu-memory-utilization 0.90 \\  # default: 0.90\n"
                    "  --max-num-batched-tokens 16384"
                ),
            ),
            Claim("“Default: 0.90”", _serve("--gpu-memory-utilization 0.90")),
            Claim(
                "`--quantization fp8`", _serve("--quantization fp8"), "vLLM takes it; `fp8_per_tensor` is its new name."
            ),
            Claim("`--quantization gptq`, until vLLM 0.23", _image("0.23.0", "--quantization gptq")),
            Claim(
                "`--max-num-batched-tokens 16384` on an A10G",
                _serve("--max-num-batched-tokens 16384", "--gpu", "A10G"),
                "It is more than vLLM takes there (2,048), and takes memory from the KV cache.",
            ),
            Claim(
                "`--speculative-model`, `--num-speculative-tokens`",
                _image("0.32.0", "--speculative-model draft --num-speculative-tokens 5"),
            ),
            Claim(
                "the same, with the last vLLM that had them",
                _image("0.8.2", "--speculative-model draft --num-speculative-tokens 5"),
            ),
            Claim("`--uvicorn-log-level warning`", _serve("--uvicorn-log-level warning"), "It is valid."),
            Claim("`vllm:gpu_cache_usage_perc`", ("flags", "0.32.0", "vllm:gpu_cache_usage_perc")),
        ),
    ),
    (
        "The fourth guide",
        (
            Claim(
                '`{"enable-chunked-prefill": False, "max-num-batched-tokens": 0}`',
                _started('{"enable-chunked-prefill": False, "max-num-batched-tokens": 0}'),
            ),
            Claim("`--pipeline-parallel-size 1`", _serve("--pipeline-parallel-size 1"), "It is the default."),
            Claim(
                "`meta-llama/Llama-3.1-70B` with TP 4",
                _started("vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4", "--gpu", "4xH100"),
            ),
        ),
    ),
    (
        "The fifth guide",
        (
            Claim("`--swap-space`, until vLLM 0.17", _image("0.17.1", "--swap-space 16")),
            Claim("`--swap-space`, from vLLM 0.18 on", _image("0.18.0", "--swap-space 16")),
            Claim("`--swap-space`, where no version is told", _serve("--swap-space 16")),
            Claim("`XFORMERS` as attention backend", ("flags", "0.32.0", "VLLM_ATTENTION_BACKEND")),
            Claim(
                "four engines on too few cores",
                _started(
                    "docker run --gpus 8 --cpus 8 --ipc=host vllm/vllm-openai:v0.32.0 --model M -dp 4 -tp 2",
                ),
                "2 + N cores for one engine; A + DP + N + 1 for several.",
            ),
        ),
    ),
)


def page() -> str:
    """docs/guides.md as it must be."""
    parts = [HEAD.replace("{newest}", catalogue.newest())]
    for title, claims in GUIDES:
        parts.append(f"\n## {title}\n")
        parts += [_entry(claim) for claim in claims]
    return "".join(parts)


def _entry(claim: Claim) -> str:
    command = " ".join(["vllm-doctor", *map(shlex.quote, claim.ask)])
    said = _page(claim.ask) if claim.ask[0] == "flags" else _findings(claim.ask)
    note = f"\n{claim.note}\n" if claim.note else ""
    return f"\n{claim.advice}\n\n```sh\n{command}\n```\n\n```text\n{said}\n```\n{note}"


def _page(ask: tuple[str, ...]) -> str:
    code, out, _ = asked(ask)
    return f"{out.strip()}\nexit code {code}"


def _findings(ask: tuple[str, ...]) -> str:
    code, out, _ = asked((*ask, "--json"))
    report = json.loads(out)
    problem = report["error"]
    lines = [f"{report['verdict']} ({code})" + (f": {problem['message']}" if problem else "")]
    for finding in report["findings"]:
        lines.append(f"{finding['severity']:<8} {finding['title']} [{finding['rule']}]")
        lines += textwrap.wrap(finding["here"], 110, initial_indent=_INDENT, subsequent_indent=_INDENT)
        for remedy in finding["remedies"][:1]:
            changes = [f"- {name}" for name in remedy["unset"]] + [f"+ {n} {v}" for n, v in remedy["set"].items()]
            cure = f"cure: {remedy['do']}" + (f" ({', '.join(changes)})" if changes else "")
            lines += textwrap.wrap(cure, 110, initial_indent=_INDENT, subsequent_indent=_INDENT + "  ")
    needs = sorted(u["rule"] for u in report["unknown"] if "no-driver" in u["because"].values())
    lines += [f"not judged, as no GPU is named: {', '.join(needs)}"] if needs else []
    return "\n".join(lines)


def asked(ask: tuple[str, ...]) -> tuple[int, str, str]:
    """The doctor's exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main(list(ask))
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    sys.stdout.write(page())
