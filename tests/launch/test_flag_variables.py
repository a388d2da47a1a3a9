from __future__ import annotations

import pytest

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form
from vllm_doctor.model.errors import SourceError


def test_variables_named_as_flags_are_these_flags() -> None:
    [start] = read("MAX_MODEL_LEN=1000000 MAX_NUM_SEQS=4 (recipe env)\n")
    assert start.form is Form.FLAGS
    assert start.command.flags == {"--max-model-len": 1000000.0, "--max-num-seqs": 4.0}
    assert start.is_open


def test_a_file_of_variables() -> None:
    text = "# of the worker\nexport MODEL_NAME=org/m\nENFORCE_EAGER=true\nGPU_MEMORY_UTILIZATION=0.9\n"
    text += "HF_TOKEN=planted\nOTHER=1\n"
    [start] = read(text)
    assert start.command.model == "org/m"
    assert start.command.flags == {"--model": "org/m", "--enforce-eager": True, "--gpu-memory-utilization": 0.9}
    assert "planted" not in repr(start)


@pytest.mark.parametrize(
    "text",
    [
        "SEED=1\nFOO=2\n",
        "MAX_MODEL_LEN=1 MAX_NUM_SEQS=2 in a long sentence about what these two variables do for us all\n",
        "A=1\n" * 10,
    ],
)
def test_what_is_of_another_program_is_none(text: str) -> None:
    with pytest.raises(SourceError):
        read(text)
