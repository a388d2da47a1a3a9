"""A vLLM server, over HTTP: GET /metrics once a sample; /version and /v1/models once.

Nothing else is asked of the patient, nothing is sent to it, and every answer is bounded in time and size.
"""

from __future__ import annotations

import email.utils
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx

from vllm_doctor import __version__
from vllm_doctor.catalogue import ENGINE_METRIC
from vllm_doctor.errors import SourceError, UsageError
from vllm_doctor.observation import Observation
from vllm_doctor.report import Problem
from vllm_doctor.signal import Known, Reading, Value
from vllm_doctor.sources.access import Access
from vllm_doctor.sources.exposition import Heads, Page, parse
from vllm_doctor.window import Window

MAX_BODY = 64 * 1024 * 1024
MAX_ENGINES = 2048
IDENTITY_SECONDS = 3.0  # for /version and for /v1/models; /metrics may take all the time there is: a starved API
# server is slow to answer, and is the patient we are here for
_REDIRECTS = 3
PATIENCE = 5.0
"""Seconds that a server which is followed has for one answer."""
_SCRAPES = 30
"""So many are kept of one that is followed."""
_RECENT = 4
_START_TIME = "process_start_time_seconds"
_COUNTER = "vllm:generation_tokens_total"
_RESTART_SECONDS = 10.0  # no vLLM is up again sooner


def base_of(url: str) -> str:
    """The server's base: "http://h:8000/prefix" of "h:8000/prefix/metrics". Raises UsageError."""
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises on a port that is no number
    except ValueError:  # its own message may quote a password
        raise UsageError(f"not a URL: {shown(url)}; write http://host:8000") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"not a URL of a server: {shown(url)}; write http://host:8000")
    path = parts.path.rstrip("/").removesuffix("/metrics")
    return urlunsplit(SplitResult(parts.scheme, parts.netloc, path, "", ""))


def shown(url: str) -> str:
    """The URL as it may be printed: without a user's name and password, also where it is no URL."""
    scheme = re.match(r"(?:[a-zA-Z][\w+.-]*://)?", url)
    assert scheme is not None
    return scheme[0] + url[scheme.end() :].rsplit("@", 1)[-1]


def client(base: str, access: Access) -> httpx.Client:
    """A connection to the server at this base. Raises UsageError for a --ca-file that is none."""
    secure = base.startswith("https:")
    return httpx.Client(
        verify=_tls(access) if secure else False,  # never used on http; loading certificates takes a while
        headers={"user-agent": f"vllm-doctor/{__version__}", "accept": "text/plain, application/json"}
        | dict(access.headers),
        trust_env=False,  # a proxy in the environment is not on the way to one's own server
        follow_redirects=False,
    )


