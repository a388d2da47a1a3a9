"""The GPUs as `nvidia-smi -q -x` wrote them to a file, of any driver, on Linux or Windows.

Each <gpu> element is read by itself and below no DOCTYPE, so a file that was cut off, or that a terminal added words
to, still tells what is whole in it, and no document can declare entities.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, fromstring

from vllm_doctor.errors import UsageError
from vllm_doctor.signal import Known, Reading, Reason, Unknown
from vllm_doctor.sources import gpu as bits
from vllm_doctor.sources.encoding import decoded
from vllm_doctor.sources.gpu import NOT_TOLD, Gpu, GpuProcess, GpuSample, GpuView

ORIGIN = "nvidia-smi"
MAX_FILE = 16 * 1024 * 1024
MAX_ELEMENT = 1024 * 1024  # one GPU with all clocks it supports takes 75 kB
MAX_GPUS = 256  # MIG instances count
MAX_TOLD = 20_000  # GPUs times samples
_HOW = "make it with: nvidia-smi -q -x > smi.xml"

_UNITS = {
    "": 1.0,
    "%": 0.01,
    "x": 1.0,
    "C": 1.0,
    "W": 1.0,
    "MHz": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "MB": 2.0**20,  # what drivers before 340 called it
    "GiB": 2.0**30,
}
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(\S*)")
_SWITCH = {"enabled": True, "disabled": False, "yes": True, "no": False}
_REASONS = {
    "gpu_idle": bits.IDLE,
    "applications_clocks_setting": bits.APPLICATIONS_CLOCKS,
    "sw_power_cap": bits.SW_POWER_CAP,
    "hw_slowdown": bits.HW_SLOWDOWN,
    "sync_boost": bits.SYNC_BOOST,
    "sw_thermal_slowdown": bits.SW_THERMAL,
    "hw_thermal_slowdown": bits.HW_THERMAL,
    "hw_power_brake_slowdown": bits.HW_POWER_BRAKE,
    "display_clocks_setting": bits.DISPLAY_CLOCKS,
}
_NO_DRIVER = ("Failed to initialize NVML", "NVIDIA-SMI has failed", "Unable to determine the device handle")
_BROKEN = frozenset({"unknown error", "err!", "gpu is lost", "gpu requires reset"})
_NOTHING_SAID = _BROKEN | {"", "-", "n/a", "none", "not found", "not supported", "insufficient permissions"}


def read(path: Path) -> GpuView:
    """What the file says of the host's GPUs: one sample a GPU, or one a document where -l wrote several.

    Where nvidia-smi itself wrote that it found no driver or no GPU, the view's `missing` and `detail` say so.
    Raises UsageError if the file cannot be read or holds no whole GPU: what it is, and how to make the right one.
    """
    text = _text(path)
    if "<nvidia_smi_log" not in text:
        return _without_gpus(path, text)
    if "<!ENTITY" in text or re.search(r"<!DOCTYPE[^<>\[]{0,200}\[", text):
        raise UsageError(f"{path}: declares entities, which nvidia-smi never does; {_HOW}")
    if max(text.count("<nvidia_smi_log"), text.count("</gpu>")) > MAX_TOLD:
        raise UsageError(f"{path} tells of a GPU more than {MAX_TOLD:,} times; log less often (-l) or shorter")
    return _view(path, [_Document.of(piece) for piece in text.split("<nvidia_smi_log")[1:]])


# --- the file -------------------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    """The file as text: UTF-8, or UTF-16 as PowerShell's > writes it."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory, not the output of nvidia-smi; {_HOW}") from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"{path} cannot be read ({why}); {_HOW}") from None
    if len(data) > MAX_FILE:
        raise UsageError(f"{path} is larger than {MAX_FILE // 2**20} MB; log less often (-l) or shorter")
    return decoded(data)


def _without_gpus(path: Path, text: str) -> GpuView:
    """The view that nvidia-smi's own excuse gives; UsageError for what is no answer of it."""
    line = " ".join(text.split())
    if len(line) < 1000:
        if "No devices were found" in line:
            return GpuView(ORIGIN, missing=Reason.ABSENT, detail=_clean(line))
        if any(words in line for words in _NO_DRIVER):
            denied = "permission" in line.lower()
            return GpuView(ORIGIN, missing=Reason.DENIED if denied else Reason.NO_DRIVER, detail=_clean(line))
    if "ROCm System Management" in text or "ROCm SMI" in text or "AMD-SMI" in text:
        raise UsageError(f"{path} is the output of rocm-smi: only NVIDIA's GPUs can be read, not AMD's")
    raise UsageError(f"{path} {_kind(text)}; {_HOW}")


