"""`vllm-doctor fleet` in a real terminal, tmux: the table, an engine of it and back, and how it leaves the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_prometheus import FakePrometheus, targets
from tests.serving import dead_url, serving
from tests.tui.tmux import Tmux, terminal


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    with terminal(tmp_path) as made:
        yield made


def test_the_table_an_engine_and_back(tmux: Tmux) -> None:
    kinds = ["preemption", "prefix-cache-off", *["healthy-busy"] * 3]
    with serving(FakePrometheus(zip(targets(len(kinds)), kinds, strict=True)).routes()) as server:
        tmux.type(f"doctor fleet {server.url}; echo code=$?", "Enter")
        table = tmux.until("5 engines")
        assert "✖ preemption" in table
        tmux.type("Down")
        tmux.until("host-1:8000: Prefix caching is off")
        tmux.type("Enter")
        engine = tmux.until("WARNING")
        assert "esc fleet" in engine
        assert "Prefix caching is off" in tmux.until("findings: ")
        tmux.type("Escape")
        tmux.until("host-1:8000: Prefix caching is off")  # on the row that was left
        tmux.resize(50, 10)
        tmux.until("Too small")
        tmux.resize(80, 24)
        tmux.type("/")
        tmux.until("⏎ keep")
        tmux.type("host-4")
        tmux.until("1 of 5 engines")
        tmux.type("Escape")
        tmux.until("── 5 engines")
        tmux.type("q")
        tmux.until("code=2")  # that of the worst engine
        tmux.is_restored()


def test_q_in_an_engine_quits_with_the_code_of_the_fleet(tmux: Tmux) -> None:
    kinds = ["preemption", "healthy-busy"]
    with serving(FakePrometheus(zip(targets(len(kinds)), kinds, strict=True)).routes()) as server:
        tmux.type(f"doctor fleet {server.url} --fail-on critical; echo code=$?", "Enter")
        tmux.until("2 engines")
        tmux.type("Down", "Enter")
        tmux.until("esc fleet")
        tmux.type("q")
        tmux.until("code=2")
        tmux.is_restored()


def test_what_is_no_fleet_is_one_line(tmux: Tmux) -> None:
    tmux.type(f"doctor fleet {dead_url()}; echo code=$?", "Enter")
    seen = tmux.until("code=3")
    assert "refuses connections" in seen
    assert "Traceback" not in seen
    tmux.is_restored()
