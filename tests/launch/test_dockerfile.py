from __future__ import annotations

import pytest

from vllm_doctor.launch.dockerfile import entrypoint, is_it
from vllm_doctor.launch.source import notes, read
from vllm_doctor.launch.start import Form, Start


def started(text: str) -> Start:
    [start] = read(text)
    assert start.form is Form.DOCKERFILE
    return start


def test_the_image_its_variables_and_its_command() -> None:
    start = started(
        "# syntax=docker/dockerfile:1\nARG TAG=v0.10.1\nFROM vllm/vllm-openai:${TAG}\n"
        "ENV VLLM_USE_V1=1 OMP_NUM_THREADS=4\nENV NCCL_DEBUG INFO\n"
        'CMD ["--model", "m", \\\n     # a note\n     "--max-model-len", "8192"]\n'
    )
    assert (start.version, start.place) == ("0.10.1", "line 6")
    assert start.command.flags == {"--model": "m", "--max-model-len": 8192.0}
    assert start.environment == {"VLLM_USE_V1": "1", "OMP_NUM_THREADS": "4", "NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ('FROM a\nENTRYPOINT ["vllm", "serve"]\nCMD ["m", "--seed", "1"]\n', {"--seed": 1.0}),
        ("FROM a\nENV S=1\nCMD vllm serve m --seed $S\n", {"--seed": 1.0}),
        ('FROM a\nENV S=1\nENTRYPOINT ["sh", "-c", "exec vllm serve m --seed ${S}"]\n', {"--seed": 1.0}),
        ("FROM a\nENTRYPOINT vllm serve m --seed 1\nCMD --seed 2\n", {"--seed": 1.0}),
        ("FROM a\nCMD vllm serve m --seed 1\nCMD vllm serve m --seed 2\n", {"--seed": 2.0}),
        ('FROM vllm/vllm-openai\nENTRYPOINT []\nCMD ["vllm", "serve", "m", "--seed", "1"]\n', {"--seed": 1.0}),
        ("FROM a AS b\nCMD vllm serve n\nFROM c\nCMD vllm serve m --seed 1\n", {"--seed": 1.0}),
        ("FROM a AS b\nCMD vllm serve m --seed 1\nFROM b\nRUN x\n", {"--seed": 1.0}),
        ("FROM a\nRUN <<EOF\nCMD vllm serve n\nEOF\nCMD vllm serve m --seed 1\n", {"--seed": 1.0}),
    ],
)
def test_what_a_container_of_it_runs(text: str, flags: dict[str, float]) -> None:
    start = started(text)
    assert start.command.model == "m"
    assert start.command.flags == flags


def test_a_list_is_run_by_no_shell() -> None:
    start = started('FROM a\nENV LEN=8\nCMD ["vllm", "serve", "m", "--max-model-len", "$LEN"]\n')
    assert start.unknown_flags == {"--max-model-len"}
    assert "line 3: no shell runs CMD where it is a list, so $LEN stays as it is written" in notes(start)


def test_what_is_built_for_others_to_start() -> None:
    built = entrypoint('FROM vllm/vllm-openai:v0.10.0\nENV A=1\nENTRYPOINT ["vllm", "serve"]\n')
    assert (built.image, built.environment) == ("vllm/vllm-openai:v0.10.0", {"A": "1"})
    assert [word.text for word in built.entrypoint or ()] == ["vllm", "serve"]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("FROM a\n", "", True),
        ("RUN a\nCMD b\n", "", True),
        ("COPY a b\n", "deploy/Dockerfile.gpu", True),
        ("vllm serve m\n", "", False),
        ("cat > x <<EOF\nFROM a\nEOF\n", "", False),
    ],
)
def test_how_it_is_told(text: str, name: str, expected: bool) -> None:
    assert is_it(text, name) is expected