def _kind(text: str) -> str:
    """What a file is that should have been nvidia-smi's: "is empty"."""
    start = text[:100_000].strip()
    lower = start[:1000].lower()
    if not start:
        return "is empty"
    if "NVIDIA-SMI" in start and "Driver Version" in start:
        return "holds the table that plain nvidia-smi prints, which tells too little"
    if "NVSMI LOG" in start:
        return "is the text of nvidia-smi -q without -x"
    if re.match(r"GPU 0: .* \(UUID: ", start):
        return "is the list of nvidia-smi -L"
    if lower.startswith(("<!doctype html", "<html")):
        return "is an HTML page, not the output of nvidia-smi"
    if start[0] in "{[":
        return "is JSON, not the output of nvidia-smi"
    if re.search(r"<gpu[\s>]", start):
        return "is only a part of the output of nvidia-smi -q -x: its beginning is missing"
    if start.startswith("<"):
        return "is XML, but not of nvidia-smi"
    if "\0" in start or start.count("\ufffd") > len(start) / 20:
        return "is a binary file, not the output of nvidia-smi"
    return "is not the output of nvidia-smi"


@dataclass(frozen=True)
class _Document:
    """One <nvidia_smi_log>. `gpus`: its GPUs in order, None for one whose XML is broken."""

    head: str
    gpus: tuple[Element | None, ...]
    is_whole: bool

    @classmethod
    def of(cls, text: str) -> _Document:
        body, end, _ = text.partition("</nvidia_smi_log>")
        *pieces, _ = body.split("</gpu>")
        return cls(body.partition("<gpu ")[0][:10_000], tuple(map(_element, pieces)), bool(end))

    def said(self, name: str) -> str:
        """A field beside the GPUs: driver_version."""
        found = re.search(rf"<{name}>([^<>]{{1,100}})</{name}>", self.head)
        return _clean(found[1]) if found else ""

    @property
    def attached(self) -> int | None:
        count = self.said("attached_gpus")
        return int(count) if re.fullmatch(r"\d{1,4}", count) else None

    @property
    def time(self) -> datetime | None:
        try:
            return datetime.strptime(" ".join(self.said("timestamp").split()), "%a %b %d %H:%M:%S %Y")
        except ValueError:
            return None

    def indices(self) -> list[int]:
        """NVML's. Where -i picked some GPUs out, their minor numbers tell better than their order."""
        if self.is_whole and self.attached is not None and self.attached > len(self.gpus):
            minors = [_whole_number(gpu, "minor_number") for gpu in self.gpus if gpu is not None]
            told = [minor for minor in minors if minor is not None]
            if len(set(told)) == len(self.gpus):
                return told
        return list(range(len(self.gpus)))


def _element(piece: str) -> Element | None:
    """The GPU at the end of the text that comes before its closing tag."""
    start = re.search(r"<gpu[\s>]", piece)
    if start is None or len(piece) - start.start() > MAX_ELEMENT:
        return None
    try:
        return fromstring(piece[start.start() :] + "</gpu>")
    except (ParseError, ValueError):  # ValueError: a character that UTF-8 cannot carry
        return None


def _view(path: Path, documents: list[_Document]) -> GpuView:
    gpus: dict[str, Gpu] = {}
    samples: list[GpuSample] = []
    notes: list[str] = []
    last_seen: set[str] = set()
    lost: set[int] = set()
    for at, document in zip(_times(documents), documents, strict=True):
        seen = set()
        for index, element in zip(document.indices(), document.gpus, strict=True):
            if element is None:
                notes.append(f"the XML of GPU {index} is damaged: left out")
                continue
            broken = list(_broken(index, element))
            notes += broken
            lost |= {index} if broken else set()
            for gpu, sample in _devices(index, element, at):
                if gpu.uuid in gpus:  # where a GPU fell off the bus, the others keep their index
                    gpu = replace(gpu, index=gpus[gpu.uuid].index)
                gpus[gpu.uuid] = gpu
                samples.append(replace(sample, index=gpu.index))
                seen.add(gpu.uuid)
                if len(gpus) > MAX_GPUS or len(samples) > MAX_TOLD:
                    raise UsageError(f"{path} tells of more GPUs than a host can have; {_HOW}")
        if document.is_whole:
            last_seen = seen
    whole = [document for document in documents if document.is_whole]
    cut = len(documents) - len(whole)
    if not gpus:
        if whole and whole[-1].attached == 0:
            return GpuView(ORIGIN, missing=Reason.ABSENT, detail="attached_gpus: 0")
        problem = "is cut off within its first GPU" if cut else "tells of no GPU"
        raise UsageError(f"{path} {problem}; {_HOW}")
    if cut:
        notes.append("the file of nvidia-smi is cut off: only the GPUs before the cut are known")
    if whole:
        gone = [gpu.index for gpu in gpus.values() if gpu.uuid not in last_seen]
        notes += [f"GPU {index} is missing at the end of the file" for index in gone]
        lost |= set(gone)
        attached = whole[-1].attached
        if attached is not None and attached > len(whole[-1].gpus):
            notes.append(f"the file of nvidia-smi tells of {len(whole[-1].gpus)} of {attached} GPUs")
    cuda = [said for document in documents if re.fullmatch(r"\d+\.\d+", said := document.said("cuda_version"))]
    drivers = [said for document in documents if (said := document.said("driver_version"))]
    return GpuView(
        ORIGIN,
        tuple(gpus.values()),
        tuple(samples),
        driver=drivers[-1] if drivers else "",
        cuda=cuda[-1] if cuda else "",
        notes=tuple(dict.fromkeys(notes)),
        lost=frozenset(lost),
    )


