from __future__ import annotations

import pytest

from vllm_doctor.launch.source import notes, read
from vllm_doctor.launch.start import Form
from vllm_doctor.model.errors import SourceError

LONG = {"--tensor-parallel-size": 8.0, "--max-model-len": 32000.0}


@pytest.mark.parametrize(
    ("text", "model", "is_open"),
    [
        ("-tp 8 --max-model-len 32000", None, False),
        ("... -tp 8 --max-model-len 32000 ...", None, True),
        ("Qwen/Qwen3-32B --tensor-parallel-size 8 --max-model-len 32000", "Qwen/Qwen3-32B", False),
        ("--tensor-parallel-size 8\n--max-model-len 32000\n", None, False),
        ("- `--tensor-parallel-size 8`\n- `--max-model-len=32000`\n", None, False),
        ("- --tensor-parallel-size=8\n- --max-model-len\n- '32000'\n", None, False),
        ("  --tensor-parallel-size=8 \\\n  # long\n  --max-model-len 32000\n", None, False),
    ],
)
def test_flags_alone(text: str, model: str | None, is_open: bool) -> None:
    [start] = read(text)
    assert start.form is Form.FLAGS
    assert (start.command.model, start.is_open) == (model, is_open)
    assert start.command.flags == LONG
    assert "the program is not in the text: these were read as flags of `vllm serve`" in notes(start)


def test_options_of_a_container_with_its_image() -> None:
    """People copy all but the first line of a `docker run`."""
    text = "  --gpus all \\\n  --ipc=host \\\n  -p 8000:8000 \\\n  vllm/vllm-openai:v0.9.1 \\\n  --model m -tp 2\n"
    [start] = read(text)
    assert (start.form, start.version, start.command.model) == (Form.DOCKER_RUN, "0.9.1", "m")
    assert start.command.flags == {"--model": "m", "--tensor-parallel-size": 2}
    assert start.resources.host_ipc
    assert "the program is not in the text: this was read as what follows `docker run`" in notes(start)


def test_a_command_is_no_model() -> None:
    [start] = read("srun -n1 --gres=gpu:2 \\\nvllm serve m --tensor-parallel-size 2\n")
    assert start.form is Form.SHELL


def test_a_value_that_is_not_in_the_text() -> None:
    [start] = read("-tp $TP --max-model-len 32000 --speculative-config '{... \"num_speculative_tokens\": 3}'")
    assert start.unknown_flags == {"--tensor-parallel-size", "--speculative-config"}


@pytest.mark.parametrize(
    "text",
    ["--verbose -x 1 --color", "ls -l --all", "curl --host a --port 1", "-h", "we use --max-model-len 1"],
)
def test_what_is_no_flag_of_vllm(text: str) -> None:
    with pytest.raises(SourceError):
        read(text)


def test_a_remark_in_brackets_is_no_word_of_the_command() -> None:
    [start] = read("--max-num-seqs 16 --limit-mm-per-prompt '{\"image\":1}' (max_pixels 3145728) --api-server-count 2")
    assert start.command.flags["--api-server-count"] == 2.0
    assert "(max_pixels" not in start.argv
