"""What an optional part needs, as pyproject.toml has it."""

from __future__ import annotations

import tomllib

from tests.paths import ROOT
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
