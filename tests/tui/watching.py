"""A watch of a recorded server, whose time passes only when a test says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tests.making import shipped_catalogue, shipped_rules
from tests.serving import recording
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.report import Problem
from vllm_doctor.recording import demo
from vllm_doctor.session.source import Source
from vllm_doctor.session.view_model import Control
from vllm_doctor.session.watch import Judge, Watch
from vllm_doctor.sources.server.exposition import Heads, Page, parse
from vllm_doctor.sources.server.scrapes import START_TIME, Identity, Scrape
from vllm_doctor.sources.server.server import Followed, Server

BEGAN = 1_795_000_000.0
"""20 November 2026, 10:26:40 UTC."""
TARGET = "http://127.0.0.1:8000"


class Clock:
    """Stands still until it is set forward."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return BEGAN + self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Pages:
    """What a recorded server answers, over and over, its counters going on. `down`: it refuses connections."""

    name: str
    edit: Callable[[str], str] = str
    down: bool = False
    started: float = BEGAN - 100_000
    offset: float = 0.0
    asked: int = field(default=0, init=False)

    def page(self, at: float) -> str:
        text = demo.round_at(recording(self.name), at - self.offset).decode()
        return self.edit(re.sub(rf"^{START_TIME} .*$", f"{START_TIME} {self.started}", text, flags=re.MULTILINE))


class Recorded(Server):
    """A server without a network."""

    def __init__(self, pages: Pages, clock: Clock) -> None:
        super().__init__(TARGET, shipped_catalogue().metrics, clock=clock.now, sleep=clock.sleep)
        self._pages, self._now = pages, clock

    def scrape(self, deadline: float, heads: Heads | None = None) -> Scrape:
        self._pages.asked += 1
        if self._pages.down:
            raise SourceError(
                "unreachable", f"{self.target} refuses connections: is the server up, and is this its port?"
            )
        page = parse(self._pages.page(self._now.seconds), self._wanted, heads)
        return Scrape(self._now.seconds, page, self._pages.started, self._now.wall())

    def identify(self, page: Page, deadline: float) -> Identity:
        recorded = recording(self._pages.name)
        facts: dict[str, Reading] = {
            "vllm_version": Known(str(recorded.version["version"]), origin="server"),
            "stats_published": Known(page.has_vllm, origin="server"),
        }
        return Identity(facts, tuple(str(card["id"]) for card in recorded.models["data"]))


def judge() -> Judge:
    return Judge(shipped_rules(), shipped_catalogue(), {"goal": "throughput"})


def server(pages: Pages, clock: Clock) -> Source:
    recorded = Recorded(pages, clock)
    return Source(
        SourceKind.SERVER,
        TARGET,
        TARGET,
        lambda: Observation(SourceKind.SERVER, TARGET),
        follow=lambda: Followed(recorded, clock.now),
    )


@dataclass
class Told:
    """A source that tells the same at each look."""

    observation: Observation
    every: float = 5.0
    error: str | None = None

    def look(self, seconds: float) -> Observation:
        return replace(self.observation, error=Problem("gone", self.error)) if self.error else self.observation


def nothing() -> float:
    """What a thread used that takes no time."""
    return 0.0


def watch_of(
    pages: Pages,
    clock: Clock,
    *others: Source,
    control: Control | None = None,
    cpu: Callable[[], float] = nothing,
) -> Watch:
    """A watch of this server, and of what else there is."""

    def attach(opened: ExitStack) -> Sequence[Source]:
        return [server(pages, clock), *others]

    return Watch(attach, judge(), control, clock.now, clock.wall, inline=True, cpu=cpu)
