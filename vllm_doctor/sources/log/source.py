"""The sources FILE and `-`: logs, read in one pass, as runs of servers."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.facts import LOG
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import LinesSeen, Problem
from vllm_doctor.model.run import Run
from vllm_doctor.rules.log_lines import LogLines
from vllm_doctor.sources.host.idle import idle_processor
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.process_log import ProcessLog
from vllm_doctor.sources.log import bytes_literals, bytes_stream
from vllm_doctor.sources.log.bytes_scan import Scanner
from vllm_doctor.sources.log.bytes_stream import Held, Origin
from vllm_doctor.sources.log.reader import Reading, merged
from vllm_doctor.sources.log.runs import Runs
from vllm_doctor.text import content, durations
from vllm_doctor.text.times import is_dated, iso

STDIN = "-"
_ROTATED = re.compile(
    r"(?P<base>.*?)(?:\.(?P<number>\d{1,4})|[.-](?P<day>\d{8}(?:-?\d{2,6})?))?(?:\.(?:gz|xz|bz2|zst))?",
    re.ASCII | re.DOTALL,
)
_NAMED = 3
_DAY = 86400.0
_METRIC = "vllm:"
_PAGE = "a page of /metrics is read from a file, as the server wrote it (curl http://HOST:PORT/metrics > metrics.prom)"

_OUT_OR_ERR = re.compile(r"(?<![a-z])(?:std)?(?:out|err)(?![a-z])")
"""server.out and server.err, job_12_stdout.log and job_12_stderr.log."""


@dataclass(frozen=True, slots=True)
class Period:
    """From when to when a log is judged: POSIX seconds, or seconds before the log's end (`ago`), or a time of day."""

    text: str
    at: float | None = None
    ago: float | None = None
    of_day: float | None = None

    def seconds(self, end: float, ahead: float = 0.0) -> float:
        """On the clock of a log that ends at `end`. A time of day may lie so many seconds `ahead` of that."""
        if self.at is not None:
            return self.at
        if self.ago is not None:
            return end - self.ago
        assert self.of_day is not None
        at = end - (end % _DAY) + self.of_day
        return at if at <= end + ahead else at - _DAY


