"""A speed that a person names instead of a benchmark's result, as a run: `17tok/s`, `58ms`, `1200tok/s@64`.

What is not said stays unknown; where the number of requests is not, it is one at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from vllm_doctor.model.facts import SAID
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.bench import facts
from vllm_doctor.sources.bench.run import Asked, BenchRun, Spread, ratio
from vllm_doctor.sources.bench.source import seen
from vllm_doctor.text import durations

OPTION = "--measured"
ALONE = "a single request is assumed (--measured 1200tok/s@64: of 64 requests together)"
FORMS = (
    "write 17tok/s (of a request), 58ms (per output token), 1200tok/s@64 (of 64 requests together), or"
    " tpot=58ms,concurrency=16,input=1024,output=128"
)

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(?:tok|toks|token|tokens|t)(?:/| per )(?:s|sec|second)")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,6})?")
_TIMES = {"tpot": "tpot", "itl": "tpot", "ttft": "ttft", "e2e": "e2e"}
_COUNTS = ("concurrency", "input", "output")
_LONGEST = 200
_SLOWEST, _FASTEST = 3600.0, 1e-6
"""Seconds for a token: what lies outside is a mistake in the unit."""


@dataclass(frozen=True)
class Measured:
    """A speed as it was named: `said`, where it comes from (`origin`), and the run that it makes."""

    said: str
    origin: str
    run: BenchRun
    notes: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return f"{self.origin} {self.said}" if self.origin == OPTION else self.origin

    def examine(self, patient: str) -> Observation:
        """The same facts as of a benchmark's result."""
        return Observation(
            SourceKind.BENCH,
            self.target,
            facts=self.facts(),
            notes=self.notes,
            patient=patient,
            bench=seen(self.run, self.target),
        )

    def facts(self) -> dict[str, Reading]:
        """Those of a run; the load, as far as it is known, with the origin of the figure."""
        told, asked = facts.facts(self.run), self.run.asked
        for name, value in (
            ("load_requests", asked.concurrency),
            ("load_input_tokens", asked.input_len),
            ("load_output_tokens", asked.output_len),
        ):
            if value is not None:
                told.setdefault(name, Known(value))
        return {
            name: replace(fact, origin=self.origin) if isinstance(fact, Known) else fact for name, fact in told.items()
        }


def parse(text: str) -> Measured:
    """What --measured says. Raises ValueError, with one line that says how to write it."""
    parts = [part.strip() for part in text[: _LONGEST + 1].lower().split(",")]
    if len(text) > _LONGEST:
        raise ValueError(FORMS)
    times: dict[str, float] = {}
    counts: dict[str, float] = {}
    rate: float | None = None
    is_together = False
    for part in parts:
        name, equals, value = part.partition("=")
        if equals and name in _COUNTS:
            _put(counts, name, _count(value))
        elif equals and name in _TIMES:
            _put(times, _TIMES[name], _seconds(value))
        elif not equals and rate is None and "tpot" not in times:
            figure, at, requests = part.partition("@")
            if at:
                _put(counts, "concurrency", _count(requests))
            if match := _RATE.fullmatch(figure.strip()):
                rate, is_together = _positive(match[1]), bool(at)
            else:
                _put(times, "tpot", _seconds(figure.strip()))
        else:
            raise ValueError(FORMS)
    if rate is not None and "tpot" in times:
        raise ValueError(f"{rate:g} tokens/s and a time per token both say how fast it is: write one of them")
    if rate is None and not times:
        raise ValueError(FORMS)
    return Measured(text.strip(), OPTION, *_run(rate, is_together, times, counts))


def of_rate(rate: float, requests: float | None, is_together: bool) -> BenchRun:
    """`rate`: tokens a second, of each of the `requests` or of all together."""
    return _run(rate, is_together, {}, {} if requests is None else {"concurrency": requests})[0]


def _run(
    rate: float | None, is_together: bool, times: dict[str, float], counts: dict[str, float]
) -> tuple[BenchRun, tuple[str, ...]]:
    requests = counts.get("concurrency")
    assumed = 1.0 if requests is None else requests
    length = counts.get("output")
    each, together = times.get("tpot"), None
    if rate is not None:
        each, together = (None, rate) if is_together else (1 / rate, None)
    elif each is None and "ttft" not in times and "e2e" in times and length is not None:
        together = assumed * length / times["e2e"]  # whole answers, with the time to their first token
    seconds = ratio(assumed, together) if each is None else each
    if seconds is not None and not _FASTEST <= seconds <= _SLOWEST:
        raise ValueError(f"{seconds:.3g} s for a token is no speed of a server: {FORMS}")
    run = BenchRun(
        tool=SAID,
        asked=Asked(concurrency=assumed, input_len=counts.get("input"), output_len=length),
        output_rate=together if each is None else assumed / each,
        tpot=Spread(each),
        ttft=Spread(times.get("ttft")),
        e2e=Spread(times.get("e2e")),
    )
    return run, () if requests is not None else (ALONE,)


def _put(into: dict[str, float], name: str, value: float) -> None:
    if name in into:
        raise ValueError(f"{name} is given twice: {FORMS}")
    into[name] = value


def _positive(text: str) -> float:
    if _NUMBER.fullmatch(text) is None or not (value := float(text)):
        raise ValueError(FORMS)
    return value


def _count(text: str) -> float:
    value = _positive(text)
    if value < 1 or value != int(value):
        raise ValueError(f"{text} is no number of requests or tokens: {FORMS}")
    return value


def _seconds(text: str) -> float:
    if text[-1:] != "s":  # a bare number has no unit
        raise ValueError(FORMS)
    try:
        value = durations.parse(text)
    except ValueError:
        raise ValueError(FORMS) from None
    if not value:
        raise ValueError(FORMS)
    return value
