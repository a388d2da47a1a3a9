"""What an optional part needs, as pyproject.toml has it."""

from __future__ import annotations

import re
import tomllib

from tests.paths import PACKAGE, ROOT
from vllm_doctor.text import extras


def test_each_extra_installs_what_its_line_names() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra, packages in extras._PACKAGES.items():
        assert tuple(declared[extra]) == packages


def test_the_line_is_true_without_a_published_package() -> None:
    line = extras.missing("kv-events", "it needs pyzmq and msgpack")
    assert line == (
        "it needs pyzmq and msgpack: pip install pyzmq msgpack where vllm-doctor is installed"
        " (in a clone: pip install '.[kv-events]')"
    )


def test_nothing_says_to_install_another_project() -> None:
    """`vllm-doctor` on the package index is not this one."""
    told = re.compile(r"(?:pip|pipx|uv tool) (?:install|run) (?:-\S+ )*['\"]?vllm-doctor\b|uvx ['\"]?vllm-doctor\b")
    texts = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *PACKAGE.rglob("*.py"),
        *(ROOT / "skills").rglob("*.md"),
    ]
    assert [str(path) for path in texts if told.search(path.read_text("utf-8"))] == []
