"""The frames of rules/profile/parts.yaml against what releases define: each entry describes something that was there,
and each module that serves requests has its part, wherever it has moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.release import functions
from tests.paths import DATA
from vllm_doctor.model.profile import OTHER, Frame
from vllm_doctor.rules import parts
from vllm_doctor.rules.parts import Described

PARTS = parts.load()
RELEASES = functions.read(DATA / "functions.tsv.gz")

MODULES = yaml.safe_load(Path(__file__).with_name("parts_by_release.yaml").read_text())
SERVE: list[tuple[str, str]] = [(words, one["part"]) for one in MODULES["serve"] for words in one["named"]]
AT_REST = tuple(f"vllm/{one}" if one.endswith("/") else f"vllm/{one}.py" for one in MODULES["at_rest"])
NOT_NAMED = "a_function_that_no_entry_names"


def names(path: str) -> str:
    """A module's path below vllm/, without its ending."""
    return path.removeprefix("vllm/").removesuffix(".py").removesuffix("/__init__")


def entries() -> Iterator[tuple[str, Described]]:
    for part in PARTS.parts:
        for entry in part.frames:
            if entry.path.startswith("vllm/") and not entry.path.startswith(functions.LEFT_OUT):
                yield part.id, entry


def test_each_entry_describes_what_some_release_has() -> None:
    wrong = []
    for part, entry in entries():
        found = [
            names
            for release, modules in RELEASES.items()
            if entry.is_of(release)
            for path, names in modules.items()
            if path == entry.path or (entry.path.endswith("/") and path.startswith(entry.path))
        ]
        missing = sorted(entry.functions - frozenset().union(*found)) if found else ["nothing at all"]
        if missing:
            wrong.append(f"{part}: {entry.path} has no {', '.join(missing)}")
    assert wrong == []


@pytest.mark.parametrize("release", RELEASES)
def test_what_serves_requests_has_its_part_in_each_release(release: str) -> None:
    known, wrong = parts.load(version=release), []
    for path, defined in RELEASES[release].items():
        part = next((part for words, part in SERVE if re.fullmatch(words, names(path))), None)
        found = known.of([Frame(NOT_NAMED, path)]).part
        if defined and part is not None and found != part:
            wrong.append(f"{path}: {found}, not {part}")
    assert wrong == []


def test_each_kind_of_what_serves_requests_is_there() -> None:
    everything = {names(path) for modules in RELEASES.values() for path in modules}
    assert [words for words, _ in SERVE if not any(re.fullmatch(words, name) for name in everything)] == []


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_else_is_without_a_part(release: str) -> None:
    """A folder that a release brings is either work, or added to AT_REST by who has looked at it."""
    known = parts.load(version=release)
    without = [
        path
        for path, defined in RELEASES[release].items()
        if defined and known.of([Frame(NOT_NAMED, path)]).part == OTHER
    ]
    assert [path for path in without if not path.startswith(AT_REST)] == []
