"""A vLLM server, over HTTP: GET /metrics once a sample; /version and /v1/models once; /health where no token came.

Nothing else is asked of the patient, nothing is sent to it, and every answer is bounded in time and size.
"""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import FRONTS, SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.report import Problem
from vllm_doctor.model.restarts import Starts
from vllm_doctor.model.window import Window
from vllm_doctor.sources.server import own_time
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.exposition import Heads, Page, parse
from vllm_doctor.sources.server.fetch import PATIENCE, Advice, Connection, base_of, shown
from vllm_doctor.sources.server.route import DIRECT, Route
from vllm_doctor.sources.server.scrapes import (
    START_TIME,
    Answers,
    Identity,
    Scrape,
    identity,
    seen,
    stands_still,
    started,
)

if TYPE_CHECKING:  # only hooks have one
    from vllm_doctor.sources.server.state import Recalled, State

IDENTITY_SECONDS = 3.0  # for /version and for /v1/models; /metrics may take all the time there is: a starved API
# server is slow to answer, and is the patient we are here for
_LEAST_WINDOW, _MOST_OF = 1.0, 0.9
"""Seconds over which rates mean anything, and how much of them is as good (heuristic)."""
_AS_LONG_AGAIN = 2.0
"""The last scrape is begun so much earlier than it must be done as the slowest one took, times this (heuristic)."""
_WORTH_TELLING, _WORTH_TELLING_SHARE = 0.5, 0.2
"""Seconds, and the share of its time, that the doctor waited for a CPU from which on it says so (heuristic)."""
_SCRAPES = 30
"""So many are kept of one that is followed."""
_RECENT = 4


_ADVICE = Advice(
    late="{where} did not answer within {seconds:.1f} s: raise --timeout",
    over="{where} did not answer in time: raise --timeout",
    endless="{where}: the answer does not end",
    too_large="{where}: the answer is larger than 64 MB",
    unreadable=("not-metrics", "{where}: the answer cannot be read ({error})"),
)


@dataclass
class _Look:
    """What one look of `seconds` has seen. `began` on the clock, and how long the doctor had `waited` for a CPU until
    then; `answered`: when the last scrape was there, and `waited_then`."""

    seconds: float
    began: float
    waited: float
    scrapes: list[Scrape] = field(default_factory=list)
    identity: Identity = field(default_factory=Identity)
    error: Problem | None = None
    answered: float = 0.0
    waited_then: float = 0.0


