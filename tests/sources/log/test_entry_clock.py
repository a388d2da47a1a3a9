from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from vllm_doctor.sources.log.entry_clock import (
    ISO,
    SYSLOG,
    TIME,
    Beat,
    Clock,
    Stamp,
    iso_stamp,
    posix_stamp,
    short_stamp,
    stamp_of,
)

REFERENCE = datetime(2025, 6, 15, 12, tzinfo=UTC)
HOUR = 3600.0
DAY = 24 * HOUR


def posix(written: str) -> float:
    return datetime.fromisoformat(f"{written}+00:00").timestamp()


def short(written: str) -> Stamp:
    stamp = short_stamp(written)
    assert stamp is not None
    return stamp


def settled(stamps: Sequence[Stamp | str], reference: datetime = REFERENCE) -> list[float]:
    """The times of a whole log, as they are known at its end."""
    clock = Clock(reference)
    seconds = [clock.seconds(short(stamp) if isinstance(stamp, str) else stamp) for stamp in stamps]
    return [second + clock.shift() for second in seconds]


def steps(stamps: Sequence[Stamp | str], reference: datetime = REFERENCE) -> list[float]:
    """The seconds between them, as they are known at once."""
    clock = Clock(reference)
    seconds = [clock.seconds(short(stamp) if isinstance(stamp, str) else stamp) for stamp in stamps]
    return [later - earlier for earlier, later in pairwise(seconds)]


# --- as written -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "stamp"),
    [
        ("2025-11-20T10:15:00.123456789Z", Stamp(11, 20, 10, 15, 0.123456789, 2025, 0)),
        ("2025-11-20 10:15:00,123", Stamp(11, 20, 10, 15, 0.123, 2025)),
        ("2025/11/20 10:15:00", Stamp(11, 20, 10, 15, 0.0, 2025)),
        ("2025-11-20T10:15:00+0530", Stamp(11, 20, 10, 15, 0.0, 2025, 19800)),
        ("2025-11-20T10:15:00-08:00", Stamp(11, 20, 10, 15, 0.0, 2025, -28800)),
        ("2025-11-20 10:15:00 UTC", Stamp(11, 20, 10, 15, 0.0, 2025, 0)),
        ("2025-12-31T23:59:60Z", Stamp(12, 31, 23, 59, 60.0, 2025, 0)),
        ("2025-00-20T10:15:00Z", None),
        ("2025-04-31T10:15:00Z", None),
        ("2025-11-20T24:15:00Z", None),
        ("2025-11-20T10:60:00Z", None),
        ("2025-11-20T10:15:61Z", None),
        ("2025-11-20", None),
        ("now", None),
    ],
)
def test_iso(written: str, stamp: Stamp | None) -> None:
    assert iso_stamp(written) == stamp


def test_other_forms() -> None:
    def matched(pattern: str, written: str) -> Stamp | None:
        match = re.match(pattern, written)
        assert match is not None
        return stamp_of(match)

    assert matched(ISO, "2025-11-20T10:15:00Zulu") == Stamp(11, 20, 10, 15, 0.0, 2025)
    assert matched(SYSLOG, "Nov  2 10:15:00.5") == Stamp(11, 2, 10, 15, 0.5)
    assert matched(SYSLOG, "Nov 31 10:15:00") is None
    assert matched(TIME, "10:15:00") == Stamp(None, None, 10, 15, 0.0)
    assert short_stamp("02-29 10:15:00") == Stamp(2, 29, 10, 15, 0.0)
    assert short_stamp("02-30 10:15:00") is None
    assert posix_stamp(1748779200.25) == Stamp(6, 1, 12, 0, 0.25, 2025, 0)
    assert [posix_stamp(wrong) for wrong in (-1.0, float("nan"), float("inf"), 1e12)] == [None] * 4


# --- in seconds -------------------------------------------------------------------------------------------------------


def test_a_stamp_that_says_all() -> None:
    assert settled([Stamp(11, 20, 10, 15, 0.5, 2025, 7200)]) == [posix("2025-11-20T08:15:00.5")]
    assert settled([Stamp(11, 20, 10, 15, 0.5, 2025)]) == [posix("2025-11-20T10:15:00.5")]


def test_the_year_is_the_last_that_the_reference_allows() -> None:
    assert settled(["06-15 11:00:00"]) == [posix("2025-06-15T11:00:00")]
    assert settled(["06-16 11:00:00"]) == [posix("2025-06-16T11:00:00")]  # a zone far in the east
    assert settled(["06-16 13:00:00"]) == [posix("2024-06-16T13:00:00")]
    assert settled(["11-20 10:00:00"]) == [posix("2024-11-20T10:00:00")]
    assert settled(["12-31 10:00:00"], datetime(2024, 12, 31, 9, tzinfo=UTC)) == [posix("2024-12-31T10:00:00")]
    assert settled(["01-01 03:00:00"], datetime(2024, 12, 31, 9, tzinfo=UTC)) == [posix("2025-01-01T03:00:00")]


def test_the_references_zone() -> None:
    east = datetime(2025, 6, 15, 12, tzinfo=timezone(timedelta(hours=10)))  # 02:00 UTC
    assert settled(["06-16 01:59:00"], east) == [posix("2025-06-16T01:59:00")]
    assert settled(["06-16 02:01:00"], east) == [posix("2024-06-16T02:01:00")]
    assert settled(["06-16 11:59:00"], datetime(2025, 6, 15, 12)) == [posix("2025-06-16T11:59:00")]


