"""From what stands in a log to the runs of the servers in it: a restart begins a new one."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from vllm_doctor.model import restarts
from vllm_doctor.model.facts import COMMAND, LOG
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.model.run import RUNNING, Death, Round, Run, Series
from vllm_doctor.rules.log_lines import LogLine, LogLines
from vllm_doctor.sources.log import bytes_scan
from vllm_doctor.sources.log.entry_arguments import Arguments
from vllm_doctor.sources.log.entry_clock import INTERVAL
from vllm_doctor.sources.log.reader import Sighting
from vllm_doctor.vllm import dating
from vllm_doctor.vllm.dating import Dating

_SHUTDOWN = 120.0
"""Seconds in which a server that was told to stop may still log errors."""
_EPISODE = 600.0
"""Seconds before a death in which its first cause is looked for."""
_STARTING = 900.0
"""Seconds within which the ranks of one start print the same line."""
_ONE_START = 30.0
"""Seconds within which one process prints it twice; in a container each start has the same pids."""
_BESIDE = 60.0
"""Seconds for which the last words of one run may stand among the first of the next. With more they are two servers."""
_MOST_STARTING = 8
"""Servers that may start at the same time into one log."""
_GAP = 2.5
"""Intervals without a line that are silence, and no jitter."""
_GAP_SAMPLED, _SMOOTH = 8.0, 0.05
"""The same where only a sample of the lines is read, in the usual times between them; and how fast that follows."""
_MOST_RUNS = 500
_OF_THE_MACHINE = ("gpu_written",)
"""Facts that stay when the server is started again."""
_MOST_TROUBLES = 50
_MOST_TIMES = 4096
_LATE = 5.0
"""Seconds within which lines of a run that has ended may stand below the start of the next."""
_RECENT = 15.0
"""Seconds that are now, for a server that runs."""
_MOST_STEPS = 5000
_WEAK_CAUSES = re.compile(
    r"EngineDeadError|KeyboardInterrupt|SystemExit|CancelledError|terminated|exit code:? -(?:15|2)\b|died unexpectedly$"
    r"|initialization failed|failed to start|new thread at interpreter shutdown|failed to be inspected"
    r"|Error raised in subprocess|RuntimeError: cancelled$|^Engine (?:process \(pid \d+\) died|loop has died)$"
)
"""They follow an operator's signal as well, or only repeat that something has ended."""
_REPEATED = re.compile(r"[\w.]{0,200}EngineDeadError\b(?!.*original error)|.{0,600}?initialization failed")
"""What says only that there is a cause elsewhere."""
_OF_CLIENTS = re.compile(r"[\w.]*(?:ValidationError|HTTPException|BadRequest\w*|ClientDisconnect|LifespanFailure)\b")
"""What a request is refused with that asks for what is not possible: no fault of the server's."""
_OF_SERVER = re.compile(r"$|APIServer|ApiServer|EngineCore|VllmWorker|RayWorker|Worker(?:_|$)|DPCoordinator")
"""The names of vLLM's processes; others may run in one log with an engine that they have embedded."""
_ENDED = re.compile(
    r"exit code:? -?(?!-?9\b|137)\d|Fatal Python error: Aborted|returned non-zero|worker died$"
    r"|CalledProcessError: Command"
    r"|WorkerCrashedError|^Aborted|Actor(?:Died|Unavailable)?Error|device-side assert triggered"
    r"|ContextTerminated"
)
"""How a process ended, which follows why."""
_WAITED = re.compile(
    r"RPC call to|Worker failed with error|RayChannel|Watchdog caught collective|timed out|TimeoutError"
    r"|Connection (?:reset|closed|refused)|Broken pipe|Socket Timeout"
    r"|unhandled cuda error|ncclUnhandledCudaError|^KeyError: '(?:chat)?cmpl-"
)
"""What one process sees of another one's end: of what that one itself says, this is the consequence. NCCL's "unhandled
cuda error" says only that there is one of CUDA's, and the engine core misses the requests of a step that failed."""
_UNHEARD = "exception-unheard"
"""asyncio's and Python's words above a traceback that nobody waited for: it follows what ended something else."""
_AROUND = 60.0
"""Seconds around a death in which a traceback that ends nothing by itself may be its cause."""
_STALE = 12.0
"""Seconds after a death in which a line of statistics tells of before: it is of the ten seconds that end with it."""
_MOST_RAISED = 100
_LAST_V0 = (0, 10, 2)
"""The last release with the engine that swaps requests out."""
_TROUBLES = ("error", "died", "raised", "failed", "stopped")
"""Marks of lines that are no progress."""
_BY_ITSELF = "stop-uvicorn"
"""The HTTP server's words, which it also says when it is the engine that has gone."""
_KILL = re.compile(
    r"[Kk]illed|\b137\b|9/KILL|signal 9|exit code: -9|[Oo]ut of memory: Kill|oom[_-]kill|Out Of Memory|OOMKilled"
)
_KILLED = ("last-word", "shell-killed", "task-killed", "exited-killed")
"""Lines of a shell, a container or SLURM. After a death they tell only how what was left of it was ended."""
_ANSWERED = ("request-500", "request-exception", "request-error")
"""Lines of a server that answers requests, if with an error."""
_INTERRUPT = re.compile(r"KeyboardInterrupt\b")
_LOADING = ("weights-begun", "model-loaded")
_SETTINGS = "log:engine-config."
_COMPILE_KEY = "log:compile-cache.key"
_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_GONE = ("engine-gone", "worker-died", "worker-died-v0", "process-exit", "engine-process-died", "engine-dead-v0")
"""Lines of a process that has seen another one end."""


