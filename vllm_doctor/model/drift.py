"""How the same load went early and late within hours of one server: facts, whoever saw the moments. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason

NAMES = (
    "decode_early", "decode_middle", "decode_late", "decode_slowest_early", "decode_fastest_late", "decode_between",
    "decode_drift_seconds", "decode_drift_batch",
)  # fmt: skip
MEMORY_NAMES = ("memory_early", "memory_late", "requests_between")
UNTOLD: dict[str, Reading] = dict.fromkeys((*NAMES, *MEMORY_NAMES), Unknown(Reason.NO_EQUAL_LOAD))
"""The facts where moments of hours were looked at, and no load was seen often enough at both ends."""

_LEAST_ALIKE = 3
"""Fewer times of the same load, at one end, tell no speed of it."""
_ALIKE = 1.1
"""By how much the number of requests, and the use of the KV cache, may differ where a load is the same."""
_LEAST_USED, _MOST_USED = 0.01, 0.95
"""Of the KV cache. Below, the last digit of its use decides; above, requests are thrown out and computed again, which
is counted nowhere as prompts (rules of thumb)."""
_MOST_PROMPTS, _PROMPT_PARTS = 1.0, 4
"""Prompt tokens for each output token at most, and in how many parts: a token of a prompt takes about a tenth of the
time of a decoded one, so that within a part their share of it differs by a fortieth (a rule of thumb). With more of
them, what the prompts are like (pictures, long ones) decides on the time."""


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
        is_told = self.running > 0 and outside.number(self.seconds) is not None
        if not is_told or not _LEAST_USED <= self.used <= _MOST_USED or self.prompts > _MOST_PROMPTS:
            return None
        return _band(self.running), _band(self.used), math.ceil(self.prompts * _PROMPT_PARTS)


def facts(moments: Iterable[Moment], origin: str) -> dict[str, Reading]:
    """Of the load that was seen most often both in the first and in the last third of the time; {} where none was.

    decode_early, decode_middle, decode_late: medians of the time between two tokens; decode_slowest_early and
    decode_fastest_late: what nine of ten moments of that third do not pass; decode_between: the share of the middle's
    moments that lie between these two; decode_drift_seconds, from one end to the other; decode_drift_batch, the
    requests. memory_early, memory_late, requests_between: of the API server at these moments, where they tell it.
    """
    alike: dict[tuple[int, int, int], list[Moment]] = {}
    for moment in moments:
        load = moment.load
        if load is not None:
            alike.setdefault(load, []).append(moment)
    times = [moment.at for seen in alike.values() for moment in seen]
    if not times:
        return {}
    first, third = min(times), (max(times) - min(times)) / 3
    parted = [
        [[one for one in seen if part == min(2, int((one.at - first) / third) if third else 0)] for part in range(3)]
        for seen in alike.values()
    ]
    told = [thirds for thirds in parted if min(len(thirds[0]), len(thirds[2])) >= _LEAST_ALIKE and thirds[1]]
    if not told:
        return {}
    early, middle, late = max(told, key=lambda thirds: min(len(thirds[0]), len(thirds[2])))
    slowest = _most([moment.seconds for moment in early])
    fastest = -_most([-moment.seconds for moment in late])
    found = {
        "decode_early": _median(early),
        "decode_middle": _median(middle),
        "decode_late": _median(late),
        "decode_slowest_early": slowest,
        "decode_fastest_late": fastest,
        "decode_between": sum(slowest <= moment.seconds <= fastest for moment in middle) / len(middle),
        "decode_drift_seconds": median([moment.at for moment in late]) - median([moment.at for moment in early]),
        "decode_drift_batch": float(round(median([moment.running for moment in (*early, *middle, *late)]))),
        **_memory(early, late),
    }
    return {name: Known(value, origin=origin) for name, value in found.items()}


def _memory(early: Sequence[Moment], late: Sequence[Moment]) -> dict[str, float]:
    ends = [[one.memory for one in end if one.memory is not None] for end in (early, late)]
    served = [[one.served for one in end if one.served is not None] for end in (early, late)]
    found = {}
    if all(ends):
        found = {"memory_early": median(ends[0]), "memory_late": median(ends[1])}
    if all(served):
        found["requests_between"] = median(served[1]) - median(served[0])
    return found


def _median(moments: Sequence[Moment]) -> float:
    return median([moment.seconds for moment in moments])


def _most(values: Sequence[float]) -> float:
    """What nine of ten do not exceed; of less than ten, none."""
    return sorted(values)[math.ceil(0.9 * len(values)) - 1]


def _band(value: float) -> int:
    return round(math.log(value, _ALIKE))
