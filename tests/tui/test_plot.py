from __future__ import annotations

import math

import pytest

from vllm_doctor.tui.plot import GAP, bars, nice, scale


def plain(*values: float | None, top: float = 1.0, height: int = 1, mark: float | None = None) -> list[str]:
    return [line.plain for line in bars(values, top, height, mark)]


def test_a_scale_is_fixed_and_not_of_the_values() -> None:
    assert plain(0.96, 0.97) == ["██"]
    assert plain(0.0, 0.5, 1.0) == ["▁▅█"]


def test_what_is_not_known_is_not_zero() -> None:
    assert plain(None, 0.0) == [f"{GAP}▁"]
    assert plain(None, 0.0, height=2) == ["  ", f"{GAP}▁"]


def test_what_lies_above_the_scale_is_cut_at_its_top() -> None:
    assert plain(5.0, math.inf) == ["██"]


def test_several_lines_are_filled_from_below() -> None:
    assert plain(1.0, 0.5, 0.75, 0.01, height=2) == ["█ ▄ ", "███▁"]


def test_a_threshold_is_a_line_where_the_columns_do_not_reach_it() -> None:
    upper, lower = plain(0.2, 0.9, None, height=2, mark=0.8)
    assert upper == "┄▆ "
    assert lower == f"▃█{GAP}"


def test_what_is_above_the_threshold_has_a_colour_of_its_own() -> None:
    (line,) = bars([0.2, 0.9], 1.0, 1, 0.8, "red")
    assert [(line.plain[s.start : s.end], s.style) for s in line.spans] == [("▇", "red")]


def test_what_comes_near_the_threshold_has_another_and_what_is_far_below_a_third() -> None:
    (line,) = bars([0.2, 0.7, 0.9, None], 1.0, 1, 0.8, "red", "green")
    assert [span.style for span in line.spans] == ["green", "yellow", "red", "dim"]
    (line,) = bars([0.2, 0.9], 1.0, 1, None, "red", "cyan")
    assert [span.style for span in line.spans] == ["cyan"]


@pytest.mark.parametrize(
    ("top", "wanted"), [(0.0, 1), (0.3, 0.5), (1, 1), (1.1, 2), (18, 20), (2522, 5000), (math.nan, 1)]
)
def test_the_top_of_a_scale_is_a_round_number(top: float, wanted: float) -> None:
    assert nice(top) == pytest.approx(wanted)


def test_a_scale_grows_in_steps_and_knows_gaps() -> None:
    assert scale([math.nan, 12.0, 18.0]) == 20
    assert scale([math.nan]) == 1
    assert scale([]) == 1