def _times(documents: list[_Document]) -> list[float]:
    """Seconds since the first document; never backwards, and a second each where there is no timestamp."""
    times: list[float] = []
    first = documents[0].time
    for place, document in enumerate(documents):
        time = document.time
        at = (time - first).total_seconds() if time and first else float(place)
        times.append(max(at, times[-1]) if times else 0.0)
    return times


def _broken(index: int, element: Element) -> Iterator[str]:
    for path in ("product_name", "temperature/gpu_temp", "utilization/gpu_util", "fb_memory_usage/used"):
        said = _said(element, path).strip("[]")
        if said.lower() in _BROKEN:
            yield f'GPU {index} answers "{said}": it is lost, or needs a reset'
            return


# --- a GPU ----------------------------------------------------------------------------------------------------------


def _devices(index: int, element: Element, at: float) -> Iterator[tuple[Gpu, GpuSample]]:
    """The GPU; or its MIG instances in its place, which share what is measured on the board only."""
    bus_id = _bus_id(_said(element, "pci/pci_bus_id") or element.get("id", ""))
    uuid = _name(element, "uuid") or bus_id or f"GPU {index}"
    processes = _processes(element)
    gpu = Gpu(
        index=index,
        uuid=uuid,
        name=_name(element, "product_name"),
        bus_id=bus_id,
        memory_total=_number(element, "fb_memory_usage/total"),
        power_limit=_power(element, "enforced_power_limit", "current_power_limit", "power_limit"),
        power_limit_default=_power(element, "default_power_limit"),
        sm_clock_max=_number(element, "max_clocks/sm_clock"),
        applications_clock=_number(element, "applications_clocks/graphics_clock"),
        applications_clock_default=_number(element, "default_applications_clocks/graphics_clock"),
        pcie_generation_max=_number(element, *_link("pcie_gen", "max_link_gen", "max_device_link_gen")),
        pcie_width_max=_number(element, *_link("link_widths", "max_link_width")),
        persistence=_switch(element, "persistence_mode"),
        ecc_uncorrected=_uncorrected(element),
        remap_pending=_switch(
            element,
            "remapped_rows/remapped_row_pending",
            "retired_pages/pending_retirement",  # what GPUs before Ampere do instead
            "retired_pages/pending_blacklist",
        ),
        remap_failed=_switch(element, "remapped_rows/remapped_row_failure"),
        mig=_switch(element, "mig_mode/current_mig"),
    )
    sample = GpuSample(
        index=index,
        uuid=uuid,
        at=at,
        utilization=_number(element, "utilization/gpu_util"),
        memory_used=_number(element, "fb_memory_usage/used"),
        memory_free=_number(element, "fb_memory_usage/free"),
        sm_clock=_number(element, "clocks/sm_clock"),
        event_reasons=_event_reasons(element),
        power=_power(element, "power_draw", "average_power_draw", "instant_power_draw"),
        temperature=_number(element, "temperature/gpu_temp"),
        pcie_generation=_number(element, *_link("pcie_gen", "current_link_gen")),
        pcie_width=_number(element, *_link("link_widths", "current_link_width")),
        processes=_here(processes),
    )
    instances = element.findall("mig_devices/mig_device")
    for instance in instances:
        place = (_said(instance, "gpu_instance_id"), _said(instance, "compute_instance_id"))
        # The file leaves the instance's own UUID out; this is how CUDA named it before drivers gave it one.
        its_uuid = _name(instance, "uuid") or f"MIG-{uuid}/{'/'.join(place)}"
        yield (
            replace(gpu, uuid=its_uuid, memory_total=_number(instance, "fb_memory_usage/total")),
            replace(
                sample,
                uuid=its_uuid,
                utilization=NOT_TOLD,
                memory_used=_number(instance, "fb_memory_usage/used"),
                memory_free=_number(instance, "fb_memory_usage/free"),
                processes=_here(processes, place),
            ),
        )
    if not instances:
        yield gpu, sample


