"""The scrapes of one server, live or recorded, and what they say together."""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.facts import ENGINE_METRIC
from vllm_doctor.model.kinds import FRONTS, SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.model.report import Problem
from vllm_doctor.model.window import Window
from vllm_doctor.sources.server.exposition import Page

MAX_ENGINES = 2048
MAX_KEPT = 32 << 20
"""Bytes of answers, packed."""
START_TIME = "process_start_time_seconds"
_COUNTER = "vllm:generation_tokens_total"
_RESTART_SECONDS = 10.0  # no vLLM is up again sooner


@dataclass(frozen=True, slots=True)
class Scrape:
    """One page. `at`: seconds on the doctor's clock; `server_time` on the server's, `started`: 0 where not known."""

    at: float
    page: Page
    started: float
    server_time: float | None


@dataclass(frozen=True)
class Identity:
    """What /version and /v1/models say, and the answers as such."""

    facts: Mapping[str, Reading] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    version_answer: Any = None
    models_answer: Any = None
    role: str = ""
    """On the path of a request; "" where neither the user nor its page tells."""
    product: str = ""
    """Of a gateway or a router: what it is."""

    @property
    def is_front(self) -> bool:
        """Whether it stands in front of servers, and is none."""
        return self.role in FRONTS


class Answers:
    """The last answers of /metrics of a server that is watched: as many seconds of them, packed. Safe in threads."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: deque[tuple[float, bytes, float | None]] = deque()
        self._size = 0
        self._lock = threading.Lock()

    def add(self, at: float, page: str, clock: float | None) -> None:
        """One more, `at` seconds on the doctor's clock. What is too old, or too much, is forgotten."""
        packed = zlib.compress(page.encode(), 1)
        with self._lock:
            self._kept.append((at, packed, clock))
            self._size += len(packed)
            while len(self._kept) > 2 and (self._kept[0][0] < at - self._seconds or self._size > MAX_KEPT):
                self._size -= len(self._kept.popleft()[1])

    def all(self) -> list[tuple[float, str, float | None]]:
        """(seconds on the doctor's clock, page, the server's clock), the oldest first."""
        with self._lock:
            kept = list(self._kept)
        return [(at, zlib.decompress(packed).decode(), clock) for at, packed, clock in kept]


def started(page: Page) -> float:
    """When the server's process was started, POSIX seconds; 0 where its page does not tell, or of several."""
    starts = [sample.value for sample in page.samples if sample.name == START_TIME]
    return starts[0] if len(starts) == 1 else 0.0


def stands_still(scrapes: Sequence[Scrape]) -> bool:
    """Whether no token came between the last two scrapes."""
    if len(scrapes) < 2:
        return False
    before, after = (
        sum(sample.value for sample in scrape.page.samples if sample.name == _COUNTER) for scrape in scrapes[-2:]
    )
    return before == after


def identity(target: str, page: Page, version: Any, cards_answer: Any, role: str = "") -> Identity:
    """What the answers of /version and /v1/models say. `role`: what the user says that it is. Raises SourceError where
    this is no vLLM, nor something in front of one."""
    if page.gateway is not None or role in FRONTS:
        product = page.gateway.product if page.gateway is not None else ""
        told = role if role in FRONTS else page.gateway.role if page.gateway is not None else role
        if not page.is_metrics:
            raise SourceError("not-metrics", f"{target}: its /metrics has no metrics; give the port and path of them")
        return Identity(role=told, product=product)
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
            f"{target} is not a vLLM server: its /metrics has {what}; give vLLM's own port and path",
        )
    facts: dict[str, Reading] = {"stats_published": _told(page.has_vllm)}
    if isinstance(found, str):
        facts["vllm_version"] = _told(found[:100])
    limits = [limit for card in cards if type(limit := card.get("max_model_len")) is int and 0 < limit < 2**40]
    if limits:
        facts["max_model_len"] = _told(float(max(limits)))
    # A LoRA adapter is listed as a model with a parent: the model served is the one without.
    own = [card for card in cards if "id" in card and not card.get("parent")]
    names = [str(card["id"])[:200] for card in own]
    roots = {root for card in own if isinstance(root := card.get("root"), str)}
    if len(roots) == 1:
        facts["model_root"] = _told(roots.pop()[:500])
    return Identity(facts, tuple(names), version, cards_answer, role)


def seen(
    target: str,
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
    kind = SourceKind.GATEWAY if identity.is_front else SourceKind.SERVER
    refused = next((scrape.page.refused_lines for scrape in scrapes if scrape.page.refused_lines), 0)
    notes = [f"{refused} lines of /metrics could not be read and were left out"] if refused else []
    if identity.is_front and not identity.product:
        notes.append(f"{identity.role}: its metrics are of no gateway or router that is known here")
    try:
        if error is None:
            _one_server(target, window, scrapes, notes)
            if len(window.latest(ENGINE_METRIC)) > MAX_ENGINES:
                raise SourceError("too-large", f"{target}: more than {MAX_ENGINES:,} engines on one page")
            gone = window.vanished(ENGINE_METRIC)
            if gone:
                notes.append(f"{len(gone)} engine(s) vanished from /metrics while watched")
    except SourceError as problem:
        error = Problem(problem.kind, str(problem))
    if error is not None and window.times:
        notes.append(f"it answered {len(window.times)} times before")
    if error is not None and error.kind in ("changed-server", "too-large"):
        window = Window()
    return Observation(
        kind,
        target,
        window,
        identity.facts,
        identity.models,
        error,
        tuple(notes),
        role=identity.role,
        product=identity.product,
    )


def _one_server(target: str, window: Window, scrapes: Sequence[Scrape], notes: list[str]) -> None:
    """Tell a restart in the window from two servers that take turns at one address."""
    starts = [scrape.started for scrape in scrapes if scrape.started]
    first_seen = scrapes[0].server_time
    if starts:
        restarted = len(set(starts)) > 1
        # A server that had started before the first look was there all the time: it is another one.
        another = starts != sorted(starts) or (restarted and first_seen is not None and max(starts) < first_seen - 2)
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
            f"{target} is answered by different servers in turns (a load balancer?):"
            " rates would be wrong; name one of them",
        )
    if restarted:
        notes.append("the server was restarted within the window")


def _told(value: Value) -> Known:
    return Known(value, origin="server")


def _cards(answer: Any) -> list[dict[str, Any]]:
    data = answer.get("data") if isinstance(answer, dict) else None
    return [card for card in data if isinstance(card, dict)] if isinstance(data, list) else []
