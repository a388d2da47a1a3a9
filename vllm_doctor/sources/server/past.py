"""Scrapes of one server over hours: the same load, early and late (model/drift)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vllm_doctor.model import drift
from vllm_doctor.model.drift import Moment
from vllm_doctor.model.facts import ENGINE_METRIC
from vllm_doctor.model.reading import Reading
from vllm_doctor.sources.server.scrapes import Scrape

APART = 10.0
"""Seconds between the two scrapes of a moment, as between two lines of statistics in a log."""
LEAST = 5400.0
"""Seconds of which the first third lies an hour before the last."""
_TOKENS, _REQUESTS = "vllm:generation_tokens_total", "vllm:request_success_total"
_PROMPTS, _PROMPTS_BY_SOURCE = "vllm:prompt_tokens_total", "vllm:prompt_tokens_by_source_total"
_COMPUTED = ("source", "local_compute")
_KV_CACHE, _KV_CACHE_ONCE = "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"
_MEMORY = "process_resident_memory_bytes"
WANTED = frozenset(
    (ENGINE_METRIC, _TOKENS, _REQUESTS, _PROMPTS, _PROMPTS_BY_SOURCE, _KV_CACHE, _KV_CACHE_ONCE, _MEMORY)
)
_STEADY = 1.1
"""By how much the running requests may differ between the two."""


@dataclass(frozen=True, slots=True)
class _Page:
    """What a scrape of a server with one engine tells; None where it does not."""

    at: float
    started: float
    running: float
    tokens: float
    prompts: float
    used: float
    memory: float | None
    served: float | None


def facts(pairs: Iterable[tuple[Scrape, Scrape]]) -> dict[str, Reading]:
    """Of pairs of scrapes of hours, the oldest first: each of the facts, or that it is not known."""
    return drift.UNTOLD | drift.facts(_moments(pairs), "metrics")


def _moments(pairs: Iterable[tuple[Scrape, Scrape]]) -> list[Moment]:
    """The moments with a steady batch, since the last start. Of several engines none."""
    found: list[Moment] = []
    last: _Page | None = None
    for before, here in _read(pairs):
        if last is not None and (before.started != last.started or before.tokens < last.tokens):
            found.clear()
        last = here
        if here.started != before.started or here.tokens < before.tokens:
            found.clear()
            continue
        tokens, running = here.tokens - before.tokens, (before.running + here.running) / 2
        is_steady = max(before.running, here.running) <= _STEADY * min(before.running, here.running)
        if tokens > 0 and running > 0 and is_steady:
            seconds = running * (here.at - before.at) / tokens
            prompts = (here.prompts - before.prompts) / tokens
            used = (before.used + here.used) / 2
            found.append(Moment(here.at, seconds, running, used, prompts, here.memory, here.served))
    return found


def _read(pairs: Iterable[tuple[Scrape, Scrape]]) -> Iterator[tuple[_Page, _Page]]:
    for scrapes in pairs:
        before, here = map(_page, scrapes)
        if before is not None and here is not None:
            yield before, here


def _page(scrape: Scrape) -> _Page | None:
    """What it tells; None where a figure is missing, or of several engines."""
    sums: dict[str, float] = {}
    engines = 0
    computed: float | None = None
    for sample in scrape.page.samples:
        sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        engines += sample.name == ENGINE_METRIC
        if sample.name == _PROMPTS_BY_SOURCE and _COMPUTED in sample.labels:
            computed = (computed or 0.0) + sample.value
    prompts = sums.get(_PROMPTS) if computed is None else computed
    used = _first(sums, _KV_CACHE, _KV_CACHE_ONCE)
    tokens = sums.get(_TOKENS)
    if engines != 1 or prompts is None or used is None or tokens is None:
        return None
    memory, served = sums.get(_MEMORY), sums.get(_REQUESTS)
    return _Page(scrape.at, scrape.started, sums[ENGINE_METRIC], tokens, prompts, used, memory, served)


def _first(sums: Mapping[str, float], *names: str) -> float | None:
    return next((sums[name] for name in names if name in sums), None)
