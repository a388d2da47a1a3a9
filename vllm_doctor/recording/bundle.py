"""A recording: what the sources of one examination gave, as plain files in a folder or a .tar.gz (docs/recordings.md).

    recording.json              what it is, when and by whom it was taken, and its sources
    report.json                 the report on it, JSON version 1
    1-server/metrics.prom.zst   the answers of /metrics, one after the other
    1-server/version.json       the answers of /version and /v1/models
    1-server/models.json
    2-host/facts.json           {"cores_usable": {"value": 2, "from": "proc"}, "cpu_governor": {"unknown": "denied"}}
    2-host/course.jsonl         those that changed meanwhile
    2-host/rows.json            the server's processes, and its GPUs, one by one
    3-log/000.log               the log, without what clients sent
    bench.json                  what `vllm bench serve` measured meanwhile, where it was run (record --bench)

Any of them may be packed by gzip (facts.json.gz). What is not there is not known: only recording.json must be.
Version 1, which is read as well, has the answers in metrics.txt, each as what differs from the one before.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import Hop, SourceKind
from vllm_doctor.model.observation import GpuSeen, Observation, ProcessSeen
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Problem, RecordingSeen
from vllm_doctor.model.window import Window
from vllm_doctor.recording import archive, metrics, metrics_v1
from vllm_doctor.recording.archive import KIND
from vllm_doctor.recording.metrics import Metrics
from vllm_doctor.sources.server import past, scrapes
from vllm_doctor.sources.server.scrapes import Identity

_FAMILY = "vllm-doctor/recording/v"
FORMAT = f"{_FAMILY}2"
_METRICS_FILE = {f"{_FAMILY}1": metrics_v1.FILE, FORMAT: metrics.FILE}
"""Of the formats that are read."""
_JUDGED = 120
"""So many scrapes of a recording are judged, the first and the last among them; of a longer one some are left out."""
_COMPARED = 300
"""So many moments of one of hours are compared with each other."""
_REPLAYED = 600
"""So many scrapes are replayed."""
_RECENT = 4
_SILENT = 2.5
"""Seconds after its last answer, when a server that did not answer to the end counts as lost."""
_MAX_JSON = 16 << 20
_MAX_SOURCES = 300
_SCRAPED = (SourceKind.SERVER, SourceKind.GATEWAY)
"""The kinds whose answers are kept as such."""

Fact = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """One source of a recording, as it was seen. Fields that its part of the recording lacks are empty."""

    kind: SourceKind
    target: str
    patient: str = ""
    role: str = ""
    """What the user said that it is on the path of a request."""
    error: Problem | None = None
    notes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    processes: tuple[tuple[str, int], ...] = ()
    facts: Mapping[str, Reading] = field(default_factory=dict)
    trend: tuple[tuple[float, Mapping[str, Reading]], ...] = ()
    """Seconds after the start, and the facts that had changed by then."""
    process_rows: tuple[ProcessSeen, ...] = ()
    gpu_rows: tuple[GpuSeen, ...] = ()
    metrics: Metrics | None = None
    version: Any = None
    models_answer: Any = None
    logs: tuple[tuple[str, bytes], ...] = ()
    """(name, text) of the files of a log."""
    log_written: float | None = None
    """When the log was last written to, POSIX seconds."""
    log_age: float | None = None
    """Of the log of a running server: seconds since it was last written to."""
    lacks: tuple[str, ...] = ()
    """Parts that it should have."""

    def observation(self, wanted: frozenset[str], until: float | None = None) -> Observation:
        """What was seen of it, up to `until` seconds; of a log nothing: its own source reads it."""
        error = self.error or (
            Problem("incomplete", f"the recording lacks {', '.join(self.lacks)}") if self.lacks else None
        )
        if self.metrics is not None:
            return replace(self._measured(self.metrics, wanted, error, until), patient=self.patient)
        return Observation(
            self.kind,
            self.target,
            facts=self._facts_at(until),
            models=self.models,
            error=error,
            notes=self.notes,
            patient=self.patient,
            command=self.command,
            processes=self.processes,
            process_rows=self.process_rows,
            gpu_rows=self.gpu_rows,
        )

    def _facts_at(self, until: float | None) -> Mapping[str, Reading]:
        if until is None or not self.trend:
            return self.facts
        then = dict(self.facts)
        for at, changed in self.trend:
            if at > until:
                break
            then |= changed
        return then

    def _measured(
        self, metrics: Metrics, wanted: frozenset[str], error: Problem | None, until: float | None
    ) -> Observation:
        told = list(metrics.scrapes(wanted, _JUDGED, until))
        if not told:
            lacking = Problem("incomplete", f"{self.target}: the recording holds no answer of /metrics")
            return Observation(self.kind, self.target, error=error or lacking, notes=self.notes)
        try:
            identity = scrapes.identity(self.target, told[0].page, self.version, self.models_answer, self.role)
        except SourceError as problem:
            return Observation(self.kind, self.target, error=Problem(problem.kind, str(problem)), notes=self.notes)
        seen = scrapes.seen(self.target, told, identity, error)
        if until is None and seen.kind is SourceKind.SERVER and seen.window.seconds >= past.LEAST:
            pairs = metrics.pairs(past.WANTED, _COMPARED, past.APART)
            seen = replace(seen, facts={**seen.facts, **past.facts(pairs)})
        return replace(seen, notes=tuple(dict.fromkeys((*self.notes, *seen.notes))))


class Replayed:
    """One source of a recording, looked at as if it were then: `clock` gives the seconds after its start."""

    def __init__(self, recorded: Recorded, patient: str, wanted: frozenset[str], clock: Callable[[], float]) -> None:
        self.every = 1.0
        self._recorded, self._patient, self._clock = recorded, patient, clock
        metrics = recorded.metrics
        self._scrapes = list(metrics.scrapes(wanted, _REPLAYED)) if metrics is not None else []
        self._wanted = wanted
        self._identity = Identity()
        self._error: Problem | None = None
        if self._scrapes:
            try:
                page = self._scrapes[0].page
                self._identity = scrapes.identity(
                    recorded.target, page, recorded.version, recorded.models_answer, recorded.role
                )
            except SourceError as problem:
                self._error = Problem(problem.kind, str(problem))

    def look(self, seconds: float) -> Observation:
        """What was seen in the `seconds` before now."""
        now, recorded = self._clock(), self._recorded
        if not self._scrapes or self._error is not None:
            seen = recorded.observation(self._wanted, now)
            return replace(seen, patient=self._patient, error=self._error or seen.error)
        end = bisect.bisect_right(self._scrapes, now, key=lambda scrape: scrape.at)
        begin = bisect.bisect_left(self._scrapes, now - seconds, key=lambda scrape: scrape.at)
        begin = max(0, min(begin, end - 2))
        is_over = recorded.error is not None and now > self._scrapes[-1].at + _SILENT
        told = self._scrapes[begin : max(1, end)]
        seen = scrapes.seen(recorded.target, told, self._identity, recorded.error if is_over else None)
        recent = Window()
        for scrape in told[-_RECENT:]:
            recent.add(scrape.at, scrape.page.samples)
        return replace(seen, patient=self._patient, recent=recent)


@dataclass(frozen=True)
class Recording:
    """`seconds` long, begun at `taken`; `rules` names the rules that judged it, `report` is what they said (JSON)."""

    name: str
    taken: datetime
    seconds: float
    doctor: str
    rules: str
    shared: bool
    redacted: Mapping[str, int]
    sources: tuple[Recorded, ...]
    wishes: Mapping[str, Value] = field(default_factory=lambda: {"goal": "throughput"})
    """The goal and the targets by which it was judged."""
    report: Mapping[str, Any] | None = None
    bench: Mapping[str, Any] | None = None

    def seen(self, rules: str) -> RecordingSeen:
        """What is to be said of it in a report of today; `rules`: the present ones."""
        said = self.report or {}
        verdict, headline = said.get("verdict"), said.get("headline")
        return RecordingSeen(
            target=self.name,
            taken=self.taken.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            seconds=self.seconds,
            doctor=self.doctor,
            rules=self.rules,
            verdict=verdict if isinstance(verdict, str) else None,
            headline=headline if isinstance(headline, str) else None,
            same_rules=self.rules == rules if self.rules else None,
            wishes=self.wishes,
            redacted=self.redacted,
        )

    @cached_property
    def server(self) -> Recorded:
        """The first server with an answer of /metrics. Raises SourceError where there is none."""
        found = next((source for source in self.sources if source.metrics is not None), None)
        if found is None:
            raise SourceError(KIND, f"{self.name} holds no answer of a server")
        return found

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Of the first server's answers: seconds after the first."""
        assert self.server.metrics is not None
        times = self.server.metrics.times
        return tuple(round(at - times[0], 3) for at in times)

    @property
    def pages(self) -> tuple[bytes, ...]:
        """What the first server answered."""
        assert self.server.metrics is not None
        return self.server.metrics.pages

    @property
    def version(self) -> Any:
        return self.server.version

    @property
    def models(self) -> Any:
        return self.server.models_answer

    @property
    def facts(self) -> Mapping[str, Reading]:
        """Of all other sources; the first wins."""
        found: dict[str, Reading] = {}
        for source in self.sources:
            found = {**source.facts, **found}
        return found

    def page_at(self, seconds: float) -> bytes:
        """What /metrics answered last at that time; after the end, the last answer."""
        return self.pages[max(0, bisect.bisect_right(self.times, seconds) - 1)]


