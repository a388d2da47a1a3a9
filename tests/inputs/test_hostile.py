"""Hostile texts of each form are parted, or said to be too large, in a time that does not grow faster than they do."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.inputs.hostile import TEXTS
from vllm_doctor.intake import inputs, parts
from vllm_doctor.launch.start import MAX_STARTS

_SIZES = (15_000, 30_000, 60_000)
"""Characters."""
_NOISE = 0.3
"""Seconds of CPU below which a growth says nothing."""


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_ends(name: str, tmp_path: Path) -> None:
    """Twice as long a text takes twice as long, not four times: a ratio within this run, whatever the machine."""
    path = tmp_path / name
    took = []
    for size in _SIZES:
        path.write_text(TEXTS[name](size), encoding="utf-8")
        started = time.process_time()
        given = inputs.of_file(path)
        found = None if given is None else parts.of(given, lambda _: False)
        took.append(max(time.process_time() - started, _NOISE))
        assert found is None or found.commands is None or len(found.commands.starts) <= MAX_STARTS
    assert min(later / earlier for earlier, later in pairwise(took)) < 3
