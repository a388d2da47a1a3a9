"""`vllm-doctor flags`: the catalogue, or the parser of an installed vLLM."""

from __future__ import annotations

import pytest

from tests.vllm.test_installed import Install, install
from vllm_doctor.cli.main import main
from vllm_doctor.vllm import flags

__all__ = ["install"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(["0.32.0"], 0, id="the list"),
        pytest.param(["0.32.0", "--max-num-seqs"], 0, id="there"),
        pytest.param(["0.32.0", "--max-num-seqs", "-tp", "VLLM_LOGGING_LEVEL"], 0, id="all there"),
        pytest.param(["0.32.0", "--max-num-seqs", "--swap-space"], 1, id="one is not there"),
        pytest.param(["0.34.0.dev3+g123", "--max-num-seqs"], 0, id="newer than all"),
        pytest.param([], 3, id="no version"),
        pytest.param(["main", "--max-num-seqs"], 3, id="no version in the text"),
        pytest.param(["--max-num-seqs"], 3, id="a flag only"),
        pytest.param(["0.32.0", "--max-num-seqs", "64"], 3, id="a value"),
        pytest.param(["0.32.0", ""], 3, id="nothing"),
        pytest.param(["0.32.0", "--x\x1b[31m"], 3, id="an escape sequence"),
        pytest.param(["0.32.0", "--" + "x" * 10_000], 3, id="very long"),
        pytest.param(["0.2.0", "--max-num-seqs"], 3, id="older than all"),
    ],
)
def test_the_command(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flags", *arguments]) == code
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == (1 if code == 3 else 0)
    assert bool(said.out) == (code != 3)


def test_the_command_keeps_the_order_and_says_what_it_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flags", "0.99.0", "VLLM_LOGGING_LEVEL", "--max-num-seqs", "vllm:num_requests_running"]) == 0
    said = capsys.readouterr().out
    places = [
        said.index(f"{name}\n=") for name in ("VLLM_LOGGING_LEVEL", "--max-num-seqs", "vllm:num_requests_running")
    ]
    assert places == sorted(places)
    assert said.count(f"0.99.0: judged as {flags.newest()}, the newest known") == 3


def test_the_command_asks_instead_of_the_catalogue(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    bin = install(version="0.33.0")
    assert main(["flags", "--ask-vllm", str(bin / "vllm"), "--brand-new"]) == 0
    assert "vLLM 0.33.0 takes it" in capsys.readouterr().out
    assert main(["flags", "0.32.0", "--port", f"--ask-vllm={bin / 'vllm'}"]) == 1
    assert "asked of the installed 0.33.0, not of 0.32.0" in capsys.readouterr().out
    assert flags.has("0.33.0", "--port")
    assert main(["flags", "--ask-vllm", str(bin / "gone")]) == 3
    assert capsys.readouterr().err.count("\n") == 1
