"""The vital signs and the targets: all of them by name, or, for a terminal, the few that are read first."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import Report, Target
from vllm_doctor.render.page import Figures, Lines
from vllm_doctor.text import words

_ROWS = (
    (
        ("requests_running", "{} running", None),
        ("requests_waiting", "{} waiting", None),
        ("kv_cache_usage", "KV cache {}", None),
    ),
    (
        ("generation_tokens_per_second", "{} generation tokens/s", ""),
        ("prompt_tokens_per_second", "{} prompt tokens/s", ""),
    ),
    (
        ("ttft_p50", "TTFT p50 {}", None),
        ("ttft_p99", "p99 {}", None),
        ("itl_p50", "ITL p50 {}", None),
        ("itl_p99", "p99 {}", None),
    ),
    (
        ("decode_of_bound", "decode at {} of the GPUs' memory-bandwidth bound", None),
        ("compute_of_bound", "computing at {} of their compute bound", None),
    ),
)
"""A line each: the vital sign, how it is said, and its unit where the sentence has that."""


def vitals(report: Report, whole: bool) -> tuple[Figures | Lines, ...]:
    """Nothing of a log, whose figures are those of other times."""
    if report.is_postmortem:
        return ()
    targets = tuple((_name(target), _met(target)) for target in report.targets)
    if whole:
        known = ((vital.says, vital.seen, vital.unit) for vital in report.vitals)
        figures = tuple((says, words.reading(seen, unit)) for says, seen, unit in known if isinstance(seen, Known))
        return (Figures("Metric", (*figures, *targets)),) if figures or targets else ()
    lines = (*_sentences(report), *(f"{name}: {met}" for name, met in targets))
    return (Lines(lines, close=True),) if lines else ()


def _sentences(report: Report) -> Iterator[str]:
    known = {vital.name: (vital.seen, vital.unit) for vital in report.vitals if isinstance(vital.seen, Known)}
    for row in _ROWS:
        parts = []
        for name, sentence, unit in row:
            if name in known:
                seen, own = known[name]
                parts.append(sentence.format(words.reading(seen, own if unit is None else unit)))
        if parts:
            yield " · ".join(parts)


def _name(target: Target) -> str:
    return f"{target.name.removeprefix('slo_').upper()} target {words.number(target.seconds, 's')}"


def _met(target: Target) -> str:
    met = {True: "met", False: "MISSED", None: "unknown"}[target.met]
    seen = words.reading(target.seen, "s") if isinstance(target.seen, Known) else str(target.seen)
    return f"{met} (p99 {seen})"
