"""A server's answers on a tape: what is written is read back, and what was not written by us is refused."""

from __future__ import annotations

import pytest

from vllm_doctor.model.errors import SourceError
from vllm_doctor.recording import tape as of_tape
from vllm_doctor.recording.tape import Metrics, Tape

PAGES = ("a 1\nb 1\n", "a 1\nb 2\n", "a 1\nb 2\nc 3\n", "a 2\nb 2\nc 4")


def test_a_tape_gives_back_each_page_byte_for_byte() -> None:
    tape = Tape()
    for at, page in enumerate(PAGES):
        tape.add(float(at), page)
    metrics = Metrics(tape.text())
    assert metrics.times == (0.0, 1.0, 2.0, 3.0)
    assert metrics.pages == tuple(page.encode() for page in PAGES)


def test_a_tape_holds_only_what_changed() -> None:
    tape = Tape()
    for at, page in enumerate(PAGES[:2]):
        tape.add(float(at), page, 1_795_000_000.4)
    assert tape.text() == "@ 0.000 page 3 1795000000\na 1\nb 1\n\n@ 1.000 lines 1 1795000000\n2 b 2\n"


def test_a_page_cannot_pass_for_more_than_one() -> None:
    """A server that writes what begins a scrape."""
    hostile = "a 1\n@ 5.000 page 1\nb 1\n"
    tape = Tape()
    tape.add(0.0, hostile)
    tape.add(1.0, hostile.replace("b 1", "@ 9.000 lines 7"))
    assert Metrics(tape.text()).pages == (hostile.encode(), hostile.replace("b 1", "@ 9.000 lines 7").encode())


def test_new_lines_are_masked_before_they_are_kept() -> None:
    seen: list[str] = []

    def mask(line: str) -> str:
        seen.append(line)
        return line.replace("b", "x")

    tape = Tape(mask)
    tape.add(0.0, PAGES[0])
    tape.add(1.0, PAGES[1])
    assert seen == ["a 1", "b 1", "", "b 2"]
    assert Metrics(tape.text()).pages == (b"a 1\nx 1\n", b"a 1\nx 2\n")


def test_of_large_pages_fewer_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_tape, "_MAX_READ", 1000)
    tape = Tape()
    for at in range(10):
        tape.add(float(at), "vllm:x 1\n" * 30 + f"vllm:y {at}\n")
    assert [scrape.at for scrape in Metrics(tape.text()).scrapes(frozenset(), 100)] == [0, 3, 6, 9]


def test_of_a_long_recording_scrapes_are_judged_evenly() -> None:
    tape = Tape()
    for at in range(1000):
        tape.add(float(at), f"vllm:x {at}\n")
    told = list(Metrics(tape.text()).scrapes(frozenset({"vllm:x"}), 11))
    assert [scrape.at for scrape in told] == [0, 100, 200, 300, 400, 500, 599, 699, 799, 899, 999]
    assert [scrape.page.samples[0].value for scrape in told] == [scrape.at for scrape in told]
    assert [scrape.at for scrape in Metrics(tape.text()).scrapes(frozenset(), 3, until=10.5)] == [0, 5, 10]


def test_lines_that_would_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_tape, "_MAX_LINES", 100)
    with pytest.raises(SourceError, match="more than 100 lines"):
        _ = Metrics("@ 0 page 200\n" + "a 1\n" * 200).times