_Point = tuple[float, str, LogLine, Mapping[str, Value]]
"""A line with measures: at what time, of which engine."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    at: float
    line: int
    process: str
    cause: str | None
    stage: str | None
    """Of a start, by its own words or its frames."""
    reached: str | None
    """The stage that the run was in."""
    told_by: str
    """The line of the table."""
    pid: int | None = None
    is_deadly: bool = False
    """Whether the line says itself that the server is dead."""
    part: str | None = None
    """Of the server, by its frames."""
    is_known: bool = False
    """Whether the line is one of this very exception, and no other's wrapper."""

    @property
    def speaker(self) -> tuple[str, int | None]:
        return self.process, self.pid


@dataclass
class _OpenRun:
    """A run while it is read."""

    key: tuple[int, str]
    began: bool
    starts: dict[str, tuple[str, int | None, float | None]] = field(default_factory=dict)
    first_at: float | None = None
    last_at: float | None = None
    ready: bool = False
    stopped_at: float | None = None
    died: _Trouble | None = None
    stopped_by: str | None = None
    """The line of the table that said so."""
    ended_by: str | None = None
    troubles: list[_Trouble] = field(default_factory=list)
    raised: deque[_Trouble] = field(default_factory=lambda: deque(maxlen=_MOST_RAISED))
    """Tracebacks that end nothing by themselves."""
    failed: list[_Trouble] = field(default_factory=list)
    """Of requests and calls that were answered with an error: the first ones."""
    failures: int = 0
    """How many there are."""
    unheard: tuple[str, int | None] | None = None
    """The process that has just said that nobody heard of what it raised."""
    raised_last: bool = False
    """Whether nothing of vLLM's came after the last of these, as far as the start goes on."""
    stage: str | None = None
    went_on_at: float | None = None
    """The time of the last line of its start, or of its statistics."""
    last_start: str | None = None
    """The last line of a start."""
    printed: dict[str, float] = field(default_factory=dict)
    """When each line of its start was printed first."""
    counts: Counter[str] = field(default_factory=Counter)
    serving: Counter[str] = field(default_factory=Counter)
    """The counts since it was up."""
    when: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)
    """When each line was printed last, and how often at a time: what is not of the start."""
    values: dict[str, dict[str, Value]] = field(default_factory=dict)
    """What each line said last."""
    named: dict[str, Value] = field(default_factory=dict)
    arguments: Arguments | None = None
    engine_of: dict[tuple[str, int | None], str] = field(default_factory=dict)
    points: list[_Point] = field(default_factory=list)


