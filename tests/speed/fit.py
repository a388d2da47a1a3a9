"""Fits the coefficients of expected speed to measured servers, and says how far off they are on servers left out.

    python -m tests.speed.fit              fit, and print the errors; of the rows of a GPU, a family of models and a
                                           release by coefficients that were fitted without them (some minutes)
    python -m tests.speed.fit --quick      without leaving anything out
    python -m tests.speed.fit --write      and write rules/signals/speed-coefficients.yaml
    python -m tests.speed.fit --check TSV  the errors on other rows, of the columns of fixtures/speed/

What is fitted are the formulas themselves, those of rules/signals/expected.yaml, over arrays (vectors.py). Residuals
are of logarithms, so that twice as fast is as wrong as half as fast. Each coefficient has a prior, what an engineer
would say without the rows, which counts as much as a few rows: a coefficient that few rows are about stays near it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from tests.speed import rows
from tests.speed.rows import Row
from tests.speed.vectors import Array, Vectors
from vllm_doctor.rules import catalogue, folders
from vllm_doctor.rules.signal import Signal

OUTPUT = "signals/speed-coefficients.yaml"


@dataclass(frozen=True)
class Coefficient:
    """`prior`: its value without any row. `most`: what physics allows."""

    name: str
    says: str
    unit: str
    prior: float
    most: float = math.inf


_SHARE = 0.97
COEFFICIENTS = (
    Coefficient("speed_bandwidth_blackwell", "of B200 and its kin", "share", 0.85, _SHARE),
    Coefficient("speed_bandwidth_hopper", "of H100, H200 and their kin", "share", 0.87, _SHARE),
    Coefficient("speed_bandwidth_ampere", "of A100 and its kin", "share", 0.83, _SHARE),
    Coefficient("speed_bandwidth_volta", "of V100, T4 and older ones", "share", 0.75, _SHARE),
    Coefficient("speed_bandwidth_gddr", "of GPUs with GDDR memory", "share", 0.88, _SHARE),
    Coefficient("speed_bandwidth_other", "of devices without a compute capability", "share", 0.65, _SHARE),
    Coefficient("speed_bandwidth_cpu", "of the CPU backend, of a measured bandwidth", "share", 0.85, _SHARE),
    Coefficient("speed_experts_16", "of experts in 16 bits", "share", 0.65, _SHARE),
    Coefficient("speed_experts_fp8", "of experts in FP8", "share", 0.55, _SHARE),
    Coefficient("speed_experts_fp8_old", "of experts in FP8, before vLLM 0.13", "share", 0.4, _SHARE),
    Coefficient("speed_experts_fp8_blackwell", "of experts in FP8 on B200 and its kin", "share", 0.65, _SHARE),
    Coefficient("speed_experts_fp4", "of experts in FP4 without hardware for it", "share", 0.75, _SHARE),
    Coefficient("speed_experts_fp4_blackwell", "of experts in FP4 on B200 and its kin", "share", 0.75, _SHARE),
    Coefficient("speed_experts_int4", "of experts in INT4", "share", 0.55, _SHARE),
    Coefficient(
        "speed_experts_evenness", "share of a step's tokens that choose experts of their own", "share", 0.7, 1.0
    ),
    Coefficient("speed_kv_heads", "of a KV cache with heads", "share", 0.85, _SHARE),
    Coefficient("speed_kv_latent", "of a latent KV cache (MLA)", "share", 0.6, _SHARE),
    Coefficient("speed_compute_16", "of operations in 16 bits", "share", 0.7, 0.85),
    Coefficient("speed_compute_fp8", "of operations in FP8", "share", 0.6, 0.85),
    Coefficient("speed_compute_fp4", "of operations in FP4", "share", 0.45, 0.85),
    Coefficient("speed_compute_volta", "of operations on V100, T4 and older ones", "share", 0.4, 0.85),
    Coefficient("speed_compute_cpu", "of operations on the CPU backend", "share", 0.4, 0.97),
    Coefficient("speed_compute_experts", "what of that experts reach", "share", 0.4, 1.0),
    Coefficient("speed_layer", "a layer, however little it computes", "s", 60e-6),
    Coefficient("speed_layer_experts", "the same of its experts", "s", 18e-6),
    Coefficient("speed_layer_state", "the same of a recurrent state (Mamba, linear attention)", "s", 40e-6),
    Coefficient("speed_layer_cpu", "a layer on the CPU backend, however little it computes", "s", 150e-6),
    Coefficient("speed_all_reduce_nvlink", "an all-reduce over NVLink", "s", 5e-6),
    Coefficient("speed_all_reduce_pcie", "an all-reduce over PCIe, of two GPUs", "s", 8e-6),
    Coefficient("speed_all_reduce_none", "an all-reduce through the host's memory, of two GPUs", "s", 30e-6),
    Coefficient("speed_link_nvlink", "between GPUs over NVLink", "bytes", 220e9),
    Coefficient("speed_link_pcie", "between two GPUs over PCIe", "bytes", 20e9),
    Coefficient("speed_link_none", "between two GPUs through the host's memory", "bytes", 4e9),
    Coefficient("speed_host_v0", "the host in a step, before vLLM 0.8", "s", 1.5e-3),
    Coefficient("speed_host_8", "the host in a step, vLLM 0.8 to 0.10", "s", 1.0e-3),
    Coefficient("speed_host_11", "the host in a step, vLLM 0.11 to 0.13", "s", 0.5e-3),
    Coefficient("speed_host_14", "the host in a step, from vLLM 0.14 on (asynchronous scheduling)", "s", 0.2e-3),
    Coefficient("speed_host_request_v0", "the host for each request, before vLLM 0.8", "s", 120e-6),
    Coefficient("speed_host_request_v1", "the host for each request", "s", 5e-6),
    Coefficient("speed_host_cpu", "the host in a step, where it also computes (CPU backend)", "s", 3e-3),
    Coefficient("speed_host_request_cpu", "the same for each request", "s", 100e-6),
    Coefficient("speed_first", "what a first token takes besides", "s", 5e-3),
    Coefficient("speed_first_closed", "the same where requests come together", "s", 15e-3),
    Coefficient("speed_first_steps", "steps that a first token waits for and takes", "", 2.5),
    Coefficient("speed_first_steps_alone", "the same of a request alone", "", 1.8),
    Coefficient("speed_burst", "share of the others whose prompts are computed before", "share", 0.12),
)
_NAMES = tuple(coefficient.name for coefficient in COEFFICIENTS)
_OF_CPU = np.array([name.endswith("_cpu") for name in _NAMES])
"""Those of the CPU backend are fitted to rows of their own, with the others as they are."""
_PRIOR = np.log([coefficient.prior for coefficient in COEFFICIENTS])
_MOST = np.log([coefficient.most for coefficient in COEFFICIENTS])
_TRUST_IN_PRIOR = 0.6
"""A residual of the prior, of those of the rows: 0.15 off in the logarithm counts like a third of a row."""
_WEIGHT_OF_FIRST = 0.35
_SPREADS = (
    "speed_spread_dense",
    "speed_spread_experts",
    "speed_spread_old",
    "speed_spread_unseen",
    "speed_spread_first",
)
_WITHIN = 0.9
_CHOSEN_SPREADS = (1.41, 1.41, 1.6, 1.8, 2.2)
"""About those of nine in ten rows that were left out, as printed; of new releases high is at most twice low."""
_SPREAD_OF = dict(zip(_SPREADS, _CHOSEN_SPREADS, strict=True))


class Servers:
    """The rows as vectors. `weights`: many rows of one server count less, each."""

    def __init__(self, measured: Sequence[Row]) -> None:
        self.rows = measured
        known = catalogue.load(folders.shipped()).signals
        self._formulas = {
            name: signal.formula.root
            for name, signal in known.items()
            if signal.formula is not None and name not in (*_NAMES, *_SPREADS)
        }
        self._leaves = {
            name: leaf
            for name, signal in known.items()
            if signal.formula is None and (leaf := _leaf(signal, measured)) is not None
        }
        is_open = np.array([row.is_open for row in measured])
        self._leaves["load_asked"] = np.where(is_open, 0.0, 1.0)
        self._leaves["load_own_prompt"] = np.ones(len(measured))
        self.tpot = np.log([row.tpot for row in measured])
        self.ttft = np.log([row.ttft or math.nan for row in measured])
        alike: dict[object, int] = defaultdict(int)
        for row in measured:
            alike[_server(row)] += 1
        unsteady = np.array([0.3 if row.is_open and row.version < 8 else 1.0 for row in measured])
        doubtful = np.array([0.4 if row.is_doubtful else 1.0 for row in measured])
        self.weights = unsteady * doubtful * np.array([alike[_server(row)] ** -0.25 for row in measured])

    def expected(self, coefficients: Array, *names: str, spreads: Sequence[float] = _CHOSEN_SPREADS) -> list[Array]:
        """These signals, with the logarithms of the coefficients."""
        size = len(self.rows)
        values = dict(zip((*_NAMES, *_SPREADS), (*np.exp(coefficients), *spreads), strict=True))
        given = {name: np.full(size, value) for name, value in values.items()}
        vectors = Vectors(size, self._formulas, self._leaves | given)
        return [vectors.read(name) for name in names]

    @property
    def kinds(self) -> list[str]:
        """Which of the spreads holds of each row: tpot_spread, where each spread is its own place."""
        (places,) = self.expected(_PRIOR, "tpot_spread", spreads=range(len(_SPREADS)))
        return [_SPREADS[int(place)] for place in np.nan_to_num(places)]

    def residuals(self, coefficients: Array) -> tuple[Array, Array]:
        """Logarithms of expected over measured: time per output token, and time to first token."""
        tpot, ttft = self.expected(coefficients, "tpot_expected", "ttft_expected")
        return np.log(tpot) - self.tpot, np.log(ttft) - self.ttft

    def part(self, kept: Callable[[Row], bool]) -> Servers:
        return Servers([row for row in self.rows if kept(row)])


def _server(row: Row) -> object:
    return row.gpu, row.model, row.version, tuple(sorted(row.flags.items()))


def _leaf(signal: Signal, measured: Sequence[Row]) -> Array | None:
    """What the rows tell of a signal; None: nothing."""
    match signal.way:
        case "fact":
            values: list[Any] = [row.facts.get(signal.definition) for row in measured]
        case "flag":
            values = [row.flags.get(signal.definition, signal.none) for row in measured]
        case _:
            return None
    if any(isinstance(value, str) for value in values):
        return np.array(values, dtype=object)
    if all(value is None for value in values):
        return None
    return np.array([math.nan if value is None else float(value) for value in values])


def fit(servers: Servers, start: Array = _PRIOR) -> Array:
    """The logarithms of the coefficients."""

    def residuals(coefficients: Array) -> Array:
        tpot, ttft = servers.residuals(coefficients)
        told = np.where(np.isnan(tpot), 0.0, tpot) * servers.weights  # of some models the KV cache is not known
        first = np.where(np.isnan(ttft), 0.0, ttft) * servers.weights * _WEIGHT_OF_FIRST
        return np.concatenate([told, first, (coefficients - _PRIOR) * _TRUST_IN_PRIOR])

    upper = np.minimum(_MOST, _PRIOR + 3) + 1e-6
    found = least_squares(
        residuals,
        np.minimum(start, upper - 1e-3),
        bounds=(_PRIOR - 3, upper),
        loss="soft_l1",
        f_scale=0.15,
        max_nfev=40,
    )
    coefficients: Array = found.x
    return coefficients


def fit_cpu(on_cpu: Servers, coefficients: Array) -> Array:
    """The coefficients, with those of the CPU backend fitted to its rows."""

    def whole(own: Array) -> Array:
        every = coefficients.copy()
        every[_OF_CPU] = own
        return every

    def residuals(own: Array) -> Array:
        tpot, _ = on_cpu.residuals(whole(own))
        return np.concatenate([tpot, (own - _PRIOR[_OF_CPU]) * _TRUST_IN_PRIOR * 0.15])

    upper = np.minimum(_MOST, _PRIOR + 3)[_OF_CPU] + 1e-6
    bounds, start = (_PRIOR[_OF_CPU] - 3, upper), np.minimum(_PRIOR[_OF_CPU], upper - 1e-3)
    return whole(least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.15).x)


# ---- how far it is off -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errors:
    """Of some rows: logarithms of expected over measured. `spread`: the factor of each row's range."""

    tpot: Sequence[float]
    ttft: Sequence[float]
    spread: Sequence[float]

    def line(self) -> str:
        within = (
            100
            * sum(abs(error) <= math.log(factor) for error, factor in zip(self.tpot, self.spread, strict=True))
            / len(self.tpot)
        )
        told = f"{len(self.tpot):5}  TPOT {_median(self.tpot):5.1f} %  × {_bias(self.tpot):.2f}  within {within:3.0f} %"
        told += f"  of × {statistics.median(self.spread) ** 2:.2f}"
        return told + (f"   TTFT {_median(self.ttft):5.1f} %" if self.ttft else "")


