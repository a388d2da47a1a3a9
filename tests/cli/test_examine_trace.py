"""A profiler's trace on standard input, packed or not, alone or beside another one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import trace_files
from tests.cli.test_main import Ran


def _ran(given: Path, *words: str) -> Ran:
    with given.open("rb") as file:
        command = [sys.executable, "-m", "vllm_doctor", *words]
        ran = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def _written(path: Path, gap: float) -> Path:
    made = trace_files.eager(gap=gap)
    return trace_files.export(path, made) if path.suffix == ".sqlite" else made.write(path)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.sqlite"])
def test_a_trace_by_standard_input(tmp_path: Path, name: str) -> None:
    ran = _ran(_written(tmp_path / name, 60), "-", "--json")
    assert (ran.code, ran.err) == (1, "")
    assert [finding["rule"] for finding in ran.report["findings"]] == ["trace-host-bound"]
    assert (ran.report["sources"][0]["kind"], ran.report["sources"][0]["target"]) == ("trace", "-")
    assert ran.report["trace"]["ranks"][0]["target"] == "standard input"


def test_a_database_without_kernels_by_standard_input(tmp_path: Path) -> None:
    ran = _ran(trace_files.export(tmp_path / "t.sqlite", trace_files.Made()), "-")
    assert ran.code == 3
    assert "a SQLite database without kernels" in ran.out + ran.err


@pytest.mark.parametrize("name", ["t.json.gz", "t.sqlite"])
def test_a_trace_by_standard_input_is_compared(tmp_path: Path, name: str) -> None:
    after = trace_files.eager(gap=90).write(tmp_path / "after.json")
    ran = _ran(_written(tmp_path / name, 30), "compare", "-", str(after), "--json")
    compared = json.loads(ran.out)
    assert (ran.code, compared["outcome"], compared["before"]["name"]) == (2, "FAIL", "standard input")


def test_two_traces_do_not_fit_into_standard_input(tmp_path: Path) -> None:
    assert "name the other one" in _ran(_written(tmp_path / "t.json", 60), "compare", "-", "-").err
