"""Takes a recording: what the sources see for a while, masked, as the parts of `sources.recording`.

A server's answers are kept as they come, not parsed; its host and its GPUs are looked at now and then; of a log the
end of the time is kept. The report in it is on what it holds, read back: so it is the same wherever it is read again.
"""

from __future__ import annotations

import getpass
import itertools
import json
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError, told
from vllm_doctor.model.observation import GpuSeen, Observation, ProcessSeen
from vllm_doctor.model.reading import Reading, Value
from vllm_doctor.model.report import Problem
from vllm_doctor.model.version import __version__
from vllm_doctor.recording import metrics
from vllm_doctor.recording.bundle import FORMAT, written
from vllm_doctor.recording.metrics import Metrics, MetricsWriter
from vllm_doctor.session.source import Source
from vllm_doctor.sources.log import entry_redact
from vllm_doctor.sources.log.bytes_stream import changed_at
from vllm_doctor.sources.server import scrapes
from vllm_doctor.sources.server.exposition import parse
from vllm_doctor.sources.server.fetch import PATIENCE
from vllm_doctor.sources.server.scrapes import Identity
from vllm_doctor.sources.server.server import Server
from vllm_doctor.text import redact, secret_names
from vllm_doctor.text.pseudonyms import Pseudonyms

_EVERY = 1.0
_COURSE = 10.0
"""Seconds from one look at what is beside the server to the next, and of what each tells."""
_LOOKS = 5.0
_STEP = 0.2
_HANDOVER = PATIENCE + 1.0
_PLAIN_KEYS = frozenset(
    {"folder", "kind", "format", "file", "rules", "doctor", "taken", "from", "unknown", "role", "object"}
)
"""Keys whose values are words of ours, and no names."""

_MAX_KNOWN = 200_000
"""Texts that are looked through once."""
_QUOTED = re.compile(r'"(?:[^"\\\n]++|\\.)*+"?')

Tell = Callable[[float], None]


@dataclass
class Seen:
    """What one source gave. `end`: the observation at the end; `trend`: (seconds, facts) meanwhile."""

    source: Source
    end: Observation | None = None
    trend: list[tuple[float, Mapping[str, Reading]]] = field(default_factory=list)
    metrics: MetricsWriter | None = None
    identity: Identity | None = None
    error: Problem | None = None
    notes: list[str] = field(default_factory=list)


def kept_answers(
    answers: Sequence[tuple[float, str, float | None]], started: float, masked: Counter[str]
) -> MetricsWriter:
    """Answers that were kept, written as of a recording that begins at `started` on their clock."""
    writer = MetricsWriter(_line_mask(masked))
    for at, page, clock in answers:
        writer.add(max(0.0, at - started), page, clock)
    return writer


