"""A server's answers in a recording: what is written is read back, and what is none is refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from tests.zstandard import zstd
from vllm_doctor.model.errors import SourceError
from vllm_doctor.recording import metrics as of_metrics
from vllm_doctor.recording.metrics import Metrics, MetricsWriter, of_file

PAGES = ("a 1\nb 1\n", "a 1\nb 2\n", "a 1\nb 2\nc 3\n", "a 2\nb 2\nc 4", "", "\n", "a 1\r\nb 1\r\n")


def written(pages: Sequence[str], clock: float | None = None) -> bytes:
    writer = MetricsWriter()
    for at, page in enumerate(pages):
        writer.add(float(at), page, clock)
    return writer.ended()


def of(pages: Sequence[str]) -> Metrics:
    return of_file(written(pages), "m")


def test_each_answer_comes_back_byte_for_byte() -> None:
    found = of(PAGES)
    assert found.times == tuple(map(float, range(len(PAGES))))
    assert found.pages == tuple(page.encode() for page in PAGES)


def test_what_zstdcat_shows() -> None:
    """One that was cut keeps to be one: its last value may be half a number."""
    text = b"# at 0.000 clock 1795000000\na 1\nb 1\n# at 1.000 clock 1795000000 torn\na 1\nb\n"
    assert zstd.decompress(written(["a 1\nb 1\n", "a 1\nb"], 1_795_000_000.4)) == text
    assert of_file(text, "m", is_packed=False).pages == (b"a 1\nb 1\n", b"a 1\nb")


def test_one_answer_cannot_pass_for_two() -> None:
    hostile = "a 1\n# at 5.000\nb 1\n"
    found = of([hostile, hostile + "# at 7.000", "# at 9.000\n"])
    assert found.times == (0.0, 1.0, 2.0)
    assert found.pages == (b"a 1\n## at 5.000\nb 1\n", b"a 1\n## at 5.000\nb 1\n## at 7.000", b"## at 9.000\n")


def test_an_answer_at_the_time_of_the_last_is_left_out() -> None:
    writer = MetricsWriter()
    for at in (0.0, 0.0004, 1.0, 0.5):
        writer.add(at, "a 1\n")
    assert of_file(writer.ended(), "m").times == (0.0, 1.0)


def test_new_lines_are_masked_before_they_are_kept() -> None:
    seen: list[str] = []

    def mask(line: str) -> str:
        seen.append(line)
        return line.replace("b", "x")

    writer = MetricsWriter(mask)
    writer.add(0.0, PAGES[0])
    writer.add(1.0, PAGES[1])
    assert seen == ["a 1", "b 1", "", "b 2"]
    assert of_file(writer.ended(), "m").pages == (b"a 1\nx 1\n", b"a 1\nx 2\n")


def test_of_large_answers_fewer_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_metrics, "_MAX_READ", 1200)
    found = of(["vllm:x 1\n" * 30 + f"vllm:y {at}\n" for at in range(10)])
    assert [scrape.at for scrape in found.scrapes(frozenset(), 100)] == [0, 3, 6, 9]


def test_of_a_long_recording_scrapes_are_judged_evenly() -> None:
    found = of([f"vllm:x {at}\n" for at in range(1000)])
    scrapes = list(found.scrapes(frozenset({"vllm:x"}), 11))
    assert [scrape.at for scrape in scrapes] == [0, 100, 200, 300, 400, 500, 599, 699, 799, 899, 999]
    assert [scrape.page.samples[0].value for scrape in scrapes] == [scrape.at for scrape in scrapes]
    assert [scrape.at for scrape in found.scrapes(frozenset(), 3, until=10.5)] == [0, 5, 10]


# ---- bounds ---------------------------------------------------------------------------------------------------------


def test_a_recording_larger_than_memory_is_written_and_read_piece_by_piece() -> None:
    """400 MB of answers: neither side ever holds more than a few of them."""
    page = "".join(f'vllm:x{{number="{number}",why="{"x" * 5000}"}} 1\n' for number in range(200))
    count = 400_000_000 // len(page)
    tracemalloc.start()
    try:
        writer = MetricsWriter()
        for at in range(count):
            writer.add(float(at), page + f"vllm:y {at}\n")
        found = of_file(writer.ended(), "m")
        scrapes = list(found.scrapes(frozenset({"vllm:y"}), 5))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.times) == count
    assert [scrape.page.samples[0].value for scrape in scrapes] == [scrape.at for scrape in scrapes]
    assert peak < 100_000_000


def test_all_answers_at_once_only_where_memory_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_metrics, "_MAX_PAGES", 50)
    with pytest.raises(SourceError, match="larger than"):
        _ = of(["a 1\n"] * 20).pages


@pytest.mark.parametrize(
    ("bound", "pages"),
    [("_MAX_TEXT", ["a 1\n" * 100] * 100), ("MAX_SCRAPES", ["a 1\n"] * 101)],
    ids=["text", "scrapes"],
)
def test_a_writer_is_full_before_its_reader_refuses(
    bound: str, pages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_metrics, bound, 100 if bound == "MAX_SCRAPES" else 20_000)
    writer = MetricsWriter()
    for at, page in enumerate(pages):
        if writer.is_full:
            break
        writer.add(float(at), page)
    assert 0 < writer.count < len(pages)
    assert len(of_file(writer.ended(), "m").times) == writer.count


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"# at 0\n" + bytes(200 << 20), "answer 1: it is larger than 128 MiB"),
        (b"".join(b"# at %d\n" % at + bytes(1 << 20) for at in range(80)), "unpacks to more than 64 MiB"),
    ],
    ids=["one", "many"],
)
def test_a_bomb_is_refused_before_it_fills_memory(text: bytes, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "unpacks" in says:
        monkeypatch.setattr(of_metrics, "_MAX_TEXT", 64 << 20)
    packed = zstd.compress(text)
    assert len(packed) < 200_000
    with pytest.raises(SourceError, match=says):
        _ = of_file(packed, "m").times


def test_a_window_that_would_take_too_much_memory() -> None:
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.content_size_flag: 0}
    packer = zstd.ZstdCompressor(options=options)
    packed = packer.compress(b"# at 0\na 1\n") + packer.flush()
    with pytest.raises(SourceError, match="m is damaged"):
        _ = of_file(packed, "m").times


GOOD = written(["a 1\n"])


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (b"", "m ends early"),
        (GOOD[:-1], "m ends early"),
        (GOOD[:5], "m ends early"),
        (GOOD[:-2] + bytes([GOOD[-2] ^ 1]) + GOOD[-1:], "m is damaged"),
        (b"hello, this is text", "m is damaged"),
        (GOOD + GOOD, "m goes on behind its end"),
        (GOOD * 100_000, "m goes on behind its end"),
    ],
)
def test_one_that_is_cut_or_damaged(packed: bytes, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        _ = of_file(packed, "m").times


@pytest.mark.parametrize(
    "text",
    ["x\n", "a 1\n# at 0\na 1\n", "# at -1\n", "# at nan\n", "# at 1e999\n", "# at 0 clock x\n", "# at 0 torn x\n",
     "# at 0\na 1\n# at 0\na 1\n", "# at 2\na 1\n# at 1\na 1\n"],
)  # fmt: skip
def test_scrapes_that_are_none(text: str) -> None:
    with pytest.raises(SourceError, match=r"m, answer \d: "):
        _ = of_file(zstd.compress(text.encode()), "m").times


def test_pairs_lie_as_far_apart_as_was_asked_evenly_in_time() -> None:
    found = of([f"vllm:num_requests_running {place}\n" for place in range(101)])
    wanted = frozenset(("vllm:num_requests_running",))
    pairs = list(found.pairs(wanted, 5, 10.0))
    assert [(before.at, here.at) for before, here in pairs] == [(0.0, 10.0), (25.0, 35.0), (50.0, 60.0), (75.0, 85.0)]
    assert [here.page.samples[0].value for _, here in pairs] == [10, 35, 60, 85]


def test_across_a_gap_there_is_no_pair() -> None:
    writer = MetricsWriter()
    for at in (0.0, 1.0, 100.0, 110.0):
        writer.add(at, "a 1\n", None)
    pairs = of_file(writer.ended(), "m").pairs(frozenset(), 10, 10.0)
    assert [(before.at, here.at) for before, here in pairs] == [(100.0, 110.0)]


def test_one_scrape_may_end_a_pair_and_begin_the_next() -> None:
    pairs = of(["a 1\n"] * 4).pairs(frozenset(), 10, 1.0)
    assert [(before.at, here.at) for before, here in pairs] == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
