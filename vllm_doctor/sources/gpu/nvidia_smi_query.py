"""The GPUs in the text of nvidia-smi -q: whole, of some displays (-d CLOCK,PERFORMANCE), several (-l), or a piece."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.gpu import gpu as bits
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import NOT_TOLD, Gpu, GpuProcess, GpuSample
from vllm_doctor.sources.gpu.looks import Look
from vllm_doctor.sources.gpu.outline import Outline
from vllm_doctor.sources.gpu.printed_lines import Line

_REASONS = {
    "Idle": bits.IDLE,
    "Applications Clocks Setting": bits.APPLICATIONS_CLOCKS,
    "SW Power Cap": bits.SW_POWER_CAP,
    "HW Slowdown": bits.HW_SLOWDOWN,
    "Sync Boost": bits.SYNC_BOOST,
    "SW Thermal Slowdown": bits.SW_THERMAL,
    "HW Thermal Slowdown": bits.HW_THERMAL,
    "HW Power Brake Slowdown": bits.HW_POWER_BRAKE,
    "Display Clock Setting": bits.DISPLAY_CLOCKS,
}
_REASONED = ("Clocks Event Reasons", "Clocks Throttle Reasons")  # until driver 535: throttle
_POWER = ("GPU Power Readings", "Power Readings")  # since 535 the module's are apart
_STARTS = frozenset(
    {
        *("Product Name", "GPU UUID", "Performance State", "FB Memory Usage", "GPU Reset Status", "Max Clocks"),
        *("Remapped Rows", "ECC Errors", *_REASONED, *_POWER),
    }
)
"""With these a piece without its head begins."""
MARKS = ("NVSMI LOG", *sorted(_STARTS - {"Max Clocks"}))

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_NAME = re.compile(r"[A-Z][\w ./()&-]{1,60}")
_QUOTED = "> \t"


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """One look for each log, or piece of one."""
    reader = _Reader(notes)
    for line in lines:
        if len(reader.looks) > smi.ENOUGH:
            notes.append(f"only the first {smi.ENOUGH:,} looks of nvidia-smi -q were read")
            break
        reader.read(line)
    reader.end()
    return [look for look in reader.looks if look.tells]


class _Reader:
    def __init__(self, notes: list[str]) -> None:
        self.looks: list[Look] = []
        self._look: Look | None = None
        self._gpu: Outline | None = None
        self._bus = ""
        self._buses: set[str] = set()
        self._processes: list[tuple[smi.Place, GpuProcess]] | None = None
        self._place = ["N/A", "N/A"]
        self._minors: dict[int, int] = {}
        self._notes = notes

    def read(self, line: Line) -> None:
        text = line.text.lstrip(_QUOTED)
        depth = len(line.text) - len(text)
        name, colon, said = text.partition(" :")
        name, said = name.rstrip(), said.strip(" \\")
        head = None if colon else _GPU.match(text)
        if head is not None:
            self._begin(line.number, smi.bus_id(head[1]))
        elif "NVSMI LOG" in text:
            self._end_look()
            self._look = self._new(line.number)
        elif not _NAME.fullmatch(name) or (not colon and text.endswith(".")):
            self._end_gpu()
        elif self._gpu is None and name not in _STARTS:
            self._beside(name, said)
        else:
            self._within(line.number, depth, name, said, bool(colon))

    def end(self) -> None:
        self._end_look()

    def _new(self, number: int) -> Look:
        self.looks.append(Look(line=number, is_numbered=False))
        self._buses = set()
        return self.looks[-1]

    def _begin(self, number: int, bus: str) -> None:
        self._end_gpu()
        if self._look is None or (bus and bus in self._buses):
            self._look = self._new(number)
        self._gpu, self._bus = Outline(number), bus
        self._buses.add(bus)

    def _beside(self, name: str, said: str) -> None:
        """What stands before the GPUs."""
        if self._look is None:
            return
        if name == "Timestamp":
            self._look.time = smi.moment(said)
        elif name == "Driver Version":
            self._look.driver = smi.clean(said)
        elif name == "CUDA Version":
            self._look.cuda = said if re.fullmatch(r"\d{1,3}\.\d{1,3}", said) else ""
        elif name == "Attached GPUs" and re.fullmatch(r"\d{1,3}", said):
            self._look.attached = int(said)

    def _within(self, number: int, depth: int, name: str, said: str, is_value: bool) -> None:
        if self._gpu is None or (not self._bus and name in _STARTS and (name,) in self._gpu):
            self._begin(number, "")
        outline = self._gpu
        if outline is None:
            return
        if name == "Processes":
            self._processes = [] if said in ("", "None") else None
        if self._processes is not None and is_value and self._process(name, said):
            return
        if is_value:
            outline.value(depth, name, said)
        else:
            outline.heading(depth, name)

    def _process(self, name: str, said: str) -> bool:
        """A line of a process; False for what is none."""
        told = self._processes
        if told is None:
            return False
        if name in ("GPU instance ID", "Compute instance ID"):
            self._place[name.startswith("Compute")] = said
        elif name == "Process ID" and re.fullmatch(r"\d{1,10}", said):
            told.append(((self._place[0], self._place[1]), GpuProcess(int(said))))
            self._place = ["N/A", "N/A"]
        elif name in ("Name", "Used GPU Memory") and told:
            place, process = told[-1]
            named = smi.name(smi.clean(said)) if name == "Name" else process.name
            memory = smi.quantity(said) if name != "Name" else process.memory
            told[-1] = place, GpuProcess(process.pid, named, memory)
        else:
            return name == "Type"
        return True

    def _end_gpu(self) -> None:
        if self._gpu is not None and self._look is not None and len(self._look.gpus) <= smi.MAX_GPUS:
            index = len(self._look.gpus)
            _add(self._look, self._gpu, self._bus, self._processes)
            minor = self._gpu.said(("Minor Number",))
            if re.fullmatch(r"\d{1,3}", minor):
                self._minors[index] = int(minor)
            _, should = _reset(index, self._gpu)
            self._notes += [should] if should else []
        self._gpu, self._bus, self._processes = None, "", None

    def _end_look(self) -> None:
        self._end_gpu()
        look, self._look = self._look, None
        minors, self._minors = self._minors, {}
        is_picked = look is not None and look.attached is not None and look.attached > len(look.gpus)
        if look is not None and is_picked and len(set(minors.values())) == len(look.gpus):
            # where -i picked some GPUs out, their minor numbers tell better than their order
            self.looks[self.looks.index(look)] = look.renumbered(minors)


def _add(look: Look, said: Outline, bus: str, processes: list[tuple[smi.Place, GpuProcess]] | None) -> None:
    """One more GPU of a log."""
    index = len(look.gpus)
    look.gpus[index] = Gpu(
        index,
        smi.name(smi.clean(said.said(("GPU UUID",)))),
        smi.name(smi.clean(said.said(("Product Name",)))),
        bus or smi.bus_id(said.said(("Bus Id",))),
        memory_total=_number(said, ("FB Memory Usage", "Total")),
        power_limit=_power(said, "Enforced Power Limit", "Current Power Limit", "Power Limit"),
        power_limit_default=_power(said, "Default Power Limit"),
        sm_clock_max=_number(said, ("Max Clocks", "SM"), ("Max Clocks", "Graphics")),
        applications_clock=_number(said, ("Applications Clocks", "Graphics")),
        applications_clock_default=_number(said, ("Default Applications Clocks", "Graphics")),
        pcie_generation_max=_number(said, ("PCIe Generation", "Max")),
        pcie_width_max=_number(said, ("Link Width", "Max")),
        persistence=smi.switch(said.said(("Persistence Mode",))),
        ecc_uncorrected=_uncorrected(said),
        remap_pending=_switch(
            said,
            ("Remapped Rows", "Pending"),
            ("Retired Pages", "Pending Page Blacklist"),
            ("Retired Pages", "Pending"),
        ),
        remap_failed=_switch(said, ("Remapped Rows", "Remapping Failure Occurred")),
        mig=_switch(said, ("MIG Mode", "Current")),
    )
    sample = GpuSample(
        index,
        "",
        0.0,
        utilization=_number(said, ("Utilization", "Gpu"), ("Utilization", "GPU")),
        memory_used=_number(said, ("FB Memory Usage", "Used")),
        memory_free=_number(said, ("FB Memory Usage", "Free")),
        sm_clock=_number(said, ("Clocks", "SM"), ("Clocks", "Graphics")),
        event_reasons=_event_reasons(said),
        power=_power(said, "Power Draw", "Average Power Draw", "Instantaneous Power Draw"),
        temperature=_number(said, ("Temperature", "GPU Current Temp"), ("Temperature", "Gpu")),
        pcie_generation=_number(said, ("PCIe Generation", "Current")),
        pcie_width=_number(said, ("Link Width", "Current")),
    )
    if sample != GpuSample(index, "", 0.0) or processes is not None:
        look.samples[index] = sample
    if processes is not None:
        look.processes[index] = processes
    telling = (
        ("Product Name",),
        ("Temperature", "GPU Current Temp"),
        ("Utilization", "Gpu"),
        ("FB Memory Usage", "Used"),
    )
    broken = smi.broken(index, [said.said(path) for path in telling])
    needs, _ = _reset(index, said)
    if broken or needs:
        look.broken[index] = broken or needs


def _reset(index: int, said: Outline) -> tuple[str, str]:
    return smi.reset(
        index,
        said.said(("Reset Required",)),
        said.said(("GPU Recovery Action",)),
        said.said(("Drain and Reset Recommended",)),
    )


def _first(readings: Sequence[Reading]) -> Reading:
    return next((reading for reading in readings if isinstance(reading, Known)), readings[0])


def _number(said: Outline, *paths: tuple[str, ...]) -> Reading:
    return _first([smi.quantity(said.said(path)) for path in paths])


def _switch(said: Outline, *paths: tuple[str, ...]) -> Reading:
    return _first([smi.switch(said.said(path)) for path in paths])


def _power(said: Outline, *names: str) -> Reading:
    return _number(said, *((heading, name) for heading in _POWER for name in names))


def _event_reasons(said: Outline) -> Reading:
    for heading in _REASONED:
        told = {name: said.said((heading, name)).lower() for name in _REASONS}
        # a piece of them would pass for all
        if {told["SW Power Cap"], told["HW Slowdown"]} <= {"active", "not active"}:
            return Known(float(sum(_REASONS[name] for name in told if told[name] == "active")), origin=smi.ORIGIN)
    return NOT_TOLD


def _uncorrected(said: Outline) -> Reading:
    """All uncorrectable errors since the driver was loaded, by whatever names the generation of GPU counts them."""
    counted = [smi.quantity(count) for name, count in said.below("Volatile").items() if "Uncorrectable" in name]
    readings = [*counted, smi.quantity(said.said(("Volatile", "Double Bit", "Total")))]
    counts = [float(reading.value) for reading in readings if isinstance(reading, Known)]
    return Known(sum(counts), origin=smi.ORIGIN) if counts else readings[0]
