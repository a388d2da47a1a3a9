from __future__ import annotations

import math
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pytest

from vllm_doctor.sources.log import bytes_scan
from vllm_doctor.sources.log.bytes_scan import Scanner, Tally

STATS = b"Engine 000: Avg prompt throughput: "
Seen = tuple[int, bytes, tuple[int, ...], int, bytes]


def seen(
    literals: list[bytes], blocks: Iterable[bytes], uncounted: Mapping[int, int] | None = None, threads: int = 1
) -> tuple[list[Seen], Tally]:
    """All that is given: offset, raw, hits, number, what follows; and the tally."""
    scanner = Scanner(literals, uncounted)
    given = scanner.lines(blocks, may_run_ahead=lambda: threads > 1)
    lines = [(line.offset, line.raw, line.hits, line.number, line.following()) for line in given]
    return lines, scanner.tally


def divided(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


def expected(literals: list[bytes], data: bytes) -> list[Seen]:
    """What is to be given of a log without giant lines, the slow way."""
    lines: list[Seen] = []
    at = 0
    for number, whole in enumerate(data.splitlines(keepends=True) if data else [], 1):
        raw = whole.removesuffix(b"\n").removesuffix(b"\r")
        held = tuple(i for i, literal in enumerate(literals) if literal in raw)
        at += len(whole)
        if held:
            lines.append((at - len(whole), raw, held, number, data[at : at + bytes_scan.FOLLOWING]))
    return lines


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of few bytes, so that a few lines cross many borders."""
    monkeypatch.setattr(bytes_scan, "_WINDOW", 50)
    monkeypatch.setattr(bytes_scan, "LONGEST", 60)
    monkeypatch.setattr(bytes_scan, "_HALF", 30)
    monkeypatch.setattr(bytes_scan, "FOLLOWING", 25)
    monkeypatch.setattr(bytes_scan, "_AHEAD_FROM", 200)


def test_a_line_with_a_literal_is_given_once_with_all_it_holds() -> None:
    data = b"nothing here\nan ERROR in the ENGINE, an ERROR\r\nmore\n"
    lines, tally = seen([b"ENGINE", b"absent", b"ERROR", b"an ERR"], [data])
    assert lines == [(13, b"an ERROR in the ENGINE, an ERROR", (0, 2, 3), 2, b"more\n")]
    assert tally == Tally(bytes_read=len(data), lines_read=3)


def test_empty_lines_empty_blocks_and_a_last_line_without_end_are_counted() -> None:
    assert seen([b"x"], []) == ([], Tally())
    assert seen([b"x"], [b"", b""]) == ([], Tally())
    lines, tally = seen([b"x"], [b"\n\n", b"", b"x", b"", b"y\n\n", b"x"])
    assert [(offset, raw, number) for offset, raw, _, number, _ in lines] == [(2, b"xy", 3), (6, b"x", 5)]
    assert tally.lines_read == 5


def test_nothing_to_look_for_still_counts() -> None:
    assert seen([], [b"a\nb"]) == ([], Tally(bytes_read=3, lines_read=2))


@pytest.mark.parametrize("literal", [b"", b"a\nb", b"a\0b", b"x" * 1025])
def test_what_cannot_be_in_a_line_is_refused(literal: bytes) -> None:
    with pytest.raises(ValueError, match="nothing to look for"):
        Scanner([b"fine", literal])


def test_literals_are_no_patterns() -> None:
    assert [raw for _, raw, *_ in seen([b"a.c", b"[x]*", b"\xff(", b"$^"], [b"abc\na.c\nx\n[x]*\n\xff(\n$^\n"])[0]] == [
        b"a.c",
        b"[x]*",
        b"\xff(",
        b"$^",
    ]


def test_any_division_into_blocks_gives_the_same(small: None) -> None:
    literals = [b"ab", b"b", b"abcab", b"ccc", b"a" * 12]
    chance = random.Random(7)
    given = 0
    for _ in range(150):
        parts = [
            bytes(chance.choices(b"abc.", k=chance.randrange(chance.choice((3, 12, 59)))))
            + chance.choice((b"\n", b"\n", b"\r\n"))
            for _ in range(chance.randrange(40))
        ]
        data = b"".join(parts) + chance.choice((b"", b"cab", b"\r"))
        data = re.sub(rb"\r(?!\n|$)", b"", data)
        wanted = expected(literals, data)
        sizes = [chance.choice((0, 1, 2, 7, 50, 200)) for _ in range(60)]
        for blocks, threads in (([data], 1), (divided(data, sizes), 2), (divided(data, [1] * len(data)), 1)):
            lines, tally = seen(literals, blocks, threads=threads)
            assert lines == wanted
            assert tally == Tally(len(data), len(data.splitlines()))
        given += len(wanted)
    assert given > 1000


def test_any_division_of_giant_lines_gives_the_same(small: None) -> None:
    literals = [b"needle", b"eedle in"]
    chance = random.Random(8)
    parts = 0
    for _ in range(200):
        data = b"".join(
            chance.choice((b"needle in", b"needle", b"\n", b"h", b"hay " * 3, b"hay" * 30))
            for _ in range(chance.randrange(1, 60))
        )
        whole = seen(literals, [data])
        sizes = [chance.choice((0, 1, 2, 7, 50, 200)) for _ in range(60)]
        assert seen(literals, divided(data, sizes), threads=2) == whole
        assert seen(literals, divided(data, [1] * len(data))) == whole
        reached = 0
        for offset, raw, hits, number, following in whole[0]:
            parts += len(raw) == bytes_scan.LONGEST
            assert len(raw) <= bytes_scan.LONGEST
            assert raw == data[offset : offset + len(raw)]
            assert all(literals[hit] in raw for hit in hits)
            assert b"\n" not in raw
            assert number == data.count(b"\n", 0, offset) + 1
            after = offset + len(raw)
            assert following == data[after:].removeprefix(b"\n")[: bytes_scan.FOLLOWING]
            # What lies between the last part and this one holds no needle.
            assert literals[0] not in data[reached:offset]
            reached = after - len(literals[0]) + 1
        assert literals[0] not in data[reached:]
    assert parts > 200


def test_of_a_line_as_long_as_can_be_nothing_is_cut() -> None:
    for line in (b"needle" + bytes(bytes_scan.LONGEST - 6), bytes(bytes_scan.LONGEST - 6) + b"needle"):
        for before in (b"", b"first\n", b"hay\n" * 90_000):
            (given,), _ = seen([b"needle"], [before + line + b"\nlast\n"])
            assert given[:2] == (len(before), line)
            assert given[4] == b"last\n"


def test_wherever_it_stands_nothing_of_it_is_cut(small: None) -> None:
    for line in (b"needle" + b"." * 54, b"." * 54 + b"needle", b"." * 20 + b"needle" + b"." * 34):
        for end in (b"", b"\n", b"\nmore\n"):
            for lead in range(120, 280):
                data = b"x" * lead + b"\n" + line + end
                assert seen([b"needle"], [data])[0] == expected([b"needle"], data)


def test_of_a_longer_line_the_part_around_a_hit_is_given() -> None:
    hay = b"hay " * 30_000
    data = b"first\n" + hay + b"needle one" + hay + b"needle two" + hay + b"\nlast\n"
    lines, tally = seen([b"needle"], [data])
    assert [line[0] + line[1].index(b"needle") for line in lines] == [
        data.index(b"needle one"),
        data.index(b"needle two"),
    ]
    assert [(len(raw), number) for _, raw, _, number, _ in lines] == [(bytes_scan.LONGEST, 2)] * 2
    assert tally.lines_read == 3


def test_a_literal_many_times_in_one_line_without_end() -> None:
    data = b"ERROR" * 200_000
    lines, tally = seen([b"ERROR"], divided(data, [65_537] * 20))
    assert 1 < len(lines) < 1000
    assert all(len(raw) <= bytes_scan.LONGEST for _, raw, *_ in lines)
    assert (tally.bytes_read, tally.lines_read) == (len(data), 1)


def test_what_follows_a_line_is_there_wherever_blocks_end() -> None:
    following = bytes(range(32, 127)) * 200
    for lead in range(0, 300_000, 4096):
        data = b"x" * lead + b"\nTraceback\n" + following
        (line,), _ = seen([b"Traceback"], divided(data, [lead, 5, 6]))
        assert line[4] == following[: bytes_scan.FOLLOWING]
    scanner = Scanner([b"Traceback"])
    assert [line.following(4) for line in scanner.lines([b"Traceback\nFile 1\nTraceback"])] == [b"File", b""]


def test_what_follows_is_only_there_until_the_next_line_is_asked_for() -> None:
    lines = Scanner([b"x"]).lines([b"x\nx\n"])
    first = next(lines)
    next(lines)
    with pytest.raises(ValueError, match="another line"):
        first.following()
    lines = Scanner([b"x"]).lines([b"x\n", bytes(3_000_000)])
    last = next(lines)
    assert list(lines) == []
    with pytest.raises(ValueError, match="another line"):
        last.following()
    with pytest.raises(ValueError, match="another line"):
        _ = last.number


EVERY = 100_000


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A log of two engines in turn, a rare line now and then; literals are common soon."""
    monkeypatch.setattr(bytes_scan, "_WINDOW", 32 * 1024)
    monkeypatch.setattr(bytes_scan, "FULL", 200)
    monkeypatch.setattr(bytes_scan, "_FULL_COUNTED", 100)
    monkeypatch.setattr(bytes_scan, "_GROWTH", 200)
    monkeypatch.setattr(bytes_scan, "_GROWTH_COUNTED", 200)
    monkeypatch.setattr(bytes_scan, "_WASTED", 5000)
    monkeypatch.setattr(bytes_scan, "_AHEAD_FROM", 100_000)
    return b"".join(
        b"Engine %03d: Running: %d reqs%s\n" % (n % 2, n, b" rare" if n % 5000 == 4999 else b"") for n in range(EVERY)
    )


def test_of_a_common_literal_fewer_and_fewer_lines_are_given_for_more_and_more(common: bytes) -> None:
    given = [(line.number, line.raw, line.stands_for) for line in Scanner([b"Running: ", b" rare"]).lines([common])]
    assert [number for number, *_ in given[:100]] == list(range(1, 101))
    assert [number for number, _, told in given if 1 in told] == list(range(5000, EVERY + 1, 5000))
    assert 500 < len(given) < 2500
    for half in (given[: len(given) // 2], given[len(given) // 2 :]):
        engines = Counter(raw[:10] for _, raw, _ in half)
        assert min(engines.values()) > 0.35 * len(half)
    # What is left out is counted; the rare ones were given for themselves.
    assert 0.98 * EVERY < sum(told[0] for *_, told in given) <= EVERY + EVERY // 5000


def test_of_one_that_need_not_be_counted_an_even_sample_is_given(common: bytes) -> None:
    lines, tally = seen([b"Running: ", b" rare"], divided(common, [9999] * 500), {0: 0})
    numbers = [number for *_, number, _ in lines]
    assert numbers[:200] == list(range(1, 201))
    assert [number for _, _, hits, number, _ in lines if 1 in hits] == list(range(5000, EVERY + 1, 5000))
    assert 500 < len(lines) < 2500
    engines = Counter(raw[:10] for _, raw, *_ in lines)
    assert min(engines.values()) > 0.35 * len(lines)
    # The share is what is said of it: of the last tenth of the log one of so many.
    late = sum(number > EVERY * 0.9 for number in numbers)
    assert 0.5 < late * tally.one_in[0] / (EVERY * 0.1) < 2
    assert (lines, tally) == seen([b"Running: ", b" rare"], [common], {0: 0})


def test_what_stands_beside_one_that_is_common_is_no_more_looked_for(common: bytes) -> None:
    lines, tally = seen([b"Running: ", b"Engine 0", b" rare"], [common], {0: 0, 1: 0})
    alone, _ = seen([b"Running: ", b" rare"], [common], {0: 0})
    assert 0.8 * len(alone) < len(lines) < 1.2 * len(alone)
    assert tally.one_in.keys() == {0}


def test_where_the_leader_is_broken_its_stand_in_is_sampled_to_the_end(common: bytes) -> None:
    lines, _ = seen([b"Avg prompt throughput: ", b"Running: "], [common], {0: 0, 1: 0})
    numbers = [number for *_, number, _ in lines]
    assert 500 < len(numbers) < 2500
    assert max(numbers) > 0.95 * EVERY


@pytest.mark.parametrize("uncounted", [None, {1: 1}])
def test_a_line_given_for_one_literal_names_the_common_ones_in_it(
    common: bytes, uncounted: Mapping[int, int] | None
) -> None:
    data = b"".join(b"often%s\n" % (b" rare" if n % 1000 == 999 else b"") for n in range(50_000))
    lines, _ = seen([b"rare", b"often"], [data], uncounted)
    rare = [(number, hits) for _, raw, hits, number, _ in lines if b"rare" in raw]
    assert rare == [(n, (0, 1)) for n in range(1000, 50_001, 1000)]


@pytest.mark.parametrize("uncounted", [None, {0: 0}, {0: 0, 1: 0}])
def test_with_a_second_thread_the_same_is_given(common: bytes, uncounted: Mapping[int, int] | None) -> None:
    """Also of what it does not look for any more, as it is common."""
    literals = [b"Running: ", b"Engine 0", b" rare", b"ngine 0", b"reqs rare"]
    alone = seen(literals, [common], uncounted)
    for sizes in ([], [9999] * 500, [100_000, 1, 200_000]):
        assert seen(literals, divided(common, sizes), uncounted, threads=2) == alone


def test_an_error_where_a_second_thread_reads_is_raised_where_the_lines_are_asked_for(common: bytes) -> None:
    def broken() -> Iterator[bytes]:
        yield from divided(common, [100_000] * 10)
        raise OSError("gone")

    lines = Scanner([b" rare"]).lines(broken(), may_run_ahead=lambda: True)
    assert next(lines).number == 5000
    with pytest.raises(OSError, match="gone"):
        list(lines)


def test_who_stops_early_leaves_no_thread_and_no_open_file(common: bytes) -> None:
    closed = threading.Event()

    def blocks() -> Iterator[bytes]:
        try:
            while True:
                yield common
        finally:
            closed.set()

    usual = sys.getswitchinterval()
    lines = Scanner([b"rare"]).lines(blocks(), may_run_ahead=lambda: True)
    assert [next(lines).raw[-5:] for _ in range(40)] == [b" rare"] * 40
    before = threading.active_count()
    assert not closed.is_set()
    assert sys.getswitchinterval() < usual
    lines.close()  # type: ignore[attr-defined] # a generator's
    assert sys.getswitchinterval() == usual
    assert closed.wait(60)
    assert threading.active_count() <= before


def test_how_many_are_given_has_a_bound_whatever_the_size() -> None:
    """With the real numbers, and a log of a terabyte of nothing else."""
    assert bytes_scan.FULL + bytes_scan._GROWTH * math.log(1e12 / 1e5) < 10_000


def test_many_distinct_lines_are_read_in_little_memory() -> None:
    def blocks() -> Iterator[bytes]:
        for n in range(400):
            yield b"".join(b"%d line\n" % (n * 1000 + i) for i in range(1000))

    scanner = Scanner([STATS, b"399999 "])
    assert [(line.raw, line.number) for line in scanner.lines(blocks())] == [(b"399999 line", 400_000)]
    assert scanner.tally.lines_read == 400_000


def test_logs_read_in_turns_have_tallies_of_their_own() -> None:
    scanner = Scanner([b"x"])
    tallies = [Tally(), Tally()]
    logs = [scanner.lines([b"x\n" * (3 + i)], tally) for i, tally in enumerate(tallies)]
    for _ in zip(*logs, strict=False):
        pass
    list(logs[1])
    assert [tally.lines_read for tally in tallies] == [3, 4]
    assert scanner.tally.lines_read == 0


def test_views_of_bytes_are_read_before_the_next_is_asked_for() -> None:
    buffer = bytearray(b"an x\n")

    def blocks() -> Iterator[memoryview]:
        for _ in range(3):
            yield memoryview(buffer)
            buffer[:] = b"a  y\n"

    assert [line.raw for line in Scanner([b"x", b"y"]).lines(blocks())] == [b"an x", b"a  y", b"a  y"]