class Runs:
    """Collects sightings, in the order of the log; `done` tells the runs."""

    def __init__(self, table: LogLines) -> None:
        self._table = table
        self._all: list[_OpenRun] = []
        self._current: dict[tuple[int, str], _OpenRun] = {}
        self._of_pid: dict[tuple[int, str, int], _OpenRun] = {}
        self.left_out = 0
        """Runs that never served, of so many that the oldest are not told."""

    def add(self, seen: Sighting) -> None:
        run = self._run(seen)
        if seen.pid is not None:
            self._of_pid[seen.stream, seen.origin, seen.pid] = run
        if seen.at is not None:
            run.first_at = seen.at if run.first_at is None else run.first_at
            run.last_at = max(seen.at, run.last_at or seen.at)
        line = seen.line
        run.counts[line.id] += seen.repeated
        if run.ready or run.points:
            run.serving[line.id] += seen.repeated
        if line.stage is not None and line.marks not in _TROUBLES:
            run.stage = line.stage
        if line.at_start and line.marks not in _TROUBLES and seen.pid is not None and run.died is None:
            # It went on with its start: what it had stumbled over was no death.
            survived = [one for one in run.troubles if not one.is_deadly and one.speaker == (seen.process, seen.pid)]
            run.troubles = [one for one in run.troubles if one not in survived]
            run.counts.subtract(one.told_by for one in survived)
        if line.at_start or line.samples:
            run.raised_last = False
            run.went_on_at = seen.at if seen.at is not None else run.went_on_at
        if line.at_start:
            run.last_start = line.id
            if seen.at is not None:
                run.printed.setdefault(line.id, seen.at)
        elif not line.samples and seen.at is not None:
            run.when.setdefault(line.id, deque(maxlen=_MOST_TIMES)).append((seen.at, seen.repeated))
        run.values.setdefault(line.id, {}).update(seen.values)
        for name, fact in line.facts.items():
            if name in seen.values:
                run.named[fact] = seen.values[name]
        if seen.arguments is not None:
            run.arguments = seen.arguments
        if line.samples and seen.at is not None:
            self._measure(run, seen, seen.at)
        self._mark(run, seen)

    def _run(self, seen: Sighting) -> _OpenRun:
        """The run that a sighting belongs to; a new one where it begins one."""
        key = (seen.stream, seen.origin)
        known = self._of_pid.get((*key, seen.pid)) if seen.pid is not None else None
        # Of a log whose first lines name no container, the named ones go on.
        newest = self._current.get(key) or self._current.get((seen.stream, ""))
        if seen.line.marks in ("start", "arguments"):
            current = self._starting(seen, key, known, newest)
        elif known is not None and (known.died is None or newest is known):
            current = known
        elif newest is not None and known is None and _is_of_another(newest, seen):
            current = self._begin(key, began=False)
        else:
            current = newest or self._unnamed(seen, key)
        self._current.setdefault(key, current)
        return current

    def _starting(
        self, seen: Sighting, key: tuple[int, str], known: _OpenRun | None, newest: _OpenRun | None
    ) -> _OpenRun:
        """The run whose start this line is part of."""
        # The pid may be one of an earlier run: a container counts from 1 again.
        # Of two servers that start at the same time the older lacks the line first.
        starting = [run for run in self._all[-_MOST_STARTING:] if run.key == key and not run.ready]
        going_on = (one for one in (known, *starting, newest) if one and not _begins_again(one, seen))
        current = next(going_on, None) or self._begin(key, began=True)
        # Lines of a start may come before the one that names it.
        current.began = current.began or not (current.starts or current.ready or current.points)
        is_first = not (current.starts or current.stage)
        if is_first and None not in (seen.at, current.first_at) and seen.at - current.first_at > _BESIDE:  # type: ignore[operator]
            current.first_at = seen.at  # what imported vLLM before was another program: collect_env, a script
        current.starts.setdefault(seen.line.id, (seen.process, seen.pid, seen.at))
        return current

    def _unnamed(self, seen: Sighting, key: tuple[int, str]) -> _OpenRun:
        """The run of a line whose process and origin no run has yet."""
        of_stream = [run for (stream, _), run in self._current.items() if stream == seen.stream]
        if of_stream and (not seen.origin or not seen.line.samples):
            return of_stream[-1]
        if self._all and not seen.line.samples:  # a worker on another node
            return self._all[-1]
        return self._begin(key, began=False)

    def _begin(self, key: tuple[int, str], began: bool) -> _OpenRun:
        if len(self._all) >= _MOST_RUNS:
            idle = next((place for place, run in enumerate(self._all) if not run.points), 0)
            del self._all[idle]
            self.left_out += 1
        self._all.append(_OpenRun(key, began))
        self._current[key] = self._all[-1]
        return self._all[-1]

    def _measure(self, run: _OpenRun, seen: Sighting, at: float) -> None:
        speaker = (seen.process, seen.pid)
        if "engine" in seen.values:
            run.engine_of[speaker] = f"{float(seen.values['engine']):.0f}"
        run.points.append((at, run.engine_of.get(speaker, "0"), seen.line, seen.values))
        if seen.values.get("running"):  # it goes on: what looked like an end was none
            run.stopped_at = None
        # A dead engine may have requests that "run", but generates nothing: what it still tells is of before. What was
        # before a death whose time nothing tells (an excerpt: the error, then the log) nobody knows.
        if run.died is not None and seen.values.get("generation") and 0 < run.died.at < at - _STALE:
            run.died = None

    def _mark(self, run: _OpenRun, seen: Sighting) -> None:
        at = seen.at if seen.at is not None else run.last_at or 0.0
        is_deadly = seen.line.marks == "died"
        trouble = _Trouble(
            at, seen.number or 0, seen.process, seen.cause, seen.stage, run.stage, seen.line.id, seen.pid, is_deadly,
            seen.part, seen.line.marks == "error" and "error" in seen.values,
        )  # fmt: skip
        unheard = run.unheard == (seen.process, seen.pid)
        if unheard or seen.line.id == _UNHEARD:
            run.unheard = (seen.process, seen.pid) if seen.line.id == _UNHEARD else None
        told_to_stop = run.stopped_at is not None and at - run.stopped_at < _SHUTDOWN
        match seen.line.marks:
            case "ready":
                run.ready = True
            case "stopped":
                run.ended_by = run.ended_by or _ender(seen)
                if run.raised and run.raised[-1].stage is not None and _INTERRUPT.match(run.raised[-1].cause or ""):
                    run.stage = run.raised[-1].stage  # where the interrupt found it
                if run.stopped_at is None or run.stopped_by == _BY_ITSELF:
                    run.stopped_by = seen.line.id
                run.stopped_at = at if run.stopped_at is None else run.stopped_at
            case "raised" if unheard:
                pass
            case "raised" if not run.raised or (run.raised[-1].cause, run.raised[-1].at) != (trouble.cause, at):
                run.raised.append(trouble)
                run.raised_last = True
            case "failed" if not told_to_stop and not _is_of_a_client(seen.cause):
                run.failures += seen.repeated
                if len(run.failed) < _MOST_TROUBLES:
                    run.failed.append(trouble)
            case "error" | "died" if not told_to_stop and not (run.died is not None and seen.line.id in _KILLED):
                if len(run.troubles) < _MOST_TROUBLES:
                    run.troubles.append(trouble)
                if seen.line.marks == "died" and run.died is None:
                    run.died = trouble

    @property
    def last_at(self) -> float | None:
        """The last time in the log."""
        return max((run.last_at for run in self._all if run.last_at is not None), default=None)

    def recent(self, now: float) -> dict[str, Reading]:
        """Of a server that runs, `now` on the log's clock: how often each line was printed in the last seconds.

        For what its start told that is nothing to ask.
        """
        if not self._all:
            return {}
        found: dict[str, Reading] = {}
        for id, when in self._all[-1].when.items():
            count = float(sum(times for at, times in when if at > now - _RECENT))
            serving = min(count, float(self._all[-1].serving[id]))
            found |= {f"log:{id}{since}": Known(count, origin=LOG) for since in ("", "@here")}
            found[f"log:{id}@serving"] = Known(serving, origin=LOG)
        return found

    def done(self, is_quoted: bool = False) -> tuple[Run, ...]:
        """The runs, in the order in which they began. `is_quoted`: where the log ends somebody has chosen."""
        runs = list(_with_their_machine([self._run_of(open_run) for open_run in self._all]))
        served_last = max((place for place, run in enumerate(runs) if run.up and not run.death), default=-1)
        corrected = {place for place, run in enumerate(runs) if _is_corrected(run, place, served_last)}
        deaths = sum(run.death is not None for run in runs) - len(corrected)
        unfinished = _unfinished(runs, self._all)
        return tuple(
            replace(
                run,
                facts=dict(run.facts)
                | _of_death(run, place > served_last, place >= served_last, is_quoted)
                | _of_deaths(run, deaths, len(corrected), place in corrected)
                | (unfinished if place == len(runs) - 1 else {})
                | _of_compile_key(runs[:place], run)
                | again
                | ({"log_quoted": Known(1.0, origin=LOG)} if is_quoted else {}),
            )
            for place, (run, again) in enumerate(zip(runs, _restarts(runs, self._all), strict=True))
        )

    def _run_of(self, open_run: _OpenRun) -> Run:
        rounds, interval = _rounds(open_run)
        up = open_run.ready or bool(rounds)
        death = _death(open_run, up)
        stopped = open_run.stopped_at is not None and death is None
        version = open_run.named.get("vllm_version")
        given = open_run.arguments.given(str(version) if version is not None else None) if open_run.arguments else None
        model = given.model if given else None
        told = open_run.named.get("model")
        return Run(
            first_at=open_run.first_at,
            last_at=open_run.last_at,
            began=open_run.began,
            up=up,
            stopped=stopped,
            death=death,
            facts=self._facts(open_run, up, given),
            last_start=open_run.last_start,
            when={id: tuple(seen) for id, seen in open_run.when.items()},
            stage=open_run.stage,
            went_on_at=open_run.went_on_at,
            ended_by=open_run.ended_by if stopped else None,
            made=open_run.counts["engine-ready"] > 0,
            rounds=rounds,
            interval=interval,
            model=model or (str(told) if told is not None else None),
            command=given.command if given else (),
        )

    def _facts(self, open_run: _OpenRun, up: bool, given: Arguments | None) -> dict[str, Reading]:
        facts: dict[str, Reading] = {LOG: Known(True, origin=LOG)}
        facts |= {name: Known(value, origin=LOG) for name, value in open_run.named.items()}
        version = open_run.named.get("vllm_version")
        for line in self._table.lines.values():
            count = open_run.counts[line.id]
            # What a start would show is missing only from a whole start.
            shown = (open_run.began and up) or not line.at_start or line.marks in ("error", "died")
            if count or (shown and line.printed_by(str(version) if version is not None else None)):
                facts[f"log:{line.id}"] = Known(float(count), origin=LOG)
                if not line.at_start:
                    facts[f"log:{line.id}@serving"] = Known(float(open_run.serving[line.id]), origin=LOG)
        facts |= _of_failed(open_run)
        first = open_run.first_at if open_run.began else None
        if first is not None:
            after = {id: at - first for id, at in open_run.printed.items() if at >= first}
            facts |= {f"log:{id}@at": Known(seconds, origin=LOG) for id, seconds in after.items()}
        began, ended = (open_run.printed.get(id) for id in _LOADING)
        if began is not None and ended is not None and ended > began:  # older releases log no seconds
            facts["weights_load_seconds"] = Known(ended - began, origin=LOG)
        for id, values in open_run.values.items():
            facts |= {f"log:{id}.{name}": Known(value, origin=LOG) for name, value in values.items()}
        if version is None and (found := self._dating(open_run)).says:
            facts["flags_window_says"] = Known(found.says, origin=LOG)
            facts["flags_window"] = Known(" ".join(found.releases), origin=LOG)
        if given is not None:
            facts |= {flag: Known(value, origin=LOG) for flag, value in given.flags.items()}
            if given.whole:
                facts[COMMAND] = Known(True, origin=LOG)
        return facts

    def _dating(self, open_run: _OpenRun) -> Dating:
        """Of which releases the run can be, where no line tells its version: by its flags, and by lines that only some
        releases print. A plugin prints as it likes, so that none of them must hold."""
        flags = dating.of_flags(open_run.arguments.flags if open_run.arguments else ())
        lines = (
            dating.between(" or ".join(f'"{text.decode().strip()}"' for text in line.find), line.since, line.until)
            for line in self._table.lines.values()
            if open_run.counts[line.id]
        )
        is_v0 = bool(open_run.points) and "swapped" in open_run.points[-1][3]
        of_v0 = [dating.between('"Swapped:" of the V0 engine', None, _LAST_V0)] if is_v0 else []
        return dating.dated((), (*flags, *lines, *of_v0))


