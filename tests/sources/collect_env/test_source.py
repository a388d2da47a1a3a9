"""The texts are written after what collect-env prints (vllm-project/vllm, 2024 to 2026); the values are invented."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.reading import Known
from vllm_doctor.sources.collect_env import document
from vllm_doctor.sources.collect_env.source import examine

SECTIONS = """\
Collecting environment information...
==============================
        System Info
==============================
OS                           : Ubuntu 24.04.1 LTS (x86_64)
GCC version                  : Could not collect

==============================
       PyTorch Info
==============================
PyTorch version              : 2.9.1+cu129
Is debug build               : False
CUDA used to build PyTorch   : 12.9
ROCM used to build PyTorch   : N/A

==============================
       CUDA / GPU Info
==============================
Is CUDA available            : True
GPU models and configuration :
GPU 0: NVIDIA H100 80GB HBM3
GPU 1: NVIDIA H100 80GB HBM3

Nvidia driver version        : 575.57.08

==============================
          CPU Info
==============================
CPU(s):                               96
On-line CPU(s) list:                  0-95
Model name:                           A Processor
Thread(s) per core:                   2
Core(s) per socket:                   24
Socket(s):                            2
CPU(s) scaling MHz:                   21%
NUMA node(s):                         3
NUMA node0 CPU(s):                    0-23,48-71
NUMA node1 CPU(s):                    24-47,72-95
NUMA node2 CPU(s):

==============================
Versions of relevant libraries
==============================
[pip3] nvidia-nccl-cu12==2.27.5
[pip3] transformers==4.57.1
[conda] Could not collect

==============================
         vLLM Info
==============================
ROCM Version                 : Could not collect
vLLM Version                 : 0.12.1.dev7+gabcdef123 (git sha: abcdef123)
vLLM Build Flags:
  CUDA Archs: Not Set; ROCm: Disabled
GPU Topology:
  \tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\t0-23\t0\t\tN/A
GPU1\tNV18\t X \t24-47\t1\t\tN/A

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

==============================
     Environment Variables
==============================
NVIDIA_REQUIRE_CUDA=cuda>=12.9 brand=tesla,driver>=535,driver<536
LD_LIBRARY_PATH=/usr/local/cuda/lib64:/usr/lib
VLLM_USE_FLASHINFER_SAMPLER=1
NCCL_P2P_DISABLE=1
VLLM_API_KEY=planted-key-of-a-test
"""

AMD = """\
PyTorch version: 2.7.0+git1234567
Is debug build: False
CUDA used to build PyTorch: N/A
ROCM used to build PyTorch: 6.4.43483-a187df25c
OS: Ubuntu 22.04.5 LTS (x86_64)
Is CUDA available: True
GPU models and configuration: AMD Instinct MI300X (gfx942:sramecc+:xnack-)
[conda] Could not collectROCM Version: 6.4.43483-a187df25c
vLLM Version: 0.10.0
vLLM Build Flags:
CUDA Archs: Not Set; ROCm: Disabled; Neuron: Disabled
GPU Topology:
============================ ROCm System Management Interface ============================
================================ Weight between two GPUs =================================
       GPU0         GPU1
