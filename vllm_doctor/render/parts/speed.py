"""The speed that requests get, beside what this model does on these GPUs; what explains the rest, and what would."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model.report import Report
from vllm_doctor.model.speed import Expected, Share, Standing
from vllm_doctor.render.page import Labelled, Lines, Words, code, joined
from vllm_doctor.text import times, words

_WORTH = 0.1
"""Share of what is missing that is worth another measurement."""
_MOST = 3
"""Causes that a reader in a hurry sees."""


def speed(report: Report, whole: bool) -> tuple[Labelled | Lines, ...]:
    """A sentence, and below it what it rests on; of several engines the one that lacks most of its speed."""
    expected = report.expected
    if expected is None or (said := sentence(report)) is None:
        return ()
    if not whole and not expected.is_judged:
        return _in_a_line(report, expected)
    items: list[Words] = [*_causes(expected), *_next(expected, whole), *_origins(expected, whole)]
    return (Labelled("Speed", said, (Lines(tuple(items)),) if items else ()),)


def _in_a_line(report: Report, expected: Expected) -> tuple[Lines, ...]:
    """One that was not judged, beside the key metrics: why not stands in the headline, or here."""
    if not expected.tpot.measured:
        return ()
    is_told = bool(expected.lacks) and expected.lacks[0] in report.headline
    why = "" if is_told or not expected.lacks else f": {expected.lacks[0]}"
    return (Lines((f"{_per_second(expected.tpot.measured)} tokens/s per request · not judged{why}",), close=True),)


def sentence(report: Report) -> str | None:
    """ "A request gets 5.3 tokens/s; this model on 8 × A100 does 60–95 with 8 requests at a time: 92 % is missing." """
    expected = report.expected
    if expected is None:
        return None
    measured = expected.tpot.measured
    gets = f"a request gets {_per_second(measured)} tokens/s" if measured else ""
    if expected.standing is Standing.IDLE:
        return f"not judged: {expected.lacks[0]}." if expected.lacks else None
    if expected.standing is Standing.UNKNOWN:
        lacks = "; ".join(expected.lacks[:2])
        return f"{gets[:1].upper()}{gets[1:]}; not judged: {lacks}." if gets else f"Not judged: {lacks}."
    does = f"{_who(report, expected)} does {_range(expected)}{_batch(expected)}{_bound(expected)}"
    match expected.standing:
        case Standing.SLOW:
            judged = f"{words.number(expected.missing or 0.0, 'share')} is missing"
        case Standing.BEYOND:
            judged = "faster than physics: GPU, model or load are not what is assumed"
        case Standing.FAST:
            judged = "faster than typical"
        case _ if expected.tpot.high and measured and measured > expected.tpot.high:
            judged = "slower than typical, within the uncertainty of such figures"
        case _:
            judged = "as expected"
    return f"{gets[:1].upper()}{gets[1:]}; {does}: {judged}{_when(expected)}."


def of_headline(report: Report) -> str | None:
    """The sentence, where the headline is of a speed that is missing, and of no finding."""
    expected = report.expected
    is_slow = expected is not None and expected.standing is Standing.SLOW
    return sentence(report) if is_slow and report.headline not in (f.title for f in report.findings) else None


def in_short(report: Report) -> str | None:
    """The same in half a line: "5.3 tokens/s per request; 60–95 expected: 92 % missing". Why not: in `sentence`."""
    expected = report.expected
    if expected is None or expected.standing is Standing.IDLE:
        return None
    gets = f"{_per_second(expected.tpot.measured)} tokens/s per request" if expected.tpot.measured else ""
    if expected.standing is Standing.UNKNOWN:
        return f"{gets}, not judged" if gets else None
    missing = words.number(expected.missing or 0.0, "share")
    judged = {Standing.SLOW: f": {missing} missing", Standing.BEYOND: ": faster than the bound"}
    return f"{gets}; {_range(expected)} expected{judged.get(expected.standing, '')}"


def _per_second(seconds: float | None) -> str:
    return words.number(1 / seconds) if seconds else "?"


def _range(expected: Expected) -> str:
    return f"{_per_second(expected.tpot.high)}–{_per_second(expected.tpot.low)}"


def _who(report: Report, expected: Expected) -> str:
    gpus = f"{expected.gpus:g} × " if expected.gpus else ""
    return f"this model on {gpus}{report.patient.gpu or 'this GPU'}"


def _batch(expected: Expected) -> str:
    if expected.batch is None:
        return ""
    many = words.number(expected.batch, "requests")
    return f" with {many} concurrent request{'' if many == '1' else 's'}"


def _bound(expected: Expected) -> str:
    return f" (bound {_per_second(expected.tpot.bound)})" if expected.tpot.bound else ""


def _when(expected: Expected) -> str:
    return f" ({times.between(*expected.stretch)})" if expected.stretch is not None else ""


def _causes(expected: Expected) -> Iterator[Words]:
    """What explains how much of what is missing, and what nothing explains."""
    if expected.standing is not Standing.SLOW:
        return
    if expected.explained:
        told = [_share(share) for share in expected.explained[:_MOST]]
        yield ("of that, at most: ", *joined(told, ", "))
    unexplained = expected.unexplained
    if not expected.explained:
        yield "no finding explains it"
    elif unexplained is not None and unexplained > 0.005:
        yield f"{words.number(unexplained, 'share')} of it is unexplained"


def _share(share: Share) -> Words:
    how = words.number(share.share, "share") if share.share is not None else "all (its cost is not known)"
    return (code(share.rule), f" {how}")


def _next(expected: Expected, whole: bool) -> Iterator[Words]:
    """What to measure where the findings do not explain it."""
    is_open = expected.standing is Standing.SLOW and (expected.unexplained is None or expected.unexplained >= _WORTH)
    if is_open or expected.is_below_typical:
        yield from (f"to decide: {do}" for do in expected.measure_next[: None if whole else 1])


def _origins(expected: Expected, whole: bool) -> Iterator[Words]:
    """What the expectation rests on."""
    if not expected.is_judged:
        return
    told = [f"{one.says} ({one.origin})" for one in expected.assumptions]
    if whole:
        yield from told
    elif told:
        yield "; ".join(told)
