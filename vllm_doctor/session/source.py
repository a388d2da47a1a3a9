"""A source of an examination: what it is, which server it is of, and how it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import READ, SourceKind, Trust
from vllm_doctor.model.observation import Feed, Observation
from vllm_doctor.model.report import Problem

if TYPE_CHECKING:
    from vllm_doctor.recording.bundle import Recording
    from vllm_doctor.sources.log.bytes_stream import Origin
    from vllm_doctor.sources.server.server import Server


@dataclass(frozen=True)
class Source:
    """Sources of one `patient` are of the same server. `look` runs in a thread of its own."""

    kind: SourceKind
    target: str
    """Its name in the report: a URL, a pid, a file."""
    patient: str
    look: Callable[[], Observation]
    """Once; what the source does wrong is the observation's error."""
    bytes_read: Callable[[], int] | None = None
    """How far it has come, where that may take long."""
    share_read: Callable[[], float | None] = lambda: None
    """The same, as a share of the whole, where that is known."""
    follow: Callable[[], Feed] | None = None
    """To look again and again; None: what it saw once holds."""
    server: Server | None = None
    """Whose answers can be kept."""
    logs: tuple[Origin, ...] = ()
    """Of a log: its files."""
    was_there: bool = False
    """Whether it was there before, as GPUs that were printed, though others of its kind tell what is now."""
    recording: Recording | None = None
    """Where it comes from, if it is not of now."""
    replay: Callable[[Callable[[], float]], Feed] | None = None
    """To look at what was recorded as if it were then; asks for the seconds after its start."""
    so_far: Callable[[], Observation | None] = lambda: None
    """What a look that has not ended yet has seen, if anything: for another thread, when the time is over."""

    @property
    def is_past(self) -> bool:
        """Whether looking at it is reading: nobody waits for an answer."""
        return self.was_there or self.recording is not None or self.kind in (*READ, SourceKind.GPU_NAME)

    @property
    def trust(self) -> Trust:
        """How far it is believed where another source of the patient says something else."""
        return self.kind.trust


def noted(kind: SourceKind, target: str, patient: str, note: str) -> Source:
    """A source that can only say why it sees nothing."""
    seen = Observation(kind, target, notes=(note,), patient=patient)
    return Source(kind, target, patient, lambda: seen)


def failed(kind: SourceKind, target: str, what: str, says: str) -> Source:
    """A source that cannot be read, or is not used; `what`: the kind of error, `says`: why, and what to do."""
    seen = Observation(kind, target, error=Problem(what, says))
    return Source(kind, target, target, lambda: seen)