def _with_their_machine(runs: Sequence[Run]) -> Iterator[Run]:
    """The runs, each with what an earlier one told of the machine, where it says nothing of it."""
    machine: dict[str, Reading] = {}
    for run in runs:
        machine |= {name: run.facts[name] for name in _OF_THE_MACHINE if name in run.facts}
        yield replace(run, facts={**run.facts, **machine})


def _is_corrected(run: Run, place: int, served_last: int) -> bool:
    """Whether it is a start that failed, and a later one serves: that is history."""
    return run.death is not None and run.death.stage != "serving" and not run.up and place < served_last


def _of_deaths(run: Run, deaths: int, corrected: int, is_corrected: bool) -> dict[str, Reading]:
    """How many runs of the log ended as this one did: by themselves, or as starts that a later one made good."""
    return {
        "engine_deaths": Known(float(deaths if run.death and not is_corrected else 0), origin=LOG),
        "starts_corrected": Known(float(corrected if is_corrected else 0), origin=LOG),
    }


def _of_death(run: Run, last: bool, newest: bool, is_quoted: bool) -> dict[str, Reading]:
    """How this run ended. `newest`: none served after it; `last`: nor did it live itself."""
    death = run.death
    abrupt = last and death is None and not run.stopped and not run.up and run.began and not is_quoted
    told: dict[str, Value] = {
        "engine_dead": death is not None and last,
        "log_ends_abruptly": abrupt,
        "hung_seconds": run.hung if newest else 0.0,
    }
    told["stopped_while_starting"] = run.is_stopped_early
    if run.is_stopped_early and run.stage is not None:
        told["start_stage"] = run.stage
    if abrupt and run.last_start is not None:
        told["start_stopped_at"] = run.last_start
    if abrupt and run.stage is not None:
        told["start_stage"] = run.stage
    if death is not None:
        starting = run.began or run.last_start is not None
        is_serving = death.serving or death.stage == "serving"
        told["death_phase"] = "serving" if is_serving else "start" if starting else "start or serving"
        told["death_process"] = death.process or "the server"
        told["death_killed"] = death.cause is not None and _KILL.search(death.cause) is not None
        told["death_told"] = _weakness(death.cause) < _WEAK
        missing = _MODULE.search(death.cause or "")
        told["death_lacks_module"] = missing is not None
        if missing is not None:
            told["death_module"] = missing[1]
        if death.part is not None:
            told["death_part"] = death.part
        if death.stage is not None and not (death.serving and death.stage != "serving"):
            told["death_stage"] = death.stage
        seen = [death.cause.rstrip(".")] if death.cause else []
        told["death_cause"] = "; ".join([*seen, *([] if told["death_told"] else ["the log shows no exception"])])
    return {name: Known(value, origin=LOG) for name, value in told.items()}


