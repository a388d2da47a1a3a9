from __future__ import annotations

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form

PAIR = """export LLMDBENCH_DEPLOY_MODEL_LIST="org/Llama-8B"
export LLMDBENCH_VLLM_COMMON_AFFINITY=nvidia.com/gpu.product:NVIDIA-L40S
export LLMDBENCH_VLLM_COMMON_MAX_MODEL_LEN=9000
export LLMDBENCH_VLLM_COMMON_REPLICAS=1
# Prefill
export LLMDBENCH_VLLM_MODELSERVICE_PREFILL_TENSOR_PARALLELISM=4
export LLMDBENCH_VLLM_MODELSERVICE_PREFILL_EXTRA_ARGS="[--block-size____64____\\
--max-model-len____REPLACE_ENV_LLMDBENCH_VLLM_COMMON_MAX_MODEL_LEN____\\
--enforce-eager]"
export LLMDBENCH_VLLM_MODELSERVICE_DECODE_TENSOR_PARALLELISM=2
export LLMDBENCH_VLLM_MODELSERVICE_DECODE_EXTRA_ARGS=$(mktemp)
cat << EOF > $LLMDBENCH_VLLM_MODELSERVICE_DECODE_EXTRA_ARGS
- |
  vllm serve REPLACE_ENV_LLMDBENCH_DEPLOY_CURRENT_MODEL \\
  --port 8200 \\
  --max-num-seqs REPLACE_ENV_LLMDBENCH_VLLM_COMMON_NOBODY
EOF
"""


def test_the_roles_of_a_scenario() -> None:
    decode, prefill = read(PAIR)
    assert (decode.place, decode.form, decode.command.model) == ("decode", Form.VALUES, "org/Llama-8B")
    assert decode.unknown_flags == {"--max-num-seqs"}
    assert (decode.resources.gpus, decode.resources.gpu) == (2.0, "NVIDIA-L40S")
    assert (prefill.place, prefill.resources.gpus) == ("prefill", 4.0)
    assert prefill.command.flags == {
        "--tensor-parallel-size": 4.0,
        "--block-size": 64.0,
        "--max-model-len": 9000.0,
        "--enforce-eager": True,
    }


def test_a_scenario_is_not_run_and_ends(tmp_path: object) -> None:
    evil = PAIR + f"export LLMDBENCH_VLLM_COMMON_X=$(touch {tmp_path}/ran)\n"
    assert len(read(evil)) == 2
    assert list(tmp_path.iterdir()) == []  # type: ignore[attr-defined]
    many = PAIR + "cat << EOF > $LLMDBENCH_X\n" * 3000
    assert read(many)
