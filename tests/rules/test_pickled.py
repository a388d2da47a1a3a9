"""The shipped rules as objects, kept from start to start: the same as made anew, never out of date, nobody else's."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from vllm_doctor.rules import folders, log_lines, pickled, rule_set
from vllm_doctor.rules.table import Table

MAKERS: dict[str, Callable[[], object]] = {
    pickled.RULES: lambda: rule_set._read([], None),
    pickled.LOG_LINES: lambda: log_lines.read([folders.shipped()]),
}


def kept(folder: Path, body: bytes | None = None) -> Path:
    """A file from which this list can be loaded; `body`: another pickle than that of the list."""
    pickled._inputs.cache_clear()
    pickled.write(folder, "list", ["kept"])
    path = folder / "list.pickle"
    if body is not None:
        path.write_bytes(pickled._inputs() + hashlib.sha256(body).digest() + body)
    return path


def loaded() -> object:
    """By another start."""
    pickled._inputs.cache_clear()
    return pickled.load("list", lambda: ["made anew"])


def inside(item: Any) -> Any:
    """An object with all that it holds, to be compared; of a table only where it stands."""
    if isinstance(item, Table):
        return (Table, item.path, item.line, item.lines)
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return (type(item), *(inside(getattr(item, field.name)) for field in dataclasses.fields(item)))
    if isinstance(item, dict):
        return (dict, [(inside(key), inside(value)) for key, value in item.items()])
    if isinstance(item, list | tuple):
        return (type(item), *map(inside, item))
    return (type(item), inside(vars(item)) if type(item).__module__.startswith("vllm_doctor.expr") else item)


@pytest.mark.parametrize("name", MAKERS)
def test_what_was_kept_is_what_was_made(name: str, kept_folder: Path) -> None:
    made: Any = MAKERS[name]()
    pickled.write(kept_folder, name, made)
    again: Any = pickled.load(name, lambda: pytest.fail("it was made anew"))
    parts = [made, again]
    if name == pickled.RULES:
        parts = [(one.rules, one.as_written, vars(one.catalogue), one.overrides) for one in parts]
    else:
        parts = [vars(one) for one in parts]
    assert inside(parts[0]) == inside(parts[1])


def test_what_is_kept_is_loaded(kept_folder: Path) -> None:
    kept(kept_folder)
    assert loaded() == ["kept"]


def test_what_the_wheel_brings_is_loaded(kept_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(kept_folder)
    monkeypatch.setattr(pickled, "_BROUGHT", kept_folder)
    monkeypatch.setattr(pickled, "_OWN", kept_folder / "none")
    assert loaded() == ["kept"]


def test_other_texts_and_other_programs_make_it_anew(
    kept_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(kept_folder)
    rules = tmp_path / "rules" / "group"
    rules.mkdir(parents=True)
    monkeypatch.setattr(folders, "shipped", lambda: rules.parent)
    assert loaded() == ["made anew"]
    kept(kept_folder)
    assert loaded() == ["kept"]
    (rules / "one.yaml").write_text("rule: one")
    assert loaded() == ["made anew"]
    kept(kept_folder)
    monkeypatch.setattr(pickled, "_PROGRAMS", pickled._PROGRAMS[1:])
    assert loaded() == ["made anew"]


def flipped(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[-3] ^= 1
    path.write_bytes(body)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:40]),
        flipped,
        linked,
        lambda path: path.chmod(0o664),
        lambda path: path.chmod(0o646),
        lambda path: path.parent.chmod(0o775),
        lambda path: path.parent.chmod(0o1777),
    ],
)
def test_one_that_is_torn_or_that_others_may_write_is_as_none(
    harm: Callable[[Path], object], kept_folder: Path
) -> None:
    path = kept(kept_folder)
    harm(path)
    assert loaded() == ["made anew"]


@pytest.mark.parametrize("whose", ["file", "folder"])
def test_one_of_another_user_is_as_none(whose: str, kept_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kept(kept_folder)
    if os.geteuid() == 0:
        os.chown(path if whose == "file" else kept_folder, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert loaded() == ["made anew"]


def calling(module: str, name: str, argument: str) -> bytes:
    """A pickle that calls what it names with a text."""
    return (
        b"\x80\x04"
        + b"".join(pickle.dumps(text, 4)[11:-1] for text in (module, name))
        + b"\x93"
        + (pickle.dumps((argument,), 4)[11:-1] + b"R.")
    )


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("pathlib", "Path"),
        ("vllm_doctor.rules.rule", "Path"),
        ("vllm_doctor.rules.rule", "re.compile"),
        ("vllm_doctor.rules.rule", "load"),
        ("vllm_doctor.cli.options", "Parser"),
    ],
)
def test_a_foreign_pickle_is_not_loaded(
    module: str, name: str, kept_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where it is whole, and lies where only we may write."""
    monkeypatch.chdir(tmp_path)
    body = calling(module, name, "touch ran")
    with pytest.raises(pickle.UnpicklingError, match="nothing that is kept"):
        pickled._unpickled(body)
    kept(kept_folder, body)
    assert loaded() == ["made anew"]
    assert not (tmp_path / "ran").exists()


def run(cache: Path, *options: str) -> bytes | None:
    """What a program that loads all rules keeps beside its .pyc files in this folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    program = "from vllm_doctor.rules import rule_set, pickled; rule_set.load(()); print(pickled._OWN)"
    ran = subprocess.run(
        [sys.executable, *options, "-c", program],
        env=environment | {"PYTHONPYCACHEPREFIX": str(cache)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    path = Path(ran.stdout.strip()) / f"{pickled.RULES}.pickle"
    return path.read_bytes() if path.exists() else None


def test_it_is_written_where_python_writes_its_own(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found is not None
    assert run(tmp_path) == found
    assert run(tmp_path / "not", "-B") is None
