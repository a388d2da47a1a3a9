"""One HTTP exchange: bounded in time and size, with one new try where a kept connection was closed meanwhile.

Every failure is a SourceError with one line to act on; who asks says in its own words what to do (`Advice`).
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx

from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.version import __version__
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.route import DIRECT, Route
from vllm_doctor.text import files

MAX_BODY = 64 * 1024 * 1024
PATIENCE = 5.0
"""Seconds that are enough for any server: one that had them and did not answer is late, whoever else was, too."""
_REDIRECTS = 3
_WORTH_TELLING = 1.0
"""Seconds without a CPU that may have made the doctor late (heuristic)."""


def base_of(url: str) -> str:
    """The server's base: "http://h:8000/prefix" of "h:8000/prefix/metrics". Raises UsageError."""
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises on a port that is no number
    except ValueError:  # its own message may quote a password
        raise UsageError(f"not a URL: {shown(url)}; write http://host:8000") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        from vllm_doctor.text import near

        meant = near.name(parts.scheme, ("http", "https")) if parts.hostname else None
        told = (
            f"; did you mean {shown(f'{meant}{text[len(parts.scheme) :]}')}?" if meant else "; write http://host:8000"
        )
        raise UsageError(f"not a URL of a server: {shown(url)}{told}")
    path = parts.path.rstrip("/").removesuffix("/metrics")
    return urlunsplit(SplitResult(parts.scheme, parts.netloc, path, "", ""))


def shown(url: str) -> str:
    """The URL as it may be printed: without a user's name and password, also where it is no URL."""
    scheme = re.match(r"(?:[a-zA-Z][\w+.-]*://)?", url)
    assert scheme is not None
    return scheme[0] + url[scheme.end() :].rsplit("@", 1)[-1]


@dataclass(frozen=True)
class Advice:
    """What is said of an exchange that failed. {where} is who was asked, {seconds} the time it had, {error} httpx's."""

    late: str
    """It did not answer in the time it had."""
    over: str
    """There was no time left to ask."""
    endless: str
    too_large: str
    unreadable: tuple[str, str]
    """The SourceError's kind, and its text."""


