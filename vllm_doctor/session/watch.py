"""A continuous examination: the sources stay open, are looked at again and again, and each moment makes a ViewModel.

Sources → observations → one frozen `ViewModel` (the Report, the trend of the vital signs, the state of the watch) that
is told to whoever shows it. Nothing here knows a terminal. What is kept is bounded: an hour of the vital signs, the
scrapes of the window, the last events.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from vllm_doctor.model import outside
from vllm_doctor.model.errors import OWN_FAULTS, DoctorError, told
from vllm_doctor.model.kinds import GRAVE, Severity, SourceKind, State
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.model.report import Problem, Report, Span
from vllm_doctor.model.restarts import Starts
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import Rule
from vllm_doctor.session.judge import judge
from vllm_doctor.session.observe import looked, observe
from vllm_doctor.session.past import ONE_DAY, PastReading
from vllm_doctor.session.progress import how_far
from vllm_doctor.session.source import Source
from vllm_doctor.session.tracks import TRACKS, Tracks
from vllm_doctor.session.view_model import DEFAULT_WINDOW, Control, Event, Excerpt, Fact, RuleSeen, Status, ViewModel
from vllm_doctor.sources.log.bytes_stream import Origin
from vllm_doctor.sources.server.scrapes import START_TIME
from vllm_doctor.text import redact

_ASKED = (SourceKind.SERVER, SourceKind.PROMETHEUS, SourceKind.GATEWAY)
"""The kinds of sources that are asked again and again for a server's signals."""
_DOWN = ("unreachable", "gone")
"""The errors of a server that is not there; of others it is silent."""
_EVENTS, _SPANS = 500, 300
_SILENT = 2.5
"""Seconds without an answer after which a server counts as lost."""
_RETRY = 5.0
_FIRST_VERDICT = 4.0
"""Seconds that the first verdict waits for a second scrape, at most."""
_VIEW_MODEL = 1.0
_VERDICT = 3.0
"""Seconds from one verdict to the next: of a window of thirty, one a second would be much work for little news."""
_JUDGING, _LOOKING = 0.05, 0.03
"""Shares of one core that judging, and looking at one source, may take: of 64 engines a verdict is less frequent."""
_REPLAY_STEPS = 300
"""Moments of a recording that are lived through; of a longer one they lie further apart."""
_PROGRESS = 0.2


@dataclass(frozen=True)
class Judge:
    """What observations are judged by, and how a rule is told in full."""

    rules: Sequence[Rule]
    catalogue: Catalogue
    wishes: Mapping[str, Value]
    strict: bool = False

    def report(self, observations: Sequence[Observation], at: float) -> Report:
        when = outside.moment(at)
        found = judge(observations, self.rules, self.catalogue, self.wishes, when, self.strict, explained=True)
        return redact.report(found)

    def marks(self) -> dict[str, float]:
        """The least value of each tracked signal above which a rule warns."""
        found: dict[str, float] = {}
        for rule in self.rules:
            for severity in GRAVE:
                condition = rule.when.get(severity)
                for name, value in condition.above() if condition else ():
                    if name in TRACKS and value > 0:
                        found[name] = min(value, found.get(name, math.inf))
        return found


class _Eye:
    """One source under watch, with what it last saw. Looked through in a thread of its own: one that hangs is alone."""

    def __init__(
        self,
        source: Source,
        clock: Callable[[], float],
        cpu: Callable[[], float],
        inline: bool,
        news: threading.Event,
    ) -> None:
        self.source = source
        self.feed = source.follow() if source.follow is not None else None
        self.seen: Observation | None = None
        self.began: float | None = None
        self.is_fresh = False
        self._due = -math.inf
        self._cost = 0.0
        self._clock, self._cpu, self._inline, self._news = clock, cpu, inline, news
        self._go = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self, seconds: float) -> None:
        """Begin a look, if it is time for one."""
        if self.began is not None or self._clock() < self._due:
            return
        self.began = self._clock()
        self._seconds = seconds
        if self._inline:
            self._look()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._go.set()

    @property
    def waits(self) -> float:
        """Seconds until the next look; of one that is under way forever."""
        return math.inf if self.began is not None else self._due - self._clock()

    def close(self) -> None:
        self._closed = True
        self._go.set()

    def silent(self, now: float) -> float:
        """For how long a look has been under way."""
        return now - self.began if self.began is not None else 0.0

    def _run(self) -> None:
        while True:
            self._go.wait()
            self._go.clear()
            if self._closed:
                return
            self._look()
            self._news.set()

    def _look(self) -> None:
        began, cpu = self.began or self._clock(), self._cpu()
        source, feed = self.source, self.feed
        try:
            self.seen = looked(source, source.look if feed is None else partial(feed.look, self._seconds))
        except DoctorError as error:
            self.seen = Observation(source.kind, source.target, error=Problem(*told(error)), patient=source.patient)
        every = self.feed.every if self.feed is not None else math.inf
        # Not sooner than it may: a look at a large log costs more than one a second may. The first one loads code too.
        before, self._cost = self._cost, self._cpu() - cpu
        self._due = max(began + every, self._clock() + min(before, self._cost) / _LOOKING)
        self.is_fresh = True
        self.began = None