def _said(element: Element, path: str) -> str:
    """The text of the first element there; "" where there is none."""
    return _clean(element.findtext(path, ""))


def _clean(text: str) -> str:
    """One line that a terminal can show."""
    return "".join(c if c.isprintable() else " " for c in text[:1000]).strip()[:200]


def _name(element: Element, path: str) -> str:
    said = _said(element, path)
    return "" if said.strip("[]").lower() in _NOTHING_SAID else said


def _unknown(said: str) -> Unknown:
    return Unknown(Reason.DENIED) if "insufficient permissions" in said.lower() else NOT_TOLD


def _first(readings: list[Reading]) -> Reading:
    """The first that is known; else the first one's reason."""
    return next((reading for reading in readings if isinstance(reading, Known)), readings[0])


def _number(element: Element, *paths: str) -> Reading:
    """What the first of these says that says a number, in our units."""
    return _first([_quantity(_said(element, path)) for path in paths])


def _quantity(said: str) -> Reading:
    """ "71.53 W", "16x", "35 %" -> 71.53, 16, 0.35."""
    found = _QUANTITY.fullmatch(said)
    if found is None or found[2] not in _UNITS:
        return _unknown(said)
    return Known(round(float(found[1]) * _UNITS[found[2]], 6), origin=ORIGIN)


def _whole_number(element: Element, path: str) -> int | None:
    said = _said(element, path)
    return int(said) if re.fullmatch(r"[0-9]{1,10}", said) else None


def _switch(element: Element, *paths: str) -> Reading:
    readings: list[Reading] = []
    for path in paths:
        said = _said(element, path)
        is_on = _SWITCH.get(said.lower())
        readings.append(_unknown(said) if is_on is None else Known(is_on, origin=ORIGIN))
    return _first(readings)


def _power(element: Element, *names: str) -> Reading:
    """Drivers since 535 tell the GPU's power apart from its module's."""
    return _number(
        element, *(f"{block}/{name}" for block in ("gpu_power_readings", "power_readings") for name in names)
    )


def _link(block: str, *names: str) -> list[str]:
    return [f"pci/pci_gpu_link_info/{block}/{name}" for name in names]


def _bus_id(said: str) -> str:
    """ "00000000:84:00.0" -> "0000:84:00.0"; "" for what is no PCI address."""
    found = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", said.lower())
    return f"{int(found[1], 16):04x}:{found[2]}" if found else ""


def _event_reasons(element: Element) -> Reading:
    for kind in ("event", "throttle"):  # until driver 535: throttle
        block = element.find(f"clocks_{kind}_reasons")
        if block is not None:
            said = {name: _said(block, f"clocks_{kind}_reason_{name}").lower() for name in _REASONS}
            if not {"active", "not active"} & set(said.values()):
                return _unknown(_clean(block.text or ""))
            return Known(float(sum(_REASONS[name] for name in said if said[name] == "active")), origin=ORIGIN)
    return NOT_TOLD


def _uncorrected(element: Element) -> Reading:
    """All uncorrectable errors since the driver was loaded, by whatever names the generation of GPU counts them."""
    paths = ["ecc_errors/volatile/double_bit/total"]
    volatile = element.find("ecc_errors/volatile")
    if volatile is not None:
        paths += [f"ecc_errors/volatile/{child.tag}" for child in volatile if "_uncorrectable" in child.tag]
    readings = [_number(element, path) for path in paths]
    counts = [float(reading.value) for reading in readings if isinstance(reading, Known)]
    return Known(sum(counts), origin=ORIGIN) if counts else readings[0]


_Place = tuple[str, str]
"""GPU instance and compute instance, as a process and a MIG device name them."""


def _processes(element: Element) -> list[tuple[_Place, GpuProcess]] | Reason:
    block = element.find("processes")
    if block is None:
        return Reason.NOT_SUPPORTED
    found = [
        (
            (_said(info, "gpu_instance_id"), _said(info, "compute_instance_id")),
            GpuProcess(pid, _name(info, "process_name"), _number(info, "used_memory")),
        )
        for info in block.findall("process_info")
        if (pid := _whole_number(info, "pid")) is not None
    ]
    said = _clean(block.text or "")
    return found if found or said.lower() in ("", "none") else _unknown(said).reason


def _here(
    processes: list[tuple[_Place, GpuProcess]] | Reason, place: _Place | None = None
) -> tuple[GpuProcess, ...] | Reason:
    """Those on one MIG instance; all where `place` is None."""
    if isinstance(processes, Reason):
        return processes
    return tuple(process for where, process in processes if place is None or where == place)
