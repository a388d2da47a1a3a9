"""Harnesses of GPUs, the host, and a model's files."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from tests.fuzz import corpus
from tests.fuzz.harness import file_of, finite, folder, harness, seen, text_of
from vllm_doctor.model.reason import Reason

_SMI = (
    "<gpu id=", "</gpu>", "<fb_memory_usage>", "MiB", "N/A", "[Not Supported]", "|", "+---", "GPU 0: ", "(UUID: GPU-",
    "MIG 1g.5gb", "<nvidia_smi_log>", "index, name, ", "Timestamp",
)  # fmt: skip


@harness(lambda: corpus.pieces(corpus.smi(), 6000, 3), *_SMI, weight=2)
def nvidia_smi(data: bytes) -> Hashable:
    """A file of nvidia-smi, in any of its forms."""
    from vllm_doctor.sources.gpu import gpu, printed

    view = printed.read(file_of(data, "smi.txt"))
    use = gpu.GpuUse(frozenset({1234}), "0,1", 2)
    gpu.rows(view, use)
    return finite(gpu.facts(view, use)), len(view.gpus), len(view.samples), len(view.notes)


_COLLECTED = (
    b"PyTorch version: 2.9.1+cu129\nOS: Ubuntu\nGPU 0: NVIDIA H100 80GB HBM3\nGPU 1: NVIDIA H100 80GB HBM3\n"
    b"On-line CPU(s) list: 0-95\nThread(s) per core: 2\nNUMA node0 CPU(s): 0-95\n[pip3] triton==3.5.1\n"
    b"vLLM Version: 0.12.0\nGPU Topology:\n\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-95\nVLLM_USE_V1=1\n",
    b"ROCM used to build PyTorch: 6.4\nGPU models and configuration: AMD Instinct MI300X (gfx942)\n"
    b"Is CUDA available: True\nLink Type between two GPUs\nGPU0 0 XGMI\nGPU1 XGMI 0\nvLLM Version: N/A\n",
)


@harness(
    lambda: list(_COLLECTED), "vLLM Version: ", "0-95,", "GPU0 0 PCIE", "=====", "```", "\n> ", "：", "_X=", "+cpu"
)
def collect_env(data: bytes) -> Hashable:
    """What collect-env printed."""
    from vllm_doctor.sources.collect_env import document, source

    seen = source.examine(text_of(data), "env.txt", "p", 2)
    return document.holds(data), finite(seen.facts), len(seen.notes)


class _Driver:
    """In place of pynvml: each function answers with one of the lines, as the type that NVML gives."""

    NVML_NVLINK_MAX_LINKS = 4

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *arguments: self._answer(name, self._lines[zlib.crc32(name.encode()) % len(self._lines)])

    def _answer(self, name: str, line: bytes) -> Any:
        number = int.from_bytes(line[:8], "little")
        word = number % 2**32
        if line.startswith(b"!"):
            error = RuntimeError(line)
            error.value = number % 40  # type: ignore[attr-defined]
            raise error
        match name.removeprefix("nvmlDeviceGet"):
            case "Count" | "P2PStatus" | "MaxMigDeviceCount":
                return word % 5
            case "UUID" | "Name" | "nvmlSystemGetDriverVersion" | "nvmlSystemGetProcessName" | "nvmlErrorString":
                return line[:96].decode()
            case "PciInfo":
                return SimpleNamespace(busId=line[:32])
            case "MigMode" | "CudaComputeCapability":
                return [word % 100, word % 7]
            case "RemappedRows":
                return (word, word, word % 2, word % 3)
            case "MemoryInfo":
                return SimpleNamespace(total=number, used=number // 2, free=number // 3, reserved=0)
            case "UtilizationRates":
                return SimpleNamespace(gpu=word, memory=word)
            case "ComputeRunningProcesses":
                return [SimpleNamespace(pid=word, usedGpuMemory=number)] * (word % 3)
            case _:
                return word


_DRIVER = (
    b"NVIDIA H100 80GB HBM3\nGPU-1\n00000000:17:00.0\n\x01\n\x02\n535.104\n\x00\n!\x03\nMIG 1g.10gb\n/bin/python3 x",
    b"\x01\n\x02\n\x03\n\x04\n\x05\nGPU-a\nGPU-b\n\x50\x46\n\x00\x00\x00\x00\x10",
)


@harness(lambda: list(_DRIVER), "\n!\x03", "\n!\x0f", "\n", "\x01", "MIG 1g.5gb", "NVIDIA A100-SXM4-40GB", most=400)
def nvml(data: bytes) -> Hashable:
    """A driver that answers with hostile names and numbers: a line for each of its functions."""
    from vllm_doctor.sources.gpu import gpu
    from vllm_doctor.sources.gpu.nvml import Nvml
    from vllm_doctor.sources.host.kernel import Kernel

    now = iter(range(1000))
    with mock.patch.dict(sys.modules, {"pynvml": cast(Any, _Driver(data.split(b"\n")))}):
        view = Nvml(Kernel(_machine()), clock=lambda: float(next(now)), sleep=lambda seconds: None).watch(1.0, 500.0)
    use = gpu.GpuUse(frozenset({1}), None, 1)
    gpu.rows(view, use)
    return finite(gpu.facts(view, use)), len(view.gpus), str(view.missing)


@harness(
    lambda: [b"8xL40S", b"NVIDIA A100-SXM4-80GB", b"H100", b"2 x h200"], "x", "H", "GB", "NVIDIA ", "-", " ", most=200
)
def gpu_name(data: bytes) -> Hashable:
    """--gpu."""
    from vllm_doctor.sources.gpu import gpu_name

    found = gpu_name.parse(text_of(data))
    return finite(gpu_name.facts(found)), found.target[:3]


@cache
def _machine_of(folder: Path) -> Path:
    """A host with a vLLM on it."""
    from tests.sources.host.fake_proc import FakeProc
    from tests.trees import Tree

    root = folder / "machine"
    proc = FakeProc(root)
    config = json.dumps({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64})
    words = ["/usr/bin/python3", "/usr/bin/vllm", "serve", "/models/m", "--port", "8000", "--config", "/c.yaml"]
    files: dict[str, str | int] = {
        "models/m/config.json": config,
        "c.yaml": "max-num-seqs: 8\n",
        "models/m/a.safetensors": 9,
    }
    proc.add(42, words, files=files, sockets=[77], environ={"CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN": "x"})
    proc.add(43, "VLLM::EngineCore", parent=42)
    proc.listen(8000, 77)
    proc.kernel()
    tree = Tree(root)
    tree.process("0::/system.slice/docker-abc.scope", pid=42)
    tree.process("0::/system.slice/docker-abc.scope", pid=43)
    tree.mounts(("/", "/sys/fs/cgroup", "cgroup2"))
    tree.v2_root()
    tree.v2("sys/fs/cgroup/system.slice/docker-abc.scope", quota="200000 100000", memory="1073741824")
    tree.cpus([(0, [0, 1]), (0, [2, 3])], "0-3")
    tree.nodes(node0="0-3")
    tree.write("proc/stat", "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\nbtime 17\n")
    tree.write("proc/vmstat", "pswpin 1\nallocstall_normal 3\n")
    tree.write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 50 kB\nSwapTotal: 1 kB\nSwapFree: 1 kB\n")
    tree.write("proc/uptime", "100.5 200.1\n")
    for pid in (42, 43):
        tree.write(f"proc/{pid}/task/{pid}/schedstat", "1000 2000 3\n")
        tree.write(f"proc/{pid}/task/{pid}/status", "Name: x\nCpus_allowed_list:\t0-3\nvoluntary_ctxt_switches: 1\n")
        tree.write(f"proc/{pid}/limits", "Limit Soft Hard Units\nMax open files 1024 4096 files\n")
        tree.write(f"proc/{pid}/numa_maps", "7f00 default anon=1 N0=1\n")
    tree.write("dev/kmsg", "3,1,2,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1, name=x\n")
    return root


def _machine() -> Path:
    return _machine_of(folder())


def _machine_files() -> list[bytes]:
    root = _machine()
    paths = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return corpus.named({str(path.relative_to(root)): path.read_bytes() for path in paths if path.stat().st_size})


@contextmanager
def _instead(name: str, body: bytes) -> Iterator[None]:
    """The machine with a file changed."""
    path = _machine() / name
    if len(name) > 200 or ".." in name.split("/") or name.startswith("/") or not path.is_file():
        yield
        return
    before = path.read_bytes()
    path.write_bytes(body)
    try:
        yield
    finally:
        path.write_bytes(before)


@harness(_machine_files, "0-3,8", "max 100000", "some avg10=0.00", "0::/", " (x) S 1", "N/A", "kB", most=2000)
def host(data: bytes) -> Hashable:
    """A file of /proc, of a control group, or of the model: `name`, then its content."""
    from vllm_doctor.session.local import Local
    from vllm_doctor.sources.gpu import kernel_log
    from vllm_doctor.sources.host import process
    from vllm_doctor.sources.host.kernel import Kernel

    name, _, body = data.partition(b"\n")
    with _instead(name.decode("utf-8", "replace").replace("\0", ""), body):
        kernel = Kernel(_machine())
        kernel_log.xids(kernel)
        process.find(kernel)
        process.listening_on(kernel, 8000)
        found = process.of_pid(kernel, 42)
        now = iter(range(100))
        local = Local(found, "h", kernel=kernel, clock=lambda: float(next(now)), sleep=lambda seconds: None)
        return seen(local.examine_host(1.0, 50.0))


_MODEL = (
    b'{"model_type": "deepseek_v3", "num_hidden_layers": 4, "num_attention_heads": 8, "kv_lora_rank": 512,'
    b' "qk_rope_head_dim": 64, "hidden_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2, "vocab_size": 9}',
    b'{"model_type": "gemma3", "text_config": {"num_hidden_layers": 6, "sliding_window": 512, "layer_types":'
    b' ["sliding_attention", "full_attention"], "num_key_value_heads": 2, "head_dim": 32, "hidden_size": 64,'
    b' "num_attention_heads": 2}, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}',
    b'{"model_type": "qwen3_next", "num_hidden_layers": 4, "full_attention_interval": 4, "linear_num_key_heads": 2,'
    b' "linear_key_head_dim": 8, "linear_num_value_heads": 2, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,'
    b' "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 64}',
)


@harness(
    lambda: list(_MODEL),
    '"num_hidden_layers":',
    '"layer_types":',
    '"text_config":',
    "null",
    "[]",
    "true",
    '"mamba"',
    most=2000,
    weight=2,
)
def model_config(data: bytes) -> Hashable:
    """A model's config.json."""
    from vllm_doctor.vllm import kv_cache, model_config, parameters

    config = model_config.parse(text_of(data))
    if isinstance(config, Reason):
        return str(config)
    config = model_config.overridden(config, '{"num_hidden_layers": 3}')
    facts = (
        model_config.facts(config, config)
        | kv_cache.facts(config, {"--kv-cache-dtype": "fp8"})
        | parameters.facts(config)
    )
    return finite(facts)
