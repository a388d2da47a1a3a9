from __future__ import annotations

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form, Resources

RECIPE = """model: {path: "hf:org/m", container: "nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.8.0"}
resources: {gpu_type: h100, gpus_per_node: 8, prefill_workers: 6, decode_workers: 1}
backend:
  type: vllm
  connector: nixl
  decode_environment: {VLLM_LOGGING_LEVEL: DEBUG}
  vllm_config:
    prefill: {tensor-parallel-size: 2, no-enable-prefix-caching: true, trust-remote-code: false}
    decode: {tensor_parallel_size: 4, connector: "null", max-model-len: 4096}
"""


def test_a_recipe_has_a_server_for_each_role() -> None:
    prefill, decode = read(RECIPE)
    assert (prefill.form, prefill.place) == (Form.VALUES, "backend.vllm_config.prefill")
    assert prefill.argv == (
        "vllm", "serve", "org/m", "--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}',
        "--tensor-parallel-size", "2", "--no-enable-prefix-caching",
    )  # fmt: skip
    assert prefill.resources == Resources(gpus=2.0, gpu="h100")
    assert prefill.version is None  # Dynamo's, not vLLM's
    assert "the recipe starts 6 such workers" in prefill.notes
    assert decode.command.flags == {"--tensor-parallel-size": 4.0, "--max-model-len": 4096.0}
    assert decode.environment == {"VLLM_LOGGING_LEVEL": "DEBUG"}
