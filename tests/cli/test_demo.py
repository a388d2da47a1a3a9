"""`vllm-doctor demo`, in real time."""

from __future__ import annotations

import json

import pytest

from vllm_doctor.cli.main import main


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