@dataclass
class Recorder:
    """`clock` must not step; `wall` is POSIX time. `share`: names are replaced by pseudonyms.

    `is_over`: it ends before its `seconds` are over. `more`: parts that are known at the end, and are no source's.
    """

    sources: Sequence[Source]
    seconds: float
    rules: str
    wishes: Mapping[str, Value]
    share: bool = False
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    masked: Counter[str] = field(default_factory=Counter)
    is_over: Callable[[], bool] = lambda: False
    more: Callable[[Counter[str]], Mapping[str, Any]] = lambda masked: {}

    def take(self, tell: Tell = lambda seconds: None) -> dict[str, bytes]:
        """The parts, without the report. Raises SourceError where no source gave anything."""
        self._stop = threading.Event()
        self._lock = threading.Lock()
        began, started = self.wall(), self.clock()
        every = [Seen(source) for source in self.sources]
        threads = []
        for seen in every:
            thread = threading.Thread(target=self._watch, args=(seen, started), daemon=True)
            try:
                thread.start()
                threads.append(thread)
            except RuntimeError as error:
                seen.error = Problem(*told(error))
        try:
            while (now := self.clock() - started) < self.seconds and any(thread.is_alive() for thread in threads):
                if self.is_over():
                    self._stop.set()
                    break
                tell(now)
                self._stop.wait(min(_STEP, max(0.01, self.seconds - now)))
            late = self.clock() + _HANDOVER
            for thread in threads:  # each makes a last look at the end
                thread.join(max(0.1, late - self.clock()))
        finally:
            self._stop.set()
        seconds = min(self.seconds, self.clock() - started)
        return self.parts(every, began, seconds, self.more(self.masked))

    # ---- looking ----------------------------------------------------------------------------------------------------

    def _watch(self, seen: Seen, started: float) -> None:
        try:
            if seen.source.server is not None:
                self._ask(seen, seen.source.server, started)
            elif not seen.source.logs:
                self._look(seen, started)
        except Exception as error:  # the others are recorded
            if os.environ.get("VLLM_DOCTOR_DEBUG"):
                raise
            seen.error = Problem(*told(error))

    def _ask(self, seen: Seen, server: Server, started: float) -> None:
        """The answers of a server, one a second."""
        counts: Counter[str] = Counter()
        servers = sum(source.server is not None for source in self.sources)
        kept = seen.metrics = MetricsWriter(_line_mask(counts), servers)
        failed = place = 0
        while True:
            try:
                at, page, clock = server.answer(self.clock() + PATIENCE)
                if seen.identity is None:
                    parsed = parse(page, frozenset({scrapes.START_TIME}))
                    seen.identity = server.identify(parsed, self.clock() + PATIENCE)
                kept.add(max(0.0, at - started), page, clock)
                seen.error = None
            except SourceError as problem:
                seen.error = Problem(problem.kind, str(problem))
                failed += 1
                if problem.kind not in ("unreachable", "timeout", "server-error"):
                    break
            if kept.is_full:
                seen.notes.append("the recording is full: what came after that is not in it")
                break
            place = max(place + 1, int((self.clock() - started) / _EVERY))  # one that is late is not asked faster
            left = self.seconds - (self.clock() - started)
            due = started + min(place * _EVERY, self.seconds)
            if left < _EVERY / 2 or self._stop.wait(max(0.0, due - self.clock())):
                break
        if failed and kept.count:
            seen.notes.append(f"it did not answer {failed} time(s) while it was recorded")
        with self._lock:
            self.masked.update(counts)

    def _look(self, seen: Seen, started: float) -> None:
        """What is beside a server: over all the time, and every ten seconds what it was in these."""
        source = seen.source
        if source.follow is None:
            seen.end = source.look()
            return
        whole, part = source.follow(), source.follow()
        course_due = 0.0
        is_last = False
        while True:
            now = self.clock() - started
            looked = whole.look(2 * self.seconds)
            if looked.error is not None and seen.end is not None:  # what was seen of it before stays
                seen.end = replace(seen.end, error=looked.error)
            else:
                seen.end = looked
            if now >= course_due:
                facts = part.look(_COURSE).facts
                if course_due:
                    seen.trend.append((round(now, 3), facts))
                course_due = now + _COURSE
            left = self.seconds - (self.clock() - started)
            if left <= 0 or is_last:
                return
            is_last = self._stop.wait(min(max(_LOOKS, whole.every), left))

    # ---- keeping ----------------------------------------------------------------------------------------------------

    def parts(
        self, every: Sequence[Seen], began: float, seconds: float, more: Mapping[str, Any] | None = None
    ) -> dict[str, bytes]:
        """The parts of what was seen from `began` on (POSIX), without the report. Raises SourceError where it is
        nothing. `more`: further parts.
        """
        parts: dict[str, Any] = {}
        entries = []
        for place, seen in enumerate(every, 1):
            folder = f"{place}-{seen.source.kind}"
            entry, own = self._of_source(seen)
            entries.append({"folder": folder, **entry})
            parts |= {f"{folder}/{name}": content for name, content in own.items()}
        if not parts:
            problem = next((entry["error"] for entry in entries if entry.get("error")), None)
            kind, message = (problem["kind"], problem["message"]) if problem else ("empty", "no source gave anything")
            raise SourceError(kind, f"nothing to record: {message}")
        about = {
            "format": FORMAT,
            "doctor": __version__,
            "rules": self.rules,
            "taken": outside.moment(began).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "seconds": round(seconds, 3),
            "shared": self.share,
            "wishes": dict(self.wishes),
            "sources": entries,
        }
        return packable(about, parts | dict(more or {}), self.masked, own_names() if self.share else None)

    def _of_source(self, seen: Seen) -> tuple[dict[str, Any], dict[str, Any]]:
        """Its entry in recording.json, and its parts: texts as str, answers packed as bytes, all else for JSON."""
        source = seen.source
        entry: dict[str, Any] = {"kind": source.kind, "target": source.target, "patient": source.patient}
        if source.server is not None and source.server.role:
            entry["role"] = source.server.role
        if seen.metrics is not None:
            parts: dict[str, Any] = {}
            if seen.metrics.count:
                parts[metrics.FILE] = seen.metrics.ended()
            if seen.identity is not None:
                parts["version.json"], parts["models.json"] = (
                    seen.identity.version_answer,
                    seen.identity.models_answer,
                )
            return entry | _told(seen.error, seen.notes), parts
        if source.logs:
            return self._of_log(entry, source)
        end = seen.end
        if end is None:
            problem = seen.error or Problem("timeout", f"{source.target} did not answer in time")
            return entry | _told(problem, []), {}
        entry |= _told(end.error, end.notes)
        entry |= {
            name: list(values)
            for name, values in (("models", end.models), ("command", end.command), ("processes", end.processes))
            if values
        }
        if end.error is not None and not end.facts:
            return entry, {}
        parts = {"facts.json": {name: written(fact) for name, fact in end.facts.items()}}
        trend = redact.secrets("".join(_trend(seen.trend, end.facts)), Counter())
        if trend:
            parts["course.jsonl"] = trend
        if end.process_rows or end.gpu_rows:
            parts["rows.json"] = {
                "processes": [_process_row(row) for row in end.process_rows],
                "gpus": [_gpu_row(row) for row in end.gpu_rows],
            }
        return entry, parts

    def _of_log(self, entry: dict[str, Any], source: Source) -> tuple[dict[str, Any], dict[str, Any]]:
        notes: list[str] = []
        parts: dict[str, Any] = {}
        logs = []
        is_alive = source.follow is not None
        for place, path in enumerate(source.logs):
            try:
                body = entry_redact.text(path, notes, self.masked, time.monotonic() if is_alive else None)
            except SourceError as problem:
                return entry | _told(Problem(problem.kind, str(problem)), notes), {}
            name = f"{place:03}.log"
            parts[name] = body.decode()
            logs.append({"name": str(path) if path is not None else "-", "file": name})
        changed = max((at for path in source.logs if (at := changed_at(path))), default=self.wall())
        entry |= {"logs": logs, "written": round(changed, 3)}
        if is_alive:
            entry["age"] = round(max(0.0, self.wall() - changed), 3)
        return entry | _told(None, notes), parts


