"""Hostile texts of each form are parted, or said to be too large, in a time that does not grow faster than they do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.inputs.hostile import TEXTS
from vllm_doctor.intake import inputs, parts
from vllm_doctor.launch.start import MAX_STARTS

_SIZE = 60_000
"""Characters: what grows with the square of its length takes too long at this size already."""


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_ends(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(TEXTS[name](_SIZE), encoding="utf-8")
    started = time.process_time()
    given = inputs.of_file(path)
    found = None if given is None else parts.of(given, lambda _: False)
    assert time.process_time() - started < 4
    assert found is None or found.commands is None or len(found.commands.starts) <= MAX_STARTS
