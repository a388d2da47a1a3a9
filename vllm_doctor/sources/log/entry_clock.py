"""The times of a log: as they are written, and as POSIX seconds.

vLLM writes month, day and time, no year and no zone. What a line leaves open comes from the lines around it: a log
runs forward, and it ends when its file was last written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime

from vllm_doctor.model import outside

DAY = 86400.0
INTERVAL = 10.0
"""Seconds between two statistics lines, where a log does not tell: vLLM's default."""
MAX_STEP_BACK = 30 * DAY
"""What is earlier by less is of a process that came late with it, or of a clock set right; what is earlier by more is
of the next year. Servers pause for months and are started again into the same file: they do not go back by months."""

# Every pattern that holds one of these has its group names, which `stamp_of` reads.
TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}(?:[.,][0-9]{1,9})?)"
ISO = (
    r"(?P<year>[0-9]{4})[-/](?P<month>[0-9]{2})[-/](?P<day>[0-9]{2})[T_ ]"
    rf"{TIME}(?: ?(?P<zone>Z|UTC|GMT|[+-][0-9]{{2}}:?[0-9]{{2}})(?![0-9A-Za-z]))?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SYSLOG = rf"(?P<month>{'|'.join(_MONTHS)}) {{1,2}}(?P<day>[0-9]{{1,2}}) {TIME}"

_ISO = re.compile(ISO)
_MAX_POSIX = 253402300800.0  # the year 10000


@dataclass(frozen=True, slots=True)
class Stamp:
    """A time as written: `month` and `day` are None where only the time of day is, `offset` is seconds east of UTC.

    The parts are in their ranges, except that 29 February may stand without a year, or with any.
    """

    month: int | None
    day: int | None
    hour: int
    minute: int
    second: float
    year: int | None = None
    offset: int | None = None


def stamp_of(match: re.Match[str]) -> Stamp | None:
    """The time in a match of TIME, ISO or SYSLOG. None where it is no time (month 13, 25 o'clock)."""
    names = match.re.groupindex
    hour, minute, second = match.group("hour", "minute", "second")
    time = (int(hour), int(minute), float(second.replace(",", ".")))
    if "year" in names:
        year, month, day, zone = match.group("year", "month", "day", "zone")
        return _checked(int(month), int(day), *time, int(year), None if zone is None else _offset(zone))
    if "day" in names:
        return _checked(1 + _MONTHS.index(match["month"]), int(match["day"]), *time)
    return _checked(None, None, *time)


@functools.lru_cache(maxsize=1024)  # a log has many lines of one second
def short_stamp(written: str) -> Stamp | None:
    """vLLM's own "11-20 10:15:00". None where it is no time. The caller sees to the form."""
    return _checked(int(written[:2]), int(written[3:5]), int(written[6:8]), int(written[9:11]), float(written[12:14]))


def iso_stamp(written: str) -> Stamp | None:
    """ "2025-11-20T10:15:00.123456789Z" and its kin. None where it is none."""
    match = _ISO.fullmatch(written)
    return match and stamp_of(match)


def posix_stamp(seconds: float) -> Stamp | None:
    """A time given as POSIX seconds. None where it is none (before 1970, after 9999, not a number)."""
    if not 0 <= seconds < _MAX_POSIX:
        return None
    whole, part = divmod(seconds, 1)
    then = outside.moment(whole)
    return Stamp(then.month, then.day, then.hour, then.minute, then.second + part, then.year, 0)


def _checked(
    month: int | None,
    day: int | None,
    hour: int,
    minute: int,
    second: float,
    year: int | None = None,
    offset: int | None = None,
) -> Stamp | None:
    if month is not None and (day is None or not 1 <= month <= 12 or not 1 <= day <= _days_in(month)):
        return None
    if hour > 23 or minute > 59 or second >= 61:  # a leap second
        return None
    return Stamp(month, day, hour, minute, second, year, offset)


def _days_in(month: int) -> int:
    return 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31


def _offset(zone: str) -> int:
    if zone[0] not in "+-":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds


class Clock:
    """Turns the stamps of one log, in their order, into POSIX seconds.

    A time without a zone counts as UTC. One without a year is put into the year in which the log runs forward: it may
    be earlier than the one before by MAX_STEP_BACK. Where no line before it named a year, the first is put as late as
    the reference allows; that is a guess, which a later line proves wrong in three ways: it names the year, it is a
    29 February, or the log runs on beyond a day after the reference, being longer than a year. The times given out
    keep to the guess then, so that intervals are right at any moment and times can be used as they come; in the end
    `shift` says by how much all of them are off.

    (Not guessing would mean to hold all times back until the last line: the doctor reads logs as streams.)
    """

    def __init__(self, reference: datetime) -> None:
        """`reference`: when the log ended at the latest: its file's mtime, or now. Without a zone it counts as UTC."""
        aware = reference if reference.tzinfo else reference.replace(tzinfo=UTC)
        self._limit = aware.timestamp() + DAY  # local times are up to 14 h ahead of UTC
        self._last: float | None = None  # as far as is known, a true time: one given out, less _ahead
        self._ahead = 0.0
        self._has_date = False
        self._guessed = False
        self._newest = -float("inf")

    def seconds(self, stamp: Stamp) -> float:
        """POSIX seconds, to which the `shift` known in the end is to be added. Never fails."""
        if stamp.month is None or stamp.day is None:
            true = self._same_day(stamp)
        elif stamp.year is not None:
            true = _seconds(stamp, stamp.year)
            self._correct(true, stamp)
        else:
            true = self._running_on(stamp)
        self._last = true
        self._newest = max(self._newest, true)
        return true + self._ahead

    def shift(self) -> float:
        """Seconds to add to every time given out so far; whole days, 0 in nearly all logs.

        The newest comes out right; in a log of years, the oldest may be a day off (the guessed years' leap days).
        """
        late = 0.0
        if self._guessed and self._newest > self._limit:
            year, month, day = _civil(int(self._newest // DAY))
            back = 1
            while self._newest + _days_between(year - back, year, month, day) * DAY > self._limit:
                back += 1
            late = _days_between(year - back, year, month, day) * DAY
        return late - self._ahead

    def _correct(self, true: float, stamp: Stamp) -> None:
        """A line that names the year shows whether the guess was right; once it is known, no other is asked."""
        if self._guessed and self._last is not None:
            self._set_right(self._after_last(stamp, self._last), true)
        self._guessed, self._has_date = False, True

    def _set_right(self, guessed: float, true: float) -> None:
        moved = guessed - true
        self._ahead += moved
        self._newest -= moved

    def _running_on(self, stamp: Stamp) -> float:
        if self._last is None or not self._has_date:
            self._guessed = self._has_date = True
            return self._latest(stamp)
        guess = self._after_last(stamp, self._last)
        if self._guessed and stamp.month == 2 and stamp.day == 29 and not _is_leap(_civil(int(guess // DAY))[0]):
            true = self._latest(stamp)
            self._set_right(guess, true)
            return true
        return guess

    def _after_last(self, stamp: Stamp, last: float) -> float:
        """In the first year in which it is not too far before the last."""
        year = _civil(int(last // DAY))[0] - 1
        while (found := _seconds(stamp, year)) < last - MAX_STEP_BACK:
            year += 1
        return found

    def _latest(self, stamp: Stamp) -> float:
        """In the last year in which it is not after the limit; of 29 February, in the last leap year."""
        year = _civil(int(self._limit // DAY))[0]
        leap = stamp.month == 2 and stamp.day == 29
        while (found := _seconds(stamp, year)) > self._limit or (leap and not _is_leap(year)):
            year -= 1
        return found

    def _same_day(self, stamp: Stamp) -> float:
        """On the last's day, or the next or the one before where that is nearer. A log that has none ends in time."""
        of_day = stamp.hour * 3600 + stamp.minute * 60 + stamp.second - (stamp.offset or 0)
        if self._last is None:
            return of_day + (self._limit - of_day) // DAY * DAY
        return of_day + round((self._last - of_day) / DAY) * DAY


class Beat:
    """The clock of a log that writes no times: from one of its statistics lines to the next of the same speaker it is
    INTERVAL seconds. It begins in 1970, as no log does (`text.times.is_dated`)."""

    def __init__(self) -> None:
        self.at = INTERVAL
        self._heard: set[Hashable] = set()

    def tick(self, speaker: Hashable) -> None:
        """A statistics line stands here."""
        if speaker in self._heard:
            self.at += INTERVAL
            self._heard.clear()
        self._heard.add(speaker)


def _seconds(stamp: Stamp, year: int) -> float:
    days = _days(year, stamp.month or 1, stamp.day or 1)
    return days * DAY + stamp.hour * 3600 + stamp.minute * 60 + stamp.second - (stamp.offset or 0)


def _days_between(to_year: int, from_year: int, month: int, day: int) -> int:
    return _days(to_year, month, day) - _days(from_year, month, day)


# The calendar by arithmetic (Howard Hinnant's "chrono-compatible low-level date algorithms"): datetime fails outside
# of 1..9999 and on a 29 February in the wrong year, which is the 1 March here.


@functools.lru_cache(maxsize=64)  # a log has many lines of one day
def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@functools.lru_cache(maxsize=64)
def _civil(days: int) -> tuple[int, int, int]:
    """Year, month, day."""
    era, of_era = divmod(days + 719468, 146097)
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
