from __future__ import annotations

from tests.launch.manifests.written import of_file
from vllm_doctor.launch.start import Form


def test_values_of_the_production_stack() -> None:
    [start] = of_file("stack-values.yaml")
    assert (start.form, start.version) == (Form.HELM, "0.9.2")
    assert start.argv == (
        "vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "16384", "--enable-prefix-caching",
        "--no-enable-chunked-prefill", "--dtype", "bfloat16", "--tensor-parallel-size", "1", "--max-num-seqs", "32",
        "--gpu-memory-utilization", "0.95", "--disable-log-requests", "--swap-space=4",
    )  # fmt: skip
    assert (start.notes, start.environment["VLLM_USE_V1"]) == ((), "1")
