"""Facts of a model and of GPUs, as names and files tell them, for what is expected of a command."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_doctor.model.reading import Known, Reading, Value

GIB = 2.0**30

LLAMA_8B: Mapping[str, Value] = {
    "model_weights": 16_060_522_496.0, "parameters": 8_030_261_248.0, "expert_parameters": 0.0,
    "parameters_used": 7_504_924_672.0, "model_experts": 0.0, "experts_per_token": 0.0,
    "hidden_layers": 32.0, "hidden_size": 4096.0, "attention_heads": 32.0, "kv_heads": 8.0, "model_context": 131_072.0,
    "model_dtype": "bfloat16", "model_quantization": "none", "multimodal": False,
    "kv_bytes_per_token": 131_072.0, "kv_window_bytes_per_token": 0.0, "kv_window": 0.0, "kv_state_bytes": 0.0,
    "kv_state_page_bytes": 0.0, "kv_state_copies": 2.0, "kv_cache_heads": 8.0, "kv_draft_bytes_per_token": 0.0,
}  # fmt: skip
H100: Mapping[str, Value] = {
    "gpu_name": "H100", "gpu_memory_total": 80 * GIB, "gpu_compute_capability": 9.0, "gpus_on_host": 1.0,
    "gpu_bandwidth": 3.35e12, "gpu_flops": 989e12, "gpu_flops_fp8": 1979e12, "gpu_link": "nvlink",
}  # fmt: skip
A10G: Mapping[str, Value] = {
    "gpu_name": "A10G", "gpu_memory_total": 24 * GIB, "gpu_compute_capability": 8.6, "gpus_on_host": 1.0,
    "gpu_bandwidth": 600e9, "gpu_flops": 70e12, "gpu_link": "pcie",
}  # fmt: skip
COMMAND: Mapping[str, Value] = {
    "command": True, "command_form": "shell", "environment": True, "commands_written": 1.0, "vllm_version": "0.30.0",
    "max_num_seqs_default": 256.0, "gpu_memory_utilization_default": 0.9, "flags_judged_as": "0.30.0",
}  # fmt: skip


def facts(*told: Mapping[str, Value], **flags: Value) -> dict[str, Reading]:
    """These facts; a keyword max_model_len=4096 is the flag --max-model-len 4096."""
    given = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    merged: dict[str, Value] = {name: value for one in (*told, given) for name, value in one.items()}
    return {name: Known(float(value) if type(value) is int else value) for name, value in merged.items()}
