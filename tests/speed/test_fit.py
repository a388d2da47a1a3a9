"""What stands in rules/signals/speed-coefficients.yaml is what the fit gives, and what it promises holds."""

from __future__ import annotations

import math
import statistics
from functools import cache

import numpy as np
import pytest

from tests.speed import fit, rows
from tests.speed.vectors import Array
from vllm_doctor.model.facts import COMMAND
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.window import Window
from vllm_doctor.rules import catalogue, folders
from vllm_doctor.rules.catalogue import Catalogue


@cache
def _servers() -> fit.Servers:
    return fit.Servers(rows.load())


@cache
def _catalogue() -> Catalogue:
    return catalogue.load(folders.shipped())


@cache
def _written() -> Array:
    """The logarithms of the coefficients that the rules have."""
    signals = _catalogue().signals
    return np.log([float(signals[coefficient.name].definition) for coefficient in fit.COEFFICIENTS])


def test_the_shipped_coefficients_are_fitted() -> None:
    """Half of them are not told well by the rows: what counts is that another fit expects the same times."""
    servers = _servers()
    shipped, fitted = (servers.residuals(of)[0] for of in (_written(), fit.fit(servers)))
    assert np.nanmax(np.abs(shipped - fitted)) < 0.02


def test_half_of_the_servers_are_expected_within_a_tenth_and_nine_in_ten_within_the_range() -> None:
    errors = fit.errors(_servers(), _written())
    off = [abs(math.exp(error) - 1) for error in errors.tpot]
    within = [abs(error) <= math.log(spread) for error, spread in zip(errors.tpot, errors.spread, strict=True)]
    assert statistics.median(off) <= 0.105
    assert statistics.mean(within) >= 0.9
    assert statistics.median(errors.spread) ** 2 <= 2


def test_half_of_first_tokens_are_expected_within_a_quarter() -> None:
    errors = fit.errors(fit.Servers(rows.load(rows.FILES[0])), _written())
    assert statistics.median(abs(math.exp(error) - 1) for error in errors.ttft) <= 0.25


def test_no_server_with_certain_conditions_is_faster_than_physics() -> None:
    servers = fit.Servers(rows.load(rows.FILES[0]))
    (bound,) = servers.expected(_written(), "tpot_bound")
    assert [row.source for row, least in zip(servers.rows, bound, strict=True) if row.tpot < least] == []


@pytest.mark.parametrize("place", range(0, 900, 45))
def test_vectors_give_what_the_doctor_gives(place: int) -> None:
    servers = _servers()
    place = next(n for n in range(place, len(servers.rows)) if not servers.rows[n].is_open)
    row = servers.rows[place]
    facts: dict[str, Reading] = {name: Known(value) for name, value in {**row.facts, **row.flags}.items()}
    snapshot = _catalogue().snapshot(Window(), {**facts, COMMAND: Known(True)})
    for name in ("tpot_bound", "tpot_expected", "tpot_expected_high", "ttft_expected"):
        (vector,) = servers.expected(_written(), name)
        _, reading = snapshot.read(name, ())
        assert isinstance(reading, Known), (name, reading)
        assert reading.value == pytest.approx(vector[place], rel=1e-6), name