_OF_FACTS = {"value", "from", "unknown", "infinite"}


def own_names() -> Pseudonyms:
    """Pseudonyms that know this host and its user."""
    host = socket.gethostname()
    try:
        user = [getpass.getuser()]
    except (OSError, KeyError, ImportError):
        user = []
    return Pseudonyms([host, host.partition(".")[0]], user)


def packable(
    about: dict[str, Any], parts: Mapping[str, Any], masked: Counter[str], names: Pseudonyms | None = None
) -> dict[str, bytes]:
    """The parts as bytes, with recording.json: all texts masked, by pseudonyms with `names`.

    Texts (str) and the answers of servers (bytes) are masked already.
    """
    clean: dict[str, Any] = {name: content for name, content in parts.items() if isinstance(content, str | bytes)}
    clean |= {name: _masked(content, masked) for name, content in parts.items() if name not in clean}
    about = _masked(about, masked)
    if names is not None:
        answers = {name: metrics.of_file(body, name) for name, body in clean.items() if isinstance(body, bytes)}
        for text in itertools.chain(_texts([about, *clean.values()]), *map(_new_texts, answers.values())):
            names.learn(text)
        about = _renamed(about, names)
        clean = {
            name: _renamed_answers(answers[name], names) if name in answers else _renamed(content, names)
            for name, content in sorted(clean.items())
        }
        masked.update(names.counts)
    about["redacted"] = [{"what": what, "count": count} for what, count in sorted(masked.items()) if count]
    clean["recording.json"] = about
    return {name: _written(content) for name, content in clean.items()}


def _written(content: Any) -> bytes:
    if isinstance(content, bytes):
        return content
    text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
    return text.encode("utf-8", "replace")


