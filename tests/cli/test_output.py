from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_doctor.cli.output import write_whole


def failing() -> Iterator[bytes]:
    yield b"half"
    raise KeyboardInterrupt


def test_what_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, failing())
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["before"]
