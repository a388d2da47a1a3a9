"""No animation, one time zone, and files where a test may look for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tui.showing import in_utc


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder in which the application runs."""
    in_utc(monkeypatch.setenv)
    for name in ("NO_COLOR", "COLORFGBG", "TEXTUAL_THEME", "VLLM_DOCTOR_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("textual.constants.TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    monkeypatch.undo()
    time.tzset()