def read(path: Path) -> Recording:
    """Read a recording: a folder or a .tar.gz. Raises SourceError with what is wrong with it."""
    return parsed(str(path), archive.read(path))


def parsed(name: str, parts: Mapping[str, bytes]) -> Recording:
    """The recording in these parts. Raises SourceError."""
    about = _json(name, parts, "recording.json")
    written = about.get("format") if isinstance(about, dict) else None
    if not isinstance(written, str) or not written.startswith(_FAMILY):
        raise SourceError(KIND, f"{name} is not a recording of format {FORMAT}")
    if written not in _METRICS_FILE:
        raise SourceError(
            "newer-format",
            f"{name} is a recording of format {written[:60]}, and this vllm-doctor reads {FORMAT}: update it",
        )
    try:
        sources = about["sources"]
        if not isinstance(sources, list) or not 0 < len(sources) <= _MAX_SOURCES:
            raise ValueError("it names no sources, or too many")
        servers = max(1, sum(source["kind"] in _SCRAPED for source in sources))
        report, bench = _json(name, parts, "report.json"), _json(name, parts, "bench.json")
        return Recording(
            name=name,
            taken=_time(about["taken"]),
            seconds=_number(about.get("seconds")) or 0.0,
            doctor=str(about.get("doctor", ""))[:100],
            rules=str(about.get("rules", ""))[:100],
            shared=bool(about.get("shared", False)),
            redacted={str(item["what"])[:100]: int(item["count"]) for item in about.get("redacted", [])},
            sources=tuple(_source(name, parts, source, _METRICS_FILE[written], servers) for source in sources),
            wishes=_wishes(about.get("wishes", {})),
            report=report if isinstance(report, dict) else None,
            bench=bench if isinstance(bench, dict) else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise SourceError(KIND, f"{name} is no whole recording: {what[:200]}") from None


def _source(name: str, parts: Mapping[str, bytes], told: Any, metrics_file: str, servers: int) -> Recorded:
    folder = str(told["folder"])
    kind = SourceKind(told["kind"])
    own = {part.removeprefix(f"{folder}/") for part in parts if part.startswith(f"{folder}/")}
    problem = told.get("error")
    error = Problem(str(problem["kind"]), str(problem["message"])) if problem else None
    answers = _metrics(name, parts, folder, servers)
    needed = {
        **dict.fromkeys(_SCRAPED, [] if answers is not None else [metrics_file]),
        SourceKind.LOG: [str(log["file"]) for log in told.get("logs", [])],
    }.get(kind, ["facts.json"])
    rows = _json(name, parts, f"{folder}/rows.json")
    rows = {} if rows is None else rows
    facts = _json(name, parts, f"{folder}/facts.json")
    return Recorded(
        kind=kind,
        target=str(told["target"]),
        patient=str(told.get("patient", "")),
        role=role if (role := told.get("role", "")) in list(Hop) else "",
        error=error,
        notes=_texts(told.get("notes", [])),
        models=_texts(told.get("models", [])),
        command=_texts(told.get("command", [])),
        processes=tuple((str(role), int(pid)) for role, pid in told.get("processes", [])),
        facts={} if facts is None else _facts(facts, f"{folder}/facts.json"),
        trend=tuple(_trend(parts.get(f"{folder}/course.jsonl", b""), f"{folder}/course.jsonl")),
        process_rows=tuple(_process_row(row) for row in rows.get("processes", [])),
        gpu_rows=tuple(_gpu_row(row) for row in rows.get("gpus", [])),
        metrics=answers,
        version=_json(name, parts, f"{folder}/version.json"),
        models_answer=_json(name, parts, f"{folder}/models.json"),
        logs=tuple(
            (str(log["name"]), parts[f"{folder}/{log['file']}"]) for log in told.get("logs", []) if log["file"] in own
        ),
        log_written=_number(told.get("written")),
        log_age=_number(told.get("age")),
        lacks=() if error else tuple(f"{folder}/{part}" for part in needed if part not in own),
    )


def _metrics(name: str, parts: Mapping[str, bytes], folder: str, servers: int) -> Metrics | None:
    """The answers of /metrics, in the first of these files that is there."""
    packed, plain, old = (f"{folder}/{file}" for file in (metrics.FILE, metrics.PLAIN, metrics_v1.FILE))
    if packed in parts:
        return metrics.of_file(parts[packed], f"{name}: {packed}", servers=servers)
    if plain in parts:
        return metrics.of_file(parts[plain], f"{name}: {plain}", is_packed=False)
    return metrics_v1.of_file(parts[old], f"{name}: {old}") if old in parts else None


def _json(name: str, parts: Mapping[str, bytes], part: str) -> Any:
    """A part as JSON; None where there is none."""
    if part not in parts:
        return None
    if len(parts[part]) > _MAX_JSON:
        raise SourceError(KIND, f"{name}: {part} is larger than {_MAX_JSON >> 20} MiB: it was not made by vllm-doctor")
    try:
        return outside.json(parts[part])
    except ValueError as error:
        raise SourceError(KIND, f"{name}: {part} is no JSON ({str(error)[:100]})") from None


def _wishes(told: Any) -> dict[str, Value]:
    known = {"goal": str, "slo_ttft": float, "slo_itl": float}
    if not isinstance(told, dict) or told.get("goal", "throughput") not in ("throughput", "latency"):
        raise ValueError("its targets are invalid")
    return {"goal": "throughput"} | {name: known[name](value) for name, value in told.items() if name in known}


def _time(text: Any) -> datetime:
    at = datetime.fromisoformat(text)
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def _texts(told: Any) -> tuple[str, ...]:
    if not isinstance(told, list) or not all(isinstance(text, str) for text in told):
        raise ValueError("a list of texts is none")
    return tuple(told)


def _number(told: Any) -> float | None:
    return outside.number(told) if isinstance(told, int | float) else None


def _facts(told: Any, where: str) -> dict[str, Reading]:
    if not isinstance(told, dict) or not all(isinstance(fact, dict) for fact in told.values()):
        raise ValueError(f"{where} is no object of objects")
    try:
        return {name: reading(fact) for name, fact in told.items()}
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _trend(text: bytes, where: str) -> Iterator[tuple[float, Mapping[str, Reading]]]:
    if len(text) > _MAX_JSON:
        raise ValueError(f"{where} is larger than {_MAX_JSON >> 20} MiB")
    for line in text.splitlines():
        told = outside.json(line)
        yield float(told["at"]), _facts(told["facts"], where)


def _process_row(row: Any) -> ProcessSeen:
    return ProcessSeen(
        str(row["role"]), int(row["pid"]), reading(row["cores"]), reading(row["waited"]), int(row["threads"])
    )


def _gpu_row(row: Any) -> GpuSeen:
    return GpuSeen(int(row["index"]), str(row["name"]), _facts(row["readings"], "rows.json"))


# ---- a reading as JSON ----------------------------------------------------------------------------------------------


def reading(told: Fact) -> Reading:
    """A fact: {"value": 2.0, "from": "proc"} or {"unknown": "denied"}. ValueError where it is neither."""
    if "unknown" in told:
        try:
            return Unknown(Reason(told["unknown"]))
        except ValueError:
            raise ValueError(f"{str(told['unknown'])[:40]!r} is an unknown reason: of a newer vllm-doctor?") from None
    value = told.get("value")
    if told.get("infinite") is True:
        value = math.inf
    if not isinstance(value, bool | int | float | str):
        raise ValueError("a fact has neither a value nor a reason")
    if isinstance(value, int | float) and not isinstance(value, bool) and told.get("infinite") is not True:
        number = outside.number(value)
        if number is None:
            return Unknown(Reason.INVALID)
        value = number
    return Known(value, origin=str(told.get("from", "")))


def written(fact: Reading) -> Fact:
    """A fact as JSON."""
    if isinstance(fact, Unknown):
        return {"unknown": fact.reason.value}
    if isinstance(fact.value, float) and math.isinf(fact.value):
        return {"infinite": True, "from": fact.origin}
    if isinstance(fact.value, float) and math.isnan(fact.value):
        return {"unknown": Reason.INVALID.value}
    return {"value": fact.value, "from": fact.origin}