def _unfinished(runs: Sequence[Run], opened: Sequence[_OpenRun]) -> dict[str, Reading]:
    """Of the newest run, which starts before it ended in their middle, and nothing says how."""
    found = [
        (run, later.first_at - run.last_at)
        for place, (run, later) in enumerate(pairwise(runs))
        if run.is_open_start
        and run.last_at is not None
        and later.first_at is not None
        and run.last_at <= later.first_at
        and later.began
        and opened[place].key == opened[place + 1].key
        and not _is_beside(opened[place], opened[place + 1])
    ]
    told: dict[str, Value] = {"starts_unfinished": float(len(found))}
    if found:
        run, silence = found[-1]
        told |= {"unfinished_stage": str(run.stage), "unfinished_silence": silence}
    return {name: Known(value, origin=LOG) for name, value in told.items()}


def _of_compile_key(before: Sequence[Run], run: Run) -> dict[str, Reading]:
    """The directory of the compile cache that an earlier start of this server had, where this one has another although
    its version, its command and its engine's settings are the same."""
    key = run.facts.get(_COMPILE_KEY)
    alike = (
        earlier.facts[_COMPILE_KEY]
        for earlier in reversed(before)
        if _COMPILE_KEY in earlier.facts
        and earlier.facts.get("vllm_version") == run.facts.get("vllm_version")
        and earlier.command == run.command
        and _has_settings_of(earlier, run)
    )
    found = next(alike, None) if key is not None else None
    return {} if found is None or found == key else {"compile_key_before": found}


