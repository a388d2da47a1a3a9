"""Whether the machine is WSL, and whether an IOMMU stands between its GPUs, by trees of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trees import Tree
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.sources.host import machine

DEVICES = "sys/bus/pci/devices"


def gpu(tree: Tree, name: str, group: str | None, vendor: str = "0x10de", kind: str = "0x030200") -> None:
    tree.write(f"{DEVICES}/{name}/vendor", f"{vendor}\n")
    tree.write(f"{DEVICES}/{name}/class", f"{kind}\n")
    if group is not None:
        tree.write(f"{DEVICES}/{name}/iommu_group/type", f"{group}\n")


@pytest.mark.parametrize(
    ("release", "expected"),
    [("5.15.167.4-microsoft-standard-WSL2\n", 1.0), ("6.8.0-45-generic\n", 0.0)],
    ids=["WSL2", "Ubuntu"],
)
def test_wsl_has_a_kernel_of_its_own(tmp_path: Path, release: str, expected: float) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/sys/kernel/osrelease", release)
    assert machine.facts(tree.kernel)["wsl"] == Known(expected, origin="proc")


@pytest.mark.parametrize(
    ("group", "expected"),
    [("DMA", 2.0), ("DMA-FQ", 2.0), ("identity", 0.0), (None, 0.0)],
    ids=["translated", "translated lazily", "iommu=pt", "no IOMMU"],
)
def test_gpus_whose_addresses_are_translated(tmp_path: Path, group: str | None, expected: float) -> None:
    tree = Tree(tmp_path)
    gpu(tree, "0000:41:00.0", group)
    gpu(tree, "0000:61:00.0", group)
    gpu(tree, "0000:02:00.0", "DMA", vendor="0x8086", kind="0x020000")  # a network card
    assert machine.facts(tree.kernel)["gpus_translated"] == Known(expected, origin="sys")


def test_one_gpu_has_no_other_to_reach(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    gpu(tree, "0000:41:00.0", "DMA")
    found = machine.facts(tree.kernel)
    assert isinstance(found["gpus_translated"], Unknown)
    assert isinstance(found["wsl"], Unknown)
