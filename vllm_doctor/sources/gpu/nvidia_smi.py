"""The GPUs as nvidia-smi -q -x wrote them, of any driver, on Linux or Windows: as XML.

Each <gpu> element is read by itself and below no DOCTYPE, so a file that was cut off, or that a terminal added words
to, still tells what is whole in it, and no document can declare entities.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from xml.etree.ElementTree import Element, ParseError, fromstring

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu import gpu as bits
from vllm_doctor.sources.gpu import nvidia_smi_fields as fields
from vllm_doctor.sources.gpu.gpu import NOT_TOLD, Gpu, GpuProcess, GpuSample, GpuView

MAX_ELEMENT = 1024 * 1024  # one GPU with all clocks it supports takes 75 kB
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
_TELLING = ("product_name", "temperature/gpu_temp", "utilization/gpu_util", "fb_memory_usage/used")
"""What a GPU that is well always answers."""
_RESETS = ("gpu_reset_status/reset_required", "gpu_recovery_action", "gpu_reset_status/drain_and_reset_recommended")


def view(name: str, text: str) -> GpuView:
    """What the documents in the text say: one sample a GPU, or one a document where -l wrote several.

    Raises UsageError if they hold no whole GPU. `name`: of the file.
    """
    if "<!ENTITY" in text or re.search(r"<!DOCTYPE[^<>\[]{0,200}\[", text):
        raise UsageError(f"{name}: declares entities, which nvidia-smi never does; {fields.HOW}")
    if max(text.count("<nvidia_smi_log"), text.count("</gpu>")) > fields.MAX_TOLD:
        raise UsageError(f"{name} lists a GPU more than {fields.MAX_TOLD:,} times; log less often (-l) or shorter")
    return _view(name, [_Document.of(piece) for piece in text.split("<nvidia_smi_log")[1:]])


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
        return fields.clean(found[1]) if found else ""

    @property
    def attached(self) -> int | None:
        count = self.said("attached_gpus")
        return int(count) if re.fullmatch(r"\d{1,4}", count) else None

    @property
    def time(self) -> datetime | None:
        return fields.moment(self.said("timestamp"))

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


@dataclass
class _Told:
    """What the documents of one file tell of the GPUs, the newest word of each."""

    gpus: dict[str, Gpu] = field(default_factory=dict)
    samples: list[GpuSample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    last_seen: set[str] = field(default_factory=set)
    """The GPUs of the last document that is whole, by uuid."""

    def add(self, document: _Document, at: float, name: str) -> None:
        """One more document. Raises UsageError for one that holds more than a host can have."""
        seen = set()
        for index, element in zip(document.indices(), document.gpus, strict=True):
            if element is None:
                self.notes.append(f"the XML of GPU {index} is damaged: left out")
                continue
            broken = fields.broken(index, [_said(element, path) for path in _TELLING])
            resets = [_said(element, path) for path in _RESETS]
            needs, should = fields.reset(index, *resets)
            self.notes += [note for note in (broken or needs, should) if note]
            self.lost |= {index} if broken or needs else set()
            for gpu, sample in _devices(index, element, at):
                if gpu.uuid in self.gpus:  # where a GPU fell off the bus, the others keep their index
                    gpu = replace(gpu, index=self.gpus[gpu.uuid].index)
                self.gpus[gpu.uuid] = gpu
                self.samples.append(replace(sample, index=gpu.index))
                seen.add(gpu.uuid)
                if len(self.gpus) > fields.MAX_GPUS or len(self.samples) > fields.MAX_TOLD:
                    raise UsageError(f"{name} lists more GPUs than a host can have; {fields.HOW}")
        if document.is_whole:
            self.last_seen = seen

    def lacks(self, documents: Sequence[_Document]) -> bool:
        """Whether the host may have more GPUs than were told of; what is missing becomes a note."""
        whole = [document for document in documents if document.is_whole]
        if len(whole) < len(documents):
            self.notes.append("the file of nvidia-smi is cut off: only the GPUs before the cut are known")
        if not whole:
            return True
        gone = [gpu.index for gpu in self.gpus.values() if gpu.uuid not in self.last_seen]
        self.notes += [f"GPU {index} is missing at the end of the file" for index in gone]
        self.lost |= set(gone)
        attached, told = whole[-1].attached, len(whole[-1].gpus)
        if attached is None or attached <= told:
            return False
        self.notes.append(f"the file of nvidia-smi lists {told} of {attached} GPUs")
        return True


def _view(name: str, documents: list[_Document]) -> GpuView:
    told = _Told()
    for at, document in zip(fields.times([document.time for document in documents]), documents, strict=True):
        told.add(document, at, name)
    if not told.gpus:
        return _no_gpu(name, documents)
    lacks = told.lacks(documents)
    return GpuView(
        fields.ORIGIN,
        tuple(told.gpus.values()),
        tuple(told.samples),
        driver=_last(documents, "driver_version", r".+"),
        cuda=_last(documents, "cuda_version", r"\d+\.\d+"),
        notes=tuple(dict.fromkeys(told.notes)),
        lost=frozenset(told.lost),
        more=lacks,
    )


def _no_gpu(name: str, documents: Sequence[_Document]) -> GpuView:
    """A host without a GPU, where the file says so. Raises UsageError where it merely tells of none."""
    whole = [document for document in documents if document.is_whole]
    if whole and whole[-1].attached == 0:
        return GpuView(fields.ORIGIN, missing=Reason.ABSENT, detail="attached_gpus: 0")
    problem = "is cut off within its first GPU" if len(whole) < len(documents) else "lists no GPU"
    raise UsageError(f"{name} {problem}; {fields.HOW}")


def _last(documents: Sequence[_Document], name: str, pattern: str) -> str:
    """The newest of what the documents say under this name, in a form that makes sense."""
    said = (document.said(name) for document in reversed(documents))
    return next((text for text in said if re.fullmatch(pattern, text, re.DOTALL)), "")


# --- a GPU ----------------------------------------------------------------------------------------------------------


def _devices(index: int, element: Element, at: float) -> Iterator[tuple[Gpu, GpuSample]]:
    """The GPU; or its MIG instances in its place, which share what is measured on the board only."""
    bus_id = fields.bus_id(_said(element, "pci/pci_bus_id") or element.get("id", ""))
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
        processes=fields.here(processes),
    )
    instances = element.findall("mig_devices/mig_device")
    for instance in instances:
        place = (_said(instance, "gpu_instance_id"), _said(instance, "compute_instance_id"))
        # The file leaves the instance's own UUID out.
        its_uuid = _name(instance, "uuid") or fields.instance_uuid(uuid, place)
        memory = [_number(instance, f"fb_memory_usage/{part}") for part in ("total", "used", "free")]
        yield fields.instance(gpu, sample, its_uuid, fields.here(processes, place), *memory)
    if not instances:
        yield gpu, sample


def _said(element: Element, path: str) -> str:
    """The text of the first element there; "" where there is none."""
    return fields.clean(element.findtext(path, ""))


def _first(readings: list[Reading]) -> Reading:
    """The first that is known; else the first one's reason."""
    return next((reading for reading in readings if isinstance(reading, Known)), readings[0])


