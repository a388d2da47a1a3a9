"""One signal of one engine: a value, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vllm_doctor.model.reason import IN_SHORT, Reason

Value = float | str | bool
Subject = tuple[tuple[str, str], ...]
"""The labels that name an engine, sorted: (("engine", "0"), ("model_name", "m")). () is the server."""


@dataclass(frozen=True, slots=True)
class Known:
    """A value. `low` and `high` bound it where a histogram knows no better than its buckets.

    `origin` says who told it: metrics, prometheus, server, user, proc, cgroup, cmdline, environ, image,
    manifest, kubernetes, nvml, nvidia-smi, collect-env, --gpu, kv-events, log, computed, cadvisor, dcgm.
    """

    value: Value
    low: float | None = None
    high: float | None = None
    origin: str = field(default="metrics", compare=False)

    @property
    def bounds(self) -> tuple[float, float] | None:
        if self.low is None or self.high is None:
            return None
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Unknown:
    reason: Reason

    def __str__(self) -> str:
        return IN_SHORT[self.reason]


Reading = Known | Unknown


@dataclass(frozen=True, slots=True)
class Values:
    """A signal of many engines, one value each; None: unknown. `has_text`: some may be texts."""

    each: Sequence[Value | None]
    has_text: bool = False


@dataclass(frozen=True, slots=True)
class Bounded:
    """A signal of many engines that is known within bounds, one reading each."""

    each: Sequence[Reading]


Column = Reading | Values | Bounded
"""A signal of many engines; one Reading where it is the same for all."""


def project(subject: Subject, labels: Iterable[str]) -> Subject:
    """The part of a subject that these labels name."""
    wanted = set(labels)
    return tuple(pair for pair in subject if pair[0] in wanted)