def _of_failed(open_run: _OpenRun) -> dict[str, Reading]:
    """What requests and calls failed of, while the server went on."""
    count: dict[str, Reading] = {"request_failures": Known(float(open_run.failures), origin=LOG)}
    caused = [one for one in open_run.failed if one.cause]
    if not caused:
        return count
    first = min(caused, key=lambda one: _weakness(one.cause))
    return count | {
        "request_failure": Known(str(first.cause).rstrip("."), origin=LOG),
        "request_failure_process": Known(first.process or "the server", origin=LOG),
    }


def _restarts(runs: Sequence[Run], opened: Sequence[_OpenRun]) -> Iterator[dict[str, Reading]]:
    """Of each run, how often in the hour before its end a server was started again that nobody had asked to stop.

    One that served and was told to stop, or that is started with another command or other settings, is an operator's
    work; an engine after one that a program had embedded is that program's. Once a run serves, the starts that failed
    before it are put right.
    """
    seen: list[tuple[float, float, bool]] = []
    for place, run in enumerate(runs):
        if run.first_at is None or run.last_at is None:
            yield {}
            continue
        before = runs[place - 1] if place else run
        began = before.first_at if before is not run else None
        is_again = run.began and _is_uncalled_for(before, run) and not _is_beside(opened[place - 1], opened[place])
        if is_again and began is not None and began <= run.first_at:
            seen.append((run.first_at, run.first_at - began, before.up))
        recent = [one for one in seen if one[0] > run.last_at - restarts.MEMORY]
        yield restarts.facts([(at, lived) for at, lived, served in recent if served or not run.up], LOG)


def _is_uncalled_for(before: Run, run: Run) -> bool:
    if before.went_on_at is not None and run.first_at is not None and before.went_on_at > run.first_at + _BESIDE:
        return False
    if before.made and not before.up and before.death is None:
        return False
    is_same = not (before.command and run.command) or before.command == run.command
    return is_same and _has_settings_of(before, run) and not (before.up and before.stopped)


def _has_settings_of(before: Run, run: Run) -> bool:
    """Whether their engines were made alike, as far as both logged it."""
    told = [{name: one.facts[name] for name in one.facts if name.startswith(_SETTINGS)} for one in (before, run)]
    return all(told[0][name] == told[1][name] for name in told[0].keys() & told[1].keys())


def _is_beside(before: _OpenRun, run: _OpenRun) -> bool:
    """Whether other processes of the earlier one still spoke when the later began: two servers in one log."""
    pids, later = ({pid for _, pid, _ in one.starts.values() if pid is not None} for one in (before, run))
    overlap = (before.last_at or 0.0) - (run.first_at or 0.0)
    return bool(pids and later) and not pids & later and overlap > _LATE