def _tls(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.ca_file is not None:
        try:
            context.load_verify_locations(access.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"--ca-file {access.ca_file}: not readable as PEM certificates ({error})") from None
    return context


@dataclass(frozen=True, slots=True)
class Scrape:
    """One page. `at`: seconds on the doctor's clock; `server_time` on the server's, `started`: 0 where not known."""

    at: float
    page: Page
    started: float
    server_time: float | None


@dataclass(frozen=True)
class Identity:
    """What /version and /v1/models say."""

    facts: Mapping[str, Reading] = field(default_factory=dict)
    models: tuple[str, ...] = ()


class Server:
    """One server under examination. `clock` must not step (time.monotonic); `sleep` waits."""

    def __init__(
        self,
        url: str,
        wanted: frozenset[str],
        access: Access | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.base = base_of(url)
        self.target = shown(self.base)
        self._wanted = wanted | {_START_TIME}
        self._access = access or Access()
        self._clock, self._sleep = clock, sleep
        self._client = client(self.base, self._access)

    def close(self) -> None:
        self._client.close()

    def examine(self, seconds: float, deadline: float) -> Observation:
        """Scrape over `seconds` (0: once); be done by `deadline` on the clock.

        Never raises for what the server does: an Observation's error says it, and keeps what was seen before.
        """
        scrapes: list[Scrape] = []
        identity = Identity()
        error: Problem | None = None
        try:
            for scrape in self._scrapes(seconds, deadline):
                if not scrapes:
                    identity = self.identify(scrape.page, deadline)
                scrapes.append(scrape)
        except SourceError as problem:
            error = Problem(problem.kind, str(problem))
        return self.seen(scrapes, identity, error)

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
        if window is None:
            window = Window()
            for scrape in scrapes:
                window.add(scrape.at, scrape.page.samples)
        refused = next((scrape.page.refused_lines for scrape in scrapes if scrape.page.refused_lines), 0)
        notes = [f"{refused} lines of /metrics could not be read and were left out"] if refused else []
        try:
            if error is None:
                self._one_server(window, scrapes, notes)
                if len(window.latest(ENGINE_METRIC)) > MAX_ENGINES:
                    raise SourceError("too-large", f"{self.target}: more than {MAX_ENGINES:,} engines on one page")
                gone = window.vanished(ENGINE_METRIC)
                if gone:
                    notes.append(f"{len(gone)} engine(s) vanished from /metrics while watched")
        except SourceError as problem:
            error = Problem(problem.kind, str(problem))
        if error is not None and window.times:
            notes.append(f"it answered {len(window.times)} times before")
        if error is not None and error.kind in ("changed-server", "too-large"):
            window = Window()
        facts, models = identity.facts, identity.models
        return Observation("server", self.target, window, facts, models, error, tuple(notes))

    def scrape(self, deadline: float, heads: Heads | None = None) -> Scrape:
        """One GET of /metrics, done by `deadline` on the clock. Raises SourceError."""
        body, headers, at = self._get("/metrics", deadline)
        page = parse(body.decode("utf-8", "replace"), self._wanted, heads)
        starts = [sample.value for sample in page.samples if sample.name == _START_TIME]
        return Scrape(at, page, starts[0] if len(starts) == 1 else 0.0, _date(headers))

    def _scrapes(self, seconds: float, deadline: float) -> Iterator[Scrape]:
        """Pages about a second apart (further apart in a long window), the last `seconds` after the first."""
        steps = min(30, max(1, round(seconds))) if seconds > 0 else 0
        first = 0.0
        for step in range(steps + 1):
            if step:
                early = first + seconds * step / steps - self._clock()
                if step < steps and early < -seconds / steps:
                    continue  # a server that answers late is not asked faster to catch up
                self._sleep(max(0.0, early))
            scrape = self.scrape(deadline)
            if not step:
                first = scrape.at
            yield scrape

    def identify(self, page: Page, deadline: float) -> Identity:
        """What /version and /v1/models say; SourceError if this is no vLLM."""
        version = self._json("/version", deadline)
        cards_answer = self._json("/v1/models", deadline)
        found = version.get("version") if isinstance(version, dict) else None
        cards = _cards(cards_answer)
        owners = {str(card["owned_by"]) for card in cards if card.get("owned_by") is not None}
        is_server = isinstance(found, str) and (
            "vllm" in owners
            or (not owners and any("max_model_len" in card for card in cards))
            or cards_answer == {"error": "Unauthorized"}
        )
        if not page.has_vllm and not is_server:
            what = "metrics, but none of vLLM's" if page.is_metrics else "no metrics"
            raise SourceError(
                "not-vllm",
                f"{self.target} is not a vLLM server: its /metrics has {what}; give vLLM's own port and path",
            )
        facts: dict[str, Reading] = {"stats_published": _told(page.has_vllm)}
        if isinstance(found, str):
            facts["vllm_version"] = _told(found[:100])
        limits = [limit for card in cards if type(limit := card.get("max_model_len")) is int and 0 < limit < 2**40]
        if limits:
            facts["max_model_len"] = _told(float(max(limits)))
        # A LoRA adapter is listed as a model with a parent: the model served is the one without.
        names = [str(card["id"])[:200] for card in cards if "id" in card and not card.get("parent")]
        return Identity(facts, tuple(names))

    def _one_server(self, window: Window, scrapes: Sequence[Scrape], notes: list[str]) -> None:
        """Tell a restart in the window from two servers that take turns at one address."""
        starts = [scrape.started for scrape in scrapes if scrape.started]
        first_seen = scrapes[0].server_time
        if starts:
            restarted = len(set(starts)) > 1
            # A server that had started before the first look was there all the time: it is another one.
            another = starts != sorted(starts) or (
                restarted and first_seen is not None and max(starts) < first_seen - 2
            )
        else:
            falls = {  # all engines of a server fall at once
                after: after - before
                for points in window.series(_COUNTER).values()
                for (before, value), (after, next_value) in pairwise(points)
                if next_value < value
            }
            restarted = bool(falls)
            another = len(falls) > 1 or any(seconds < _RESTART_SECONDS for seconds in falls.values())
        if another:
            raise SourceError(
                "changed-server",
                f"{self.target} is answered by different servers in turns (a load balancer?):"
                " rates would be wrong; point me at one of them",
            )
        if restarted:
            notes.append("the server was restarted within the window")

    def _json(self, path: str, deadline: float) -> Any:
        """The JSON answer; {} if there is none: these two only add to what /metrics says."""
        try:
            body, _, _ = self._get(path, min(deadline, self._clock() + IDENTITY_SECONDS), tolerate_status=True)
            return json.loads(body)
        except (SourceError, ValueError, RecursionError):
            return {}

    def _get(self, path: str, deadline: float, tolerate_status: bool = False) -> tuple[bytes, httpx.Headers, float]:
        """Body, headers, and when the answer began. Redirects are followed on the same host only."""
        url = self.base + path
        reconnected = False
        for _ in range(_REDIRECTS + 2):
            left = deadline - self._clock()
            if left <= 0:
                raise SourceError("timeout", f"{self.target}{path} did not answer in time: raise --timeout")
            try:
                with self._client.stream("GET", url, timeout=left) as response:
                    at = self._clock()
                    if response.is_redirect:
                        url = self._redirected(url, response.headers.get("location", ""))
                        continue
                    body = self._body(response, path, at + left)
                    if response.status_code != 200 and not tolerate_status:
                        raise _refused(self.target + path, response.status_code)
                    return body, response.headers, at
            except httpx.TimeoutException:
                raise SourceError(
                    "timeout", f"{self.target}{path} did not answer within {left:.1f} s: raise --timeout"
                ) from None
            except httpx.TransportError as error:
                if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and not reconnected:
                    reconnected = True  # the server closed the kept connection while we waited: once more, on a new one
                    continue
                raise unreachable(self.target, error) from None
            except (httpx.DecodingError, httpx.InvalidURL, UnicodeError) as error:
                raise SourceError("not-metrics", f"{self.target}{path}: the answer cannot be read ({error})") from None
        raise SourceError("redirect", f"{self.target}{path} redirects in a circle")

    def _body(self, response: httpx.Response, path: str, until: float) -> bytes:
        body = bytearray()
        for chunk in response.iter_bytes():  # as they come: a slow drip must not hide behind a buffer
            body += chunk
            if len(body) > MAX_BODY:
                raise SourceError("too-large", f"{self.target}{path}: the answer is larger than 64 MB")
            if self._clock() > until:
                raise SourceError("timeout", f"{self.target}{path}: the answer does not end")
        return bytes(body)

    def _redirected(self, url: str, location: str) -> str:
        here, there = httpx.URL(url), httpx.URL(url).join(location)
        if (
            there.host != here.host
            or there.scheme not in ("http", "https")
            or (here.scheme, there.scheme) == ("https", "http")
        ):
            raise SourceError(
                "redirect",
                f"{shown(url)} redirects to {shown(str(there))}: not followed; give that URL if you trust it",
            )
        if here.scheme != there.scheme:
            self._client.close()
            self._client = client(str(there), self._access)
        return str(there)


class Followed:
    """A server that is watched on and on: each look is one scrape, and tells of the last ones.

    What it keeps is bounded: in a long window the scrapes lie further apart, as in a single examination.
    """

    every = 1.0

    def __init__(self, server: Server, clock: Callable[[], float] = time.monotonic) -> None:
        self._server, self._clock = server, clock
        self._scrapes: list[Scrape] = []
        self._window, self._recent = Window(), Window()
        self._identity: Identity | None = None
        self._heads: Heads = {}

    def look(self, seconds: float) -> Observation:
        """Once more, and what was seen in the last `seconds`. A server that does not answer is the error."""
        server, deadline = self._server, self._clock() + PATIENCE
        try:
            scrape = server.scrape(deadline, self._heads)
            if self._is_new(scrape):
                self._scrapes.clear()
                self._window, self._recent = Window(), Window()
                self._identity = None
            if self._identity is None:
                self._identity = server.identify(scrape.page, deadline)
        except SourceError as problem:
            self._identity = None  # who answers next may be another
            return Observation("server", server.target, error=Problem(problem.kind, str(problem)))
        self._keep(scrape, seconds)
        self._recent.add(scrape.at, scrape.page.samples)
        if len(self._recent.times) > _RECENT:
            self._recent.drop(self._recent.times[0])
        seen = server.seen(self._scrapes, self._identity, window=self._window.copy())
        return replace(seen, recent=self._recent.copy())

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


def _told(value: Value) -> Known:
    return Known(value, origin="server")


def _cards(answer: Any) -> list[dict[str, Any]]:
    data = answer.get("data") if isinstance(answer, dict) else None
    return [card for card in data if isinstance(card, dict)] if isinstance(data, list) else []


def _date(headers: httpx.Headers) -> float | None:
    """The server's own clock, by its Date header; seconds since 1970."""
    try:
        return email.utils.parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _refused(where: str, status: int) -> SourceError:
    match status:
        case 401 | 403:
            return SourceError("denied", f"{where} answers {status}: give --token-file or --header")
        case 404:
            return SourceError("not-found", f"{where} answers 404: is there a path prefix? (http://host:8000/prefix)")
        case _:
            return SourceError("server-error", f"{where} answers {status}")


def unreachable(target: str, error: Exception) -> SourceError:
    """Why no connection was made, in a sentence."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error.__context__, ssl.SSLError) or "SSL" in text or "certificate" in text.lower():
        return SourceError("tls", f"{target}: TLS failed ({text}); --ca-file FILE trusts your own CA, --insecure any")
    if "Name or service not known" in text or "getaddrinfo" in text or "nodename" in text or "name resolution" in text:
        return SourceError("unreachable", f"{target}: no such host ({text})")
    if "refused" in text:
        return SourceError("unreachable", f"{target} refuses connections: is the server up, and is this its port?")
    return SourceError("unreachable", f"{target} cannot be reached ({text})")