def period(text: str) -> Period:
    """ "2h", "13:30", "2025-11-20", "2025-11-20 13:30:00", RFC 3339. Raises UsageError."""
    if text[-1:].isalpha():  # a bare number is no time
        with suppress(ValueError):
            return Period(text, ago=durations.parse(text))
    of_day = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", text)
    if of_day:
        return Period(text, of_day=3600.0 * int(of_day[1]) + 60 * int(of_day[2]) + int(of_day[3] or 0))
    try:
        written = datetime.fromisoformat(text)
        return Period(text, at=(written if written.tzinfo else written.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is no time: write 2h, 13:30, 2025-11-20 or 2025-11-20T13:30:00") from None


@dataclass
class Log:
    """One or more logs that are read together, by time. `since` and `until` leave out what was measured outside."""

    paths: Sequence[Origin]
    table: LogLines
    since: Period | None = None
    until: Period | None = None
    watch: float | None = None
    """Seconds in which it is followed, beside its running server."""
    age: float | None = None
    """Of the log of a running server in a recording: seconds since it was last written to."""
    threads: int | None = None
    """1 or 2; None: a second one only where a processor is idle. Beside its server, and for several logs by time, 1."""
    readings: list[Reading] = field(default_factory=list)

    def __post_init__(self) -> None:
        # before anything is watched: it takes its time
        self._scanner = Scanner(self.table.finds, self.table.uncounted, is_kept=True)

    @property
    def target(self) -> str:
        names = [str(path) if path is not None else STDIN for path in self.paths]
        return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")

    @property
    def bytes_read(self) -> int:
        """How far it has come."""
        return sum(reading.tally.bytes_read for reading in self.readings)

    @property
    def share_read(self) -> float | None:
        """The same, as a share of its files; None where their size is not known, or one is followed."""
        if self.watch is not None:
            return None
        sizes = [bytes_stream.size_of(path) for path in self.paths]
        known = [size for size in sizes if size is not None]
        if not sum(known) or len(known) < len(sizes):
            return None
        return min(1.0, sum(reading.position for reading in self.readings) / sum(known))

    def examine(self, patient: str) -> Observation:
        """Read to the end. What cannot be read is the observation's error, what was odd its notes."""
        started = time.monotonic()
        runs = Runs(self.table)
        try:
            self._read(runs, None if self.watch is None else started + self.watch)
        except SourceError as error:
            return self._failed(patient, Problem(error.kind, str(error)))
        read = sum(reading.tally.lines_read for reading in self.readings)
        recognised = sum(reading.recognised for reading in self.readings)
        if not any(reading.is_vllm for reading in self.readings):
            return self._failed(patient, self._nothing(recognised, read))
        shift = self.readings[0].shift if len(self.readings) == 1 else 0.0
        done = runs.done(any(reading.is_quoted for reading in self.readings))
        whole = [_without_made_up_times(run.shifted(shift)) for run in done]
        chosen = self._between(whole)
        if not chosen:
            return self._failed(patient, _outside(self.target, whole))
        one_in = max((n for reading in self.readings for n in reading.tally.one_in.values()), default=1)
        zoned = all(reading.zoned for reading in self.readings if reading.is_vllm)
        newest = chosen[-1]
        now = self._now(runs.last_at)
        return Observation(
            kind=SourceKind.LOG,
            target=self.target,
            facts=newest.facts if now is None else {**newest.facts, **runs.recent(now)},
            models=tuple(dict.fromkeys(run.model for run in chosen if run.model)),
            notes=(*self._notes(), *([f"{runs.left_out:,} of its runs are not shown"] if runs.left_out else [])),
            patient=patient,
            command=newest.command,
            runs=chosen,
            lines=LinesSeen(read, recognised, zoned, time.monotonic() - started, one_in),
        )

    def _read(self, runs: Runs, until: float | None) -> None:
        """All files, those of a rotated set one after the other, the others by time. Raises SourceError."""
        rotated = sorted(_rotated(self.paths), key=_is_err)
        may_run_ahead: Callable[[], bool] = bool
        if until is None and len(rotated) == 1 and self.threads != 1:
            may_run_ahead = idle_processor(Kernel()) if self.threads is None else lambda: True
        streams: dict[str, int] = {}
        groups = [
            [Reading(path, stream, self.table, self._scanner, until, may_run_ahead) for path in paths]
            for paths in rotated
            for stream in [streams.setdefault(_of_both(str(paths[-1] or STDIN)), len(streams))]
        ]
        self.readings = [reading for readings in groups for reading in readings]
        shared = Counter(readings[0].stream for readings in groups)
        for reading in self.readings:
            reading.may_be_empty = len(self.readings) > 1  # a log that was just rotated is
            reading.has_times_beside = shared[reading.stream] > 1
        for sighting in merged(groups):
            runs.add(sighting)

    def _failed(self, patient: str, problem: Problem) -> Observation:
        return Observation(SourceKind.LOG, self.target, error=problem, patient=patient)

    def _now(self, last_at: float | None) -> float | None:
        """The time on the log's clock, if its server runs: the file was last written when its last line says."""
        if last_at is not None and self.age is not None:
            return last_at + self.age
        if self.watch is None or last_at is None:
            return None
        written = max((at for path in self.paths if (at := bytes_stream.changed_at(path))), default=time.time())
        return last_at + max(0.0, time.time() - written)

    def _between(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        end = max((run.last_at for run in runs if run.last_at is not None), default=None)
        if end is None or (self.since is None and self.until is None):
            return tuple(runs)
        since = self.since.seconds(end) if self.since else float("-inf")
        until = self.until.seconds(end, ahead=_DAY / 2) if self.until else float("inf")
        if self.since and self.until and since > until:
            raise UsageError(f"--until {self.until.text} is before --since {self.since.text}")
        runs = [_without_death(run) if not since <= _died_at(run, end) <= until else run for run in runs]
        return tuple(
            replace(
                run,
                rounds=tuple(round for round in run.rounds if since <= round.at <= until),
                first_at=max(run.first_at, since),
                last_at=min(run.last_at, until),
            )
            for run in runs
            if run.first_at is not None and run.last_at is not None and run.first_at <= until and run.last_at >= since
        )

    def _notes(self) -> Iterator[str]:
        for reading in self.readings:
            named = f"{reading.name}: " if len(self.readings) > 1 else ""
            yield from (note if reading.name in note else f"{named}{note}" for note in reading.notes)
            if not reading.is_vllm and reading.tally.lines_read:
                yield f"{named}none of its {reading.tally.lines_read:,} lines is vLLM's"
        if remark := bytes_literals.remark(self.bytes_read):
            yield remark

    def _nothing(self, recognised: int, read: int) -> Problem:
        named = [reading for reading in self.readings if not isinstance(reading.path, ProcessLog)]  # by the user
        head = named[0].head if len(named) == 1 else []
        shown = f"; it is {content.described(head, named[0].tally.bytes_read)}" if head else ""
        has_metrics = any(_METRIC in line for reading in self.readings for line in reading.head)
        hint = f"; {_PAGE}" if has_metrics else "" if named else "; if the log is another file, give its name"
        return Problem("not-vllm", f"{self.target}: {recognised:,} of {read:,} lines recognised{hint}{shown}")


class Followed:
    """The log of a server that is watched on and on: read again when it was written to."""

    every = 10.0

    def __init__(self, paths: Sequence[Origin], table: LogLines, patient: str) -> None:
        self._paths, self._table, self._patient = paths, table, patient
        self._was: object = None
        self._seen: Observation | None = None

    def look(self, seconds: float) -> Observation:
        """What stands in it by now."""
        now = [_state(path) for path in self._paths]
        if self._seen is None or now != self._was:
            self._was = now
            self._seen = Log(self._paths, self._table, watch=0.0).examine(self._patient)
        return self._seen


def _state(path: Origin) -> tuple[int, float] | None:
    """Whether a file was written to: its size and time."""
    try:
        found = path.stat() if path is not None and not isinstance(path, Held) else None
    except OSError:
        return None
    return (found.st_size, found.st_mtime) if found else None


def _without_made_up_times(run: Run) -> Run:
    """A run without times and statistics has no time: the clock that statistics make stood still."""
    if run.rounds or run.first_at is None or is_dated(run.first_at):
        return run
    death = replace(run.death, at=None) if run.death is not None else None
    return replace(run, first_at=None, last_at=None, death=death)


def _died_at(run: Run, end: float) -> float:
    """When it died; at the end of the log where nothing tells."""
    return end if run.death is None or run.death.at is None else run.death.at


def _without_death(run: Run) -> Run:
    """What is known of it before it died."""
    told = {name: fact for name, fact in run.facts.items() if not name.startswith("death_")}
    none = Known(0.0, origin=LOG)
    alive = {"engine_deaths": none, "starts_corrected": none, "engine_dead": Known(False, origin=LOG)}
    return replace(run, death=None, facts=told | alive)


def _outside(target: str, runs: Sequence[Run]) -> Problem:
    """Nothing is left between --since and --until."""
    times = [at for run in runs for at in (run.first_at, run.last_at) if at is not None]
    held = f": it goes from {iso(min(times), zoned=False)} to {iso(max(times), zoned=False)}" if times else ""
    return Problem("empty", f"nothing in {target} is between --since and --until{held}")


def _of_both(name: str) -> str:
    """A log's name, the same for what one program wrote to its standard output and to its standard error."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + _OUT_OR_ERR.sub("*", file, count=1)


def _is_err(paths: Sequence[Origin]) -> bool:
    """Whether it is a standard error: of the same second it comes later, as its last words do."""
    found = _OUT_OR_ERR.search(str(paths[-1] or STDIN).rpartition("/")[2])
    return found is not None and found[0].endswith("err")


def _rotated(paths: Sequence[Origin]) -> list[list[Origin]]:
    """The files of one rotated log together, the oldest first: vllm.log.2.gz, vllm.log.1, vllm.log."""
    groups: dict[str, list[tuple[tuple[int, int], Origin]]] = {}
    for path in dict.fromkeys(paths):
        named = _ROTATED.fullmatch(str(path or STDIN))
        assert named is not None  # every name has a base
        # logrotate counts up into the past, or names the day, which counts into the future, as the kubelet does.
        age = (0, 0)
        if named["number"] or named["day"]:
            age = (-1, -int(named["number"]) if named["number"] else int(named["day"].replace("-", "").ljust(14, "0")))
        groups.setdefault(named["base"], []).append((age, path))
    return [[path for _, path in sorted(group, key=lambda item: item[0])] for group in groups.values()]
