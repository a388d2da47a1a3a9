"""A day of one server as it was scraped once a minute: made up, by how vLLM's counters and gauges move.

A step takes longer with more requests: a load is slower where it is larger, and not only where something drifts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev

from vllm_doctor.prometheus.past import SECONDS, STEP

EVERY = 60.0
_BATCHES = (6, 6, 6, 6, 12, 12, 24, 24, 24, 24, 12, 12)
"""Requests that clients keep up, twenty minutes each, over and over."""
Told = dict[str, dict[float, float]]


def daily(hour: float) -> float:
    """Few and many by turns, in each third of a day the same."""
    return float(_BATCHES[int(hour * 3) % len(_BATCHES)])


@dataclass(frozen=True)
class Day:
    """The day up to `end`, POSIX seconds. `batch` and `slow` by the hour: requests, and by how much a step is longer.

    `prompts`: for each output token; `leak`: bytes for each request; `starts`: hours at which it was started again;
    `swing`: of the requests from scrape to scrape; `is_one`: one API server, whose own process is on its page.
    `seconds`: of a shorter one, scraped each `every` seconds.
    """

    end: float
    batch: Callable[[float], float] = daily
    slow: Callable[[float], float] = lambda hour: 1.0
    prompts: float = 0.3
    leak: float = 0.0
    starts: tuple[float, ...] = ()
    swing: float = 0.05
    is_one: bool = True
    seconds: float = SECONDS
    every: float = EVERY

    def scrapes(self) -> Iterator[tuple[float, dict[str, float]]]:
        """(time, metric -> value) of each."""
        chance = random.Random(7)
        begin, started = self.end - self.seconds, self.end - 5 * SECONDS
        tokens, before = 5e6, self.batch(0)
        starts = [begin + 3600 * hour for hour in self.starts]
        for place in range(round(self.seconds / self.every) + 1):
            at = begin + self.every * place
            hour = (at - begin) / 3600
            if starts and at >= starts[0]:
                started, tokens = starts.pop(0), 0.0
            running = max(0.0, float(round(self.batch(hour) * (1 + chance.gauss(0, self.swing)))))
            mean = (before + running) / 2
            tokens += self.every * mean / (self.slow(hour) * (0.010 + 0.0005 * mean) * (1 + chance.gauss(0, 0.02)))
            before = running
            found = {
                "vllm:num_requests_running": running,
                "vllm:num_requests_waiting": 0.0,
                "vllm:generation_tokens_total": float(round(tokens)),
                "vllm:prompt_tokens_total": float(round(tokens * self.prompts)),
                "vllm:kv_cache_usage_perc": 0.01 * running,
                "vllm:request_success_total": float(round(tokens / 250)),
            }
            if self.is_one:
                found["process_start_time_seconds"] = started
                found["process_resident_memory_bytes"] = 6e8 + self.leak * round(tokens / 250)
            yield at, found

    def told(self) -> Told:
        """What a Prometheus makes of it, step by step, by the names of past.py."""
        scrapes = list(self.scrapes())
        each = round(STEP / EVERY)
        told: Told = {name: {} for name in _MEANS}
        for place in range(each, len(scrapes), each):
            at = scrapes[place][0]
            here = [values for _, values in scrapes[place - each + 1 : place + 1]]
            for name, of in _MEANS.items():
                value = of(here)
                if value is not None:
                    told[name][at] = value
        return told

    def lines(self, target: Mapping[str, str]) -> list[str]:
        """The same as OpenMetrics with times, metric by metric."""
        found: dict[str, list[str]] = {}
        for at, values in self.scrapes():
            for metric, value in values.items():
                line = f"{metric}{{{_labels(metric, target)}}} {value} {at:.3f}"
                found.setdefault(metric, []).append(line)
        return [line for lines in found.values() for line in lines]

    def pages(self) -> Iterator[tuple[float, str]]:
        """(time, what /metrics answers) of each."""
        for at, values in self.scrapes():
            yield at, "".join(f"{metric}{{{_labels(metric, {})}}} {value}\n" for metric, value in values.items())


def _labels(metric: str, target: Mapping[str, str]) -> str:
    engine = {"engine": "0", "model_name": "m"} if metric.startswith("vllm:") else {}
    reason = {"finished_reason": "stop"} if "success" in metric else {}
    return ",".join(f'{name}="{value}"' for name, value in {**engine, **target, **reason}.items())


_Here = list[dict[str, float]]


def _rate(metric: str) -> Callable[[_Here], float]:
    def of(here: _Here) -> float:
        grown = here[-1][metric] - here[0][metric]
        return max(0.0, grown) / (EVERY * (len(here) - 1))

    return of


def _resets(here: _Here) -> float:
    counts = [values["vllm:generation_tokens_total"] for values in here]
    return float(sum(after < before for before, after in pairwise(counts)))


def _last(metric: str) -> Callable[[_Here], float | None]:
    return lambda here: here[-1].get(metric)


_MEANS: Mapping[str, Callable[[_Here], float | None]] = {
    "running": lambda here: fmean(values["vllm:num_requests_running"] for values in here),
    "swing": lambda here: pstdev(values["vllm:num_requests_running"] for values in here),
    "tokens": _rate("vllm:generation_tokens_total"),
    "prompts": _rate("vllm:prompt_tokens_total"),
    "used": lambda here: fmean(values["vllm:kv_cache_usage_perc"] for values in here),
    "resets": _resets,
    "served": _last("vllm:request_success_total"),
    "started": _last("process_start_time_seconds"),
    "memory": _last("process_resident_memory_bytes"),
}
