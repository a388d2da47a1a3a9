from __future__ import annotations

import pytest

from vllm_doctor.launch import processes
from vllm_doctor.launch.source import facts as all_facts
from vllm_doctor.launch.source import read
from vllm_doctor.model.reading import Known, Value


def told(text: str) -> dict[str, Value]:
    [start] = read(text)
    return {name: fact.value for name, fact in processes.facts(start).items() if isinstance(fact, Known)}


@pytest.mark.parametrize(
    ("flags", "terms"),
    [
        ("", "1 API server + 1 engine core + 1 worker"),
        ("-tp 4", "1 API server + 1 engine core + 4 workers"),
        ("-tp 2 -pp 2", "1 API server + 1 engine core + 4 workers"),
        ("-dp 4 -tp 2", "4 API servers + 4 engine cores + 8 workers + 1 coordinator"),
        ("-dp 4 -tp 2 --api-server-count 2", "2 API servers + 4 engine cores + 8 workers + 1 coordinator"),
    ],
)
def test_the_processes_of_a_command(flags: str, terms: str) -> None:
    found = told(f"vllm serve m {flags}")
    assert found["cores_terms"] == terms
    counts = [found[name] for name in ("api_servers", "engine_cores", "workers", "coordinators")]
    assert [count for count in counts if count] == [float(term.split()[0]) for term in terms.split(" + ")]
    assert found["data_parallel_elsewhere"] is False


def test_before_0_15_there_was_one_api_server() -> None:
    image = "docker run vllm/vllm-openai:v{} --model m -dp 2"
    assert told(image.format("0.14.1"))["api_servers"] == 1.0
    assert told(image.format("0.15.0"))["api_servers"] == 2.0


@pytest.mark.parametrize(
    "flags",
    ["-tp $TP", "-tp 0", "-tp x", "-tp 1.5", "-tp 1e400", "-tp 99999999", "$MORE", "--nnodes 2", "--nnodes $N",
     "--distributed-executor-backend ray", "-dp 8 -dpl 4", "-dp 8 --data-parallel-rank 3", "--headless"],
)  # fmt: skip
def test_what_is_not_in_the_text_is_not_counted(flags: str) -> None:
    assert "workers" not in told(f"vllm serve m {flags}")


def test_engines_that_are_shared_with_other_starts() -> None:
    assert told("vllm serve m -dp 8 -dpl 4")["data_parallel_elsewhere"] is True
    assert "data_parallel_elsewhere" not in told("vllm serve m $MORE")


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("docker run --cpus 3 vllm/vllm-openai --model m", 3.0),
        ("docker run --cpus 6 --cpuset-cpus 0-1 vllm/vllm-openai --model m", 2.0),
        ("docker run vllm/vllm-openai --model m", None),
        ("kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    args: [--model, m]\n"
         "    resources: {requests: {cpu: '1500m'}}\n", 1.5),
        ("kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    args: [--model, m]\n"
         "    resources: {requests: {cpu: 2}, limits: {cpu: 4}}\n", 4.0),
        ("services: {s: {image: vllm/vllm-openai, command: [--model, m], cpus: 2}}", 2.0),
        ("[Service]\nExecStart=vllm serve m\nCPUQuota=250%\n", 2.5),
    ],
)  # fmt: skip
def test_the_cores_that_the_text_grants(text: str, cores: float | None) -> None:
    assert told(text).get("cores_usable") == cores


POD = (
    "kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    args: [--model, m]\n"
    "    volumeMounts: [{name: s, mountPath: /dev/shm}]\n  volumes: [{name: s, emptyDir: {medium: Memory%s}}]\n"
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("docker run vllm/vllm-openai --model m", 64.0),
        ("docker run --shm-size 2g vllm/vllm-openai --model m", 2048.0),
        ("docker run --shm-size $S vllm/vllm-openai --model m", None),
        ("docker run --ipc=host vllm/vllm-openai --model m", None),
        ("docker run --ipc=container:x vllm/vllm-openai --model m", None),
        ("docker run -v /dev/shm:/dev/shm vllm/vllm-openai --model m", None),
        ("services: {s: {image: vllm/vllm-openai, command: [--model, m]}}", 64.0),
        ("services: {s: {image: vllm/vllm-openai, command: [--model, m], ipc: host}}", None),
        ("services: {s: {image: vllm/vllm-openai, command: [--model, m], shm_size: '${S}'}}", None),
        ("services: {s: {image: vllm/vllm-openai, command: [--model, m], volumes: ['/dev/shm:/dev/shm']}}", None),
        (POD % "", None),
        (POD % ", sizeLimit: 1Gi", 1024.0),
        (POD.replace("/dev/shm", "/cache") % "", 64.0),
        ("vllm serve m", None),
        ("[Service]\nExecStart=vllm serve m\n", None),
    ],
)
def test_a_container_has_a_small_dev_shm_of_its_own(text: str, size: float | None) -> None:
    [start] = read(text)
    found = all_facts(start).get("shm_size")
    assert (found.value / 2**20 if isinstance(found, Known) and isinstance(found.value, float) else None) == size