class Answer(NamedTuple):
    """`at`: when it began, on the clock; `location`: where a redirect leads that was not followed, "" for none;
    `url`: who answered, after redirects that were followed."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    at: float
    location: str = ""
    url: str = ""


class Connection:
    """A kept connection to the server at `base`. `clock` must not step. Raises UsageError for a --ca-file that is none.

    `follows`: redirects on the same host are followed, others refused; else they are the answer. Only the scheme, host
    and port of `base` are sent credentials; no cookie is kept.
    `waited`: the seconds that the doctor itself waited for a CPU since it began to look at this server.
    `is_patient`: a body that has begun by the deadline may take as long again: a starved server is slow, and examined.
    """

    def __init__(
        self,
        base: str,
        access: Access,
        clock: Callable[[], float],
        advice: Advice,
        follows: bool = True,
        is_patient: bool = True,
        route: Route = DIRECT,
        waited: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.base, self.target = base, route.name or shown(base)
        self._access, self._clock, self._advice = access, clock, advice
        self._follows, self._is_patient = follows, is_patient
        self._route, self._waited = route, waited
        self._client = _client(base, access, route)
        self._has_answered = False

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, deadline: float, where: str | None = None, **parameters: Any) -> Answer:
        """GET, answered by `deadline` on the clock. `where`: how the failure names it. Raises SourceError."""
        return self._ask("GET", path, deadline, where, parameters)

    def post(self, path: str, deadline: float, where: str | None = None, **parameters: Any) -> Answer:
        """POST, as `get`."""
        return self._ask("POST", path, deadline, where, parameters)

    def _ask(self, method: str, path: str, deadline: float, where: str | None, parameters: Mapping[str, Any]) -> Answer:
        where = self.target + path if where is None else where
        advice, url, reconnected = self._advice, self.base + path, False
        for _ in range(_REDIRECTS + 2):
            began, before = self._clock(), self._waited()
            left = deadline - began
            if left <= 0:
                raise self._late(where, 0.0, before, advice.over.format(where=where))
            try:
                sent = self._credentials() if self._is_let_in(url) else {}
                with self._client.stream(method, url, headers=sent, timeout=left, **parameters) as response:
                    at = self._clock()
                    location = _location(url, response)
                    if location and self._follows:
                        url = self._redirected(url, location)
                        continue
                    if response.status_code == 400 and url.startswith("http:") and (error := self._misspoken(url)):
                        raise error  # as nginx and Go say it to who speaks no TLS
                    self._has_answered = True
                    if response.status_code in (401, 403) and not _is_same_origin(url, self.base):
                        raise _denied_elsewhere(where, url, response.status_code)
                    body = self._body(response, where, at + left if self._is_patient else deadline, began - before)
                    return Answer(response.status_code, response.headers, body, at, location, url)
            except httpx.TimeoutException:
                waited = self._waited()
                had = self._clock() - began - (waited - before)
                raise self._late(where, had, waited, advice.late.format(where=where, seconds=left)) from None
            except httpx.TransportError as error:
                if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and not reconnected:
                    reconnected = True  # the server closed the kept connection while we waited: once more, on a new one
                    continue
                raise self._unreachable(url, error) from None
            except (httpx.DecodingError, httpx.InvalidURL, UnicodeError) as error:
                kind, text = advice.unreadable
                raise SourceError(kind, text.format(where=where, error=error)) from None
        raise SourceError("redirect", f"{where} redirects in a circle, last to {shown(url)}")

    def _unreachable(self, url: str, error: Exception) -> SourceError:
        """Why no answer came; of a port that speaks the other one of http and https, that."""
        told = _unreachable(self.target, error)
        is_cut = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)
        return (self._misspoken(url) if is_cut or told.kind == "tls" else None) or told

    def _misspoken(self, url: str) -> SourceError | None:
        """Of a port that has answered nothing yet, and speaks the other one of http and https, that."""
        if self._has_answered or self._route != DIRECT:
            return None
        from vllm_doctor.sources.server import other_scheme  # late: most exchanges do not fail

        other = other_scheme.url(url)
        if other is None:
            return None
        is_tls = other.startswith("https")
        what = "TLS, not plain HTTP" if is_tls else "plain HTTP, not TLS"
        return SourceError(
            "unreachable" if is_tls else "tls",
            f"{self.target}: this port speaks {what}; give {other.removesuffix('/metrics')}",
        )

    def _is_let_in(self, url: str) -> bool:
        """Whether credentials are sent there: to the server alone. One that stands behind the path of another (a proxy)
        redirects to no other path of that with them."""
        is_behind = self._route.credentials is None or f"{url}/".startswith(f"{self.base}/")
        return is_behind and _is_same_origin(url, self.base)

    def _credentials(self) -> Mapping[str, str]:
        """What is sent to the base, and to nobody else; tokens by URL are of servers that their URL alone reaches."""
        if self._route.credentials is not None:
            return self._route.credentials()
        return self._access.headers if self._route.name else self._access.credentials(self.base)

    def late(self, path: str, had: float, waited: float, told: str) -> SourceError:
        """`told` of a path as an error: the doctor's own, if it `waited` longer for a CPU than the server `had` to
        answer. Seconds."""
        return self._late(self.target + path, had, waited, f"{self.target}{path} {told}: raise --timeout")

    def _late(self, where: str, had: float, waited: float, told: str) -> SourceError:
        if had < PATIENCE and waited > max(had, _WORTH_TELLING):
            return SourceError(
                "starved",
                f"the doctor itself waited {waited:.1f} s for a CPU, and {where} had only {max(had, 0.0):.1f} s to"
                " answer: run it where a CPU is free, or raise --timeout",
            )
        return SourceError("timeout", told)

    def _body(self, response: httpx.Response, where: str, until: float, began: float) -> bytes:
        """The body, all there at `until` on the clock. `began`: when it was asked, less what the doctor had waited."""
        body = bytearray()
        for chunk in response.iter_bytes():  # as they come: a slow drip must not hide behind a buffer
            body += chunk
            if len(body) > MAX_BODY:
                raise SourceError("too-large", self._advice.too_large.format(where=where))
            if self._clock() > until:
                waited = self._waited()
                had = self._clock() - waited - began
                raise self._late(where, had, waited, self._advice.endless.format(where=where))
        return bytes(body)

    def _redirected(self, url: str, location: str) -> str:
        here, there = httpx.URL(url), httpx.URL(location)
        if (
            there.host != here.host
            or there.scheme not in ("http", "https")
            or (here.scheme, there.scheme) == ("https", "http")
        ):
            raise SourceError(
                "redirect", f"{shown(url)} redirects to {shown(location)}: not followed; give that URL if you trust it"
            )
        if here.scheme != there.scheme:
            self._client.close()
            self._client = _client(location, self._access, self._route)
        # The user and the password of the base stay with it, too.
        is_home = _is_same_origin(location, self.base)
        return str(there.copy_with(userinfo=httpx.URL(self.base).userinfo if is_home else b""))


class _NoCookies(CookieJar):
    """What a server sets is not even read: http.cookiejar prints a traceback for some of it."""

    def extract_cookies(self, response: object, request: object) -> None:
        """Keep none."""


def _is_same_origin(one: str, other: str) -> bool:
    """Scheme, host and port, as they are connected to."""
    first, second = httpx.URL(one), httpx.URL(other)  # which has no port where it is the scheme's own
    return (first.scheme, first.host, first.port) == (second.scheme, second.host, second.port)


def _client(base: str, access: Access, route: Route) -> httpx.Client:
    secure = base.startswith("https:")
    # never used on http; loading certificates takes a while
    context = (route.secured or _tls(access, route)) if secure else False
    transport = None
    if route.entered is not None:
        from vllm_doctor.sources.server import entered  # late: most servers are where their URL says

        transport = entered.transport(context, route.entered)
    return httpx.Client(
        verify=context,
        transport=transport,
        headers={"user-agent": f"vllm-doctor/{__version__}", "accept": "text/plain, application/json"},
        cookies=_NoCookies(),
        trust_env=False,  # a proxy in the environment is not on the way to one's own server
        follow_redirects=False,
    )


def _tls(access: Access, route: Route) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if route.certificate:
        try:
            context.load_verify_locations(cadata=route.certificate)
        except (ssl.SSLError, ValueError) as error:
            raise SourceError("tls", f"{route.certificate_of} holds no certificate in PEM ({error})") from None
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it may be signed by an authority that is not known here
        context.check_hostname = False  # found by its process: whatever it is called, this is its certificate
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.ca_file is not None:
        try:
            os.close(files.descriptor(access.ca_file))  # no device, and nothing that is waited for
            context.load_verify_locations(access.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"--ca-file {access.ca_file}: not readable as PEM certificates ({error})") from None
    return context


def _location(url: str, response: httpx.Response) -> str:
    return str(httpx.URL(url).join(response.headers.get("location", ""))) if response.is_redirect else ""


def _denied_elsewhere(where: str, url: str, status: int) -> SourceError:
    why = "no token or header is sent to another scheme, host or port"
    told = f"{where} redirects to {shown(url)}, which answers {status}: {why}; give that URL if you trust it"
    return SourceError("denied", told)


def _unreachable(target: str, error: Exception) -> SourceError:
    """Why no connection was made, in a sentence."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error.__context__, ssl.SSLError) or "SSL" in text or "certificate" in text.lower():
        return SourceError("tls", f"{target}: TLS failed ({text}); --ca-file FILE trusts your own CA, --insecure any")
    if "Name or service not known" in text or "getaddrinfo" in text or "nodename" in text or "name resolution" in text:
        return SourceError("unreachable", f"{target}: no such host ({text})")
    if "refused" in text:
        return SourceError("unreachable", f"{target} refuses connections: is the server up, and is this its port?")
    return SourceError("unreachable", f"{target} cannot be reached ({text})")
