from __future__ import annotations

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form, Resources


def test_variables_are_flags() -> None:
    [start] = read(
        '{"imageName": "runpod/worker-v1-vllm:v2.7.0", "gpuTypeIds": ["NVIDIA A40"], "gpuCount": 2, "env": {'
        '"MODEL_NAME": "org/m", "MAX_MODEL_LEN": "8192", "ENFORCE_EAGER": "true", "ENABLE_PREFIX_CACHING": "false", '
        '"HF_TOKEN": "S3CRET", "MAX_CONCURRENCY": "30", "VLLM_EXTRA_ARGS": "--max-num-seqs 4"}}'
    )
    assert (start.form, start.place, start.version) == (Form.VALUES, "env", None)
    assert start.argv == (
        "vllm", "serve", "--model", "org/m", "--max-model-len", "8192", "--enforce-eager",
        "--no-enable-prefix-caching", "--max-num-seqs", "4",
    )  # fmt: skip
    assert start.resources == Resources(gpus=2.0, gpu="NVIDIA A40")
    assert "S3CRET" not in repr(start)


def test_a_container_of_that_image() -> None:
    [start] = read(
        "services:\n  w:\n    image: runpod/worker-vllm:stable\n"
        "    environment: [MODEL_NAME=org/m, 'MAX_NUM_SEQS=${SEQS:-8}']\n"
    )
    assert (start.form, start.command.model) == (Form.COMPOSE, "org/m")
    assert start.command.flags["--max-num-seqs"] == 8.0