def _masked(value: Any, masked: Counter[str]) -> Any:
    if isinstance(value, str):
        if redact.MASK in value:
            masked[redact.WHEN_READ] += value.count(redact.MASK)
        return redact.secrets(value, masked)
    if isinstance(value, Mapping):
        return {
            _masked(key, masked): _hidden(item, kind, masked)
            if (kind := secret_names.kind(str(key))) is not None
            else _masked(item, masked)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item, masked) for item in value]
    return value


def _hidden(value: Any, kind: str, masked: Counter[str]) -> Any:
    """What has the name of a secret: the texts in it are secrets, and the numbers of passwords."""
    if isinstance(value, str) or (
        kind == "password" and isinstance(value, int | float) and not isinstance(value, bool)
    ):
        if redact.MASK in str(value):
            return value
        masked[kind] += 1
        return redact.MASK
    if isinstance(value, list | tuple):
        return [_hidden(item, kind, masked) for item in value]
    if isinstance(value, Mapping):
        is_fact = value.keys() <= _OF_FACTS
        return {
            _masked(key, masked): _masked(item, masked) if is_fact and key != "value" else _hidden(item, kind, masked)
            for key, item in value.items()
        }
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _renamed(value: Any, names: Pseudonyms, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in _PLAIN_KEYS else names.text(value)
    if isinstance(value, Mapping):
        return {name: _renamed(item, names, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(item, names, key) for item in value]
    return value


def _new_texts(answers: Metrics) -> Iterator[str]:
    """The lines of all answers; those that only differ in their value once."""
    known: set[str] = set()
    for answer in answers.answers():
        for line in answer.text().split("\n"):
            head = line.rpartition("}")[0] or line
            if head not in known:
                if len(known) < _MAX_KNOWN:
                    known.add(head)
                yield line


def _renamed_answers(answers: Metrics, names: Pseudonyms) -> bytes:
    """The answers of /metrics, with pseudonyms in the values of labels."""
    known: dict[str, str] = {}

    def quoted(match: re.Match[str]) -> str:
        clean = known.get(match[0])
        if clean is None:
            clean = names.text(match[0])
            if len(known) < _MAX_KNOWN:
                known[match[0]] = clean
        return clean

    writer = MetricsWriter(lambda line: _QUOTED.sub(quoted, line))
    for answer in answers.answers():
        writer.add(answer.at, answer.text(), answer.clock)
    return writer.ended()


def _line_mask(counts: Counter[str]) -> Callable[[str], str]:
    """Masks lines of /metrics; what stands before the value is looked through once."""
    known: dict[str, str] = {}

    def mask(line: str) -> str:
        head, space, value = line.rpartition(" ")
        clean = known.get(head)
        if clean is None:
            clean = _plain(redact.secrets(head, counts) if "{" in head else head)
            if len(known) < _MAX_KNOWN:
                known[head] = clean
        return f"{clean}{space}{_plain(value)}"

    return mask


def _plain(text: str) -> str:
    """The text without what a terminal would obey, should somebody print it there."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\t\r" else f"\\u{ord(c):04x}" for c in text)


def _told(error: Problem | None, notes: Sequence[str]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if error is not None:
        told["error"] = {"kind": error.kind, "message": error.message}
    if notes:
        told["notes"] = list(dict.fromkeys(notes))
    return told


def _trend(trend: Sequence[tuple[float, Mapping[str, Reading]]], end: Mapping[str, Reading]) -> Iterator[str]:
    """Line by line what had changed, as what it was before is known; what never changes is left out."""
    before: dict[str, Reading] = dict(end)
    for at, facts in trend:
        changed = {name: fact for name, fact in facts.items() if before.get(name) != fact}
        before |= changed
        told = {"at": at, "facts": {name: written(fact) for name, fact in changed.items()}}
        yield json.dumps(told) + "\n"


def _process_row(row: ProcessSeen) -> dict[str, Any]:
    return {
        "role": row.role,
        "pid": row.pid,
        "cores": written(row.cores),
        "waited": written(row.waited),
        "threads": row.threads,
    }


def _gpu_row(row: GpuSeen) -> dict[str, Any]:
    readings = {name: written(fact) for name, fact in row.readings.items()}
    return {"index": row.index, "name": row.name, "readings": readings}
