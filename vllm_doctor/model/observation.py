"""What one source saw: its scrapes, the facts about its server, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.reading import Reading
from vllm_doctor.model.report import BenchSeen, Change, LinesSeen, Patch, Problem, RecordingSeen
from vllm_doctor.model.snapshot import Evaluated
from vllm_doctor.model.window import Window

if TYPE_CHECKING:
    from vllm_doctor.model.prefix import Prefixes
    from vllm_doctor.model.profile import Profile
    from vllm_doctor.model.run import Run
    from vllm_doctor.model.trace import TraceSeen


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """A process of the server, over the time watched."""

    role: str
    pid: int
    cores: Reading
    """How many it used."""
    waited: Reading
    """The share of the time in which its busiest thread was ready to run and had no core."""
    threads: int


@dataclass(frozen=True, slots=True)
class GpuSeen:
    """A GPU that the server uses, now. Shares from 0 to 1; bytes, MHz, W, °C."""

    index: int
    name: str
    readings: Mapping[str, Reading]
    """utilization, memory_used, memory_total, clock, clock_max, power, power_limit, temperature"""


class Document(Protocol):
    """What holds commands, and can be written anew with other ones."""

    def patched(self, changes: Mapping[int, Sequence[Change]]) -> tuple[Patch, ...]:
        """The corrections of its commands, which count from 0, in its own form."""


@dataclass(frozen=True)
class Observation:
    """`kind` and `target` name the source; `error` says why it could not be read, or not to the end.

    Observations of one `patient` add up: a server's metrics, its host, its GPUs. Alone, a source is its own patient.
    """

    kind: SourceKind
    target: str
    window: Window = field(default_factory=Window)
    facts: Mapping[str, Reading] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    error: Problem | None = None
    notes: tuple[str, ...] = ()
    taken_as: str = ""
    """What a text was taken for: "a compose file"; "" of what is no text."""
    patient: str = ""
    role: str = ""
    """What it is on the path of a request (kinds.Hop); "" where nothing tells. `product`: of a gateway or a router."""
    product: str = ""
    command: tuple[str, ...] = ()
    variables: Mapping[str, bool] = field(default_factory=dict)
    """Pieces of `command` that a shell expands, and whether to several words."""
    document: Document | None = None
    """Where `command` stands, as its command of this `number`."""
    number: int = 0
    processes: tuple[tuple[str, int], ...] = ()
    """(role, pid) of the server's processes."""
    runs: tuple[Run, ...] = ()
    """What a log tells, run by run; `lines` of it were read."""
    lines: LinesSeen | None = None
    recent: Window = field(default_factory=Window)
    """Of a source that is followed: its last few scrapes."""
    evaluated: Evaluated | None = None
    """Of a Prometheus: the signals of its window, in place of scrapes."""
    history: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    """Of its first look: signals over the time before, over all engines, by POSIX seconds."""
    process_rows: tuple[ProcessSeen, ...] = ()
    """The server's processes one by one, and the GPUs that it uses."""
    gpu_rows: tuple[GpuSeen, ...] = ()
    bench: BenchSeen | None = None
    """The benchmark's result that this is."""
    trace: TraceSeen | None = None
    """What a profiler's trace shows."""
    prefixes: Prefixes | None = None
    """Where the prompts that it holds part."""
    profile: Profile | None = None
    """Of its kind: where the server's processes spend their time."""
    recording: RecordingSeen | None = None
    """Where all this was kept, if it is not of now."""


class Feed(Protocol):
    """A source that is watched on and on."""

    every: float
    """Seconds from one look to the next."""

    def look(self, seconds: float) -> Observation:
        """Once more; what was seen in the last `seconds`. What the source does wrong is the observation's error."""