def _median(errors: Sequence[float]) -> float:
    return 100 * statistics.median(abs(math.exp(error) - 1) for error in errors)


def _bias(errors: Sequence[float]) -> float:
    return math.exp(statistics.median(errors))


def errors(servers: Servers, coefficients: Array) -> Errors:
    tpot, ttft = servers.residuals(coefficients)
    known = [
        (float(error), _SPREAD_OF[kind])
        for kind, error in zip(servers.kinds, tpot, strict=True)
        if not math.isnan(error)
    ]
    first = [float(error) for error in ttft if not math.isnan(error)]
    return Errors([error for error, _ in known], first, [spread for _, spread in known])


def left_out(
    servers: Servers, key: Callable[[Row], object], start: Array
) -> tuple[dict[str, Errors], list[tuple[str, float, float]]]:
    """The errors on the rows of each key, with coefficients that were fitted without them; and each row's, by the
    spread that holds of it."""
    found: dict[str, Errors] = {}
    each: list[tuple[str, float, float]] = []
    for value in sorted({key(row) for row in servers.rows}, key=str):
        coefficients = fit(servers.part(lambda row, value=value: key(row) != value), start)  # type: ignore[misc]
        out = servers.part(lambda row, value=value: key(row) == value)  # type: ignore[misc]
        found[str(value)] = errors(out, coefficients)
        tpot, ttft = out.residuals(coefficients)
        each += zip(out.kinds, map(float, tpot), map(float, ttft), strict=True)
    return found, each


