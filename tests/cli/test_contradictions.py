"""What a command, or the lines of a start, contradict in themselves: told before anything is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_main import Doctor, doctor

__all__ = ["doctor"]

START = (
    "(EngineCore pid=9) INFO 11-20 10:51:04 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
    "model='Qwen/Qwen3-8B', speculative_config={spec}, tokenizer='Qwen/Qwen3-8B', dtype=torch.bfloat16, "
    "max_seq_len=8192, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size={dp}, "
    "disable_custom_all_reduce=False, quantization=None, enforce_eager=False, kv_cache_dtype=auto, "
    "device_config=cuda, enable_prefix_caching=True, enable_chunked_prefill=True\n"
)
THREADS = (
    "(Worker pid=9) INFO 11-20 10:51:12 [torch_utils.py:295] Reducing Torch threads from {} to 1 for serving. Set "
    "OMP_NUM_THREADS in the external environment to override.\n"
)
PCIE = (
    "(Worker_TP0 pid=9) WARNING 04-17 01:55:04 [custom_all_reduce.py:154] Custom allreduce is disabled because it's "
    "not supported on more than two PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True "
    "explicitly.\n"
)
DRAFTS = """--speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'"""


def findings(report: dict[str, Any]) -> dict[str, str]:
    return {finding["rule"]: finding["severity"] for finding in report["findings"]}


def cures(report: dict[str, Any], rule: str) -> list[dict[str, Any]]:
    [found] = [finding for finding in report["findings"] if finding["rule"] == rule]
    return [remedy["set"] for remedy in found["remedies"]]


def asked(doctor: Doctor, flags: str, gpu: str = "H100") -> dict[str, Any]:
    report: dict[str, Any] = doctor("--command", f"vllm serve Qwen/Qwen3-8B {flags}", "--gpu", gpu, "--json").report
    return report


@pytest.mark.parametrize(
    ("flags", "expected", "size"),
    [
        (f"--max-num-seqs 6 --max-cudagraph-capture-size 6 {DRAFTS}", "warning", 24),
        ("--max-num-seqs 64 --max-cudagraph-capture-size 32", "warning", 64),
        ("--max-num-seqs 32 --max-cudagraph-capture-size 32", None, None),
        ("--max-num-seqs 600 --max-cudagraph-capture-size 256", "info", 608),
        (f"--max-num-seqs 6 {DRAFTS}", None, None),
    ],
)
def test_slots_with_their_drafts_beyond_the_largest_graph(
    flags: str, expected: str | None, size: int | None, doctor: Doctor
) -> None:
    report = asked(doctor, flags)
    assert findings(report).get("cudagraph-uncovered-batch") == expected
    if size is not None:
        assert cures(report, "cudagraph-uncovered-batch")[0] == {"--max-cudagraph-capture-size": size}


def test_sizes_that_are_listed_are_not_capped_by_another_flag(doctor: Doctor) -> None:
    report = asked(doctor, f"""--max-num-seqs 16 -cc '{{"cudagraph_capture_sizes": [1, 2, 4]}}' {DRAFTS}""")
    assert findings(report)["cudagraph-uncovered-batch"] == "warning"
    assert cures(report, "cudagraph-uncovered-batch") == [{}]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (f"""{DRAFTS} -cc '{{"cudagraph_mode": "PIECEWISE", "level": 3}}'""", "warning"),
        (f"{DRAFTS} --compilation-config.cudagraph_mode=piecewise", "warning"),
        ("--compilation-config.cudagraph_mode PIECEWISE", None),
        (f"{DRAFTS} -cc.cudagraph_mode=FULL_AND_PIECEWISE", None),
    ],
)
def test_piecewise_graphs_beside_speculation(flags: str, expected: str | None, doctor: Doctor) -> None:
    report = asked(doctor, flags)
    found = findings(report).get("cudagraph-mode-downgraded")
    assert (found if expected else None) == expected
    if expected:
        now = " ".join(report["command"]["now"])
        assert "cudagraph_mode" not in now
        assert ("level" in now) == ("level" in flags)


@pytest.mark.parametrize(
    ("flags", "gpu", "expected"),
    [
        ("--dtype bfloat16 --max-model-len 2048", "V100-SXM2-32GB", {"--dtype": "half"}),
        ("--dtype bfloat16 --max-model-len 2048", "A10", None),
        ("--no-enable-chunked-prefill --max-num-batched-tokens 2048", "H100", {"--enable-chunked-prefill": True}),
        ("--no-enable-chunked-prefill --max-num-batched-tokens 40960", "H100", None),
        ("--max-num-batched-tokens 128 --max-num-seqs 256", "H100", {}),
    ],
)
def test_values_that_end_the_start(flags: str, gpu: str, expected: dict[str, Any] | None, doctor: Doctor) -> None:
    report = asked(doctor, flags, gpu)
    assert findings(report).get("flag-value-refused") == (None if expected is None else "critical")
    if expected is not None:
        assert cures(report, "flag-value-refused")[0] == expected


