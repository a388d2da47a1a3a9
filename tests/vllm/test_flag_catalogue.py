"""The maintainer's script that makes the catalogue, on sources that behave like vLLM's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import flags as lab

MAIN = """
import argparse
import vllm.broken
import vllm.broken.deeper
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms.interface import UnspecifiedPlatform

def main():
    parser = argparse.ArgumentParser()
    serve = parser.add_subparsers(dest="subparser").add_parser("serve")
    serve.add_argument("--width", "-w", type=int, default=EngineArgs.width)
    serve.add_argument("--device-kind", choices=["auto", UnspecifiedPlatform.device_type], default="auto")
    serve.add_argument("--from-a-dummy", default=vllm.broken.DEFAULT, choices=vllm.broken.CHOICES)
    serve.add_argument("--quick", action=argparse.BooleanOptionalAction, default=False)
    parser.parse_args()
"""
ENVS = """
import os, uuid
environment_variables = {
    "VLLM_LEVEL": lambda: os.getenv("VLLM_LEVEL", "INFO"),
    "VLLM_LOGGING_LEVEL": lambda: os.getenv("VLLM_LOGGING_LEVEL", "INFO"),
    "VLLM_ROOT": lambda: os.path.expanduser(os.path.join("~", ".cache", "vllm")),
    "VLLM_THREADS": lambda: os.cpu_count(),
    "VLLM_NAME": lambda: str(uuid.uuid4()),
    "VLLM_ON": lambda: bool(int(os.getenv("VLLM_ON", "1"))),
    "VLLM_EMPTY": lambda: "",
    "VLLM_WRONG": lambda: 1 / 0,
}
"""
METRICS = """
class Names:
    STORED = "vllm:stored_bytes"

KINDS = {Names.STORED: OffloadingCounterMetadata(documentation="vllm:stored_bytes is bytes")}

class Logger:
    def __init__(self):
        self.a = self._gauge_cls(name="vllm:num_requests_running", documentation="d")
        self.b = self._counter_cls(name="vllm:prompt_tokens", documentation="d")
        self.c = prometheus_client.Counter(name="vllm:success_total", documentation="d")
        if self.show_hidden_metrics:
            self.d = self._histogram_cls(name="vllm:old_seconds", documentation="d")
        for name, help in [("vllm:drafts", "d")]:
            self.e = self._counter_cls(name=name, documentation=help)
        if name == "vllm:not_defined_here":
            return torch.ops("vllm::an_operator")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The sources of a release 0.99.0, in a folder as --fetch leaves it."""
    folder = tmp_path / "0.99.0"
    for name, text in {
        "__init__": "",
        "engine/__init__": "",
        "engine/arg_utils": "class EngineArgs:\n    width = 7\n",
        "engine/metrics": 'x = Gauge(name="vllm:num_requests_running", documentation="d")\n',
        "platforms/__init__": "",
        "platforms/interface": "class UnspecifiedPlatform:\n    device_type = ''\n",
        "broken/__init__": "import no_such_package_at_all\n",
        "entrypoints/__init__": "",
        "entrypoints/cli/__init__": "",
        "entrypoints/cli/main": MAIN,
        "envs": ENVS,
        "v1/metrics/loggers": METRICS,
        "benchmarks/serve": 'x = Gauge("vllm:of_the_benchmark", "d")\n',
    }.items():
        path = folder / "vllm" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def content(source: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    import json

    monkeypatch.setattr(lab, "LAB_PYTHON", Path(sys.executable))
    lab.read(source.parent, [])
    found: dict[str, Any] = json.loads((source.parent / "0.99.0.json").read_text())
    return found


def test_the_parser_of_a_release_is_read_from_its_sources(content: dict[str, Any]) -> None:
    by_name = {flag["spellings"][0]: flag for flag in content["flags"]}
    assert by_name["--width"]["spellings"] == ["--width", "-w"]
    assert (by_name["--width"]["kind"], by_name["--width"]["default"]) == ("int", "7")
    assert by_name["--device-kind"]["choices"] == ["auto", "cuda"]
    assert by_name["--quick"]["off"] == ["--no-quick"]


def test_what_a_broken_module_was_to_say_is_not_known(content: dict[str, Any]) -> None:
    (flag,) = [flag for flag in content["flags"] if flag["spellings"] == ["--from-a-dummy"]]
    assert (flag["default"], flag["choices"]) == (None, None)
    assert content["dummies"] == ["vllm.broken"]


def test_the_module_that_makes_the_parser_may_not_be_a_dummy(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source / "vllm" / "engine" / "arg_utils.py").write_text("import no_such_package_at_all\n")
    monkeypatch.setattr(lab, "LAB_PYTHON", Path(sys.executable))
    with pytest.raises(SystemExit, match="arg_utils, which makes the parser"):
        lab.read(source.parent, [])


def test_environment_variables_by_what_they_are_on_any_machine(content: dict[str, Any]) -> None:
    assert content["environment"] == {
        "VLLM_LEVEL": "INFO",
        "VLLM_LOGGING_LEVEL": "INFO",
        "VLLM_ROOT": "~/.cache/vllm",
        "VLLM_THREADS": None,
        "VLLM_NAME": None,
        "VLLM_ON": "True",
        "VLLM_EMPTY": "",
        "VLLM_WRONG": None,
    }


def test_metrics_as_they_are_shown(content: dict[str, Any]) -> None:
    assert content["metrics"] == {
        "vllm:num_requests_running": {"kind": "gauge", "hidden": False, "engines": ["V0", "V1"]},
        "vllm:stored_bytes_total": {"kind": "counter", "hidden": False, "engines": ["V1"]},
        "vllm:prompt_tokens_total": {"kind": "counter", "hidden": False, "engines": ["V1"]},
        "vllm:success_total": {"kind": "counter", "hidden": False, "engines": ["V1"]},
        "vllm:old_seconds": {"kind": "histogram", "hidden": True, "engines": ["V1"]},
        "vllm:drafts_total": {"kind": "counter", "hidden": False, "engines": ["V1"]},
    }


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped tables, to be written."""
    copy = tmp_path / "data"
    shutil.copytree(lab.DATA, copy)
    monkeypatch.setattr(lab, "DATA", copy)
    return copy


def test_the_shipped_tables_are_as_the_script_writes_them(data: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    lab.write(tmp_path / "nothing")
    for name in ("flags.tsv", "environment.tsv", "metrics.tsv"):
        shipped = (Path(lab.ROOT) / "vllm_doctor" / "vllm" / "data" / name).read_text("utf-8")
        assert (data / name).read_text("utf-8") == shipped


def test_a_new_release_is_added_to_what_is_there(data: Path, content: dict[str, Any], source: Path) -> None:
    before = lab._read_table(data / "flags.tsv")[0]
    lab.write(source.parent)
    after, _, _ = lab._read_table(data / "flags.tsv")
    assert {release: rows for release, rows in after.items() if release != "0.99.0"} == before
    assert after["0.99.0"]["--width -w"] == ("int", "", "7")
    assert list(after)[-1] == "0.99.0"
