"""What shipped files hold, kept from start to start: the same as parsed, and never out of date."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from vllm_doctor.rules import compiled, document, folders, strict_yaml
from vllm_doctor.rules.document import Table

TEXT = "a: 1\n\nb:\n- x: [1.5, off, null]\n  '': {y: true}\nexamples:\n- z: 7\n"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that counts as a shipped one; nothing is kept yet."""
    monkeypatch.setattr(compiled, "_SHIPPED", (tmp_path,))
    monkeypatch.setattr(compiled, "_BROUGHT", tmp_path / "compiled.json")
    monkeypatch.setattr(compiled, "_OWN", tmp_path / "none" / "compiled.json")
    monkeypatch.setattr(compiled, "_fresh", {})
    compiled._kept.cache_clear()
    (tmp_path / "one.yaml").write_text(TEXT)
    yield tmp_path / "one.yaml"
    compiled._kept.cache_clear()


def keep(path: Path, until: str | None = None) -> None:
    document.read(path, until)
    compiled.write(path.with_name("compiled.json"))
    compiled._kept.cache_clear()


def parse_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_yaml, "parsed", lambda *args: pytest.fail("it was parsed again"))


def lines(value: Any) -> Any:
    """Values with all that a table knows."""
    if isinstance(value, Table):
        return (value.path, value.line, value.lines, {key: lines(item) for key, item in value.items()})
    return [lines(item) for item in value] if isinstance(value, list) else (type(value), value)


def test_what_was_kept_is_what_was_parsed(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = document.read(shipped)
    keep(shipped)
    parse_nothing(monkeypatch)
    assert lines(document.read(shipped)) == lines(parsed)


def test_who_changes_what_was_read_changes_no_other_reading(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(shipped)
    parse_nothing(monkeypatch)
    next(document.read(shipped).tables("b"))["x"].append(7)
    assert next(document.read(shipped).tables("b"))["x"] == [1.5, "off", None]


def test_a_part_of_a_file_is_kept_beside_the_whole(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(shipped, "examples")
    keep(shipped)
    parse_nothing(monkeypatch)
    assert "examples" not in document.read(shipped, "examples")
    assert "examples" in document.read(shipped)


def test_a_file_that_was_changed_is_parsed_again(shipped: Path) -> None:
    keep(shipped)
    shipped.write_text(TEXT.replace("a: 1", "a: 2"))
    assert document.read(shipped)["a"] == 2


def test_another_parser_parses_again(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(shipped)
    assert compiled.find(shipped, None, TEXT) is not None
    other = compiled._programs().copy()
    other.update(b"one more line")
    monkeypatch.setattr(compiled, "_programs", lambda: other)
    assert compiled.find(shipped, None, TEXT) is None


def test_ones_own_files_are_not_kept(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_SHIPPED", (tmp_path / "elsewhere",))
    document.read(shipped)
    assert compiled._fresh == {}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000])
def test_one_that_is_damaged_is_as_none(body: bytes, shipped: Path) -> None:
    shipped.with_name("compiled.json").write_bytes(body)
    assert document.read(shipped)["a"] == 1


def run(folder: Path, *options: str) -> dict[str, Any] | None:
    """What a program that loads all rules leaves beside the .pyc files in this folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    program = "from vllm_doctor.rules import rule_set, compiled; rule_set.load(()); print(compiled._OWN)"
    ran = subprocess.run(
        [sys.executable, *options, "-c", program],
        env=environment | {"PYTHONPYCACHEPREFIX": str(folder)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    path = Path(ran.stdout.strip())
    found: dict[str, Any] | None = json.loads(path.read_bytes()) if path.exists() else None
    return found


def test_it_is_written_where_python_writes_its_own(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found is not None
    assert len(found) >= len(folders.rules(folders.shipped()))
    assert run(tmp_path) == found
    assert run(tmp_path / "not", "-B") is None
