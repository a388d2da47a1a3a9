from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.launch.manifests.written import of_file
from vllm_doctor.launch.source import open_command, read
from vllm_doctor.launch.start import Flaw, Form, Resources
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.report import Change


def test_compose() -> None:
    chat, embed = of_file("compose.yaml")
    assert (chat.form, chat.place, chat.version) == (Form.COMPOSE, "services.chat.command", "0.11.0")
    assert chat.command.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert chat.command.flags["--tensor-parallel-size"] == 2.0
    assert chat.command.flags["--speculative-config"] == '{"method": "ngram", "num_speculative_tokens": 3}'
    assert (chat.unknown_flags, chat.faults) == (frozenset(), ())
    assert chat.command.flags["--max-num-seqs"] == 256.0
    assert chat.notes == ("read with their defaults, which variables of these names replace: MAX_SEQS",)
    assert chat.environment == {"HF_TOKEN": None, "VLLM_LOGGING_LEVEL": "DEBUG"}
    assert chat.resources == Resources(gpus=2.0, cpu_limit=8.0, host_ipc=True)
    assert embed.argv == (
        "python3", "-m", "vllm.entrypoints.openai.api_server",
        "--model=BAAI/bge-m3", "--enforce-eager", "--api-key", "[masked]",
    )  # fmt: skip
    assert embed.environment["VLLM_LOGGING_LEVEL"] == "INFO"
    assert embed.resources == Resources(gpus=1.0, shm_bytes=8.0 * 2**30)


def test_backslashes_in_a_folded_text() -> None:
    [start] = read("services:\n  a:\n    command: >\n      vllm serve m \\\n      --dtype half\n")
    assert start.lost == ("--dtype",)
    [start] = read("services:\n  a:\n    command: |\n      vllm serve m \\\n      --dtype half\n")
    assert start.lost == ("--dtype",)
    [start] = read("services:\n  a:\n    command: |\n      vllm serve m \\\n        --dtype half\n")
    assert [(fault.kind, fault.line) for fault in start.faults] == [(Flaw.STRAY_WORD, 4)]
    assert start.command.flags == {"--dtype": "half"}


def test_variables_of_compose() -> None:
    [start] = read(
        "services: {a: {command: 'vllm serve m --dtype $DT --seed $$X', environment: [A=1, HF_HOME=$$h, B]}}"
    )
    assert start.unknown_flags == {"--dtype"}
    assert start.command.flags == {"--seed": "$X"}
    assert start.environment == {"A": None, "HF_HOME": "$h", "B": None}


def test_files_beside_a_compose_file(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        "services:\n  a:\n    image: vllm/vllm-openai:${TAG:-v0.1.0}\n"
        "    env_file: [./serve.env, {path: more.env}]\n    environment: [VLLM_USE_V1=1]\n"
        "    volumes: ['./vllm.yaml:/etc/vllm.yaml:ro']\n"
        "    command: --model $MODEL --seed ${HF_TOKEN:-1} --config /etc/vllm.yaml\n"
    )
    (tmp_path / ".env").write_text("MODEL=org/m\nTAG=v0.11.0\nHF_TOKEN=S3CRET\n")
    (tmp_path / "serve.env").write_text("VLLM_LOGGING_LEVEL=DEBUG\nHF_TOKEN=S3CRET\n")
    (tmp_path / "more.env").write_text("VLLM_USE_V1=0\n")
    (tmp_path / "vllm.yaml").write_text("max-num-seqs: 8\n")
    [start] = open_command(str(tmp_path / "compose.yaml")).starts
    assert (start.command.model, start.version, start.is_environment_whole) == ("org/m", "0.11.0", True)
    assert (start.command.flags["--max-num-seqs"], start.is_open) == (8.0, False)
    assert start.unknown_flags == {"--seed"}
    assert start.environment == {"VLLM_LOGGING_LEVEL": "DEBUG", "HF_TOKEN": None, "VLLM_USE_V1": "1"}
    assert "S3CRET" not in repr(start)


def test_what_is_no_file_beside_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "outside.env").write_text("M=outside\n")
    (tmp_path / "in" / "link.env").symlink_to(tmp_path / "outside.env")
    os.mkfifo(tmp_path / "in" / ".env")
    for name in ("../outside.env", str(tmp_path / "outside.env"), "link.env", "none.env", "."):
        (tmp_path / "in" / "c.yaml").write_text(
            f"services: {{a: {{env_file: {name}, command: 'vllm serve $M', environment: [A=1]}}}}\n"
        )
        [start] = open_command(str(tmp_path / "in" / "c.yaml")).starts
        assert start.notes == ("an env_file is not read: what it sets is not known",)
        assert (start.command.model, start.environment) == (None, {"A": None})
    [start] = read("services: {a: {env_file: .env, command: vllm serve m}}")  # a text has nothing beside it
    assert start.notes


