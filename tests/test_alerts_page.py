"""docs/alerts.md is true: its commands run, it names every option, and the files that are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, doctor
from tests.fake_prometheus import vector
from tests.paths import ROOT
from tests.promtool import promtool
from tests.serving import pages, serving, vllm
from vllm_doctor.model.facts import ENGINE_METRIC

__all__ = ["doctor"]

PAGE = (ROOT / "docs" / "alerts.md").read_text("utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
FILES = re.findall(r"^\| `([\w.-]+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("vllm-doctor ")])
def test_its_commands_run(line: str, doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    has_engines = {"/api/v1/query": lambda request: vector([({"__name__": ENGINE_METRIC}, 1.0)])}
    with serving(vllm(pages("preemption"))) as server, serving(has_engines) as prometheus:
        line = line.replace("http://127.0.0.1:8000", server.url).replace("http://127.0.0.1:9090", prometheus.url)
        ran = doctor(*shlex.split(line)[1:])
    assert (ran.code, ran.err) == (0, "")
    if "-o" in line:
        assert {path.name for path in (tmp_path / "vllm-alerts").iterdir()} == set(FILES)


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith("vllm-doctor ")])
def test_its_checks_pass(line: str, doctor: Doctor, tmp_path: Path) -> None:
    assert doctor("alerts", "-o", str(tmp_path / "vllm-alerts")).code == 0
    program, *words = shlex.split(line)
    assert program == "promtool"
    done = promtool(*words, cwd=tmp_path / "vllm-alerts")
    assert done.returncode == 0, done.stdout


def test_it_names_every_option(doctor: Doctor) -> None:
    options = set(re.findall(r"(?<![\w-])--?[a-z-]+", doctor("alerts", "--help").out)) - {"--help", "-h"}
    assert {option for option in options if option not in PAGE} == set()