def test_the_type_by_the_gpu(doctor: Doctor) -> None:
    old, new = (asked(doctor, "--dtype float32 --max-model-len 512", gpu) for gpu in ("V100-SXM2-32GB", "H100"))
    assert cures(old, "dtype-float32") == [{"--dtype": "half"}]
    assert cures(new, "dtype-float32") == [{"--dtype": "auto"}]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve zai-org/GLM-4.6V-Flash --mm-processor-cache-gb 0", "info"),
        ("""vllm serve acme/foo --limit-mm-per-prompt '{"image": 1}' --mm-processor-cache-gb 0""", "info"),
        ("""vllm serve Qwen/Qwen2.5-VL-7B-Instruct --limit-mm-per-prompt '{"image": 0, "video": 0}' """
         "--mm-processor-cache-gb 0", None),
        ("vllm serve zai-org/GLM-4.6V-Flash", None),
        ("vllm serve Qwen/Qwen3-8B --mm-processor-cache-gb 0", None),
    ],
)  # fmt: skip
def test_no_cache_for_images(command: str, expected: str | None, doctor: Doctor) -> None:
    report = doctor("--command", command, "--json").report
    assert findings(report).get("mm-preprocessing-bound") == expected
    if expected:
        assert {"--mm-processor-cache-gb": 4} in cures(report, "mm-preprocessing-bound")


def test_the_line_of_the_log_is_the_topology(tmp_path: Path, doctor: Doctor) -> None:
    """Four GPUs, of which vLLM says that they are joined by PCIe alone; no request was seen, so no pipeline."""
    (tmp_path / "log.txt").write_text(PCIE)
    report = doctor(str(tmp_path / "log.txt"), "--gpu", "4x RTX PRO 6000 Blackwell (no NVLink)", "--json").report
    assert findings(report) == {"pcie-no-nvlink": "warning"}
    assert cures(report, "pcie-no-nvlink")[0] == {"--tensor-parallel-size": 2, "--data-parallel-size": 2}
    assert not any("--pipeline-parallel-size" in cure for cure in cures(report, "pcie-no-nvlink"))


def test_cards_that_have_no_link(doctor: Doctor) -> None:
    report = asked(doctor, "-tp 4", "4x RTX 4090")
    assert findings(report)["pcie-no-nvlink"] == "info"
    assert cures(report, "pcie-no-nvlink")[0] == {"--tensor-parallel-size": 1, "--data-parallel-size": 4}
    assert "pcie-no-nvlink" not in findings(asked(doctor, "-tp 4", "4xH100"))


@pytest.mark.parametrize(
    ("dp", "threads", "expected"), [(8, 8, "warning"), (8, 64, None), (1, 2, None), (4, 5, "warning")]
)
def test_processes_beyond_the_cores_that_torch_found(
    dp: int, threads: int, expected: str | None, tmp_path: Path, doctor: Doctor
) -> None:
    arguments = f"{{'model_tag': 'Qwen/Qwen3-8B', 'data_parallel_size': {dp}}}"
    given = f"(APIServer pid=1) INFO 11-20 10:50:56 [api_utils.py:286] non-default args: {arguments}\n"
    (tmp_path / "log.txt").write_text(given + START.format(spec="None", dp=dp) + THREADS.format(threads))
    report = doctor(str(tmp_path / "log.txt"), "--json").report
    assert findings(report).get("cpu-underprovisioned") == expected
    if dp == 4:  # of 4 API servers, 4 engines; one API server makes it five processes, for five cores
        assert cures(report, "cpu-underprovisioned")[0] == {"--api-server-count": 1}


@pytest.mark.parametrize(
    ("flags", "rule", "expected"),
    [
        ("--kv-cache-memory-bytes 16GiB --max-model-len 8192 --max-num-seqs 256", "max-num-seqs-lowered", False),
        ("--max-model-len 8192 --max-num-seqs 6", "max-num-seqs-lowered", False),
        ("--kv-cache-memory-bytes 60G --max-num-seqs 128", "max-num-seqs-lowered", True),
        ("--gpu-memory-utilization 0.7", "gpu-mem-util-lowered", True),
        ("--gpu-memory-utilization 0.7 --max-num-seqs 4", "gpu-mem-util-lowered", False),
    ],
)
def test_an_opportunity_only_where_its_gate_can_bind(flags: str, rule: str, expected: bool, doctor: Doctor) -> None:
    assert (rule in findings(asked(doctor, flags))) is expected