def test_midnight_and_new_year() -> None:
    log = ["12-30 23:59:59", "12-31 00:00:00", "12-31 23:59:59", "01-01 00:00:01", "12-31 23:59:59", "01-01 00:00:02"]
    assert steps(log) == [1, DAY - 1, 2, -2, 3]
    assert settled(log)[0] == posix("2024-12-30T23:59:59")
    assert settled(log)[-1] == posix("2025-01-01T00:00:02")


def test_a_clock_that_steps_back_is_no_new_year() -> None:
    assert steps(["05-01 10:00:05", "05-01 10:00:03", "04-30 10:00:03", "05-01 10:00:00"]) == [-2, -DAY, DAY - 3]


def test_a_server_may_rest_for_months() -> None:
    log = ["06-20 10:00:00", "05-02 10:00:00"]  # started again before the year is over
    assert settled(log) == [posix("2024-06-20T10:00:00"), posix("2025-05-02T10:00:00")]
    assert settled(["01-02 10:00:00", "06-01 10:00:00"]) == [posix("2025-01-02T10:00:00"), posix("2025-06-01T10:00:00")]


def test_a_log_longer_than_a_year_ends_before_the_reference() -> None:
    log = ["03-01 10:00:00", "11-01 10:00:00", "03-02 10:00:00", "12-01 10:00:00", "06-14 10:00:00"]
    clock = Clock(REFERENCE)
    guessed = [clock.seconds(short(stamp)) for stamp in log]
    assert guessed[-1] == posix("2027-06-14T10:00:00")
    assert clock.shift() == posix("2025-06-14T10:00:00") - guessed[-1]
    assert settled(log)[0] == posix("2023-03-02T10:00:00")  # a day off: the guess spans no 29 February
    assert Clock(REFERENCE).shift() == 0


@pytest.mark.parametrize("named_first", [True, False])
def test_a_line_that_names_the_year_tells_it_for_all(named_first: bool) -> None:
    named = Stamp(2, 14, 10, 0, 5.0, 2023)
    log: list[Stamp | str] = [named, "02-14 10:00:00", "02-14 10:00:09"]
    if not named_first:
        log[:2] = log[1::-1]
    assert sorted(settled(log)) == [posix(f"2023-02-14T10:00:0{second}") for second in (0, 5, 9)]
    assert max(map(abs, steps(log))) < 10  # at once, not only in the end


def test_what_names_its_year_is_not_moved() -> None:
    far = Stamp(1, 1, 0, 0, 0.0, 2090, 0)
    assert settled([far, "01-02 00:00:00"]) == [posix("2090-01-01T00:00:00"), posix("2090-01-02T00:00:00")]


def test_29_february() -> None:
    assert settled(["02-29 10:00:00"]) == [posix("2024-02-29T10:00:00")]
    log = ["02-28 23:59:59", "02-29 00:00:01", "03-01 00:00:01", "06-01 00:00:00"]
    assert steps(log)[:2] == [2, DAY]  # though the year was guessed as 2025, which has none
    assert settled(log)[1:] == [
        posix("2024-02-29T00:00:01"),
        posix("2024-03-01T00:00:01"),
        posix("2024-06-01T00:00:00"),
    ]
    assert settled(["12-01 00:00:00", "06-01 00:00:00", "12-01 00:00:00", "02-29 00:00:00"])[-1] == posix(
        "2024-02-29T00:00:00"
    )


def test_29_february_of_a_year_that_has_none() -> None:
    named = Stamp(2, 29, 0, 0, 0.0, 2025)
    assert settled([named, "02-29 00:00:09"]) == [posix("2025-03-01T00:00:00"), posix("2025-03-01T00:00:09")]


def test_times_without_a_date() -> None:
    def at(hour: int, minute: int) -> Stamp:
        return Stamp(None, None, hour, minute, 0.0)

    assert settled(["05-01 22:00:00", at(23, 59), at(0, 1), at(23, 58)]) == [
        posix(f"2025-05-{time}:00") for time in ("01T22:00", "01T23:59", "02T00:01", "01T23:58")
    ]
    assert settled([at(11, 0), at(13, 0)]) == [posix("2025-06-16T11:00:00"), posix("2025-06-16T13:00:00")]
    assert settled([at(11, 0), "05-01 10:00:00"])[1] == posix("2025-05-01T10:00:00")


ODD = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), datetime.min, datetime(1970, 1, 1)]


@pytest.mark.parametrize("reference", ODD)
def test_odd_references_and_dates(reference: datetime) -> None:
    log: list[Stamp | str] = ["12-31 23:59:59", "02-29 00:00:00", Stamp(1, 1, 0, 0, 0.0, 0, -50400), "01-01 00:00:00"]
    log += [Stamp(12, 31, 23, 59, 60.5, 9999, 50400), Stamp(None, None, 1, 2, 3.0), "02-29 00:00:00", "03-01 00:00:00"]
    times = settled(log, reference)
    assert all(abs(time) < 1e12 for time in times)
    assert len(times) == len(log)


def test_statistics_are_a_clock() -> None:
    """Of each speaker every ten seconds; what several say in turns is said at one time."""
    beat = Beat()
    times = []
    for speaker in "aabababc":
        beat.tick(speaker)
        times.append(beat.at)
    assert times == [10.0, 20.0, 20.0, 30.0, 30.0, 40.0, 40.0, 40.0]
