"""The manual page: of the same options as the help, and no warning of a reader."""

from __future__ import annotations

import subprocess

import pytest

from tests.programs import needed
from vllm_doctor.cli import commands
from vllm_doctor.cli.main import main


@pytest.fixture
def page(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["man"]) == 0
    return capsys.readouterr().out


def test_it_has_every_option_of_every_command(page: str) -> None:
    for name in ("", *commands.ABOUT):
        parser = commands.parser(name)
        assert parser.prog.replace("-", "\\-") in page
        for option in parser.spellings:
            assert option in ("-h", "--help") or option.replace("-", "\\-") in page
        for command, _ in parser.examples:
            assert command.replace("-", "\\-").replace("\\\\", "") in page


def test_no_line_is_taken_for_a_command(page: str) -> None:
    known = (".TH ", ".SH ", ".SS ", ".TP", ".B ", ".br", ".PP")
    assert [line for line in page.splitlines() if line.startswith((".", "'")) and not line.startswith(known)] == []


def test_a_reader_of_it_warns_of_nothing(page: str) -> None:
    ran = subprocess.run(
        [needed("groff-base", "groff"), "-man", "-Tutf8", "-ww", "-z"], input=page, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