def test_a_benchmark_of_prompts_alone_is_no_case_against_eager_mode(doctor: Doctor) -> None:
    given = "vllm bench throughput --model meta-llama/Llama-3.1-8B --enforce-eager --input-len 32 --output-len {}"
    prompts, answers = (doctor("--command", given.format(length), "--json").report for length in (1, 128))
    assert (findings(prompts)["bench-no-decode"], findings(prompts)["enforce-eager"]) == ("warning", "info")
    assert (findings(answers).get("bench-no-decode"), findings(answers)["enforce-eager"]) == (None, "warning")


def test_the_method_that_older_releases_take_literally(doctor: Doctor) -> None:
    unversioned = doctor("--command", "vllm serve acme/Foo-8B-AWQ --quantization awq", "--json").report
    told = doctor(
        "--command", "docker run vllm/vllm-openai:v0.30.0 --model acme/Foo-8B-AWQ --quantization awq", "--json"
    ).report
    assert findings(unversioned)["quant-kernel-unoptimised"] == "info"
    assert "quant-kernel-unoptimised" not in findings(told)


SIZED = "--kv-cache-memory-bytes 16GiB --max-num-seqs 256"
CLIENT = "\nvllm bench serve --random-input-len {} --random-output-len {} --max-concurrency {}"


@pytest.mark.parametrize(
    ("flags", "load", "expected"),
    [
        (SIZED, (1000, 5000, 128), "warning"),
        (SIZED, (1000, 5000, 16), None),
        (SIZED, (128, 128, 128), None),
        ("--max-num-seqs 16", (1000, 5000, 1000), None),  # no more than its slots run
    ],
)
def test_a_load_that_the_kv_cache_does_not_hold(
    flags: str, load: tuple[int, int, int], expected: str | None, doctor: Doctor
) -> None:
    report = asked(doctor, flags + CLIENT.format(*load), "H100")
    assert findings(report).get("load-exceeds-kv-cache") == expected
    if expected is not None:
        [found] = [one for one in report["findings"] if one["rule"] == "load-exceeds-kv-cache"]
        assert found["remedies"][0]["unset"] == ["--kv-cache-memory-bytes"]


def test_the_memory_of_a_load_that_fits_is_no_opportunity(doctor: Doctor) -> None:
    lowered = "--gpu-memory-utilization 0.7"
    assert "gpu-mem-util-lowered" in findings(asked(doctor, lowered))
    assert "gpu-mem-util-lowered" not in findings(asked(doctor, lowered + CLIENT.format(128, 128, 2)))


@pytest.mark.parametrize(
    ("given", "gpu", "expected"),
    [("172 threads to 1", "Xeon", "warning"), ("172 threads to 1", "4xH100", None), ("2 threads to 1", "Xeon", None)],
)
def test_one_thread_of_a_cpu_that_computes_the_model(
    given: str, gpu: str, expected: str | None, tmp_path: Path, doctor: Doctor
) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(
        f"WARNING 02-11 09:12:04 _logger.py:72] Reducing Torch parallelism from {given} to avoid unnecessary CPU"
        " contention. Set OMP_NUM_THREADS in the external environment to tune this value as needed.\n"
    )
    assert findings(doctor(str(log), "--gpu", gpu, "--json").report).get("cpu-threads-underused") == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--limit-mm-per-prompt image=0,video=1", {"--api-server-count": 4}),
        (
            "--mm-processor-cache-gb 0 --limit-mm-per-prompt image=4",
            {"--api-server-count": 4, "--mm-processor-cache-gb": 4},
        ),
        (
            "--mm-processor-cache-gb 0 --api-server-count 4 --limit-mm-per-prompt image=4",
            {"--mm-processor-cache-gb": 4},
        ),
        ("--limit-mm-per-prompt image=4", None),
        ("--limit-mm-per-prompt image=0,video=1 --api-server-count 4", None),
    ],
)
def test_what_is_read_beside_text_is_prepared_on_more_than_one_core(
    flags: str, expected: dict[str, int] | None, doctor: Doctor
) -> None:
    report = doctor("--command", f"vllm serve Qwen/Qwen2.5-VL-7B-Instruct {flags}", "--gpu", "A100", "--json").report
    if expected is None:
        assert "mm-preprocessing-bound" not in findings(report)
    else:
        assert cures(report, "mm-preprocessing-bound")[0] == expected


def test_the_headline_names_what_is_suspected_of_a_command(doctor: Doctor) -> None:
    report = doctor("--command", "vllm serve acme/Foo-8B-AWQ --quantization awq", "--json").report
    assert report["headline"] == (
        "Quantised weights run on a slow kernel; nothing was measured that shows what it costs"
    )
    assert report["verdict"] == "unknown"