def test_a_service_that_extends_another() -> None:
    [base, own] = read(
        "services:\n  base:\n    image: vllm/vllm-openai:v0.11.0\n    environment: [A=1, VLLM_USE_V1=1]\n"
        "    command: [--model, org/m]\n    ipc: host\n"
        "  own:\n    extends: {service: base}\n    environment: {VLLM_USE_V1: '0'}\n    command: [--model, org/n]\n"
    )
    assert (base.command.model, own.command.model, own.version) == ("org/m", "org/n", "0.11.0")
    assert own.environment == {"A": None, "VLLM_USE_V1": "0"}
    assert own.resources.host_ipc
    [start] = read("services: {a: {extends: {file: x.yaml, service: b}, command: vllm serve m}}")
    assert start.notes == ("extends is not read: what x.yaml adds is not known",)
    [start] = read("services: {a: {extends: a, command: vllm serve m}}")  # without an end
    assert start.command.model == "m"


def test_a_script_and_a_file_among_the_configs() -> None:
    [start] = read(
        "configs:\n  run: {content: 'exec vllm serve \"$$@\" --seed 1'}\n  flags: {content: 'max-num-seqs: 4'}\n"
        "services:\n  a:\n    configs: [{source: run, target: /run.sh}, {source: flags, target: /f.yaml}]\n"
        "    entrypoint: [bash, /run.sh]\n    command: [org/m, --config, /f.yaml]\n"
    )
    assert start.argv == ("vllm", "serve", "org/m", "--config", "/f.yaml", "--seed", "1")
    assert start.command.flags["--max-num-seqs"] == 4.0


FRAGMENT = """\
  vllm:
    image: vllm/vllm-openai:v0.8.5
    container_name: vllm
    ports:
      - 11435:8000
    environment:
      - NCCL_DEBUG=INFO
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              capabilities: [gpu]
              device_ids: ["1"]
    ipc: host
    command: [
      "--model", "org/m-7B",  # a comment
      "--max-model-len", "40960",
"""


@pytest.mark.parametrize("rest", ["    ]\n", "    ]\n```\nIt is slow.\n", "", '      "--max-num-se', '      "--seed'])
def test_a_service_without_its_head_that_may_be_cut(rest: str) -> None:
    [start] = read(f"This is slow for me.\n\n```docker-compose\n{FRAGMENT}{rest}")
    assert (start.form, start.place, start.version) == (Form.COMPOSE, "services.vllm.command", "0.8.5")
    assert start.command.flags == {"--model": "org/m-7B", "--max-model-len": 40960.0}
    assert start.resources == Resources(gpus=1.0, host_ipc=True)
    assert start.environment == {"NCCL_DEBUG": "INFO"}
    is_cut = "```" not in rest
    assert start.is_open is is_cut
    assert ("the text ends with it, and nothing marks its end: what else it sets is not known" in start.notes) is is_cut


def test_of_a_service_that_is_quoted_without_its_command_the_flags_are_not_known() -> None:
    image = "vllm:\n  image: vllm/vllm-openai:v0.8.5\n  ipc: host\n  ports: ['8000:8000']\n"
    [start] = read(image)
    assert start.is_open
    [start] = read("services:\n  " + image.replace("\n", "\n  "))
    assert not start.is_open


def test_a_service_without_its_name_is_corrected_as_a_service(tmp_path: Path) -> None:
    path = tmp_path / "part.yaml"
    path.write_text(
        "image: vllm/vllm-openai:v0.11.0\nipc: host\nports: ['8000:8000']\ncommand: --model org/m --seed 1\n"
    )
    source = open_command(str(path))
    [start] = source.starts
    assert (start.form, start.command.flags["--seed"]) == (Form.COMPOSE, 1.0)
    assert source.document is not None
    [patch] = source.document.patched({0: [Change("--seed", 1.0, 2.0, "a-rule")]})
    assert patch.lines[:2] == ("services:", "  SERVICE:")


@pytest.mark.parametrize(
    "text",
    [
        "app:\n  image: org/app:1\n  ports: ['80:80']\n  restart: always\n",
        "spec:\n  image: vllm/vllm-openai\n  ports: [{containerPort: 80}]\n  volumes: [{name: a}]\n",
        "vllm:\n  devices: [{driver: nvidia, capabilities: [gpu], device_ids: ['1']}]\n",
        "vllm:\n  deploy: {resources: {reservations: {device_ids: ['1'], block_size: 1}}}\n",
        "vllm:\n  colour: red\n  size: 3\n  shape: x\n  block_size: 16\n",
    ],
)
def test_what_is_no_service_of_vllm(text: str) -> None:
    with pytest.raises(SourceError):
        read(text)