def _is_of_another(run: _OpenRun, seen: Sighting) -> bool:
    """Whether these statistics are another server's, whose start is not in the log: the same process of the same engine
    spoke under another pid."""
    if not seen.line.samples or seen.pid is None:
        return False
    engine = f"{float(seen.values['engine']):.0f}" if "engine" in seen.values else "0"
    return any(
        process == seen.process and pid not in (None, seen.pid) and spoken == engine
        for (process, pid), spoken in run.engine_of.items()
    )


def _begins_again(run: _OpenRun, seen: Sighting) -> bool:
    """Whether this line of a start belongs to a new run, and not to another process of the current one."""
    if run.points or run.died or run.stopped_at is not None:
        return True
    before = run.starts.get(seen.line.id)
    if before is None:
        return run.ready
    process, pid, at = before
    later = seen.at - at if seen.at is not None and at is not None else 0.0
    if process != seen.process:  # another rank of it
        return run.ready or bool(run.troubles) or later > _STARTING
    return run.ready or seen.pid is None or pid != seen.pid or bool(run.troubles) or later > _ONE_START


def _ender(seen: Sighting) -> str | None:
    """Who stopped the server, by a line that says that."""
    if seen.line.ends is None:
        return None
    reason = seen.values.get("reason")
    return f"{seen.line.ends}: {reason}" if reason else seen.line.ends


def _death(open_run: _OpenRun, up: bool) -> Death | None:
    """How it died, by the first exception that says why; None if it did not, or was told to stop."""
    died = open_run.died
    if died is None:
        # An exception while it starts, and it never came up: it died of it.
        if up or open_run.stopped_at is not None:
            return None
        died = _of_its_start(open_run)
        if died is None:
            return None
    # What stands above the first time of a log is of its beginning.
    of_it = [trouble for trouble in open_run.troubles if not trouble.at or trouble.at >= died.at - _EPISODE]
    caused = [trouble for trouble in of_it if trouble.cause] or [died]
    if min(_weakness(trouble.cause) for trouble in caused):
        # All that was said is that something has ended: what says why may be in any process, before or after it.
        caused += [one for one in open_run.raised if one.cause and (not up or abs(one.at - died.at) <= _AROUND)]
        caused += [one for one in open_run.failed if one.cause and abs(one.at - died.at) <= _AROUND]
    # Of equal ones the first; within a second the one that is known, as clocks tell no more and files no order.
    known = {one.cause for one in caused if one.is_known and one.cause}

    def rank(one: _Trouble) -> tuple[int, int, bool, float]:
        return _weakness(one.cause), int(one.at), not any(words in (one.cause or "") for words in known), one.at

    cause = min(caused, key=rank)
    if _is_stopped(open_run, died) and _weakness(cause.cause) == _WEAK:
        return None
    serving = bool(open_run.points) or open_run.ready
    says = cause.cause if cause.cause is None or not _REPEATED.match(cause.cause) else None
    serving = serving or any(trouble.stage == "serving" for trouble in of_it)
    # Of a log that starts mid-run: who answers a request has started.
    serving = serving or (not open_run.began and any(open_run.counts[id] for id in _ANSWERED))
    stage = "serving" if serving else _stage_of(cause, open_run)
    part = next((one.part for one in (cause, *_same(cause, open_run)) if one.part is not None), None)
    return Death(cause.at or died.at or None, cause.line, cause.process, says, serving, stage, part)


def _stage_of(cause: _Trouble, open_run: _OpenRun) -> str | None:
    """In which stage it was raised: by the frames above any line that says the same, else where the start was."""
    same = (one.stage for one in _same(cause, open_run))
    return cause.stage or next((stage for stage in same if stage is not None), None) or cause.reached


def _same(cause: _Trouble, open_run: _OpenRun) -> list[_Trouble]:
    """What says the same: one process prints an exception, and what called it raises it again."""
    return [one for one in (*open_run.troubles, *open_run.raised) if one.cause == cause.cause]


def _of_its_start(open_run: _OpenRun) -> _Trouble | None:
    """What ended a start of which no line says that it failed."""
    if open_run.troubles:
        return open_run.troubles[-1]
    # A program that has embedded the engine may fail of its own once that is up.
    if not open_run.raised_last or open_run.counts["engine-ready"]:
        return None
    last = open_run.raised[-1]
    if open_run.last_start is None and last.stage is None:  # of a request, perhaps
        return None
    is_own = _OF_SERVER.match(last.process) is not None
    return last if is_own and last.cause and _weakness(last.cause) < _WEAK else None


def _is_of_a_client(cause: str | None) -> bool:
    return cause is not None and _OF_CLIENTS.match(cause) is not None


def _is_stopped(open_run: _OpenRun, died: _Trouble) -> bool:
    """Whether it was told to stop when it died, so that its end is no death.

    The HTTP server's own end is none's order where another process was seen to go before: it follows that.
    """
    if open_run.stopped_at is None or abs(open_run.stopped_at - died.at) >= _SHUTDOWN:
        return False
    return open_run.stopped_by != _BY_ITSELF or died.told_by not in _GONE


