"""A text in which people say how fast it was, and --measured: end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_doctor import SourceError, UsageError, examine
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.report import Report
from vllm_doctor.model.speed import Standing

ALONE = "llama 3.1 70b bfloat16 on 2xa100 pcie: one request gets just 17 tokens per second. How can I get 30 tok/s?\n"
GGUF = (
    "# Slow: llama 3.1 70B GGUF on an A100 80GB (8.7 tokens/s)\n\nIs that normal?\n"
    "(env) root@box:~$ vllm serve ./Meta-Llama-3.1-70B-Instruct-Q4_K_M.gguf --max-model-len 8192\n"
)
COMMAND = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 2"


def _examined(text: str, folder: Path, **options: str) -> Report:
    path = folder / "issue.txt"
    path.write_text(text, "utf-8")
    return examine(path, **options)  # type: ignore[arg-type]


def _notes(report: Report) -> str:
    return "\n".join(note for source in report.sources for note in source.notes)


def test_a_figure_in_a_text_is_judged(tmp_path: Path) -> None:
    report = _examined(ALONE, tmp_path)
    assert report.verdict == "ok"
    assert report.expected is not None
    assert report.expected.standing in (Standing.TYPICAL, Standing.FAST)
    assert report.expected.gpus == 2
    assert "unquantised-bandwidth-bound" in [finding.rule for finding in report.findings]
    assert [bench.output_tokens_per_second for bench in report.benchmarks] == [17]


def test_each_assumption_is_told(tmp_path: Path) -> None:
    said = _notes(_examined(ALONE, tmp_path))
    for what in ("17 tokens per second", "2 × A100 80GB PCIe", "llama-3.1-70b-bfloat16", "--tensor-parallel-size 2"):
        assert what in said


def test_options_come_before_the_text(tmp_path: Path) -> None:
    report = _examined(ALONE, tmp_path, gpu="4xH100", command="vllm serve Qwen/Qwen3-8B -tp 1")
    assert report.patient.gpu == "H100 80GB HBM3"
    assert "GPUs from the text" not in _notes(report)
    assert "model from the text" not in _notes(report)
    assert report.patient.model == "Qwen/Qwen3-8B"


def test_a_slow_kernel_explains_a_slow_server(tmp_path: Path) -> None:
    report = _examined(GGUF, tmp_path)
    assert report.verdict == "warning"
    assert report.findings[0].rule == "quant-kernel-unoptimised"
    assert report.expected is not None
    assert report.expected.standing is Standing.SLOW


def test_of_several_speeds_none_is_judged(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"'30 tok/s', '20 tok/s'.*--measured 30tok/s"):
        _examined("One GPU gives 30 tok/s. Two of them give 20 tok/s.\n", tmp_path)
    report = _examined("One 4090 gives 30 tok/s with Qwen3-8B. Two give 20 tok/s.\n", tmp_path, measured="20tok/s")
    assert [bench.output_tokens_per_second for bench in report.benchmarks] == [20]


def test_a_text_without_a_speed_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="--measured 17tok/s"):
        _examined("vLLM is slow here.\n", tmp_path)


def test_statistics_of_a_log_come_before_sentences(tmp_path: Path) -> None:
    line = (
        "INFO 09-03 02:23:{:02} [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
        "throughput: 100.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n"
    )
    report = _examined("I only get 3 tok/s\n" + "".join(line.format(at) for at in range(0, 50, 10)), tmp_path)
    assert report.benchmarks == ()


def test_measured_beside_a_command() -> None:
    report = examine(command=COMMAND, gpu="2xA100 80GB PCIe", measured="17tok/s")
    assert report.expected is not None
    assert report.expected.tpot.measured == pytest.approx(1 / 17)
    assert [source.kind for source in report.sources] == [SourceKind.COMMAND, SourceKind.BENCH, SourceKind.GPU_NAME]


def test_measured_is_refused_in_a_line() -> None:
    with pytest.raises(UsageError, match="--measured: write 17tok/s"):
        examine(command=COMMAND, measured="quick")


UPGRADE = (
    "# Slow\n\nI would like to report a regression after upgrading the image from `0.21-b3.1` to `0.26-b1`.\n\n"
    "Decoding normally runs at around 20–25 tokens/s. After upgrading it drops to below 1 token/s.\n\n"
    "```\nenv:\n  ZE_AFFINITY_MASK: 0,1\nargs:\n  block-size: 64\n  max-num-batched-tokens: 8192\n"
    "  enforce-eager: true\n"
)


def test_an_upgrade_that_made_it_slow_leads(tmp_path: Path) -> None:
    report = _examined(UPGRADE, tmp_path)
    assert (report.verdict, report.findings[0].rule) == ("warning", "upgrade-slower")
    assert report.findings[0].remedies[0].run == ("vllm-doctor regressions 0.21.0 0.26.0",)
    said = _notes(report)
    assert "'1 token/s'" in said
    assert "'20–25 tokens/s' (before)" in said
    assert "0.21-b3.1 to 0.26-b1" in said


def test_an_upgrade_without_a_figure_counts_where_the_text_says_that_it_is_worse(tmp_path: Path) -> None:
    report = _examined("vLLM 0.8.5 works fine, but 0.9.1 is much slower with Qwen3-8B on an H100.\n", tmp_path)
    assert (report.verdict, report.findings[0].rule) == ("warning", "upgrade-slower")
    with pytest.raises(SourceError):
        _examined("I updated vLLM from 0.8.5 to 0.9.1 and wonder about the log.\n", tmp_path)


CUT = (
    "When I run Org/Qwen3-14B-GPTQ-Int4 or Org/Qwen3-32B-GPTQ-Int4 on an RTX 3090 it leads to {}t/s and 20t/s"
    " respectively.\nCompared to Ollama I get 66t/s and 31t/s.\n\n```docker-compose\n  vllm:\n"
    "    image: vllm/vllm-openai:v0.8.5\n    container_name: vllm\n    ipc: host\n    command: [\n"
    '      "--model", "Org/Qwen3-14B-GPTQ-Int4",\n      "--max-model-len", "40960",\n'
)


def test_of_several_models_the_commands_speed_is_judged(tmp_path: Path) -> None:
    report = _examined(CUT.format(80), tmp_path)
    assert [bench.output_tokens_per_second for bench in report.benchmarks] == [80]
    assert report.verdict == "ok"
    said = _notes(report)
    for what in ("not of this server: '20t/s'", "'66t/s' (of another engine)", "is assumed: the command is cut"):
        assert what in said


def test_what_is_below_typical_within_what_is_uncertain_is_no_ok(tmp_path: Path) -> None:
    report = _examined(CUT.format(31), tmp_path)
    assert report.verdict == "unknown"
    assert report.expected is not None
    assert report.expected.is_below_typical
    assert report.expected.measure_next


@pytest.mark.parametrize(("rate", "verdict"), [(5, "warning"), (120, "unknown"), (300, "unknown")])
def test_a_throughput_of_unknown_many_is_judged_where_one_alone_would_be_slow(
    rate: int, verdict: str, tmp_path: Path
) -> None:
    report = _examined(f"Qwen3-8B bf16 on an H100: the generation throughput is {rate} tokens/s.\n", tmp_path)
    assert report.verdict == verdict
    if verdict == "warning":
        assert report.expected is not None
        assert report.expected.measure_next[0].startswith("count the concurrent requests")
    else:
        assert "of how many requests" in report.headline
    assert "of all requests together" in _notes(report)
