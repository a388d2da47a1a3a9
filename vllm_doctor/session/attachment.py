"""How sources are opened: the options that they share, and what each kind of source answers to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.applying import Given
from vllm_doctor.session.source import Source
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.server.access import Access

if TYPE_CHECKING:
    from vllm_doctor.recording.bundle import Recording
    from vllm_doctor.rules.catalogue import Catalogue
    from vllm_doctor.session.local import PrintedGpus
    from vllm_doctor.sources.bench.commands import BenchCommand
    from vllm_doctor.sources.bench.measured import Measured
    from vllm_doctor.sources.profile.profiler import How
    from vllm_doctor.sources.server.state import State
    from vllm_doctor.vllm.command_line import Command

_GLANCE = 1.0


@dataclass(frozen=True)
class Attachment:
    """How to look. `seconds`: the window; `deadline`: when to be done, on time.monotonic."""

    wanted: frozenset[str]
    """Metrics that are kept."""
    access: Access
    seconds: float
    deadline: float
    smi: Path | None = None
    """The file of --nvidia-smi."""
    kernel: Kernel = field(default_factory=Kernel)
    since: str | None = None
    until: str | None = None
    """Of logs: what to judge."""
    threads: int | None = None
    """Of logs: how many read one, 1 or 2; None: a second one where a processor is idle."""
    command: str | None = None
    """A command line as a text, or the file that holds one."""
    gpu: str | None = None
    """The GPU's name, as --gpu has it."""
    vllm: str | None = None
    """The version of the vLLM that a written command alone would start, where the command does not say."""
    signals: Catalogue | None = None
    """What a Prometheus is asked for, and the `asked` seconds that it is asked of; None: it is not asked."""
    asked: float = 0.0
    state: State | None = None
    """The last looks at these servers: with them one scrape is enough."""
    keep: float = 0.0
    """Of a server that is watched: so many seconds of its answers can be recorded afterwards."""
    rules: Callable[[], str] = str
    """The name of the rules, where a recording tells by which it was judged."""
    folders: tuple[Path, ...] = ()
    """More folders of rules, which may hold log lines."""
    benchmark: BenchCommand | None = None
    """The command of a benchmark, which --command holds in place of a server's."""
    measured: Measured | None = None
    """The speed that the user saw (--measured)."""
    written: Command | None = None
    """The one command that was given: of a log, what its server was started with."""
    is_written_whole: bool = True
    """Whether its text shows all of it: else flags that it lacks may be set."""
    printed: PrintedGpus | None = None
    """What a program printed of the GPUs, in place of the driver's answer."""
    parted: frozenset[str] = frozenset()
    """Words that name files with more in them than a log."""
    texts: Mapping[str, bytes] = field(default_factory=dict)
    """By the words that name them: what people wrote, taken out of exports."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """What words are on the path of a request (--role), and the role of those that are opened now."""
    role: str = ""
    kv_events: tuple[str, ...] = ()
    """Endpoints at which servers publish the events of their KV caches (--kv-events)."""
    show_text: bool = False
    """Whether the report may show of prompts more than positions (--show-text)."""
    profile: How | None = None
    """How the processes of a server are sampled; None: they are not."""
    recorded: Recording | None = None
    """Of a demo: what was seen beside the one server that is named, when that was recorded."""
    given: Given = field(default_factory=Given)
    """Options that the user wrote: one that says nothing of the sources is an error."""
    waited: float | None = None
    """Seconds that the doctor had waited for a CPU when its time began; None: it begins with each look."""

    @property
    def host_seconds(self) -> float:
        """With a state a host that it does not know yet is only glanced at: the next run knows the rates."""
        return self.seconds if self.state is None else min(self.seconds, _GLANCE)


class Turn(IntEnum):
    """Which words are opened first: what comes later may be of a server that is open by then."""

    SERVER = 0
    PAGE = 1
    RECORDING = 2
    LOG = 3
    BENCH = 4
    TRACE = 5


class Open(Protocol):
    """Opens words that name one kind of source, with those opened before at hand in `beside`.

    Connections are closed with `opened`. Raises UsageError and SourceError, with one line to act on.
    """

    def __call__(
        self, words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]
    ) -> Sequence[Source]: ...


@dataclass(frozen=True)
class Opener:
    """One kind of source that a word of the command line can name."""

    is_named_by: Callable[[str], bool]
    turn: Turn
    open: Open
    in_place_of: SourceKind | None = None
    """What was found with other words gives way to what is named: sources of this kind, unless of a recording."""
