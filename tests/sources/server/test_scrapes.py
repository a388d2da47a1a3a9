"""What is kept of a server that is watched; the rest of the module is tried in test_server.py."""

from __future__ import annotations

import os

import pytest

from vllm_doctor.sources.server import scrapes
from vllm_doctor.sources.server.scrapes import Answers


def test_the_last_answers_are_kept() -> None:
    answers = Answers(10.0)
    for at in range(100):
        answers.add(float(at), f"x {at}\n", 1_795_000_000.0 + at)
    kept = answers.all()
    assert [at for at, _, _ in kept] == [float(at) for at in range(89, 100)]
    assert kept[-1] == (99.0, "x 99\n", 1_795_000_099.0)


def test_they_are_bounded_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "MAX_KEPT", 100_000)
    answers = Answers(1000.0)
    for at in range(100):
        answers.add(float(at), os.urandom(5000).hex(), None)
    kept = answers.all()
    assert 2 < len(kept) < 25
    assert kept[-1][0] == 99.0


def test_two_are_kept_however_large_and_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "MAX_KEPT", 10)
    answers = Answers(1.0)
    for at in (0.0, 50.0, 100.0):
        answers.add(at, "x" * 1000, None)
    assert [at for at, _, _ in answers.all()] == [50.0, 100.0]