class Watch:
    """Watches what `attach` gives. `clock` must not step; `wall` is POSIX time, `cpu` what this thread used of it.

    `inline` looks without threads.
    """

    def __init__(
        self,
        attach: Callable[[ExitStack], Sequence[Source]],
        judge: Judge,
        control: Control | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        inline: bool = False,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.control = control or Control()
        self._attach, self._judge = attach, judge
        self._clock, self._wall, self._cpu, self._inline = clock, wall, cpu, inline
        self._opened = ExitStack()
        self._eyes: list[_Eye] = []
        self._logs: tuple[Origin, ...] = ()
        self._tracks = Tracks(judge.catalogue)
        self._marks = judge.marks()
        self._rules = tuple(RuleSeen(rule.id, rule.group, rule.title) for rule in judge.rules)
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._spans: deque[Span] = deque(maxlen=_SPANS)
        self._current: dict[tuple[str, Severity], Span] = {}
        self._report: Report | None = None
        self._facts: tuple[Fact, ...] = ()
        self._starts: dict[str, Starts] = {}
        self._status, self._since = Status.STARTING, wall()
        self._began = self._since
        self._seen_at: float | None = None
        self._judge_due = self._measure_due = self._tell_due = self._attach_due = -math.inf
        self._lost_kind = ""
        self._view_model: ViewModel | None = None

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def run(self, tell: Callable[[ViewModel], None]) -> None:
        """Watch until stopped; `tell` gets each view model. Raises DoctorError where nothing can be attached to."""
        try:
            sources = list(self._attach(self._opened))
            self._logs = _logs_of(sources)
            if any(source.replay is not None for source in sources):
                self._replay(sources, tell)
                return
            if all(source.follow is None for source in sources):
                self._read(sources, tell)
                return
            self._open(sources)
            while not self.control.stopped:
                view_model = self.step()
                if view_model is not None:
                    tell(view_model)
                self.control.wake.wait(self._pause())
                self.control.wake.clear()
        finally:
            self.close()

    def close(self) -> None:
        for eye in self._eyes:
            eye.close()
        self._opened.close()

    def open(self) -> None:
        """Attach, as `run` does."""
        self._open(list(self._attach(self._opened)))

    def record(self, rules: str, share: bool = False) -> dict[str, bytes]:
        """What was seen of late, as the parts of a recording without its report. Raises SourceError where it is
        nothing. `rules`: the name of those that judge.
        """
        from vllm_doctor.session.capture import Recorder, Seen, kept_answers
        from vllm_doctor.sources.server.server import Followed

        now, wall, seconds = self._clock(), self._wall(), self.control.seconds
        eyes = list(self._eyes)
        recorder = Recorder([eye.source for eye in eyes], seconds, rules, self._judge.wishes, share)
        answers = {
            number: eye.feed.answers.all()
            for number, eye in enumerate(eyes)
            if isinstance(eye.feed, Followed) and eye.feed.answers is not None
        }
        started = min((of_one[0][0] for of_one in answers.values() if of_one), default=now - seconds)
        every = []
        for number, eye in enumerate(eyes):
            seen = Seen(eye.source, end=eye.seen)
            if isinstance(eye.feed, Followed) and number in answers:
                seen.metrics = kept_answers(answers[number], started, recorder.masked)
                seen.identity = eye.feed.identity
                seen.error = eye.seen.error if eye.seen is not None else None
            every.append(seen)
        return recorder.parts(every, wall - (now - started), now - started)

    def excerpts(self, at: float) -> list[Excerpt]:
        """The lines of the logs around the time of an event. Raises SourceError where none of them can be read."""
        from vllm_doctor.sources.log.around import around

        is_of_now = self._status not in (Status.READING, Status.READ)
        found: list[Excerpt] = []
        problem: DoctorError | None = None
        for origin in self._logs:
            try:
                lines = around(origin, at, is_of_now)
            except DoctorError as error:
                problem = error
                continue
            if lines is not None:
                found.append(Excerpt(_plain(str(origin)), lines.first, lines.lines, lines.place))
        if not found and problem is not None:
            raise problem
        return found

    def _open(self, sources: Sequence[Source]) -> None:
        self._logs = _logs_of(sources)
        for eye in self._eyes:
            eye.close()
        self._eyes = [_Eye(source, self._clock, self._cpu, self._inline, self.control.wake) for source in sources]

    def _pause(self) -> float:
        """Seconds until there is something to do."""
        now = self._clock()
        waits = [eye.waits for eye in self._eyes] if not self.control.paused else []
        return max(0.01, min([*waits, self._tell_due + 0.25 * _VIEW_MODEL - now, _VIEW_MODEL]))

    def step(self) -> ViewModel | None:
        """Look where it is time to, and the view model where there is a new one to tell."""
        control, now = self.control, self._clock()
        if control.again:
            control.again = False
            self._reattach("manual rescan", forced=True)
        if control.paused:
            return self._paused()
        for eye in self._eyes:
            eye.start(control.seconds)
        leading = [eye for eye in self._eyes if eye.source.kind in _ASKED and eye.feed is not None] or self._eyes
        if not any(eye.is_fresh for eye in leading) and now < self._tell_due + 0.25 * _VIEW_MODEL:
            return None
        is_waiting = self._view_model is not None and self._seen_at is None and self._trouble(now) is None
        if is_waiting and not any(eye.is_fresh for eye in self._eyes):
            return None  # nothing has answered yet
        self._tell_due = now + _VIEW_MODEL
        return self._made()

    def _paused(self) -> ViewModel | None:
        if self._status is Status.PAUSED or self._view_model is None:
            return None
        self._become(Status.PAUSED)
        self._tracks.gap(self._wall())
        self._view_model = replace(
            self._view_model, status=Status.PAUSED, since=self._since, at=self._wall(), events=tuple(self._events)
        )
        return self._view_model

    def _made(self) -> ViewModel:
        now = self._clock()
        error = self._trouble(now)
        answered = [eye for eye in self._eyes if eye.is_fresh]
        for eye in answered:
            eye.is_fresh = False
        observations = [self._with_restarts(eye.seen) for eye in self._eyes if eye.seen is not None]
        if error is None:
            self._answering(observations, is_new=bool(answered))
        elif self._status is not Status.LOST:
            self._lose(error)
        has_news = bool(answered and observations) and (error is None or self._seen_at is None)
        is_time = now >= self._judge_due or self._report is None
        if has_news and is_time and not self._is_early(observations):
            self._judged(observations)
        if any(o.error is not None and o.error.kind == "gone" for o in observations):
            self._reattach("its processes have ended", forced=False)
        self._view_model = self._drawn(observations, _own_fault(observations) or error)
        return self._view_model

    def _answering(self, observations: Sequence[Observation], is_new: bool) -> None:
        """At least one server answers. `is_new`: something was seen since the last moment."""
        was_lost, self._lost_kind = self._lost_kind, ""
        if self._status is not Status.LIVE and observations:
            self._become(Status.LIVE)
        if was_lost in _DOWN and self._report is not None:
            # Who answers now may be another process: its host is looked for anew.
            self._reattach("the server is back", forced=True)
        if is_new:
            self._measure(observations)

    def _lose(self, why: str) -> None:
        self._become(Status.LOST, why)
        self._tracks.gap(self._wall())
        seen_at = self._seen_at or self._began
        self._spans.extend(replace(one, last_at=max(one.last_at, seen_at)) for one in self._current.values())
        self._current.clear()

    def _is_early(self, observations: Sequence[Observation]) -> bool:
        """Whether the next scrape is worth waiting for: with one alone nothing is known of any rate."""
        if self._wall() - self._since > _FIRST_VERDICT:
            return False
        return any(len(o.window.times) == 1 for o in observations if o.error is None)

    def _first_verdict_at(self) -> float | None:
        """When that is due, at the latest; None where there is one, or nothing to judge."""
        is_awaited = self._report is None and self._status is Status.LIVE
        return self._since + _FIRST_VERDICT if is_awaited else None

    # ---- what is seen -----------------------------------------------------------------------------------------------

    def _trouble(self, now: float) -> str | None:
        """Why the server is lost; None where at least one answers, or none is asked."""
        servers = [eye for eye in self._eyes if eye.source.kind in _ASKED and eye.feed is not None]
        if not servers:
            return None
        for eye in servers:
            silent = eye.silent(now) > max(_SILENT, eye.feed.every if eye.feed is not None else 0.0)
            if not silent and (eye.seen is None or eye.seen.error is None):
                if eye.seen is not None:
                    self._seen_at = self._wall()
                return None
        first = servers[0]
        if first.silent(now) > max(_SILENT, first.feed.every if first.feed is not None else 0.0):
            self._lost_kind = "timeout"
            return f"{first.source.target} does not answer"
        problem = first.seen.error if first.seen is not None else None
        if problem is None:
            return None
        self._lost_kind = problem.kind
        return problem.message

    def _with_restarts(self, seen: Observation) -> Observation:
        """With the restarts that its window no longer holds: it begins anew with each of them."""
        times = seen.window.latest(START_TIME)
        if len(times) != 1:
            return seen
        starts = self._starts.setdefault(seen.target, Starts())
        starts.add(self._wall(), *times.values())
        return replace(seen, facts={**seen.facts, **starts.facts(self._wall(), "metrics")})

    def _measure(self, observations: Sequence[Observation]) -> None:
        """One more moment of the vital signs."""
        if self._clock() < self._measure_due:
            return
        for seen in observations:
            if seen.history:
                self._tracks.begin(seen.history, self._wall())
        cpu = self._cpu()
        if self._tracks.add(self._wall(), observations):
            self._measure_due = self._clock() + (self._cpu() - cpu) / _LOOKING - _VIEW_MODEL / 2

    def _judged(self, observations: Sequence[Observation]) -> None:
        cpu = self._cpu()
        at = self._wall()
        report = self._judge.report(observations, at)
        if (
            self._report is None
            or self._report.verdict is not report.verdict
            or self._report.headline != report.headline
        ):
            self._events.append(Event(at, State(report.verdict), report.headline))
        self._report = report
        self._rules = judged(self._rules, report)
        self._extend(report, at)
        self._facts = self._told(observations)
        self._judge_due = self._clock() + max(_VERDICT, (self._cpu() - cpu) / _JUDGING) - _VIEW_MODEL / 2

    def _extend(self, report: Report, at: float) -> None:
        """The spans in which each rule's verdict held, as long as it is watched."""
        now = {(f.rule, f.severity) for f in report.findings}
        for key in now:
            span = self._current.get(key)
            self._current[key] = replace(span, last_at=at) if span else Span(*key, 0, {}, at, at)
        for key in set(self._current) - now:
            self._spans.append(self._current.pop(key))

    def _told(self, observations: Sequence[Observation]) -> tuple[Fact, ...]:
        """The facts of the host and the GPUs, in the catalogue's order and words."""
        facts = {n: f for o in observations if o.kind in (SourceKind.HOST, SourceKind.GPU) for n, f in o.facts.items()}
        return tuple(
            Fact(signal.name, signal.says, signal.unit, _clean(facts[signal.definition]))
            for signal in self._judge.catalogue.signals.values()
            if signal.way == "fact" and signal.definition in facts
        )

    # ---- the state --------------------------------------------------------------------------------------------------

    def _become(self, status: Status, why: str = "") -> None:
        told = {
            Status.LIVE: "watching" if self._status in (Status.STARTING, Status.CHOOSING) else "reconnected",
            Status.PAUSED: "paused",
            Status.LOST: why,
        }
        if self._status is Status.PAUSED and status is Status.LIVE:
            told[Status.LIVE] = "resumed"
        self._status, self._since = status, self._wall()
        if status in told:
            self._events.append(Event(self._since, status, _plain(told[status])))

    def _reattach(self, why: str, forced: bool) -> None:
        """Look for the sources anew, keeping the view_model. What cannot be attached to is tried again later."""
        now = self._clock()
        if now < self._attach_due and not forced:
            return
        self._attach_due = now + _RETRY
        opened = ExitStack()
        try:
            sources = list(self._attach(opened))
        except DoctorError:
            opened.close()
            return
        before, self._opened = self._opened, opened
        self._open(sources)
        before.close()
        self._events.append(Event(self._wall(), State.INFO, f"reconnected: {why}"))
        for eye in self._eyes:
            eye.start(self.control.seconds)

    def _drawn(self, observations: Sequence[Observation], problem: str | None) -> ViewModel:
        return ViewModel(
            status=self._status,
            at=self._wall(),
            since=self._since,
            window=self.control.seconds,
            report=self._report,
            problem=_plain(problem) if problem else None,
            is_down=self._status is Status.LOST and self._lost_kind in _DOWN,
            seen_at=self._seen_at,
            trend=self._tracks.trend,
            limits=self._tracks.limits,
            marks=self._marks,
            lacking=self._tracks.lacking,
            facts=self._facts,
            processes=tuple(row for o in observations for row in o.process_rows),
            gpus=tuple(row for o in observations for row in o.gpu_rows),
            rules=self._rules,
            spans=(*self._spans, *(replace(span, last_at=self._wall()) for span in self._current.values())),
            events=tuple(self._events),
            began=self._began,
            due_at=self._first_verdict_at(),
        )

    # ---- recordings -------------------------------------------------------------------------------------------------

    def _replay(self, sources: Sequence[Source], tell: Callable[[ViewModel], None]) -> None:
        """Live through what was recorded, as fast as it goes, and tell of it; then judge all of it together."""
        while not self.control.stopped:
            view_model = self._relived(sources, tell)
            self._report = self._judge.report(observe(sources, ONE_DAY), self._wall())
            rules = judged(self._rules, self._report)
            tell(replace(view_model, status=Status.REPLAYED, report=self._report, rules=rules, seen_at=None))
            while not (self.control.stopped or self.control.again):
                self.control.wake.wait()
                self.control.wake.clear()
            self.control.again = False
            sources = list(self._attach(self._opened))

    def _relived(self, sources: Sequence[Source], tell: Callable[[ViewModel], None]) -> ViewModel:
        """The last view model of a watch as it would have been while it was recorded; each before it is told."""
        recordings = [source.recording for source in sources if source.recording is not None]
        began = min(recording.taken.timestamp() for recording in recordings)
        length = max(recording.seconds for recording in recordings)
        now = 0.0

        def followed(source: Source) -> Source:
            replay = source.replay
            return source if replay is None else replace(source, follow=lambda: replay(lambda: now))

        then = Watch(
            lambda opened: [followed(source) for source in sources],
            self._judge,
            Control(min(DEFAULT_WINDOW, max(1.0, length))),
            clock=lambda: now,
            wall=lambda: began + now,
            inline=True,
            cpu=lambda: 0.0,
        )
        then.open()
        view_model = None
        steps = max(1, min(_REPLAY_STEPS, round(length)))
        for step in range(steps + 1):
            now = length * step / steps
            view_model = then.step() or view_model
            if view_model is not None and not self.control.stopped:
                tell(replace(view_model, status=Status.REPLAYED, seen_at=None))
        return view_model or self._drawn((), None)

    # ---- logs, and commands -----------------------------------------------------------------------------------------

    def _read(self, sources: Sequence[Source], tell: Callable[[ViewModel], None]) -> None:
        """Examine once what does not go on, and tell how far it is; again when asked to."""
        while not self.control.stopped:
            self._become(Status.READING)
            read = PastReading(sources, lambda observations: self._judge.report(observations, self._wall()))
            read.start()
            while read.is_alive() and not self.control.stopped:
                tell(replace(self._drawn((), None), read_so_far=how_far(sources, self._wall() - self._since)))
                read.join(_PROGRESS)
            if self.control.stopped:
                return
            if read.failure is not None:
                raise read.failure
            self._become(Status.READ)
            self._report = read.report
            self._rules = judged(self._rules, read.report)
            view_model = replace(self._drawn((), None), timeline=read.timeline, events=read.events)
            tell(replace(view_model, spans=read.report.spans if read.report else ()))
            while not (self.control.stopped or self.control.again):
                self.control.wake.wait()
                self.control.wake.clear()
            self.control.again = False
            sources = list(self._attach(self._opened))


def _logs_of(sources: Sequence[Source]) -> tuple[Origin, ...]:
    return tuple(origin for source in sources for origin in source.logs)


def _own_fault(observations: Sequence[Observation]) -> str | None:
    """What went wrong in the doctor itself, while it looked at which source."""
    errors = ((o, o.error) for o in observations if o.error is not None)
    return next((f"{e.message} ({o.kind} {o.target})" for o, e in errors if e.kind in OWN_FAULTS), None)


def judged(rules: Sequence[RuleSeen], report: Report | None) -> tuple[RuleSeen, ...]:
    """The rules with their states in a report."""
    if report is None:
        return tuple(rules)
    because = {unknown.rule: unknown.because for unknown in report.unknown}
    return tuple(replace(rule, state=report.states.get(rule.id), because=because.get(rule.id, {})) for rule in rules)


def _clean(reading: Reading) -> Reading:
    if isinstance(reading, Known) and isinstance(reading.value, str):
        return replace(reading, value=_plain(reading.value))
    return reading


def _plain(text: str) -> str:
    return redact.text(" ".join(text.split()), Counter())
