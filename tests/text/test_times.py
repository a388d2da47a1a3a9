"""Times and trends over time, in words and signs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.render.reports import BEGAN, COLUMNS, HOUR, crash_loop, finding, postmortem, run, span, trend
from vllm_doctor.model.report import Timeline
from vllm_doctor.text import times


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (BEGAN, BEGAN + 61, "13 Nov 08:12:00 – 08:13:01"),
        (BEGAN, BEGAN + 86400, "13 Nov 08:12:00 – 14 Nov 08:12:00"),
        (BEGAN - 10 * 86400, BEGAN - 9 * 86400, "3 Nov 08:12:00 – 4 Nov 08:12:00"),
        (BEGAN, BEGAN, "13 Nov 08:12:00"),
    ],
)
def test_from_when_to_when(first: float, last: float, said: str) -> None:
    assert times.between(first, last) == said


def test_from_when_to_when_to_the_minute() -> None:
    assert times.between(BEGAN, BEGAN + 3661, seconds=False) == "13 Nov 08:12 – 09:13"
    assert times.between(BEGAN, BEGAN + 5, seconds=False) == "13 Nov 08:12"


def test_a_log_without_times_is_told_from_its_beginning() -> None:
    assert times.clock(3725.0) == "+1:02:05"
    assert times.between(10.0, 60.0) == "+0:00:10 – +0:01:00"
    assert times.span(postmortem(runs=[run(10.0, 60.0)])) == "about 50 s, by its statistics"


def test_a_time_has_an_offset_only_where_the_log_tells_it() -> None:
    assert times.iso(BEGAN, zoned=True) == "2025-11-13T08:12:00Z"
    assert times.iso(BEGAN, zoned=False) == "2025-11-13T08:12:00"


def test_the_time_of_a_log() -> None:
    assert times.span(postmortem()) == "13 Nov 08:12 – 18:12 (10 h)"
    assert times.span(postmortem(zoned=True)) == "13 Nov 08:12 – 18:12 UTC (10 h)"
    assert times.span(postmortem(runs=[run(BEGAN, BEGAN + 90)])) == "13 Nov 08:12:00 – 08:13:30 (90 s)"
    assert times.span(postmortem(runs=[run(None, None)])) == "no times in it"


def test_the_time_of_logs_that_were_put_together_in_another_order() -> None:
    report = postmortem(timeline=trend(BEGAN - HOUR, BEGAN + HOUR))
    assert times.whole(report) == (BEGAN - HOUR, BEGAN + 10 * HOUR)


# ---- bars


def test_bars_tell_nothing_from_little_and_little_from_not_measured() -> None:
    assert times.bars([0.0, 0.001, 50.0, 100.0, None], 100.0) == "▁▂▅█ "


def test_bars_of_nothing_and_of_more_than_all() -> None:
    assert times.bars([0.0, 0.0], 0.0) == "▁▁"
    assert times.bars([1.2], 1.0) == "█"
    assert times.bars([], 1.0) == ""


# ---- when a finding held


def test_a_finding_that_held_all_the_time() -> None:
    found = finding("cap")
    report = postmortem([found], spans=[span("cap", BEGAN, BEGAN + 10 * HOUR)])
    assert times.when([found], report) == times.held([found], report) == "all the time (10 h)"


def test_a_finding_that_held_for_a_while() -> None:
    found = finding("cap")
    report = postmortem([found], spans=[span("cap", BEGAN + HOUR, BEGAN + 3 * HOUR), span("else", BEGAN, BEGAN + HOUR)])
    assert times.held([found], report) == "2 h of 10 h"
    assert times.when([found], report) == "2 h of 10 h: 13 Nov 09:12:00 – 11:12:00"


def test_the_longest_spans_are_told_in_their_order() -> None:
    found = finding("cap")
    lengths = [60, 600, 1200, 30, 900]
    spans = [span("cap", BEGAN + HOUR * place, BEGAN + HOUR * place + s) for place, s in enumerate(lengths)]
    told = times.when([found], postmortem([found], spans=spans))
    assert told is not None
    assert told.startswith("in 5 spans, 46 min of 10 h: 13 Nov 09:12:00 – 09:22:00; 13 Nov 10:12:00 – ")
    assert told.endswith("; 13 Nov 12:12:00 – 12:27:00 and 2 more")


def test_spans_of_several_engines_are_not_counted_twice() -> None:
    found = [replace(finding("cap"), subject={"engine": engine}) for engine in "01"]
    spans = [
        span("cap", BEGAN, BEGAN + HOUR, engine="0"),
        span("cap", BEGAN + HOUR / 2, BEGAN + 2 * HOUR, engine="1"),
        span("cap", BEGAN + 5 * HOUR, BEGAN + 9 * HOUR, engine="2"),
    ]
    report = postmortem(found, spans=spans)
    assert times.held(found, report) == "2 h of 10 h"
    assert times.held(found[:1], report) == "60 min of 10 h"


def test_the_silence_between_two_lives_is_not_of_the_time() -> None:
    found = finding("cap")
    runs = [run(BEGAN, BEGAN + HOUR), run(BEGAN + 5 * HOUR, BEGAN + 6 * HOUR)]
    report = postmortem([found], runs, [span("cap", BEGAN, BEGAN + HOUR)])
    assert times.held([found], report) == "60 min of 2 h"


def test_what_held_outside_of_a_lifes_first_and_last_line_is_never_more_than_all() -> None:
    found = finding("cap")
    report = postmortem([found], [run(BEGAN, BEGAN + HOUR)], [span("cap", BEGAN - 5 * HOUR, BEGAN - 4 * HOUR)])
    assert times.held([found], report) == "60 min of 6 h"


def test_a_report_of_one_moment_has_no_when() -> None:
    found = finding("cap")
    assert times.when([found], postmortem([found])) is None
    lost = postmortem([found], [run(None, None)], [span("cap", BEGAN, BEGAN + 5)])
    assert times.when([found], lost) is None


# ---- deaths, and runs that are alike


def test_a_death_is_a_moment() -> None:
    died = finding(times.DEATH)
    held = [span(times.DEATH, BEGAN, BEGAN + HOUR)]
    report = postmortem([died], [run(BEGAN, BEGAN + HOUR, BEGAN + 420)], held)
    assert times.when([died], report) == "13 Nov 08:19:00, 7 min after its start"
    without_start = postmortem([died], [run(BEGAN, BEGAN + HOUR, BEGAN + 420, began=False)], held)
    assert times.when([died], without_start) == "13 Nov 08:19:00"


def test_deaths_without_times() -> None:
    died = finding(times.DEATH)
    assert times.when([died], postmortem([died], [run(None, None, end="died")])) is None


def test_many_deaths() -> None:
    report = crash_loop(500)
    assert times.when(report.findings, report) == "500 times, 13 Nov 08:12:55 – 14 Nov 00:50:55"


def test_lives_that_end_alike_are_one() -> None:
    ends = ["died", "died", "stopped", "died"]
    runs = [run(BEGAN + i, BEGAN + i + 1, BEGAN + i if end == "died" else None, end=end) for i, end in enumerate(ends)]
    groups = times.alike(runs)
    assert [(number, len(alike)) for number, alike in groups] == [(1, 2), (3, 1), (4, 1)]
    assert times.lasted(groups[0][1]) == (BEGAN, BEGAN + 2)
    assert times.lasted([run(None, None)]) is None


def test_lives_of_another_cause_or_version_are_not_alike() -> None:
    runs = [
        run(BEGAN, BEGAN, BEGAN),
        run(BEGAN, BEGAN, BEGAN, cause="another"),
        run(BEGAN, BEGAN, BEGAN, cause="another", vllm="0.23.0"),
    ]
    assert len(times.alike(runs)) == 3


# ---- the drawing


def lines_of(first: float = BEGAN, last: float = BEGAN + 10 * HOUR) -> Timeline:
    return trend(first, last)


@pytest.mark.parametrize("seconds", [1, 40, 599, 600, 3600, 10 * HOUR, 27 * HOUR, 4 * 86400, 400 * 86400])
def test_the_axis_has_both_ends_and_no_time_runs_into_another(seconds: float) -> None:
    axis = times.axis(BEGAN, BEGAN + seconds, COLUMNS)
    assert len(axis) == COLUMNS
    assert axis.startswith("13 Nov 08:12")
    assert axis.split()[-1] in times.clock(BEGAN + seconds)
    time = r"(\d{1,2} [A-Z][a-z]{2} )?\d\d:\d\d(:\d\d)?"
    assert re.fullmatch(rf"{time}( +{time})+", axis)


def test_round_times_stand_where_they_are() -> None:
    axis = times.axis(BEGAN, BEGAN + 14 * HOUR, COLUMNS)
    assert axis.split("  ")[0] == "13 Nov 08:12"
    assert axis.endswith(" 22:12")
    place = axis.index("15:00")
    assert place == int((15 - 8.2) / 14 * COLUMNS)


def test_another_day_is_named_on_the_axis() -> None:
    axis = times.axis(BEGAN, BEGAN + 36 * HOUR, COLUMNS)
    assert "14 Nov 00:00" in axis
    assert axis.endswith("14 Nov 20:12")


def test_a_short_log_has_seconds_on_its_axis() -> None:
    axis = times.axis(BEGAN, BEGAN + 45, COLUMNS)
    assert axis.startswith("13 Nov 08:12:00")
    assert axis.endswith(" 08:12:45")


def test_marks_stand_under_their_times_with_their_name_within() -> None:
    line = lines_of()
    (marked,) = times.marks([span("cap", BEGAN + 2.5 * HOUR, BEGAN + 7.5 * HOUR)], line, COLUMNS, "cap")
    assert (marked.index("└"), marked.index("┘")) == (14, 41)
    assert "─ cap ─" in marked


def test_a_name_stands_beside_short_marks() -> None:
    line = lines_of()
    early, late = span("a-long-name", BEGAN, BEGAN + HOUR), span("a-long-name", BEGAN + 9 * HOUR, BEGAN + 10 * HOUR)
    assert times.marks([early], line, COLUMNS, "a-long-name") == ["└────┘  a-long-name"]
    (before,) = times.marks([late], line, COLUMNS, "a-long-name")
    assert before.endswith("a-long-name  └────┘")
    assert len(before) == COLUMNS
    both = times.marks([early, late], line, COLUMNS, "a-name-of-twenty-signs")
    assert both == ["└────┘".ljust(50) + "└────┘", "a-name-of-twenty-signs".rjust(COLUMNS)]


def test_a_moment_is_a_mark_too_and_none_lies_outside() -> None:
    line = lines_of()
    (marked,) = times.marks([span("x", BEGAN, BEGAN)], line, COLUMNS, "x")
    assert marked == "╵  x"
    (beyond,) = times.marks([span("x", BEGAN - HOUR, BEGAN + 99 * HOUR)], line, COLUMNS, "x")
    assert len(beyond) == COLUMNS


def test_spans_less_than_a_column_apart_are_drawn_as_one() -> None:
    held = [span("x", BEGAN, BEGAN + HOUR), span("x", BEGAN + HOUR + 60, BEGAN + 2 * HOUR)]
    (marked,) = times.marks(held, lines_of(), COLUMNS, "x")
    assert (marked.count("└"), marked.count("┘")) == (1, 1)


def test_the_drawing() -> None:
    found, twice = finding("cap"), finding("cap", severity="critical")
    held = [span("cap", BEGAN + 2 * HOUR, BEGAN + 8 * HOUR)]
    runs = [run(BEGAN, BEGAN + 5 * HOUR, BEGAN + 5 * HOUR), run(BEGAN + 6 * HOUR, BEGAN + 10 * HOUR)]
    drawn = times.drawing(postmortem([found, twice, finding(times.DEATH)], runs, held, timeline=lines_of()))
    assert [line.split()[0] for line in drawn[1:4]] == ["running", "waiting", "KV"]
    assert [line.rpartition("max ")[2] for line in drawn[1:4]] == ["55", "0.2", "33 %"]
    assert len({line.index("max") for line in drawn[1:4]}) == 1
    assert drawn[1][9 + 20 : 9 + 24] == "    "
    assert sum("cap" in line for line in drawn) == 1
    assert drawn[-1].index("✖") == 9 + 28
    assert drawn[-1].endswith("✖ crashed")
    assert max(map(len, drawn)) <= 78


def test_no_drawing_without_a_trend() -> None:
    assert times.drawing(postmortem()) == []
    assert times.drawing(postmortem(timeline=Timeline(BEGAN, BEGAN, {}))) == []
    assert times.drawing(postmortem(timeline=Timeline(BEGAN, BEGAN + 5, {"running": ()}))) == []


def test_the_drawing_of_one_moment() -> None:
    line = Timeline(BEGAN, BEGAN, {"running": (None,) * COLUMNS})
    drawn = times.drawing(postmortem([finding("cap")], spans=[span("cap", BEGAN, BEGAN)], timeline=line))
    assert drawn[1].endswith("max 0")
    assert drawn[2].strip() == "╵  cap"


@pytest.mark.parametrize("value", [1.5e308, 1e300])
def test_a_bar_of_a_number_beyond_all_measure(value: float) -> None:
    assert times.bars([value, 0.5], 1.0) == times.bars([1.0, 0.5], 1.0)
