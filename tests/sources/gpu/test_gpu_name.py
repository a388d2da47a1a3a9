from __future__ import annotations

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known
from vllm_doctor.sources.gpu import gpu_name
from vllm_doctor.vllm import gpus as data_sheets

GIB = 1024.0**3


def test_the_facts_of_a_name() -> None:
    named = gpu_name.parse("8 x NVIDIA B200")
    assert gpu_name.facts(named) == {
        "gpu_name": Known("B200", origin="--gpu"),
        "gpu_memory_total": Known(180 * GIB, origin="--gpu"),
        "gpu_memory_usable": Known(180 * GIB * 0.985, origin="--gpu"),
        "gpu_compute_capability": Known(10.0, origin="--gpu"),
        "gpu_bandwidth": Known(8000e9, origin="--gpu"),
        "gpu_flops": Known(2250e12, origin="--gpu"),
        "gpu_flops_fp8": Known(4500e12, origin="--gpu"),
        "gpu_flops_fp4": Known(9000e12, origin="--gpu"),
        "gpu_link": Known("nvlink", origin="--gpu"),
        "gpu_link_bandwidth": Known(900e9, origin="--gpu"),
        "gpu_architecture": Known("blackwell", origin="--gpu"),
        "gpus_on_host": Known(8.0, origin="--gpu"),
    }
    assert named.notes == ()


def test_what_a_data_sheet_does_not_tell_is_left_out() -> None:
    assert "gpu_compute_capability" not in gpu_name.facts(gpu_name.parse("MI300X"))
    assert gpu_name.facts(gpu_name.parse("cpu")).keys() == {
        "gpu_name",
        "gpu_link",
        "gpu_architecture",
        "device_written",
    }
    assert "gpus_on_host" not in gpu_name.facts(gpu_name.parse("L4"))


def test_what_a_name_leaves_open_is_a_note() -> None:
    (note,) = gpu_name.parse("2xA100").notes
    assert note.startswith("'A100' is taken for A100-SXM4-80GB; there is A100 80GB PCIe, ")


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("A101", "A100"), ("H101", "H100"), ("L40X", "L40"), ("H100 64GB", "H100 PCIe")],
)
def test_an_unknown_name_is_a_note_with_the_nearest(text: str, nearest: str) -> None:
    named = gpu_name.parse(text)
    (note,) = named.notes
    assert named.gpu is None
    assert note.endswith("; speed is not judged")
    assert "is not in the table; nearest: " in note
    assert nearest in note
    assert len(note) < 300
    assert len(named.target) < 100


@pytest.mark.parametrize("text", ["x" * 9999, "XYZ", "what a word"])
def test_a_name_like_none_has_no_nearest(text: str) -> None:
    named = gpu_name.parse(text)
    (note,) = named.notes
    assert note.endswith("is not in the table; speed is not judged")
    assert len(note) < 150


@pytest.mark.parametrize("text", ["4 GPUs", "4 GPUs (TP4), CUDA 13.0", "4 x NVIDIA GPU", "4 cards, DP4"])
def test_a_number_of_gpus_without_a_name_is_no_unknown_gpu(text: str) -> None:
    found = gpu_name.parse(text)
    assert (found.count, found.gpu) == (4, None)
    assert found.notes == ("which GPUs these 4 are is unknown; speed is not judged",)


@pytest.mark.parametrize("text", ["Xeon (172 threads)", "2x Xeon Platinum", "EPYC"])
def test_a_family_of_cpus_is_a_cpu(text: str) -> None:
    assert gpu_name.facts(gpu_name.parse(text))["device_written"] == Known("cpu", origin="--gpu")


def test_a_cpu_beside_gpus_is_not_what_computes() -> None:
    found = gpu_name.parse("2 sockets EPYC, L4")
    assert found.gpu is not None
    assert found.gpu.name == "L4"


def test_how_many_unknown_ones_is_known() -> None:
    assert gpu_name.facts(gpu_name.parse("4 x XYZ")) == {"gpus_on_host": Known(4.0, origin="--gpu")}


@pytest.mark.parametrize(
    "text", ["", " ", "0xH100", "9999xH100", "H100:0", "1025 nodes x 8 H100", "\x1b[31mH100\x07", "H\u202e100"]
)
def test_what_is_no_name_is_one_short_line(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        gpu_name.parse(text)
    line = str(raised.value)
    assert line.isprintable()
    assert len(line) < 250


def test_each_known_gpu_can_be_named() -> None:
    """By the names that are offered where another was not known."""
    for gpu in data_sheets.gpus():
        assert gpu_name.parse(gpu.name).gpu is gpu, gpu.name
