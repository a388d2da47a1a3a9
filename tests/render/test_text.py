"""The text: what a hurried reader sees, within 80 columns, and nothing that a terminal would obey."""

from __future__ import annotations

import re

import pytest

from tests.render.reports import unreachable
from tests.test_fixtures import NAMES, judged
from vllm_doctor.render import text

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", NAMES)
def test_lines_fit_and_carry_no_escapes(name: str) -> None:
    lines = text.render(judged(name, slice(0, 4))).splitlines()
    assert max(map(len, lines)) <= text.WIDTH
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_colour_repeats_what_the_words_say(name: str) -> None:
    report = judged(name, slice(0, 4))
    coloured = text.render(report, colour=True)
    assert ANSI.search(coloured)
    assert ANSI.sub("", coloured) == text.render(report)


def test_verdict_and_cause_come_first_then_evidence_then_cure_then_what_was_not_seen() -> None:
    shown = text.render(judged("preemption", slice(0, 4)))
    assert shown.startswith("CRITICAL  The KV cache is too small for the running batch")
    places = [
        shown.index(part)
        for part in ("[preemption]", "Why", "Seen", "explains", "Cure", "--max-num-seqs 10", "Not seen", "rules:")
    ]
    assert places == sorted(places)
    assert "10,240 tokens / 956" in shown
    assert "rule of thumb" in shown


def test_a_client_limited_server_says_so_in_its_headline() -> None:
    headline = " ".join(text.render(judged("client-limited", slice(0, 10))).split("\n\n")[0].split())
    assert headline.startswith("OK The server is waiting for its clients: about ")
    assert headline.endswith("none queued. No flag will help.")


def test_a_healthy_server_is_short() -> None:
    assert len(text.render(judged("healthy-busy", slice(0, 4))).splitlines()) <= 12


def test_a_first_scrape_says_what_it_lacks() -> None:
    shown = text.render(judged("healthy-busy", slice(0, 1)))
    assert shown.startswith("UNKNOWN")
    assert "first-scrape" in shown
    assert "--window 3" in shown


def test_a_report_on_nobody_says_why() -> None:
    assert "refuses connections" in text.render(unreachable())
