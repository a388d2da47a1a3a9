"""The host's GPUs, live: NVIDIA's driver asked through NVML. It only reads.

What does not change is read once; each sample then asks a dozen light questions of each GPU.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu.gpu import NOT_TOLD, Gpu, GpuProcess, GpuSample, GpuView
from vllm_doctor.sources.host.kernel import Kernel

ORIGIN = "nvml"

# Numbers of nvml.h, spelled out: pynvml lacks some by version, and its NVML_P2P_CAPS_INDEX_READ is a tuple.
_NO_PERMISSION, _LIBRARY_NOT_FOUND, _GPU_IS_LOST = 4, 12, 15
_CLOCK_GRAPHICS, _CLOCK_SM = 0, 1
_UNCORRECTED, _VOLATILE = 1, 0
_P2P_READ, _P2P_NVLINK = 0, 2
_P2P_OK, _P2P_UNKNOWN = 0, 6
_CORE = 0  # the temperature sensor
_MEMORY_V2 = 0x02000028
_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)

_SHORT = 10.0  # seconds; a window up to this is looked at more often
_MAX_ROUNDS = 600
_MAX_NAME = 64
_DISPLAY = "0x03"  # the PCI class of GPUs, with or without a screen
_NVIDIA = "0x10de"


@dataclass
class _Board:
    """A physical GPU. `listed`: itself or its MIG instances, each with the handle that knows its memory."""

    index: int
    handle: Any
    listed: list[tuple[Any, Gpu]] = field(default_factory=list)
    lost: bool = False


class Nvml:
    """The GPUs of this host. `clock` must not step (time.monotonic); `sleep` waits.

    A GPU that is split by MIG is listed as its instances, which is what a server sees; the GPU itself is listed too
    only while it has none. An instance has its GPU's index, clocks, power and links, and a memory of its own.

    Nothing raises for what the driver does: the view's `missing` says why there is nothing to see, and each reading
    that failed is Unknown with the reason. A driver that hangs cannot be interrupted: whoever has a deadline to keep
    asks in a thread, and may take the `view()` from another.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._kernel = kernel or Kernel()
        self._clock, self._sleep = clock, sleep
        self._nvml: Any = None
        self._is_up = False
        self._boards: list[_Board] = []
        self._is_open = False
        self._view = _nothing(Reason.NO_DRIVER, "it has not answered yet")
        self._samples: list[GpuSample] = []
        self._notes: list[str] = []
        self._lost: set[int] = set()
        self._names: dict[int, str] = {}

    def watch(self, seconds: float, deadline: float) -> GpuView:
        """Samples over `seconds` (0: one), the last `seconds` after the first; none after `deadline` on the clock."""
        try:
            self.open()
            if self._boards:
                self._watch(seconds, deadline)
        finally:
            self.close()
        return self.view()

    def open(self) -> None:
        """Start NVML and read what does not change. Once: later calls do nothing."""
        if not self._is_open:
            self._is_open = True
            self._view = self._opened()

    def sample(self) -> None:
        """One more look at each GPU."""
        self.open()
        at = self._clock()
        for board in self._boards:
            self._samples.extend(self._look(board, at))

    def forget(self, before: float) -> None:
        """Let go of the samples that are older than this, by the clock."""
        self._samples = [sample for sample in self._samples if sample.at >= before]

    def view(self) -> GpuView:
        """Everything seen up to now."""
        return replace(self._view, samples=tuple(self._samples), notes=tuple(self._notes), lost=frozenset(self._lost))

    def close(self) -> None:
        """Let go of NVML; what was seen stays."""
        self._boards = []
        if self._is_up:
            self._is_up = False
            self._try("nvmlShutdown")

    def _watch(self, seconds: float, deadline: float) -> None:
        rounds = _rounds(seconds)
        self.sample()
        first = self._samples[-1].at
        for number in range(1, rounds + 1):
            early = first + seconds * number / rounds - self._clock()
            if number < rounds and early < -seconds / rounds:
                continue  # a driver that answers late is not asked faster to catch up
            self._sleep(max(0.0, min(early, deadline - self._clock())))
            if self._clock() > deadline:
                return
            self.sample()

    def _opened(self) -> GpuView:
        try:
            import pynvml  # here, not above: it takes a while, and most hosts that run this have no GPU
        except ImportError:
            return self._without_library("the Python package nvidia-ml-py is not installed")
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._is_up = True
            count = pynvml.nvmlDeviceGetCount()
        except Exception as error:
            if _code(error) == _LIBRARY_NOT_FOUND:
                return self._without_library(self._words(error))
            return _nothing(Reason.DENIED if _is_denied(error) else Reason.NO_DRIVER, self._words(error))
        if not count:
            return _nothing(Reason.ABSENT, "the driver sees no GPU")
        refused = self._find(count)
        if not self._boards:
            denied = all(map(_is_denied, refused))
            return _nothing(Reason.DENIED if denied else Reason.NO_DRIVER, self._words(refused[0]))
        return self._described()

    def _without_library(self, detail: str) -> GpuView:
        """Why the library is missing: there may be no GPU that it could speak of."""
        if self._has_nvidia():
            return _nothing(Reason.NO_DRIVER, detail)
        if self._kernel.path("dev/kfd").exists():
            return _nothing(Reason.NO_DRIVER, "an AMD GPU is in this host: it is not examined")
        return _nothing(Reason.ABSENT, "no GPU in this host")

    def _has_nvidia(self) -> bool:
        kernel = self._kernel
        if kernel.path("proc/driver/nvidia").exists() or kernel.path("dev/dxg").exists():  # dxg: WSL
            return True
        if any(re.fullmatch(r"nvidia\d+", name) for name in kernel.names("dev")):
            return True
        return any(self._is_nvidia(f"sys/bus/pci/devices/{name}") for name in kernel.names("sys/bus/pci/devices"))

    def _is_nvidia(self, device: str) -> bool:
        """Whether a PCI device is an NVIDIA GPU, with or without a driver."""
        if self._kernel.text(f"{device}/vendor").strip() != _NVIDIA:
            return False
        return self._kernel.text(f"{device}/class").startswith(_DISPLAY)

    def _find(self, count: int) -> list[Exception]:
        """Fill the boards; the errors of those that do not answer."""
        refused: list[Exception] = []
        for index in range(count):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(self._nvml.nvmlDeviceGetUUID(handle))
            except Exception as error:
                refused.append(error)
                self._notes.append(f"GPU {index} does not answer: {self._words(error)}")
                if not _is_denied(error):
                    self._lost.add(index)
                continue
            board = _Board(index, handle)
            gpu = self._physical(board, uuid)
            board.listed = list(self._instances(board, gpu)) or [(handle, gpu)]
            self._boards.append(board)
        return refused

    def _described(self) -> GpuView:
        cuda = self._try("nvmlSystemGetCudaDriverVersion")
        gpus = tuple(gpu for board in self._boards for _, gpu in board.listed)
        return GpuView(
            ORIGIN,
            gpus,
            driver=_text(self._try("nvmlSystemGetDriverVersion")),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) else "",
            nvlink_pairs=self._pairs(_P2P_NVLINK),
            p2p_pairs=self._pairs(_P2P_READ),
            numa_nodes=self._numa_nodes(),
        )

    def _physical(self, board: _Board, uuid: str) -> Gpu:
        def ask(name: str, *more: int) -> Any:
            return self._ask(board, name, board.handle, *more)

        mode = ask("nvmlDeviceGetMigMode")
        remapped = ask("nvmlDeviceGetRemappedRows")
        return Gpu(
            board.index,
            uuid,
            _text(ask("nvmlDeviceGetName")),
            _bus_id(ask("nvmlDeviceGetPciInfo")),
            memory_total=_part(self._memory(board, board.handle), "total"),
            power_limit=_positive(ask("nvmlDeviceGetEnforcedPowerLimit"), per=1000),
            power_limit_default=_positive(ask("nvmlDeviceGetPowerManagementDefaultLimit"), per=1000),
            sm_clock_max=_positive(ask("nvmlDeviceGetMaxClockInfo", _CLOCK_SM)),
            applications_clock=_positive(ask("nvmlDeviceGetApplicationsClock", _CLOCK_GRAPHICS)),
            applications_clock_default=_positive(ask("nvmlDeviceGetDefaultApplicationsClock", _CLOCK_GRAPHICS)),
            pcie_generation_max=_positive(ask("nvmlDeviceGetMaxPcieLinkGeneration")),
            pcie_width_max=_positive(ask("nvmlDeviceGetMaxPcieLinkWidth")),
            persistence=_flag(ask("nvmlDeviceGetPersistenceMode")),
            ecc_uncorrected=_number(ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)),
            remap_pending=_flag(remapped, 2),
            remap_failed=_flag(remapped, 3),
            nvlinks_active=self._nvlinks(board),
            mig=_flag(mode, 0),
            compute_capability=_version(ask("nvmlDeviceGetCudaComputeCapability")),
        )

    def _instances(self, board: _Board, gpu: Gpu) -> Iterator[tuple[Any, Gpu]]:
        if gpu.mig != Known(True):
            return
        slots = self._ask(board, "nvmlDeviceGetMaxMigDeviceCount", board.handle)
        for slot in range(0 if isinstance(slots, Unknown) else slots):
            handle = self._ask(board, "nvmlDeviceGetMigDeviceHandleByIndex", board.handle, slot)
            uuid = handle if isinstance(handle, Unknown) else self._ask(board, "nvmlDeviceGetUUID", handle)
            if isinstance(uuid, Unknown):
                continue  # the slot is empty
            name = _text(self._ask(board, "nvmlDeviceGetName", handle))
            profile = re.search(r"\bMIG (\S+)", name)
            yield (
                handle,
                replace(
                    gpu,
                    uuid=_text(uuid),
                    name=name,
                    memory_total=_part(self._memory(board, handle), "total"),
                    nvlinks_active=NOT_TOLD,  # instances do not reach each other
                    mig_profile=profile[1] if profile else "",
                ),
            )

    def _nvlinks(self, board: _Board) -> Reading:
        links = range(getattr(self._nvml, "NVML_NVLINK_MAX_LINKS", 18))
        states = [self._ask(board, "nvmlDeviceGetNvLinkState", board.handle, link) for link in links]
        told = [state for state in states if not isinstance(state, Unknown)]
        return Known(float(sum(told)), origin=ORIGIN) if told else states[0]

    def _pairs(self, capability: int) -> dict[tuple[int, int], bool]:
        whole = [board for board in self._boards if board.listed[0][1].mig != Known(True)]
        pairs: dict[tuple[int, int], bool] = {}
        for one, other in combinations(whole, 2):
            # not _ask: whichever of the two is lost, the samples find out
            status = self._try("nvmlDeviceGetP2PStatus", one.handle, other.handle, capability)
            if not isinstance(status, Unknown) and status != _P2P_UNKNOWN:
                pairs[one.index, other.index] = status == _P2P_OK
        return pairs

    def _numa_nodes(self) -> dict[int, int]:
        nodes: dict[int, int] = {}
        for board in self._boards:
            bus_id = board.listed[0][1].bus_id
            node = self._kernel.number(f"sys/bus/pci/devices/{bus_id}/numa_node", ORIGIN) if bus_id else NOT_TOLD
            if isinstance(node, Known) and float(node.value) >= 0:  # -1: the firmware does not tell
                nodes[board.index] = int(node.value)
        return nodes

    def _look(self, board: _Board, at: float) -> Iterator[GpuSample]:
        def ask(name: str, *more: int) -> Any:
            return self._ask(board, name, board.handle, *more)

        reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons == NOT_TOLD:  # the name it had before driver 535
            reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        temperature = ask("nvmlDeviceGetTemperature", _CORE)
        if temperature == NOT_TOLD:  # CUDA 14 drops the old name
            temperature = ask("nvmlDeviceGetTemperatureV", _CORE)
        whole = GpuSample(
            board.index,
            "",
            at,
            sm_clock=_number(ask("nvmlDeviceGetClockInfo", _CLOCK_SM)),
            event_reasons=_number(reasons),
            power=_number(ask("nvmlDeviceGetPowerUsage"), per=1000),
            temperature=_number(temperature),
            pcie_generation=_positive(ask("nvmlDeviceGetCurrPcieLinkGeneration")),
            pcie_width=_positive(ask("nvmlDeviceGetCurrPcieLinkWidth")),
        )
        for handle, gpu in board.listed:
            memory = self._memory(board, handle)
            used = self._ask(board, "nvmlDeviceGetUtilizationRates", handle) if handle is board.handle else NOT_TOLD
            yield replace(
                whole,
                uuid=gpu.uuid,
                utilization=_part(used, "gpu", per=100),
                memory_used=_part(memory, "used"),
                memory_free=_part(memory, "free"),
                processes=self._processes(board, handle),
            )

    def _processes(self, board: _Board, handle: Any) -> tuple[GpuProcess, ...] | Reason:
        found = self._ask(board, "nvmlDeviceGetComputeRunningProcesses", handle)
        if isinstance(found, Unknown):
            return found.reason
        return tuple(GpuProcess(one.pid, self._name(one.pid), _part(one, "usedGpuMemory")) for one in found)

    def _name(self, pid: int) -> str:
        """Short, and safe to print: a process chooses its own name, and its arguments may hold secrets."""
        if pid not in self._names:
            name = self._kernel.text(f"proc/{pid}/comm")
            if isinstance(name, Reason):
                words = _text(self._try("nvmlSystemGetProcessName", pid)).split()
                name = words[0].rpartition("/")[2] if words else ""
            self._names[pid] = "".join(filter(str.isprintable, name.strip()))[:_MAX_NAME]
        return self._names[pid]

    def _memory(self, board: _Board, handle: Any) -> Any:
        """Version 2 where there is one: in the first, what the driver keeps for itself counts as used."""
        memory = self._ask(board, "nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2)
        return self._ask(board, "nvmlDeviceGetMemoryInfo", handle) if memory == NOT_TOLD else memory

    def _ask(self, board: _Board, name: str, *arguments: Any) -> Any:
        """What NVML answers of a board, or Unknown. A board that is lost is not asked again: it may take seconds."""
        if board.lost:
            return Unknown(Reason.STALE)
        answer = self._try(name, *arguments)
        if answer == Unknown(Reason.STALE):
            board.lost = True
            self._lost.add(board.index)
            self._notes.append(f"GPU {board.index} fell off the bus while watched")
        return answer

    def _try(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, name)(*arguments)
        except Exception as error:  # whatever pynvml makes of it: a name it lacks, bytes that are no text
            return Unknown(_reason(error))

    def _words(self, error: Exception) -> str:
        """What went wrong in the driver's own words; pynvml's differ, and do where no library is loaded."""
        words = _text(self._try("nvmlErrorString", _code(error))) if _code(error) else ""
        return words or str(error)


def _rounds(seconds: float) -> int:
    """How many samples follow the first."""
    if seconds <= 0:
        return 0
    if seconds <= _SHORT:
        return max(1, round(seconds / 0.75))
    return min(_MAX_ROUNDS, int(seconds))


def _nothing(reason: Reason, detail: str) -> GpuView:
    return GpuView(ORIGIN, missing=reason, detail=detail)


def _code(error: Exception) -> int:
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else 0


def _is_denied(error: Exception) -> bool:
    return _code(error) == _NO_PERMISSION


def _reason(error: Exception) -> Reason:
    return {_NO_PERMISSION: Reason.DENIED, _GPU_IS_LOST: Reason.STALE}.get(_code(error), Reason.NOT_SUPPORTED)


def _text(answer: Any) -> str:
    """A name: pynvml gave bytes once. "" where there is none."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    return answer if isinstance(answer, str) else ""


def _number(answer: Any, per: int = 1) -> Reading:
    if isinstance(answer, Unknown):
        return answer
    if not isinstance(answer, int | float) or answer in _NOT_AVAILABLE or not math.isfinite(answer):
        return NOT_TOLD
    return Known(answer / per, origin=ORIGIN)


def _positive(answer: Any, per: int = 1) -> Reading:
    """A limit or a width, where 0 says that there is none: in a virtual machine, say."""
    return NOT_TOLD if answer == 0 else _number(answer, per)


def _part(answer: Any, name: str, per: int = 1) -> Reading:
    return answer if isinstance(answer, Unknown) else _number(getattr(answer, name), per)


def _flag(answer: Any, place: int | None = None) -> Reading:
    """A truth: the answer, or one of several that were answered together."""
    if isinstance(answer, Unknown):
        return answer
    return Known(bool(answer if place is None else answer[place]), origin=ORIGIN)


def _version(answer: Any) -> Reading:
    """9.0 of (9, 0)."""
    return answer if isinstance(answer, Unknown) else Known(float(f"{answer[0]}.{answer[1]}"), origin=ORIGIN)


def _bus_id(answer: Any) -> str:
    """ "0000:17:00.0" of NVML's "00000000:17:00.0"; "" where there is none."""
    if isinstance(answer, Unknown):
        return ""
    domain, _, rest = _text(answer.busId).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if re.fullmatch(r"[0-9a-f]+", domain) else ""
