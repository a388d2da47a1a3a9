"""A vLLM server on this host: what its command line, its processes and its GPUs say, beside its /metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from vllm_doctor.launch.diff import Running
from vllm_doctor.model.facts import COMMAND, ENVIRONMENT
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.plain import of_plain, plain
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Problem
from vllm_doctor.sources.gpu import gpu, kernel_log
from vllm_doctor.sources.gpu.gpu import GpuSample, GpuUse, GpuView
from vllm_doctor.sources.gpu.nvml import Nvml
from vllm_doctor.sources.host import adapter_files, host, model_files, topology
from vllm_doctor.sources.host.host import Host, HostSample
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.liveness import Liveness
from vllm_doctor.sources.host.process import OTHER, ServerProcess
from vllm_doctor.sources.server.state import Look, State
from vllm_doctor.vllm import defaults
from vllm_doctor.vllm.command_line import Command
from vllm_doctor.vllm.environment import number_or_text

_SAMPLES = 12
"""So many of a host are kept: each holds all its processes."""
_LOOKS = 30
_AS_LONG_AGAIN = 3.0
"""The last sample is begun so many times before the end as the first one took (heuristic)."""
_RARELY = 60.0
_PARALLEL = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")


@dataclass(frozen=True)
class PrintedGpus:
    """What nvidia-smi, or a program like it, printed of the GPUs; `name`: of the file that it stands in."""

    name: str
    view: GpuView


@dataclass
class Local:
    """One server of this host under examination. `patient`: what its other observations are called.

    `printed`: what a program printed of the GPUs, in place of the driver.
    """

    server: ServerProcess
    patient: str
    _: KW_ONLY
    kernel: Kernel = field(default_factory=Kernel)
    printed: PrintedGpus | None = None
    state: State | None = None
    """The looks of the run before: with one of a host, nobody waits for a second one."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @property
    def target(self) -> str:
        return f"pid {self.server.root}"

    @property
    def gpus_target(self) -> str:
        """Who tells of the GPUs."""
        return self.printed.name if self.printed is not None else "NVIDIA driver"

    def examine_host(self, seconds: float, deadline: float) -> Observation:
        """The processes and the CPU over `seconds`, done by `deadline` on the clock."""
        patient, liveness = Host(self.server, self.kernel, self.clock), self.liveness()
        began = self.clock()
        sample = patient.sample()
        took = self.clock() - began
        first = self._recalled("host", HostSample)
        if first is not None and self._is_running_since(first):
            last = sample
        else:
            first = sample
            # A starved doctor takes long for a sample, and must be done with the last one in time.
            self._look_on(liveness, min(seconds, deadline - _AS_LONG_AGAIN * took - self.clock()))
            last = patient.sample() if seconds else first
        liveness.look_last()
        self._keep("host", HostSample, last.at, last)
        return self.seen(patient, first, last, self.fixed(), liveness)

    def liveness(self) -> Liveness:
        """What looks at the states of its processes."""
        return Liveness(self.server, self.kernel, self.clock, self.sleep)

    def _look_on(self, liveness: Liveness, seconds: float) -> None:
        """Look about once a second, until `seconds` are over; the last look is the caller's."""
        steps = min(_LOOKS, max(1, round(seconds)))
        began = self.clock()
        for step in range(1, steps + 1 if seconds > 0 else 1):
            liveness.look()
            self.sleep(max(0.0, began + seconds * step / steps - self.clock()))

    def _is_running_since(self, first: HostSample) -> bool:
        return all(
            (before := first.processes.get(member.pid)) is not None and before.started == member.started
            for member in self.server.members
        )

    def _recalled(self, what: str, kind: Any) -> Any:
        """What the run before kept of this server, of this kind; None where it kept nothing of use."""
        look = self.state.look(f"{what} {self.patient}") if self.state is not None else None
        try:
            return of_plain(kind, look.told) if look is not None else None
        except (ValueError, TypeError, IndexError):
            return None

    def _keep(self, what: str, kind: Any, at: float, value: Any) -> None:
        if self.state is not None:
            self.state.keep_look(f"{what} {self.patient}", Look(at, plain(kind, value)))

    def fixed(self) -> dict[str, Reading]:
        """What does not change while the server runs: its command, its environment, its model."""
        return _command(self.server) | model_files.facts(self.kernel, self.server) | adapter_files.facts(self.server)

    def seen(
        self, patient: Host, first: HostSample, last: HostSample, fixed: dict[str, Reading], liveness: Liveness
    ) -> Observation:
        """The host between two samples."""
        return Observation(
            SourceKind.HOST,
            self.target,
            facts=fixed | patient.facts(first, last) | liveness.facts(),
            models=(self.server.command.model,) if self.server.command.model else (),
            notes=self.server.notes,
            patient=self.patient,
            command=self.server.command.argv,
            document=Running(self.server.command, self.target),
            processes=tuple((member.role, member.pid) for member in self.server.members if member.role != OTHER),
            process_rows=patient.rows(first, last),
        )

    def examine_gpus(self, seconds: float, deadline: float) -> Observation:
        """The GPUs over `seconds`, done by `deadline`."""
        if self.printed is not None:
            view = self.printed.view
        else:
            before = self._recalled("gpus", tuple[GpuSample, ...])
            view = Nvml(self.kernel, self.clock, self.sleep).watch(0.0 if before else seconds, deadline)
            if view.samples:
                now = max(sample.at for sample in view.samples)
                self._keep("gpus", tuple[GpuSample, ...], now, [one for one in view.samples if one.at == now])
                view = replace(view, samples=(*(before or ()), *view.samples))
        return self.seen_gpus(view)

    def seen_gpus(self, view: GpuView) -> Observation:
        """What the driver told, as an observation."""
        use = self._use()
        facts = gpu.facts(view, use)
        if view.gpus and self.printed is None:
            facts |= kernel_log.xids(self.kernel)
        elif view.xids:
            facts |= kernel_log.facts(view.xids, view.origin)
        facts["processes_off_node"] = self._off_node(view)
        facts["max_num_seqs_default"] = self._max_num_seqs(view, use)
        detail = (view.detail,) if view.detail and view.missing is not Reason.ABSENT else ()
        notes, rows = (*detail, *view.notes), gpu.rows(view, use)
        return Observation(
            SourceKind.GPU,
            self.gpus_target,
            facts=facts,
            notes=notes,
            taken_as=f"GPUs, by {view.origin}" if self.printed is not None else "",
            patient=self.patient,
            gpu_rows=rows,
        )

    def _use(self) -> GpuUse:
        environ = self.server.environ
        visible = None if isinstance(environ, Reason) else environ.get("CUDA_VISIBLE_DEVICES")
        if not self.server.command.argv:  # how many GPUs it uses is not known; it need not be one
            return GpuUse(frozenset(member.pid for member in self.server.members), visible)
        return GpuUse(
            frozenset(member.pid for member in self.server.members), visible, gpus_wanted(self.server.command)
        )

    def _off_node(self, view: GpuView) -> Reading:
        machine = topology.read(self.kernel)
        if isinstance(machine, Reason):
            return Unknown(machine)
        own = {member.pid for member in self.server.members}
        nodes = {
            process.pid: view.numa_nodes[sample.index]
            for sample in view.samples
            if sample.index in view.numa_nodes and not isinstance(sample.processes, Reason)
            for process in sample.processes
            if process.pid in own
        }
        return host.misplaced(self.kernel, machine, nodes)

    def _max_num_seqs(self, view: GpuView, use: GpuUse) -> Reading:
        """vLLM's default for this device, where neither the version nor the device leaves a doubt."""
        used = gpu.chosen(view, use)
        memory = [g.memory_total.value for g in used if isinstance(g.memory_total, Known)]
        no_gpu = view.missing is Reason.ABSENT and "cpu" in (self.server.version or "")
        doubled = "--performance-mode" in self.server.command.flags
        if self.server.version is None or doubled or not (no_gpu or (used and len(memory) == len(used))):
            return Unknown(Reason.NOT_SET)
        ranks = (use.wanted or 1) // max(1, int(float(self.server.command.flags.get(_PARALLEL[2], 1.0))))
        smallest = None if no_gpu else min(float(size) for size in memory)
        found = defaults.max_num_seqs(self.server.version, smallest, used[0].name if used else "", max(1, ranks))
        return Unknown(Reason.NOT_SET) if found is None else Known(float(found), origin="cmdline")


