from __future__ import annotations

from pathlib import Path

from vllm_doctor.launch import yaml_tree
from vllm_doctor.launch.manifests import script
from vllm_doctor.launch.manifests.container import texts
from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form, Resources


def test_commands_keep_their_lines() -> None:
    [root] = yaml_tree.read("run:\n- a\n\n- |\n  b\n  c\n- d\n").roots
    joined = script.joined(texts(root["run"]))
    assert joined is not None
    assert (joined.line, joined.text.split("\n")) == (2, ["a", "", "", "b", "c", "d"])


def test_dstack() -> None:
    [start] = read(
        "type: service\nimage: vllm/vllm-openai:v0.11.0\nenv:\n- HF_TOKEN\n- MODEL=org/m\ncommands:\n- pip list\n- |\n"
        "  vllm serve $MODEL \\\n    --tensor-parallel-size $DSTACK_GPUS_NUM\n"
        "resources: {gpu: 'H100:4', shm_size: 16GB}\n"
    )
    assert (start.form, start.place, start.version) == (Form.VALUES, "commands", "0.11.0")
    assert (start.command.model, start.command.flags) == ("org/m", {"--tensor-parallel-size": 4.0})
    assert start.resources == Resources(gpus=4.0, shm_bytes=16.0 * 2**30, gpu="H100")
    assert start.environment["HF_TOKEN"] is None


def test_replica_groups_of_dstack_are_servers() -> None:
    prefill, decode = read(
        "type: service\nenv: [MODEL=org/m]\nreplicas:\n- commands: [smg launch]\n"
        "- commands: ['python3 -m vllm.entrypoints.grpc_server --model $MODEL']\n  resources: {gpu: H200}\n"
        "- commands: ['vllm serve $MODEL']\n  resources: {gpu: {name: H100, count: 2}}\n"
    )
    assert (prefill.place, prefill.command.model) == ("replicas[1].commands", "org/m")
    assert prefill.resources == Resources(gpus=1.0, gpu="H200")
    assert decode.resources == Resources(gpus=2.0, gpu="H100")


def test_truss() -> None:
    [start] = read(
        "base_image: {image: 'vllm/vllm-openai:v0.9.2'}\nresources: {accelerator: 'H100:2', use_gpu: true}\n"
        "environment_variables: {VLLM_LOGGING_LEVEL: INFO}\ndocker_server:\n"
        '  start_command: sh -c "HF_TOKEN=$(cat /secrets/x) vllm serve org/m --max-model-len 16384"\n'
    )
    assert (start.place, start.version) == ("docker_server.start_command", "0.9.2")
    assert (start.command.model, start.command.flags) == ("org/m", {"--max-model-len": 16384.0})
    assert start.resources == Resources(gpus=2.0, gpu="H100")
    assert start.environment == {"VLLM_LOGGING_LEVEL": "INFO", "HF_TOKEN": None}


def test_sky_knows_its_variables() -> None:
    [start] = read(
        "envs: {MODEL_NAME: org/m, LEN: 4096}\nsecrets: {HF_TOKEN: null}\nresources: {accelerators: 'H100:8'}\n"
        "run: |\n  vllm serve $MODEL_NAME --max-model-len ${LEN} --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE\n"
    )
    assert start.command.model == "org/m"
    assert start.command.flags == {"--max-model-len": 4096.0, "--tensor-parallel-size": 8.0}
    assert (start.resources.gpu, start.resources.gpus) == ("H100", 8.0)


def test_llama_swap() -> None:
    one, two = read(
        "macros: {serve: 'vllm serve --port ${PORT}', again: '${again} x'}\nmodels:\n"
        "  one:\n    env: [VLLM_USE_V1=1]\n"
        "    cmd: |\n      ${serve}\n      # a comment\n      org/m --max-num-seqs 8\n  two:\n"
        "    cmd: docker run --gpus 2 vllm/vllm-openai:v0.10.0 --model org/n\n"
        "  three: {cmd: 'llama-server -m x ${again}'}\n"
    )
    assert (one.place, one.command.model) == ("models.one.cmd", "org/m")
    assert one.unknown_flags == {"--port"}
    assert one.environment == {"VLLM_USE_V1": "1"}
    assert (two.form, two.version, two.resources.gpus) == (Form.DOCKER_RUN, "0.10.0", 2.0)


def test_nothing_is_run(tmp_path: Path) -> None:
    read(f"type: task\ncommands: ['touch {tmp_path}/a; vllm serve m --seed $(touch {tmp_path}/b)']\n")
    assert list(tmp_path.iterdir()) == []