@pytest.mark.parametrize(("size", "is_told"), [(16, False), (128, True)])
def test_a_block_size_that_all_backends_take_is_no_finding(size: int, is_told: bool, doctor: Doctor) -> None:
    assert ("block-size-by-hand" in findings(asked(doctor, f"--block-size {size}"))) is is_told


V0_STATS = (
    "INFO 02-28 15:10:{:02} metrics.py:455] Avg prompt throughput: 303.8 tokens/s, Avg generation throughput: 3171.3 "
    "tokens/s, Running: 600 reqs, Swapped: 0 reqs, Pending: 4475 reqs, GPU KV cache usage: 60.3%, CPU KV cache usage: "
    "0.0%.\n"
)


def test_a_log_dates_the_command_beside_it(tmp_path: Path, doctor: Doctor) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("".join(V0_STATS.format(second) for second in range(5, 30, 5)))
    command = "vllm serve acme/Foo-8B --max-num-seqs 600 --gpu-memory-utilization 0.8"
    report = doctor(str(log), "--command", command, "--json").report
    assert report["patient"]["vllm_window"].startswith("up to 0.10.2")
    [cap] = [finding for finding in report["findings"] if finding["rule"] == "max-num-seqs-cap"]
    assert cap["remedies"][0]["validated_for"] == "0.10.2"
    assert report["command"]["now"][:4] == ["vllm", "serve", "acme/Foo-8B", "--max-num-seqs"]
    assert report["command"]["now"][4] == "895"  # 600 fill 60.3 % of the KV cache


def test_a_cache_beside_vllm_that_had_nothing_to_give(tmp_path: Path, doctor: Doctor) -> None:
    line = (
        "[2025-07-21 22:14:51,302] LMCache INFO: Reqid: cmpl-0, Total tokens 15444, {}LMCache hit tokens: 15444, need "
        "to load: {} (vllm_v1_adapter.py:818:lmcache.integration.vllm.vllm_v1_adapter)\n"
    )
    log = tmp_path / "vllm.log"
    for more, load, expected in (("", 3, "info"), ("Inference Engine computed tokens: 0, ", 15444, None)):
        log.write_text(line.format(more, load))
        assert findings(doctor(str(log), "--json").report).get("kv-offload-unneeded") == expected


@pytest.mark.parametrize(("running", "expected"), [(4, None), (6, "info")])
def test_full_graphs_are_counted_by_their_progress(
    running: int, expected: str | None, tmp_path: Path, doctor: Doctor
) -> None:
    bar = "Capturing CUDA graphs ({}): 100%|██████████| {}/{} [00:02<00:00,  2.1it/s]\n"
    stats = (
        "(APIServer pid=1) INFO 11-20 10:52:{:02} [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: 160.0 tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage: 10.0%, "
        "Prefix cache hit rate: 0.0%\n"
    )
    log = tmp_path / "vllm.log"
    log.write_text(
        START.format(spec="None", dp=1).replace(
            "cuda, ", "cuda, compilation_config={'max_cudagraph_capture_size': 16}, "
        )
        + bar.format("mixed prefill-decode, PIECEWISE", 5, 5)
        + bar.format("decode, FULL", 3, 3)
        + "".join(stats.format(second, running) for second in (10, 20, 30, 40))
    )
    assert findings(doctor(str(log), "--json").report).get("cudagraph-uncovered-batch") == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--no-enable-chunked-prefill", "warning"),
        ("--enable-chunked-prefill=False --num-scheduler-steps 10", None),
    ],
)
def test_chunked_prefill_off_is_the_v0_engines_own_way(flags: str, expected: str | None, doctor: Doctor) -> None:
    assert findings(asked(doctor, flags)).get("chunked-prefill-off") == expected


@pytest.mark.parametrize(
    ("model", "gpus", "is_advised"),
    [
        ("Qwen/Qwen2.5-14B-Instruct", 2, True),
        ("Qwen/Qwen2-72B-Instruct-GPTQ-Int4", 4, False),  # it has four bits, and fits no 24 GB
        ("meta-llama/Llama-3.1-70B-Instruct", 8, False),
    ],
)
def test_a_model_that_no_quantisation_makes_fit_one_gpu(
    model: str, gpus: int, is_advised: bool, doctor: Doctor
) -> None:
    command = f"vllm serve {model} --tensor-parallel-size {gpus}"
    report = doctor("--command", command, "--gpu", f"{gpus}x4090", "--json").report
    [found] = [one for one in report["findings"] if one["rule"] == "pcie-no-nvlink"]
    assert any("Quantise" in remedy["do"] for remedy in found["remedies"]) is is_advised