def spreads_of(each: Sequence[tuple[str, float, float]]) -> dict[str, float]:
    """The factors within which nine in ten of the rows are that were left out."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for kind, tpot, ttft in each:
        by_kind[kind].append(abs(tpot))
        if not math.isnan(ttft):
            by_kind["speed_spread_first"].append(abs(ttft))
    return {name: math.exp(float(np.quantile(by_kind[name], _WITHIN))) for name in _SPREADS if by_kind[name]}


def written(coefficients: Array, count: int) -> str:
    """The file of the coefficients."""
    told = [
        f'  {coefficient.name}: {{says: "{coefficient.says}", unit: "{coefficient.unit}", formula: {_plain(value)}}}'
        for coefficient, value in zip(COEFFICIENTS, np.exp(coefficients), strict=True)
    ]
    told += [
        f'  {name}: {{says: "how far expected speed may be off", unit: factor, formula: {factor:g}}}'
        for name, factor in zip(_SPREADS, _CHOSEN_SPREADS, strict=True)
    ]
    return _HEADER.format(count=count) + "\n".join(told) + "\n"


_HEADER = """\
# What GPUs, links and hosts reach of what their data sheets say, and what they add: for expected.yaml. Written by
#
#   python -m tests.speed.fit --write
#
# from the {count} measured servers of fixtures/speed/, whose sources it names; those of the CPU backend from one
# machine, the lab's. A share is of the data sheet's memory bandwidth, or of its operations a second.