_WEAK = 4
_NAMELESS = re.compile(r"terminate called after throwing|[\w.]+: \[masked\]$")
"""C++'s words for an exception of which it names only the type; what it says stands below. And one that may not be
shown: what its own process or another one says besides tells more."""


def _weakness(cause: str | None) -> int:
    """How little a cause tells: what follows an operator's signal tells least, how a process ended less than what
    another one waited for, and that less than the type of what was raised."""
    if cause is None or _WEAK_CAUSES.search(cause):
        return _WEAK
    return 3 if _ENDED.search(cause) else 2 if _WAITED.search(cause) else 1 if _NAMELESS.match(cause) else 0


def _rounds(open_run: _OpenRun) -> tuple[tuple[Round, ...], float]:
    """The points as rounds, with counters summed up, and the silence of idle engines filled with zeros."""
    interval = _interval(open_run.points)
    counters: dict[str, dict[Series, float]] = {}
    before: dict[str, float] = {}
    rounds: list[Round] = []
    read, usual = 0, interval
    for at, engines in _grouped(open_run.points, interval):
        read += len(engines)
        gap = _GAP * interval
        if rounds and read > bytes_scan.FULL:
            gap = max(gap, _GAP_SAMPLED * usual)
            usual += _SMOOTH * (min(at - rounds[-1].at, gap) - usual)
        if rounds and at - rounds[-1].at > _GAP * interval and not rounds[-1].total(RUNNING):
            # An idle engine prints nothing: silence after a zero is more zeros.
            rounds += [_idle(rounds[-1], rounds[-1].at + interval), _idle(rounds[-1], at - interval)]
            before = dict.fromkeys(before, at - interval)
        values: dict[str, Mapping[Series, float]] = {}
        for engine, said in engines.items():
            last = before.get(engine, at - interval)
            seconds = at - last if 0 < at - last <= gap else interval
            values[engine] = _measured(said, counters.setdefault(engine, {}), seconds)
            before[engine] = at
        silent = {} if not rounds else {e: v for e, v in rounds[-1].engines.items() if e not in values}
        values |= {engine: _zeros(said) for engine, said in silent.items() if not said.get(RUNNING)}
        if any(RUNNING in said for said in values.values()):
            rounds.append(Round(at, values))
    return tuple(rounds), interval


def _grouped(
    points: Sequence[_Point], interval: float
) -> Iterator[tuple[float, dict[str, list[tuple[LogLine, Mapping[str, Value]]]]]]:
    """The points of one round together: until an engine repeats itself, or half an interval is over."""
    here: dict[str, list[tuple[LogLine, Mapping[str, Value]]]] = {}
    began = ended = 0.0
    for at, engine, line, values in sorted(points, key=lambda point: point[0]):
        repeats = any(said is line for said, _ in here.get(engine, ()))
        if here and (repeats or at - began > interval / 2):
            yield ended, here
            here = {}
        began = at if not here else began
        ended = max(at, ended) if here else max(at, ended + 1e-3)  # two rounds in one second keep their order
        here.setdefault(engine, []).append((line, values))
    if here:
        yield ended, here


def _measured(
    said: Sequence[tuple[LogLine, Mapping[str, Value]]], counters: dict[Series, float], seconds: float
) -> Mapping[Series, float]:
    """What the lines of one engine in one round measure; `counters` go on."""
    gauges: dict[Series, float] = {}
    for line, values in said:
        for measure in line.samples:
            value, series = measure.value(values), (measure.metric, measure.labels)
            if value is None:
                continue
            match measure.kind:
                case "gauge":
                    gauges[series] = value
                case "rate":
                    counters[series] = counters.get(series, 0.0) + value * seconds
                case "increase":
                    counters[series] = counters.get(series, 0.0) + value
                case _:
                    counters[series] = value
    return counters | gauges


def _idle(round: Round, at: float) -> Round:
    return Round(at, {engine: _zeros(values) for engine, values in round.engines.items()})


def _zeros(values: Mapping[Series, float]) -> Mapping[Series, float]:
    return {series: value if series[0].endswith("_total") else 0.0 for series, value in values.items()}


def _interval(points: Sequence[_Point]) -> float:
    """The usual time between two lines of one engine. Its clock counts whole seconds."""
    latest: dict[tuple[str, str], float] = {}
    steps = []
    for at, engine, line, _ in points[:_MOST_STEPS]:
        before = latest.get((engine, line.id))
        if before is not None and at > before:
            steps.append(at - before)
        latest[engine, line.id] = at
    return sorted(steps)[(len(steps) - 1) // 2] if len(steps) > 2 else INTERVAL
