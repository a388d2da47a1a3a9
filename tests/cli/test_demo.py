"""`vllm-doctor demo`, in real time."""

from __future__ import annotations

import json

import pytest
import yaml

from vllm_doctor.cli.main import main
from vllm_doctor.recording import demo


def test_the_command_shows_a_sick_server(capsys: pytest.CaptureFixture[str]) -> None:
    """In real time, as a user sees it."""
    assert main(["demo"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("CRITICAL  The KV cache is too small for the running batch")
    assert "4 scrapes" in out
    assert "vllm-doctor: the recorded server 'preemption' answers on http://127.0.0.1:" in err
    assert err.count("\n") == 1


def test_the_command_takes_a_name_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "max-num-seqs-cap", "--window", "1", "--json", "--fail-on", "never"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["patient"]["model"] == "tiny"
    assert report["sources"][0]["scrapes"] == 2


def test_the_command_with_a_name_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "nope"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("vllm-doctor: no demo 'nope'; there are: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", demo.names())
def test_each_demo_finds_its_fault(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what its recording holds beside the server: the host, and the command that it was started with."""
    expected = yaml.safe_load((demo.folder() / name / "expected.yaml").read_text())
    main(["demo", name, "--window", "2", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] in expected["verdicts"]
    assert set(expected["found"]) <= {finding["rule"] for finding in report["findings"]}


def test_the_fix_of_a_demo_is_the_whole_command_that_was_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "no-log-stats", "--window", "1", "--json"])
    command = json.loads(capsys.readouterr().out)["command"]
    assert "--disable-log-stats" in command["was"]
    assert command["now"][:3] == ["vllm", "serve", "tiny"]
    assert "--disable-log-stats" not in command["now"]


def test_a_command_that_is_given_goes_before_the_recorded_one(capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "max-num-seqs-cap", "--window", "1", "--json", "--command", "vllm serve mine --max-num-seqs 2"])
    assert json.loads(capsys.readouterr().out)["command"]["was"][2] == "mine"
