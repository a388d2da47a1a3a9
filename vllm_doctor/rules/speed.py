"""The speed that requests get, beside what is expected of such a server: signals in, an Expected out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.speed import Assumption, Expected, Pace, Standing
from vllm_doctor.rules.diagnosis_file import SpeedRule
from vllm_doctor.text import words

_NOT_COMPUTED = "what this server should do could not be computed from what is known"


def judged(rule: SpeedRule, subject: Mapping[str, str], worded: words.Read) -> Expected:
    """One engine's speed. `worded`: a signal's reading and its unit, by name."""

    def read(name: str) -> Reading:
        return worded(name)[0]

    tpot = Pace(*(_number(read(name)) for name in (rule.measured, rule.bound, rule.low, rule.typical, rule.high)))
    batch = _number(read(rule.batch))
    load = read(rule.load)
    is_idle = isinstance(load, Known) and load.value == 0
    standing = standing_of(tpot, _number(read(rule.slow_above)), 0.0 if is_idle else None)
    seen = Expected(
        subject=subject,
        standing=standing,
        tpot=tpot,
        tokens=_tokens(tpot, batch),
        batch=batch,
        gpus=_number(read(rule.gpus)),
        assumptions=tuple(
            Assumption(says, known.origin or "assumed")
            for signal, sentence in rule.assumes
            if isinstance(known := read(signal), Known) and (says := words.fill(sentence, worded))
        ),
        lacks=_lacks(rule, read) if standing in (Standing.UNKNOWN, Standing.IDLE) else (),
        is_beyond_flags=standing is Standing.SLOW and _is_beyond_flags(rule, tpot),
    )
    decides = standing is Standing.SLOW or seen.is_below_typical
    return replace(seen, measure_next=_measure_next(rule, read)) if decides else seen


def standing_of(tpot: Pace, slow_above: float | None, load: float | None) -> Standing:
    """Where a measured time per output token stands. `load` 0: nothing ran."""
    if tpot.measured is None:
        return Standing.IDLE if load == 0 else Standing.UNKNOWN
    if tpot.typical is None or tpot.low is None or slow_above is None:
        return Standing.UNKNOWN
    if tpot.bound is not None and tpot.measured < tpot.bound:
        return Standing.BEYOND
    if tpot.measured > slow_above:
        return Standing.SLOW
    return Standing.FAST if tpot.measured < tpot.low else Standing.TYPICAL


def _number(reading: Reading) -> float | None:
    """A time or a count above 0."""
    value = outside.number(reading.value) if isinstance(reading, Known) else None
    return value if value is not None and value > 0 else None


def _tokens(tpot: Pace, batch: float | None) -> Pace:
    """Tokens a second of all requests that share a step."""

    def each(seconds: float | None) -> float | None:
        return batch / seconds if batch is not None and seconds is not None else None

    return Pace(each(tpot.measured), each(tpot.bound), each(tpot.high), each(tpot.typical), each(tpot.low))


def _is_beyond_flags(rule: SpeedRule, tpot: Pace) -> bool:
    return tpot.measured is not None and tpot.typical is not None and tpot.typical < rule.beyond_flags * tpot.measured


def _lacks(rule: SpeedRule, read: Callable[[str], Reading]) -> tuple[str, ...]:
    """What is not known, in the rule's order; of a signal the first sentence that fits."""
    said: dict[str, str] = {}
    for need in rule.needs:
        is_lacking = isinstance(read(need.signal), Unknown)
        if is_lacking and need.signal not in said and (need.when is None or need.when.judge(read)[0] is True):
            said[need.signal] = need.says
    return tuple(dict.fromkeys(said.values())) or (_NOT_COMPUTED,)


def _measure_next(rule: SpeedRule, read: Callable[[str], Reading]) -> tuple[str, ...]:
    return tuple(one.do for one in rule.measure_next if one.when is None or one.when.judge(read)[0] is not False)