class Server:
    """One server under examination. `clock` must not step (time.monotonic); `sleep` waits; `waited`: the seconds that
    the doctor itself waited for a CPU since it began. `role`: what the user says that it is on the path of a request.
    """

    def __init__(
        self,
        url: str,
        wanted: frozenset[str],
        access: Access | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        route: Route = DIRECT,
        waited: Callable[[], float] = lambda: own_time.of_all().waited,
        role: str = "",
    ) -> None:
        self.role = role
        self.base = base_of(url)
        self._wanted = wanted | {START_TIME}
        self._clock, self._sleep, self._waited = clock, sleep, waited
        self._route = route
        self._connection = Connection(
            self.base, access or Access(), clock, _ADVICE, route=route, waited=self._waited_here
        )
        self.target = self._connection.target
        self._look: _Look | None = None
        self._waited_before = 0.0
        self._answered = 0.0
        self._redirected = ""
        """Where /metrics was redirected to."""

    def close(self) -> None:
        self._connection.close()

    @property
    def kind(self) -> SourceKind:
        """What it is as long as it has not answered."""
        return SourceKind.GATEWAY if self.role in FRONTS else SourceKind.SERVER

    def examine(
        self, seconds: float, deadline: float, state: State | None = None, waited: float | None = None
    ) -> Observation:
        """Scrape over `seconds` (0: once); be done by `deadline` on the clock. `waited`: what the doctor had waited for
        a CPU when the time for all of it began; None: that begins now.

        With a state that holds an earlier scrape of it one is enough; it is kept there for the next time.
        Never raises for what the server does: an Observation's error says it, and keeps what was seen before.
        """
        now = self._waited()
        self._waited_before = now if waited is None else waited
        look = self._look = _Look(seconds, self._clock(), self._waited_here())
        self._answered = 0.0
        recalled: Recalled | None = None
        try:
            for scrape in self._scrapes(seconds, deadline):
                if not look.scrapes:
                    look.identity = self.identify(scrape.page, deadline)
                    recalled = state.recall(self.target, scrape) if state is not None else None
                    look.scrapes.extend(recalled.scrapes if recalled is not None else ())
                look.scrapes.append(scrape)
                look.answered, look.waited_then = self._clock(), self._waited_here()
                if recalled is not None and recalled.scrapes:
                    break
        except SourceError as problem:
            look.error = Problem(problem.kind, str(problem))
        seen = self.with_answer(self._ended(look))
        if look.error is None and stands_still(look.scrapes):
            seen = replace(seen, facts={**seen.facts, **self.health(deadline)})
        if state is None or recalled is None or seen.error is not None:
            return seen
        seen.window.lone = recalled.reason
        notes = [recalled.note, state.keep(self.target, look.scrapes[-1])]
        starts, wall = Starts(), time.time() - self._clock()
        for scrape in (*recalled.kept, look.scrapes[-1]):
            starts.add(wall + scrape.at, scrape.started)
        facts = {**seen.facts, **starts.facts(wall + look.scrapes[-1].at, "metrics")}
        return replace(seen, facts=facts, notes=(*seen.notes, *(note for note in notes if note)))

    def _waited_here(self) -> float:
        """Seconds that the doctor waited for a CPU since the time for this look began."""
        return max(0.0, self._waited() - self._waited_before)  # a thread that ends takes its count along

    def so_far(self) -> Observation | None:
        """What a look that has not ended yet has seen; None where it has seen nothing. For another thread."""
        look = self._look
        if look is None or not look.scrapes:
            return None
        since, waited = self._clock() - look.answered, self._waited_here() - look.waited_then
        error = self._connection.late("/metrics", since - waited, waited, "did not answer to the end of the window")
        return self._ended(replace(look, scrapes=list(look.scrapes), error=Problem(error.kind, str(error))))

    def _ended(self, look: _Look) -> Observation:
        """The look as an observation. A doctor that got no CPU keeps what it has, if rates can be told from it."""
        scrapes, error = look.scrapes, look.error
        seconds = scrapes[-1].at - scrapes[0].at if scrapes else 0.0
        elapsed = self._clock() - look.began
        waited = min(self._waited_here() - look.waited, elapsed)
        notes = [self._route.note]
        if waited > max(_WORTH_TELLING, _WORTH_TELLING_SHARE * elapsed):
            notes.append(
                f"the doctor itself waited {waited:.1f} s for a CPU in the {elapsed:.1f} s of its look, for a window of"
                f" {look.seconds:.3g} s: {len(scrapes)} scrapes over {seconds:.1f} s;"
                " run it where a CPU is free, or as root with nice -n -10"
            )
            if error is None and seconds < _MOST_OF * min(_LEAST_WINDOW, look.seconds):
                error = Problem(
                    "starved",
                    f"the doctor itself waited {waited:.1f} s for a CPU, and has only {len(scrapes)} scrape(s) of"
                    f" {self.target} over {seconds:.1f} s: run it where a CPU is free, or raise --timeout",
                )
        seen = self.seen(scrapes, look.identity, error)
        return replace(seen, notes=(*seen.notes, *filter(None, notes)))

    def seen(
        self,
        scrapes: Sequence[Scrape],
        identity: Identity,
        error: Problem | None = None,
        window: Window | None = None,
    ) -> Observation:
        """These scrapes of one server, judged to be of one server, as an observation. `error`: what ended them.

        `window`: the scrapes as such, where the caller keeps it.
        """
        return seen(self.target, scrapes, identity, error, window)

    def answer(self, deadline: float) -> tuple[float, str, float | None]:
        """One GET of /metrics: when it began on the clock, the page, and the server's own time. Raises SourceError."""
        if self._look is None:
            self._waited_before = self._waited()
        asked, waited = self._clock(), self._waited()
        try:
            answer = self._connection.get("/metrics", deadline)
        finally:
            self._answered = max(self._answered, self._clock() - asked - (self._waited() - waited))
        if answer.status != 200:
            raise self._route.refused(answer.status, answer.body) or _refused(self.target, answer.status)
        self._redirected = answer.url if answer.url != f"{self.base}/metrics" else ""
        return answer.at, answer.body.decode("utf-8", "replace"), _date(answer.headers)

    def with_answer(self, seen: Observation) -> Observation:
        """What was seen, with how long the slowest answer since then took; one that did not come took at least so."""
        seconds, self._answered = self._answered, 0.0
        return replace(seen, facts={**seen.facts, "answer_seconds": Known(seconds, origin="server")})

    def scrape(self, deadline: float, heads: Heads | None = None) -> Scrape:
        """One answer, read; done by `deadline` on the clock. Raises SourceError."""
        return self.read(*self.answer(deadline), heads)

    def read(self, at: float, text: str, server_time: float | None, heads: Heads | None = None) -> Scrape:
        """An answer as a scrape. Raises SourceError where it holds too much."""
        page = parse(text, self._wanted, heads)
        return Scrape(at, page, started(page), server_time)

    def _scrapes(self, seconds: float, deadline: float) -> Iterator[Scrape]:
        """Pages about a second apart (further apart in a long window), the last `seconds` after the first."""
        steps = min(30, max(1, round(seconds))) if seconds > 0 else 0
        first = took = 0.0
        for step in range(steps + 1):
            latest = deadline - _AS_LONG_AGAIN * took
            due = first + seconds * step / steps if step else -math.inf
            is_last = step == steps or due > latest  # what is begun later would not be done in time
            if step:
                early = min(due, latest) - self._clock()
                if not is_last and early < -seconds / steps:
                    continue  # a server that answers late is not asked faster to catch up
                self._sleep(max(0.0, early))
            began = self._clock()
            scrape = self.scrape(deadline)
            took = max(took, self._clock() - began)
            if not step:
                first = scrape.at
            yield scrape
            if is_last:
                break

    def identify(self, page: Page, deadline: float) -> Identity:
        """What /version and /v1/models say; SourceError if this is no vLLM. What stands before one is not asked."""
        if page.gateway is not None or self.role in FRONTS:
            return identity(self.target, page, {}, {}, self.role)
        version = self._json("/version", deadline)
        try:
            return identity(self.target, page, version, self._json("/v1/models", deadline), self.role)
        except SourceError as error:
            if not self._redirected:
                raise
            raise SourceError(
                error.kind, f"{error} ({self.target}/metrics redirects to {shown(self._redirected)})"
            ) from None

    def health(self, deadline: float) -> dict[str, Reading]:
        """What vLLM says of its engine: 200, or 503 of one that is dead. Nothing where it is not vLLM that answers."""
        try:
            answer = self._connection.get("/health", min(deadline, self._clock() + IDENTITY_SECONDS))
        except SourceError:
            return {}
        is_own = answer.status in (200, 503) and not answer.body.strip()  # a proxy's has a page
        return {"health_status": Known(float(answer.status), origin="server")} if is_own else {}

    def _json(self, path: str, deadline: float) -> Any:
        """The JSON answer; {} if there is none: these two only add to what /metrics says."""
        try:
            answer = self._connection.get(path, min(deadline, self._clock() + IDENTITY_SECONDS))
            return outside.json(answer.body)
        except (SourceError, ValueError):
            return {}


