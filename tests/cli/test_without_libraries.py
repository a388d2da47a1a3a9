"""A library that cannot be loaded, as where no build of it is for this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import FIXTURES, LOGS, ROOT
from vllm_doctor.sources.log import bytes_literals

LOG = LOGS / "preemption.log.gz"


def without(library: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = folder.joinpath(*library.split("."))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".py").write_text("raise ImportError('libhs.so.5: cannot open shared object', name=__name__)\n")
    env = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}"}
    command = [sys.executable, "-m", "vllm_doctor", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_without_hyperscan_a_log_is_read_all_the_same(tmp_path: Path) -> None:
    ran, usual = (
        without("hyperscan", tmp_path, str(LOG), "--json"),
        without("nothing", tmp_path / "b", str(LOG), "--json"),
    )
    assert (ran.returncode, ran.stderr) == (usual.returncode, "")
    report, same = json.loads(ran.stdout), json.loads(usual.stdout)
    assert report["findings"] == same["findings"]
    assert report["vitals"] == same["vitals"]


@pytest.mark.parametrize(
    ("library", "source"), [("regex", LOG), ("promql_parser", LOG), ("httpx", "http://127.0.0.1:9")]
)
def test_without_one_that_is_needed_that_is_told(library: str, source: object, tmp_path: Path) -> None:
    ran = without(library, tmp_path, str(source))
    why = f"{library} cannot be loaded (libhs.so.5: cannot open shared object): install vllm-doctor again"
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "", f"vllm-doctor: {why}\n")


def test_a_recording_needs_zstd_and_a_server_does_not(tmp_path: Path) -> None:
    library = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    ran = without(library, tmp_path, str(FIXTURES / "preemption"))
    assert ran.returncode == 3
    assert "zstd" in ran.stderr
    assert "cannot be loaded" in ran.stderr


def test_without_hyperscan_a_long_log_says_that_it_took_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    long = 1 << 30
    assert bytes_literals.remark(long) is None
    monkeypatch.setattr(bytes_literals, "hyperscan", None)
    assert bytes_literals.remark(1 << 20) is None
    said = bytes_literals.remark(long)
    assert said is not None
    assert "pip install hyperscan" in said
