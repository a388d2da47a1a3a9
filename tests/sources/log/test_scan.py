from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator

import pytest

from vllm_doctor.sources.log import scan
from vllm_doctor.sources.log.scan import Line, Scanner, Tally

STATS = b"Engine 000: Avg prompt throughput: "
Seen = tuple[int, bytes, tuple[int, ...], int, bytes]


def seen(literals: list[bytes], blocks: Iterable[bytes]) -> tuple[list[Seen], Tally]:
    """All that is given: offset, raw, hits, number, what follows; and the tally."""
    scanner = Scanner(literals)
    lines = [(line.offset, line.raw, line.hits, line.number, line.following()) for line in scanner.lines(blocks)]
    return lines, scanner.tally


def divided(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


def expected(literals: list[bytes], data: bytes) -> tuple[list[Seen], list[int]]:
    """What is to be given of a log without giant lines, the slow way; and the hits."""
    lines: list[Seen] = []
    hits = [0] * len(literals)
    at = 0
    for number, whole in enumerate(data.splitlines(keepends=True) if data else [], 1):
        raw = whole.removesuffix(b"\n").removesuffix(b"\r")
        held = tuple(i for i, literal in enumerate(literals) if literal in raw)
        at += len(whole)
        for i in held:
            hits[i] += sum(raw.startswith(literals[i], start) for start in range(len(raw)))
        if held:
            lines.append((at - len(whole), raw, held, number, data[at : at + scan.FOLLOWING]))
    return lines, hits


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of few bytes, so that a few lines cross many borders."""
    monkeypatch.setattr(scan, "_WINDOW", 50)
    monkeypatch.setattr(scan, "LONGEST", 60)
    monkeypatch.setattr(scan, "_HALF", 30)
    monkeypatch.setattr(scan, "FOLLOWING", 25)


def test_a_line_with_a_literal_is_given_once_with_all_it_holds() -> None:
    data = b"nothing here\nan ERROR in the ENGINE, an ERROR\r\nmore\n"
    lines, tally = seen([b"ENGINE", b"absent", b"ERROR", b"an ERR"], [data])
    assert lines == [(13, b"an ERROR in the ENGINE, an ERROR", (0, 2, 3), 2, b"more\n")]
    assert tally == Tally([1, 0, 2, 2], bytes_read=len(data), lines_read=3)


def test_empty_lines_empty_blocks_and_a_last_line_without_end_are_counted() -> None:
    assert seen([b"x"], []) == ([], Tally([0]))
    assert seen([b"x"], [b"", b""]) == ([], Tally([0]))
    lines, tally = seen([b"x"], [b"\n\n", b"", b"x", b"", b"y\n\n", b"x"])
    assert [(offset, raw, number) for offset, raw, _, number, _ in lines] == [(2, b"xy", 3), (6, b"x", 5)]
    assert tally.lines_read == 5


def test_nothing_to_look_for_still_counts() -> None:
    assert seen([], [b"a\nb"]) == ([], Tally([], bytes_read=3, lines_read=2))


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
        wanted, hits = expected(literals, data)
        sizes = [chance.choice((0, 1, 2, 7, 50, 200)) for _ in range(60)]
        for blocks in ([data], divided(data, sizes), divided(data, [1] * len(data))):
            lines, tally = seen(literals, blocks)
            assert lines == wanted
            assert tally == Tally(hits, len(data), len(data.splitlines()))
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
        assert seen(literals, divided(data, sizes)) == whole
        assert seen(literals, divided(data, [1] * len(data))) == whole
        reached = 0
        for offset, raw, hits, number, following in whole[0]:
            parts += len(raw) == scan.LONGEST
            assert len(raw) <= scan.LONGEST
            assert raw == data[offset : offset + len(raw)]
            assert all(literals[hit] in raw for hit in hits)
            assert b"\n" not in raw
            assert number == data.count(b"\n", 0, offset) + 1
            after = offset + len(raw)
            assert following == data[after:].removeprefix(b"\n")[: scan.FOLLOWING]
            # What lies between the last part and this one holds no needle.
            assert literals[0] not in data[reached:offset]
            reached = after - len(literals[0]) + 1
        assert literals[0] not in data[reached:]
    assert parts > 200


def test_of_a_line_as_long_as_can_be_nothing_is_cut() -> None:
    for line in (b"needle" + bytes(scan.LONGEST - 6), bytes(scan.LONGEST - 6) + b"needle"):
        for before in (b"", b"first\n", b"hay\n" * 90_000):
            (given,), _ = seen([b"needle"], [before + line + b"\nlast\n"])
            assert given[:2] == (len(before), line)
            assert given[4] == b"last\n"


def test_wherever_it_stands_nothing_of_it_is_cut(small: None) -> None:
    for line in (b"needle" + b"." * 54, b"." * 54 + b"needle", b"." * 20 + b"needle" + b"." * 34):
        for end in (b"", b"\n", b"\nmore\n"):
            for lead in range(120, 280):
                data = b"x" * lead + b"\n" + line + end
                assert seen([b"needle"], [data])[0] == expected([b"needle"], data)[0]


def test_of_a_longer_line_the_part_around_a_hit_is_given() -> None:
    hay = b"hay " * 30_000
    data = b"first\n" + hay + b"needle one" + hay + b"needle two" + hay + b"\nlast\n"
    lines, tally = seen([b"needle"], [data])
    assert [line[0] + line[1].index(b"needle") for line in lines] == [
        data.index(b"needle one"),
        data.index(b"needle two"),
    ]
    assert [(len(raw), number) for _, raw, _, number, _ in lines] == [(scan.LONGEST, 2)] * 2
    assert (tally.hits, tally.lines_read) == ([2], 3)


def test_a_literal_many_times_in_one_line_without_end() -> None:
    data = b"ERROR" * 200_000
    lines, tally = seen([b"ERROR"], divided(data, [65_537] * 20))
    assert sum(len(raw) for _, raw, *_ in lines) >= len(data)
    assert tally.hits == [200_000]
    assert (tally.bytes_read, tally.lines_read) == (len(data), 1)


def test_what_follows_a_line_is_there_wherever_blocks_end() -> None:
    following = bytes(range(32, 127)) * 200
    for lead in range(0, 300_000, 4096):
        data = b"x" * lead + b"\nTraceback\n" + following
        (line,), _ = seen([b"Traceback"], divided(data, [lead, 5, 6]))
        assert line[4] == following[: scan.FOLLOWING]
    scanner = Scanner([b"Traceback"])
    assert [line.following(4) for line in scanner.lines([b"Traceback\nFile 1\nTraceback"])] == [b"File", b""]


def test_what_follows_is_only_there_until_the_next_line_is_asked_for() -> None:
    lines = Scanner([b"x"]).lines([b"x\nx\n"])
    first = next(lines)
    next(lines)
    with pytest.raises(ValueError, match="another line"):
        first.following()
    lines = Scanner([b"x"]).lines([b"x\n", bytes(1_000_000)])
    last = next(lines)
    assert list(lines) == []
    with pytest.raises(ValueError, match="another line"):
        last.following()


def test_of_a_frequent_literal_fewer_and_fewer_lines_are_given_and_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "FULL", 200)
    monkeypatch.setattr(scan, "_LEVEL", 40)
    every = 100_000
    # Two engines in turn; a rare line now and then.
    data = b"".join(
        b"Engine %03d: Running: %d reqs%s\n" % (n % 2, n, b" rare" if n % 5000 == 0 else b"") for n in range(every)
    )
    lines, tally = seen([b"Running: ", b" rare"], divided(data, [9999] * 500))
    assert tally.hits == [every, every // 5000]
    assert list(tally.thinned) == [0]
    assert [number for *_, number, _ in lines[:200]] == list(range(1, 201))
    assert sum(1 in hits for _, _, hits, *_ in lines) == every // 5000
    assert 400 < len(lines) < 200 + 40 * 14
    engines = [sum(raw.startswith(engine) for _, raw, *_ in lines[200:]) for engine in (b"Engine 000", b"Engine 001")]
    assert min(engines) > 0.35 * sum(engines)
    # The share is what is said of it: of the last tenth of the log one of so many.
    late = sum(number > every * 0.9 for *_, number, _ in lines)
    assert 0.5 < late * tally.thinned[0] / (every * 0.1) < 2
    assert (lines, tally) == seen([b"Running: ", b" rare"], [data])


def test_a_line_given_for_one_literal_names_the_thinned_ones_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "FULL", 30)
    monkeypatch.setattr(scan, "_LEVEL", 2)
    data = b"".join(b"often%s\n" % (b" rare" if n % 1000 == 999 else b"") for n in range(20_000))
    lines, tally = seen([b"rare", b"often"], [data])
    rare = [(number, hits) for _, raw, hits, number, _ in lines if b"rare" in raw]
    assert rare == [(n, (0, 1)) for n in range(1000, 20_001, 1000)]
    assert tally.thinned.keys() == {1}


def test_how_many_are_given_has_a_bound_whatever_the_size() -> None:
    """With the real numbers: levels are only reached by lines, and there are too many of them for a test to write."""
    until, share, given = scan.FULL, 1, float(scan.FULL)
    while until < 10**9:
        share *= 2
        until += scan._LEVEL * share
        given += scan._LEVEL
    assert given <= 100_000


def test_many_distinct_lines_are_read_in_little_memory() -> None:
    def blocks() -> Iterator[bytes]:
        for n in range(400):
            yield b"".join(b"%d line\n" % (n * 1000 + i) for i in range(1000))

    scanner = Scanner([STATS, b"399999 "])
    lines: list[Line] = list(scanner.lines(blocks()))
    assert [(line.raw, line.number) for line in lines] == [(b"399999 line", 400_000)]
    assert scanner.tally.lines_read == 400_000


def test_logs_read_in_turns_have_tallies_of_their_own() -> None:
    scanner = Scanner([b"x"])
    tallies = [Tally(), Tally()]
    logs = [scanner.lines([b"x\n" * (3 + i)], tally) for i, tally in enumerate(tallies)]
    for _ in zip(*logs, strict=False):
        pass
    list(logs[1])
    assert [tally.hits for tally in tallies] == [[3], [4]]
    assert scanner.tally.hits == [0]


def test_views_of_bytes_are_read_before_the_next_is_asked_for() -> None:
    buffer = bytearray(b"an x\n")

    def blocks() -> Iterator[memoryview]:
        for _ in range(3):
            yield memoryview(buffer)
            buffer[:] = b"a  y\n"

    assert [line.raw for line in Scanner([b"x", b"y"]).lines(blocks())] == [b"an x", b"a  y", b"a  y"]