class Followed:
    """A server that is watched on and on: each look is one scrape, and tells of the last ones.

    What it keeps is bounded: in a long window the scrapes lie further apart, as in a single examination.
    """

    every = 1.0

    def __init__(self, server: Server, clock: Callable[[], float] = time.monotonic, keep: float = 0.0) -> None:
        self._server, self._clock = server, clock
        self.answers = Answers(keep) if keep else None
        """Its answers of the last `keep` seconds, to be recorded."""
        self._scrapes: list[Scrape] = []
        self._window, self._recent = Window(), Window()
        self._identity: Identity | None = None
        self._heads: Heads = {}

    def look(self, seconds: float) -> Observation:
        """Once more, and what was seen in the last `seconds`. A server that does not answer is the error."""
        server, deadline = self._server, self._clock() + PATIENCE
        try:
            if self.answers is None:
                scrape = server.scrape(deadline, self._heads)
            else:
                answer = server.answer(deadline)
                self.answers.add(*answer)
                scrape = server.read(*answer, self._heads)
            if self._is_new(scrape):
                self._scrapes.clear()
                self._window, self._recent = Window(), Window()
                self._identity = None
            if self._identity is None:
                self._identity = server.identify(scrape.page, deadline)
        except SourceError as problem:
            self._identity = None  # who answers next may be another
            return Observation(server.kind, server.target, error=Problem(problem.kind, str(problem)), role=server.role)
        self._keep(scrape, seconds)
        self._recent.add(scrape.at, scrape.page.samples)
        if len(self._recent.times) > _RECENT:
            self._recent.drop(self._recent.times[0])
        seen = server.seen(self._scrapes, self._identity, window=self._window.copy())
        return server.with_answer(replace(seen, recent=self._recent.copy()))

    @property
    def identity(self) -> Identity | None:
        """Who answers; None where that is not known now."""
        return self._identity

    def _is_new(self, scrape: Scrape) -> bool:
        """Whether the server was started since the last scrape: what it counts begins anew."""
        if not self._scrapes or not scrape.started:
            return False
        last = self._scrapes[-1]
        return scrape.started > last.started and (last.server_time is None or scrape.started > last.server_time - 2)

    def _keep(self, scrape: Scrape, seconds: float) -> None:
        kept, least = self._scrapes, 0.9 * seconds / _SCRAPES
        if len(kept) > 2 and kept[-1].at - kept[-2].at < least:
            self._window.drop(kept.pop().at)
        kept.append(scrape)
        self._window.add(scrape.at, scrape.page.samples)
        while len(kept) > 2 and kept[1].at <= scrape.at - seconds:
            self._window.drop(kept.pop(0).at)


def _date(headers: Mapping[str, str]) -> float | None:
    """The server's own clock, by its Date header; seconds since 1970."""
    try:
        return email.utils.parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _refused(target: str, status: int) -> SourceError:
    where = f"{target}/metrics"
    match status:
        case 401 | 403:
            told = f"give --token-file or --header with its URL, or --token-for {target}=FILE"
            return SourceError("denied", f"{where} answers {status}: {told}")
        case 404:
            return SourceError("not-found", f"{where} answers 404: is there a path prefix? (http://host:8000/prefix)")
        case _:
            return SourceError("server-error", f"{where} answers {status}")
