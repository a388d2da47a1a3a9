"""The machine below the server: whether it is WSL, and whether an IOMMU stands between its GPUs.

A GPU that the IOMMU translates for ("DMA", "DMA-FQ") reaches another one by way of the CPU's root complex only, or not
at all; with "identity" (iommu=pt) it writes where it means to.
https://docs.kernel.org/admin-guide/kernel-parameters.html (iommu=), Documentation/ABI/testing/sysfs-kernel-iommu_groups
"""

from __future__ import annotations

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel

_DEVICES = "sys/bus/pci/devices"
_GPU_VENDORS = frozenset({"0x10de", "0x1002"})
"""NVIDIA, AMD."""
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""VGA, 3D and other display controllers, accelerators: AMD's Instinct are one of the last two."""
_MOST_DEVICES = 4096


def facts(kernel: Kernel) -> dict[str, Reading]:
    """wsl; gpus_translated: GPUs on PCIe for which the IOMMU translates addresses, of two or more."""
    return {"wsl": _wsl(kernel), "gpus_translated": _gpus_translated(kernel)}


def _wsl(kernel: Kernel) -> Reading:
    release = kernel.text("proc/sys/kernel/osrelease")
    if isinstance(release, Reason):
        return Unknown(release)
    return Known(float("microsoft" in release.lower()), origin="proc")


def _gpus_translated(kernel: Kernel) -> Reading:
    types = [
        kernel.text(f"{_DEVICES}/{name}/iommu_group/type")
        for name in kernel.names(_DEVICES)[:_MOST_DEVICES]
        if _is_gpu(kernel, f"{_DEVICES}/{name}")
    ]
    if len(types) < 2:
        return Unknown(Reason.NOT_SUPPORTED)
    hidden = next((kind for kind in types if isinstance(kind, Reason) and kind is not Reason.ABSENT), None)
    if hidden is not None:
        return Unknown(hidden)
    # Without a group there is no IOMMU for the device.
    return Known(float(sum(isinstance(kind, str) and kind.startswith("DMA") for kind in types)), origin="sys")


def _is_gpu(kernel: Kernel, device: str) -> bool:
    vendor, kind = kernel.text(f"{device}/vendor"), kernel.text(f"{device}/class")
    if isinstance(vendor, Reason) or isinstance(kind, Reason):
        return False
    return vendor.strip() in _GPU_VENDORS and kind.strip().startswith(_GPU_CLASSES)