GPU0   0            15
GPU1   15           0
=============================== Link Type between two GPUs ===============================
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
======================================= Numa Nodes =======================================
GPU[0]          : (Topology) Numa Node: 0
"""

CHINESE = """\
PyTorch version: 2.6.0+cu124
CUDA used to build PyTorch: 12.4
Is CUDA available: True
CPU:
架构：                           x86_64
CPU:                             64
在线 CPU 列表：                  0-63
每个核的线程数：                 2
每个座的核数：                   32
NUMA 节点0 CPU：                 0-63
"""


def told(text: str, wanted: int | None = None) -> dict[str, object]:
    facts = examine(text, "env.txt", "p", wanted).facts
    return {name: fact.value for name, fact in facts.items() if isinstance(fact, Known)}


def test_sections_tell_the_version_the_gpus_and_the_cpus() -> None:
    seen = examine(SECTIONS, "env.txt", "server")
    assert (seen.kind, seen.target, seen.patient) == (SourceKind.COLLECT_ENV, "env.txt", "server")
    facts = told(SECTIONS)
    assert facts["vllm_version"] == "0.12.1.dev7+gabcdef123"
    assert (facts["gpu_name"], facts["gpus_on_host"], facts["driver_version"]) == (
        "NVIDIA H100 80GB HBM3",
        2,
        "575.57.08",
    )
    assert facts["gpu_memory_total"] == 80 * 2**30  # by its data sheet
    assert (facts["last_cpu"], facts["threads_per_core"], facts["cores_of_host"]) == (95, 2, 48)
    assert all(fact.origin == "collect-env" for fact in seen.facts.values() if isinstance(fact, Known))


def test_a_container_may_be_granted_fewer_cpus_than_its_machine_has() -> None:
    usable = examine(SECTIONS, "env.txt", "p").facts["cores_usable"]
    assert usable == Known(48.0, low=1.0, high=48.0)


def test_a_clock_at_rest_and_a_node_without_cpus_say_nothing() -> None:
    facts = told(SECTIONS)
    assert facts["numa_nodes"] == 2
    assert "cpu_frequency_share" not in facts


def test_whichever_gpus_are_used_they_are_linked_alike() -> None:
    assert told(SECTIONS)["nvlink"] is True
    assert "gpus" not in told(SECTIONS)
    assert told(SECTIONS, wanted=2)["gpus"] == 2


def test_variables_are_told_that_concern_vllm_and_are_no_secret() -> None:
    facts = told(SECTIONS)
    assert (facts["$VLLM_USE_FLASHINFER_SAMPLER"], facts["$NCCL_P2P_DISABLE"]) == (1, 1)
    assert not {"$VLLM_API_KEY", "$NVIDIA_REQUIRE_CUDA", "$LD_LIBRARY_PATH"} & facts.keys()
    assert "environment" not in facts  # what is not set there may be set for the server


def test_the_notes_tell_the_packages_and_whose_variables_they_are() -> None:
    installed, variables = examine(SECTIONS, "env.txt", "p").notes
    assert installed == (
        "PyTorch 2.9.1+cu129, CUDA 12.9, NCCL 2.27.5, Transformers 4.57.1, driver 575.57.08,"
        " Ubuntu 24.04.1 LTS (x86_64)"
    )
    assert "the shell" in variables


def test_amd_tells_the_name_of_one_gpu_and_the_links_of_all() -> None:
    facts = told(AMD)
    assert (facts["gpu_name"], facts["gpus_on_host"], facts["gpu_link"], facts["nvlink"]) == (
        "MI300X",
        2,
        "nvlink",
        True,
    )
    assert facts["vllm_version"] == "0.10.0"
    pcie = told(AMD.replace("XGMI", "PCIE"))
    assert (pcie["gpu_link"], pcie["nvlink"]) == ("pcie", False)


def test_of_two_names_the_first_is_taken_and_said() -> None:
    seen = examine(AMD.replace("MI300X (", "MI250X/MI250 ("), "env.txt", "p")
    assert seen.facts["gpu_name"] == Known("MI250X")
    assert "the GPU is taken for MI250X" in seen.notes


def test_lscpu_may_speak_chinese() -> None:
    facts = told(CHINESE)
    assert (facts["cores_of_host"], facts["last_cpu"], facts["numa_nodes"]) == (32, 63, 1)


@pytest.mark.parametrize(
    ("changed", "device"),
    [
        ("Automatically detected platform tpu.\nPyTorch version: 2.8.0\nIs CUDA available: False\nOS: Debian", "tpu"),
        ("PyTorch version: 2.4.0+cpu\nIs CUDA available: False\nvLLM Version: 0.6.3", "cpu"),
        ("PyTorch version: 2.5.1+cpu\nOS: openEuler\n[pip3] torch-npu==2.5.1\nvLLM Version: 0.8.3", "npu"),
        ("PyTorch version: 2.1.2+cu121\nOS: U\n[pip3] torch-xla==2.1.2\nNeuron SDK Version: (0, '+---+')", "neuron"),
        ("PyTorch version: 2.9.0+cu128\nIs CUDA available: True\nOS: Ubuntu", None),
    ],
)
def test_what_is_no_gpu_is_told_by_its_packages(changed: str, device: str | None) -> None:
    assert told(changed).get("device_written") == device


@pytest.mark.parametrize(
    ("written", "version"),
    [
        (
            "0.8.3rc2.dev286+g4c41278b7.d20250421 (git sha: 4c41278b7, date: 20250421)",
            "0.8.3rc2.dev286+g4c41278b7.d20250421",
        ),
        ("0.5.5@COMMIT_HASH_PLACEHOLDER", "0.5.5"),
        ("N/A", None),
        ("0.1.dev7354+g16f89f4", None),  # of a clone without tags: its release is unknown
    ],
)
def test_a_version_that_names_no_release_is_not_one(written: str, version: str | None) -> None:
    assert told(f"PyTorch version: 2.7.0\nvLLM Version: {written}").get("vllm_version") == version


def test_of_several_printouts_the_first_is_read() -> None:
    seen = examine(SECTIONS + AMD, "env.txt", "p")
    assert seen.facts["vllm_version"] == Known("0.12.1.dev7+gabcdef123")
    assert "2 outputs of collect-env stand in it: the first is read" in seen.notes


def test_it_ends_with_its_fence_and_quoted_lines_are_read() -> None:
    page = "> ```text\n" + "".join(f"> {line}\n" for line in AMD.splitlines()) + "> ```\n> VLLM_USE_V1=0\n"
    facts = told(page)
    assert facts["vllm_version"] == "0.10.0"
    assert "$VLLM_USE_V1" not in facts


def test_a_command_after_it_is_no_variable() -> None:
    facts = told(AMD + "VLLM_USE_V1=1\nCUDA_VISIBLE_DEVICES=0 vllm serve m\n")
    assert facts["$VLLM_USE_V1"] == 1
    assert "$CUDA_VISIBLE_DEVICES" not in facts


@pytest.mark.parametrize("text", [SECTIONS, AMD, CHINESE, SECTIONS.replace("\n", "\r\n"), AMD.lower()])
def test_a_printout_is_told_by_its_names(text: str) -> None:
    assert document.holds(text.encode())


@pytest.mark.parametrize("text", ["", "vllm serve m\n", "PyTorch version 2.1.0 Found.\n", "OS: Linux\nCPU(s): 8\n"])
def test_other_texts_hold_none(text: str) -> None:
    assert not document.holds(text.encode())


def test_a_text_without_a_printout_is_one_line_of_an_error() -> None:
    with pytest.raises(SourceError, match=r"^notes\.txt: no output of collect-env stands in it$"):
        examine("nothing of that kind", "notes.txt", "p")


MANY = 10_000_000
HOSTILE: dict[str, Callable[[], str]] = {
    "one long line": lambda: "PyTorch version: " + "x" * MANY,
    "many lines": lambda: "PyTorch version: 2\n" * (MANY // 20),
    "many variables": lambda: "PyTorch version: 2\nvLLM Version: 0.9.0\n" + "VLLM_AB=1\n" * (MANY // 10),
    "spaces": lambda: "PyTorch version" + " " * MANY + ":",
    "CPUs without end": lambda: "PyTorch version: 2\nOn-line CPU(s) list: " + "0-65535," * (MANY // 8),
    "GPUs without end": lambda: (
        "PyTorch version: 2\n" + "".join(f"GPU {n % 999}: NVIDIA H{n}\n" for n in range(99_999))
    ),
    "zeros": lambda: "PyTorch version: \0\nvLLM Version: \0\0" + "\0" * MANY,
    "colons": lambda: ":" * MANY,
    "quotes": lambda: "> " * (MANY // 2),
}


@pytest.mark.parametrize("made", HOSTILE.values(), ids=HOSTILE)
def test_what_is_hostile_is_read_in_bounded_time(made: Callable[[], str]) -> None:
    text = made()
    raw = text.encode()
    began = time.process_time()
    document.holds(raw)
    with suppress(SourceError):
        examine(text, "env.txt", "p")
    assert time.process_time() - began < 2


def test_a_host_has_not_so_many_gpus() -> None:
    with pytest.raises(SourceError, match=r"^env\.txt lists more GPUs than a host can have; [^\n]+$"):
        examine("PyTorch version: 2\n" + "".join(f"GPU {n}: NVIDIA H100\n" for n in range(999)), "env.txt", "p")


def test_code_that_stands_in_it_is_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    planted = f"__import__('pathlib').Path({str(ran)!r}).touch()"
    text = f"{AMD}VLLM_X=$(touch {ran})\nNCCL_X=`touch {ran}`\nNeuron SDK Version: ({planted})\n"
    examine(text, "env.txt", "p")
    assert not ran.exists()