def gpus_wanted(command: Command) -> int:
    """How many GPUs a server with this command uses, of all its hosts."""
    wanted = 1.0
    for flag in _PARALLEL:
        value = command.flags.get(flag, 1.0)
        wanted *= value if isinstance(value, float) else 1.0
    return int(wanted)


class FollowedHost:
    """The host of a server that is watched on and on: two samples of it, one from before the window and the last."""

    every = 5.0

    def __init__(self, local: Local) -> None:
        self._local = local
        self._host = Host(local.server, local.kernel, local.clock)
        self._liveness = local.liveness()
        self._fixed: dict[str, Reading] | None = None
        self._samples: list[HostSample] = []

    def look(self, seconds: float) -> Observation:
        """Once more. A server whose processes have all ended is the error."""
        sample = self._host.sample()
        server = self._local.server
        if not any(member.pid in sample.processes for member in server.members):
            gone = Problem("gone", f"pid {server.root} has ended")
            return Observation(SourceKind.HOST, self._local.target, patient=self._local.patient, error=gone)
        if self._fixed is None:
            self._fixed = self._local.fixed()
        kept = self._samples
        if len(kept) > 2 and kept[-1].at - kept[-2].at < seconds / _SAMPLES:
            del kept[-1]
        kept.append(sample)
        while len(kept) > 2 and kept[1].at <= sample.at - seconds:
            del kept[0]
        self._liveness.forget(self._local.clock() - seconds)
        self._liveness.look_last()
        return self._local.seen(self._host, kept[0], sample, self._fixed, self._liveness)


class FollowedGpus:
    """The GPUs of a server that is watched on and on."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self._nvml = Nvml(local.kernel, local.clock, local.sleep)
        self.every = 2.0

    def look(self, seconds: float) -> Observation:
        """One more sample of each GPU."""
        if self._local.printed is not None:
            self.every = _RARELY
            return self._local.examine_gpus(0.0, 0.0)
        self._nvml.sample()
        self._nvml.forget(self._local.clock() - max(seconds, 2 * self.every))
        view = self._nvml.view()
        if view.missing is not None:
            self.every = _RARELY
        return self._local.seen_gpus(view)


def _command(server: ServerProcess) -> dict[str, Reading]:
    """The command line and the environment as facts: "--flag" and "$VARIABLE"."""
    facts: dict[str, Reading] = {COMMAND: Known(True, origin="cmdline")}
    facts |= {flag: Known(value, origin="cmdline") for flag, value in server.command.flags.items()}
    if server.version is not None:
        facts["vllm_version"] = Known(server.version, origin="proc")
    if isinstance(server.environ, Reason):
        return facts | {ENVIRONMENT: Unknown(server.environ)}
    facts[ENVIRONMENT] = Known(True, origin="environ")
    return facts | {f"${name}": Known(number_or_text(text), origin="environ") for name, text in server.environ.items()}