def _number(element: Element, *paths: str) -> Reading:
    """What the first of these says that says a number, in our units."""
    return _first([fields.quantity(_said(element, path)) for path in paths])


def _whole_number(element: Element, path: str) -> int | None:
    said = _said(element, path)
    return int(said) if re.fullmatch(r"[0-9]{1,10}", said) else None


def _switch(element: Element, *paths: str) -> Reading:
    return _first([fields.switch(_said(element, path)) for path in paths])


def _name(element: Element, path: str) -> str:
    return fields.name(_said(element, path))


def _power(element: Element, *names: str) -> Reading:
    """Drivers since 535 tell the GPU's power apart from its module's."""
    return _number(
        element, *(f"{block}/{name}" for block in ("gpu_power_readings", "power_readings") for name in names)
    )


def _link(block: str, *names: str) -> list[str]:
    return [f"pci/pci_gpu_link_info/{block}/{name}" for name in names]


def _event_reasons(element: Element) -> Reading:
    for kind in ("event", "throttle"):  # until driver 535: throttle
        block = element.find(f"clocks_{kind}_reasons")
        if block is not None:
            said = {name: _said(block, f"clocks_{kind}_reason_{name}").lower() for name in _REASONS}
            if not {"active", "not active"} & set(said.values()):
                return fields.unknown(fields.clean(block.text or ""))
            return Known(float(sum(_REASONS[name] for name in said if said[name] == "active")), origin=fields.ORIGIN)
    return NOT_TOLD


def _uncorrected(element: Element) -> Reading:
    """All uncorrectable errors since the driver was loaded, by whatever names the generation of GPU counts them."""
    paths = ["ecc_errors/volatile/double_bit/total"]
    volatile = element.find("ecc_errors/volatile")
    if volatile is not None:
        paths += [f"ecc_errors/volatile/{child.tag}" for child in volatile if "_uncorrectable" in child.tag]
    readings = [_number(element, path) for path in paths]
    counts = [float(reading.value) for reading in readings if isinstance(reading, Known)]
    return Known(sum(counts), origin=fields.ORIGIN) if counts else readings[0]


def _processes(element: Element) -> list[tuple[fields.Place, GpuProcess]] | Reason:
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
    said = fields.clean(block.text or "")
    return found if found or said.lower() in ("", "none") else fields.unknown(said).reason
