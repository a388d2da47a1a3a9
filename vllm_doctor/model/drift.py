"""How the same load went early and late within hours of one server: facts, whoever saw the moments. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason

UNTOLD: dict[str, Reading] = dict.fromkeys(
    (
        "decode_early", "decode_late", "decode_drift", "decode_drift_seconds", "decode_drift_batch",
        "memory_early", "memory_late", "requests_between",
    ),
    Unknown(Reason.NO_EQUAL_LOAD),
)  # fmt: skip
"""The facts where moments of hours were looked at, and no load was seen often enough early and late."""

_LEAST = 8
"""Fewer moments of a third tell nothing of it (rule of thumb)."""
_RUNNING, _USED = 1.1, 1.25
"""By what factor the requests, and the use of the KV cache, may differ where a load is the same. A step reads what the
cache holds of its requests, and more than that."""
_LEAST_USED, _MOST_USED = 0.01, 0.95
"""Of the KV cache. Below, the last digit of its use decides; above, requests are thrown out and computed again, which
is counted nowhere as prompts (rules of thumb)."""
_MOST_PROMPTS, _PROMPT_PARTS = 1.0, 2
"""Prompt tokens for each output token at most, and in how many parts: a token of a prompt takes about a tenth of the
time of a decoded one, so that within a part their share of it differs by a twentieth (a rule of thumb). With more of
them, what the prompts are like (pictures, long ones) decides on the time."""
_NONE = 1.1
"""By so much the moments of one load differ anyway (heuristic)."""
_SHORTEST = 1e-9
"""Seconds: no token comes sooner."""
_GRADUAL = 0.4
"""Of the middle, the share that lies between the ends. After a step nearly all of it is like one of them."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Some seconds up to `at` in which the load was steady. `seconds`: between two tokens of a request.

    `used`: share of the KV cache; `prompts`: prompt tokens computed for each output token; `memory`: bytes of the API
    server; `served`: requests since its start.
    """

    at: float
    seconds: float
    running: float
    used: float
    prompts: float = 0.0
    memory: float | None = None
    served: float | None = None

    @property
    def load(self) -> tuple[int, int, int] | None:
        """What it has in common with moments of the same work; None of one that cannot be compared."""
        is_told = self.running > 0 and self.seconds > _SHORTEST and outside.number(self.seconds) is not None
        if not is_told or not _LEAST_USED <= self.used <= _MOST_USED or self.prompts > _MOST_PROMPTS:
            return None
        bands = round(math.log(self.running, _RUNNING)), round(math.log(self.used, _USED))
        return *bands, math.ceil(self.prompts * _PROMPT_PARTS)


_Thirds = tuple[list[Moment], list[Moment], list[Moment]]


def facts(moments: Iterable[Moment], origin: str) -> dict[str, Reading]:
    """Of the loads that were seen both in the first and in the last third of the time; {} where none was often enough.

    decode_early, decode_late: medians of the time between two tokens, as times of the load that was seen most often;
    decode_drift: late / early, unknown where these differ and the moments of both overlap, or the middle is like one of
    them; decode_drift_seconds, from one end to the other; decode_drift_batch, the requests. memory_early, memory_late,
    requests_between: of the API server at these moments, where they tell it.
    """
    loads = _by_load(moments)
    if not loads:
        return {}
    scales = [_scale(thirds) for thirds in loads]
    usual, scale = max(zip(loads, scales, strict=True), key=lambda one: min(len(one[0][0]), len(one[0][2])))
    early, middle, late = (
        [one.seconds / of * scale for thirds, of in zip(loads, scales, strict=True) for one in thirds[part]]
        for part in range(3)
    )
    if min(map(len, (early, middle, late))) < _LEAST:
        return {}
    first, last = ([one for thirds in loads for one in thirds[part]] for part in (0, 2))
    found = {
        "decode_early": median(early),
        "decode_late": median(late),
        "decode_drift_seconds": median([one.at for one in last]) - median([one.at for one in first]),
        "decode_drift_batch": float(round(median([one.running for third in usual for one in third]))),
        **_memory(first, last),
    }
    drift = _drift(early, middle, late)
    told: Reading = Unknown(Reason.BETWEEN) if drift is None else Known(drift, origin=origin)
    return {**{name: Known(value, origin=origin) for name, value in found.items()}, "decode_drift": told}


def _by_load(moments: Iterable[Moment]) -> list[_Thirds]:
    """The moments of each load that was seen at both ends, by thirds of the time."""
    alike: dict[tuple[int, int, int], list[Moment]] = {}
    for moment in moments:
        load = moment.load
        if load is not None:
            alike.setdefault(load, []).append(moment)
    times = [moment.at for seen in alike.values() for moment in seen]
    if not times:
        return []
    first, third = min(times), (max(times) - min(times)) / 3
    found = []
    for seen in alike.values():
        parts: _Thirds = ([], [], [])
        for moment in seen:
            parts[min(2, int((moment.at - first) / third)) if third else 0].append(moment)
        if parts[0] and parts[2]:
            found.append(parts)
    return found


def _scale(thirds: _Thirds) -> float:
    """The time of a load, half-way from early to late, by which it is beside other loads."""
    return math.sqrt(_median(thirds[0])) * math.sqrt(_median(thirds[2]))


def _drift(early: Sequence[float], middle: Sequence[float], late: Sequence[float]) -> float | None:
    """By how much the late times are longer; None where that cannot be said."""
    ratio = median(late) / median(early)
    slowest, fastest = _most(early), -_most([-seconds for seconds in late])
    between = sum(slowest < seconds < fastest for seconds in middle)
    is_gradual = fastest > slowest and between >= _GRADUAL * len(middle)
    return ratio if is_gradual or ratio < _NONE else None


def _memory(early: Sequence[Moment], late: Sequence[Moment]) -> dict[str, float]:
    memory = [[one.memory for one in end if one.memory is not None] for end in (early, late)]
    served = [[one.served for one in end if one.served is not None] for end in (early, late)]
    found = {}
    if all(memory):
        found = {"memory_early": median(memory[0]), "memory_late": median(memory[1])}
    if all(served):
        found["requests_between"] = median(served[1]) - median(served[0])
    return found


def _median(moments: Sequence[Moment]) -> float:
    return median([moment.seconds for moment in moments])


def _most(values: Sequence[float]) -> float:
    """What nine of ten do not exceed; of less than ten, none."""
    return sorted(values)[math.ceil(0.9 * len(values)) - 1]
