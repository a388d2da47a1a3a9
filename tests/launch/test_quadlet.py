from __future__ import annotations

from vllm_doctor.launch.source import notes, read
from vllm_doctor.launch.start import Form


def test_a_container() -> None:
    [start] = read(
        "[Unit]\nDescription=chat\n[Container]\nImage=docker.io/vllm/vllm-openai:v0.10.0\n"
        "AddDevice=nvidia.com/gpu=0\nAddDevice=nvidia.com/gpu=1\nShmSize=8g\nPodmanArgs=--ipc=host --cpus 4\n"
        'Environment=NCCL_DEBUG=INFO "HF_HOME=/a b"\nEnvironmentFile=/etc/vllm.env\n'
        "Exec=--model m \\\n  --port ${PORT} \\\n  --max-model-len 8192\n[Install]\nWantedBy=default.target\n"
    )
    assert (start.form, start.place, start.version) == (Form.QUADLET, "Exec, line 11", "0.10.0")
    assert start.command.flags == {"--model": "m", "--max-model-len": 8192.0}
    assert start.unknown_flags == {"--port"}
    assert start.environment["NCCL_DEBUG"] == "INFO"
    asked = start.resources
    assert (asked.gpus, asked.shm_bytes, asked.host_ipc, asked.cpu_limit) == (2.0, 8.0 * 2**30, True, 4.0)
    assert not start.is_environment_whole
    assert "EnvironmentFile= is not read: what it sets is not known" in notes(start)


def test_a_part_of_one() -> None:
    [start] = read("Exec=--model m --host 0.0.0.0\nEnvironment=VLLM_CPU_KVCACHE_SPACE=20\n")
    assert (start.command.model, start.environment) == ("m", {"VLLM_CPU_KVCACHE_SPACE": "20"})


def test_all_devices() -> None:
    [start] = read("[Container]\nImage=vllm/vllm-openai\nAddDevice=nvidia.com/gpu=all\nExec=--model m --seed 1\n")
    assert start.resources.gpus is None