signals:
"""


def _plain(value: float) -> str:
    """Three digits; no exponent, which is no part of a formula."""
    return np.format_float_positional(value, precision=3, fractional=False, trim="-")


# ---- the command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", type=Path, metavar="TSV")
    options = parser.parse_args(arguments)
    servers = Servers(rows.load())
    coefficients = fit(servers)
    on_cpu = Servers(rows.load(rows.ON_CPU))
    coefficients = fit_cpu(on_cpu, coefficients)
    for coefficient, value in zip(COEFFICIENTS, np.exp(coefficients), strict=True):
        print(f"{coefficient.name:32} {value:10.4g}  (without the rows {coefficient.prior:g})")
    print("fitted           ", errors(servers, coefficients).line())
    print("CPU backend      ", errors(on_cpu, coefficients).line())
    for model in sorted({row.model for row in on_cpu.rows}):
        others = fit_cpu(on_cpu.part(lambda row, model=model: row.model != model), coefficients)  # type: ignore[misc]
        of_model = on_cpu.part(lambda row, model=model: row.model == model)  # type: ignore[misc]
        print(f"  without {model:10}", errors(of_model, others).line())
    if not options.quick:
        every: list[tuple[str, float, float]] = []
        for name, key in (
            ("GPU", lambda row: row.gpu),
            ("family", lambda row: row.family),
            ("release", lambda row: row.version),
        ):
            found, each = left_out(servers, key, coefficients)
            every += [one for one in each if not math.isnan(one[1])]
            print(f"left out by {name}")
            for value, of_value in found.items():
                print(f"  {value:15}", of_value.line())
            known = [(kind, error) for kind, error, _ in each if not math.isnan(error)]
            together = Errors(
                [error for _, error in known],
                [first for _, _, first in each if not math.isnan(first)],
                [_SPREAD_OF[kind] for kind, _ in known],
            )
            print("  all            ", together.line())
        for name, factor in spreads_of(every).items():
            print(f"nine in ten of those left out are within × {factor:.2f}: {name}")
    if options.write:
        (folders.shipped() / OUTPUT).write_text(written(coefficients, len(servers.rows)), "utf-8")
    if options.check:
        other = Servers(rows.load(options.check))
        print("checked          ", errors(other, coefficients).line())
        tpot, ttft = other.residuals(coefficients)
        for row, one, first in sorted(zip(other.rows, tpot, ttft, strict=True), key=lambda each: each[1]):
            told = f"{row.gpu} {row.model} {row.flags} {row.concurrency:.0f} {row.source[:60]}"
            print(f"  × {math.exp(one):5.2f}  TTFT × {math.exp(first):5.2f}  {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
