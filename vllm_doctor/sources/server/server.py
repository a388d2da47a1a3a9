"""A vLLM server, over HTTP: GET /metrics once a sample; /version and /v1/models once.

Nothing else is asked of the patient, nothing is sent to it, and every answer is bounded in time and size.
"""

from __future__ import annotations

import email.utils
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx

from vllm_doctor import __version__
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.model.window import Window
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.exposition import Heads, Page, parse
from vllm_doctor.sources.server.scrapes import START_TIME, Answers, Identity, Scrape, identity, seen, started

if TYPE_CHECKING:  # only hooks have one
    from vllm_doctor.sources.server.state import Recalled, State

MAX_BODY = 64 * 1024 * 1024
IDENTITY_SECONDS = 3.0  # for /version and for /v1/models; /metrics may take all the time there is: a starved API
# server is slow to answer, and is the patient we are here for
_REDIRECTS = 3
PATIENCE = 5.0
"""Seconds that a server which is followed has for one answer."""
_SCRAPES = 30
"""So many are kept of one that is followed."""
_RECENT = 4


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


def body_of(
    response: httpx.Response, whose: str, until: float, clock: Callable[[], float], fewer: str = "", slow: str = ""
) -> bytes:
    """The body that a response streams, of at most 64 MB and until then on the clock. Raises SourceError.

    `fewer`, `slow`: what to do about one that is too large, or does not end.
    """
    body = bytearray()
    for chunk in response.iter_bytes():  # as they come: a slow drip must not hide behind a buffer
        body += chunk
        if len(body) > MAX_BODY:
            raise SourceError("too-large", f"{whose}: the answer is larger than 64 MB{fewer and ': ' + fewer}")
        if clock() > until:
            raise SourceError("timeout", f"{whose}: the answer does not end{slow and ': ' + slow}")
    return bytes(body)


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
        self._wanted = wanted | {START_TIME}
        self._access = access or Access()
        self._clock, self._sleep = clock, sleep
        self._client = client(self.base, self._access)

    def close(self) -> None:
        self._client.close()

    def examine(self, seconds: float, deadline: float, state: State | None = None) -> Observation:
        """Scrape over `seconds` (0: once); be done by `deadline` on the clock.

        With a state that holds an earlier scrape of it one is enough; it is kept there for the next time.
        Never raises for what the server does: an Observation's error says it, and keeps what was seen before.
        """
        scrapes: list[Scrape] = []
        identity = Identity()
        error: Problem | None = None
        recalled: Recalled | None = None
        try:
            for scrape in self._scrapes(seconds, deadline):
                if not scrapes:
                    identity = self.identify(scrape.page, deadline)
                    recalled = state.recall(self.target, scrape) if state is not None else None
                    scrapes.extend(recalled.scrapes if recalled is not None else ())
                scrapes.append(scrape)
                if recalled is not None and recalled.scrapes:
                    break
        except SourceError as problem:
            error = Problem(problem.kind, str(problem))
        seen = self.seen(scrapes, identity, error)
        if state is None or recalled is None or seen.error is not None:
            return seen
        seen.window.lone = recalled.reason
        notes = [recalled.note, state.keep(self.target, scrapes[-1])]
        return replace(seen, notes=(*seen.notes, *(note for note in notes if note)))

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
        body, headers, at = self._get("/metrics", deadline)
        return at, body.decode("utf-8", "replace"), _date(headers)

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
        return identity(self.target, page, version, self._json("/v1/models", deadline))

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
                    body = body_of(response, f"{self.target}{path}", at + left, self._clock)
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
            return Observation(SourceKind.SERVER, server.target, error=Problem(problem.kind, str(problem)))
        self._keep(scrape, seconds)
        self._recent.add(scrape.at, scrape.page.samples)
        if len(self._recent.times) > _RECENT:
            self._recent.drop(self._recent.times[0])
        seen = server.seen(self._scrapes, self._identity, window=self._window.copy())
        return replace(seen, recent=self._recent.copy())

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
