"""Each input that once broke a promise, again; and each harness on what it begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import engine, harnesses
from tests.fuzz.harness import HARNESSES, Harness

NAMES = harnesses.names_of([])
SEEDS = sorted(path for path in engine.SEEDS.rglob("*") if path.is_file() and path.suffix != ".traceback")


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_broke_a_promise_keeps_it(seed: Path) -> None:
    HARNESSES[seed.parent.name].run(seed.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_what_the_mutations_begin_with_is_read(name: str) -> None:
    """Most of it gives another sign than a failure does: a harness that understands nothing would test nothing."""
    texts = HARNESSES[name].corpus()[:5]
    signs = [HARNESSES[name].run(text) for text in texts]
    assert any(not str(sign).startswith("('") or "Error" not in str(sign) for sign in signs), signs


def test_a_broken_promise_is_found_made_small_and_told_once() -> None:
    def breaks(data: bytes) -> int:
        if b"17" in data:
            raise KeyError(data)
        return len(data) % 3

    tried: list[bytes] = []
    outcome = engine.Outcome()
    broken = Harness("x", breaks, lambda: [b"some text with a 1 and a 2\n"], (b"17",), most=200)
    engine.fuzz(broken, 1.0, 5, tried.append, outcome)
    ((data, traceback),) = outcome.found.values()
    assert data == b"17"
    assert "KeyError" in traceback
    assert outcome.inputs > 1000
    assert tried


def test_an_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HANG", 0.05)

    def hangs(data: bytes) -> None:
        while b"again" in data:
            pass

    outcome = engine.Outcome()
    engine.fuzz(Harness("x", hangs, lambda: [b"again"]), 0.2, 5, lambda data: None, outcome)
    assert list(outcome.found) == ["HangError"]


def test_an_input_that_takes_all_memory_is_found() -> None:
    outcome = engine.Outcome()
    greedy = Harness("x", lambda data: len(bytearray(2 * engine.MEMORY)), lambda: [b"a"])
    engine.fuzz(greedy, 0.1, 5, lambda data: None, outcome)
    assert [key.split()[0] for key in outcome.found] == ["MemoryError"]
