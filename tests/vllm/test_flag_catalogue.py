"""The maintainer's script that makes the catalogue, on sources that behave like vLLM's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.release import __main__ as release
from tests.lab.release import functions, log_calls, tables
from vllm_doctor.vllm.release_table import History

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
    """The sources of a release 0.99.0, in a folder."""
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
def content(source: Path) -> dict[str, Any]:
    return release.read(source, "0.99.0", Path(sys.executable))


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


def test_the_module_that_makes_the_parser_may_not_be_a_dummy(source: Path) -> None:
    (source / "vllm" / "engine" / "arg_utils.py").write_text("import no_such_package_at_all\n")
    with pytest.raises(SystemExit, match="arg_utils, which makes the parser"):
        release.read(source, "0.99.0", Path(sys.executable))


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


LOGS = """
logger.info("Started in %.2f s\\n", seconds)
logger.warning_once(f"{name!r} is " "slow")
warnings.warn("old")
logger.info(message)
print("no log")
"""


def test_log_calls_by_their_format(source: Path, tmp_path: Path) -> None:
    (source / "vllm" / "logs.py").write_text(LOGS)
    calls = log_calls.log_calls(source)
    assert [(line, level, text) for place, line, level, text in calls if place == "logs.py"] == [
        (2, "info", r"Started in %.2f s\n"),
        (3, "warning_once", "{name} is slow"),
        (4, "warnings.warn", "old"),
    ]
    log_calls.write(tmp_path / "calls.gz", "0.99.0", calls)
    assert log_calls.read(tmp_path / "calls.gz") == ("0.99.0", calls)


def test_functions_by_release(source: Path, tmp_path: Path) -> None:
    (source / "vllm" / "work.py").write_text("class A:\n    async def f(self):\n        def g(): ...\n")
    (source / "vllm" / "benchmarks").mkdir(exist_ok=True)
    (source / "vllm" / "benchmarks" / "serve.py").write_text("def f(): ...\n")
    found = functions.functions(source)
    assert found["vllm/work.py"] == {"f", "g"}
    assert "vllm/benchmarks/serve.py" not in found
    before = {"vllm/work.py": frozenset({"f"}), "vllm/gone.py": frozenset[str]()}
    functions.write(tmp_path / "functions.gz", {"0.10.0": found, "0.9.2": before})
    read = functions.read(tmp_path / "functions.gz")
    assert list(read) == ["0.9.2", "0.10.0"]
    assert read == {"0.9.2": before, "0.10.0": found}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the shipped tables, to be written."""
    return Path(shutil.copytree(release.DATA, tmp_path / "data"))


def test_the_shipped_tables_are_as_the_command_writes_them(data: Path) -> None:
    for name in tables.TABLES:
        tables.write(data / name, tables.read(data / name))
        assert (data / name).read_text("utf-8") == (release.DATA / name).read_text("utf-8")


def test_a_release_like_the_newest_changes_the_line_of_releases_only(data: Path) -> None:
    for name in tables.TABLES:
        table = tables.read(data / name)
        newest = list(table.rows)[-1]
        before = (data / name).read_text("utf-8").splitlines()
        tables.write(data / name, table.with_release("0.99.0", table.rows[newest]))
        after = (data / name).read_text("utf-8").splitlines()
        assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == [
            (before[2], before[2] + " 0.99.0")
        ]


def test_a_release_is_added_and_removed(
    data: Path, content: dict[str, Any], source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release.main(["add", "0.99.0", "--data", str(data), "--sources", str(source), "--python", sys.executable])
    said = capsys.readouterr().out
    assert "new since" in said
    assert "--max-num-seqs has ended: say what to write instead" in said
    assert "get_batch_defaults is gone" in said
    flags = History(data / "flags.tsv")
    assert flags.releases[-1] == "0.99.0"
    assert [row.names for row in flags.rows("--width")] == [("--width", "-w")]
    assert flags.spans(flags.rows("--width")) == (("0.99.0", "0.99.0"),)
    release.main(["remove", "0.99.0", "--data", str(data)])
    for name in tables.TABLES:
        assert (data / name).read_text("utf-8") == (release.DATA / name).read_text("utf-8")
