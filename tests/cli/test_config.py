"""The configuration file: what it sets, what goes before it, and what is wrong with one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, doctor, one_line
from tests.paths import FIXTURES
from vllm_doctor.cli import commands, config

__all__ = ["doctor"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TEXTUAL_THEME", "")
    monkeypatch.delenv("TEXTUAL_THEME")
    path = tmp_path / "vllm-doctor" / "config.toml"
    path.parent.mkdir()
    return path


ALL = """\
window = "10s"
goal = "latency"
slo = {ttft = "2s", itl = "50ms"}
rules = "~/my-rules"
skip = ["prefix-cache-off", "preemption"]
theme = "nord"
"""


def test_what_it_sets(file: Path) -> None:
    file.write_text(ALL)
    options = commands.parser("").settled(["http://127.0.0.1:8000"])
    assert (options.window, options.goal, options.slo) == (10.0, "latency", ["ttft=2s", "itl=50ms"])
    assert options.rules == [os.path.expanduser("~/my-rules")]
    assert options.skip == ["prefix-cache-off", "preemption"]
    assert os.environ["TEXTUAL_THEME"] == "nord"


def test_the_command_line_goes_before_it(file: Path) -> None:
    file.write_text(ALL)
    words = ["--window", "1", "--goal", "throughput", "--slo", "itl=20ms", "--rule", "preemption"]
    options = commands.parser("").settled(words)
    assert (options.window, options.goal, options.slo[-1]) == (1.0, "throughput", "itl=20ms")
    assert options.skip == ["prefix-cache-off"]
    assert commands.parser("").settled(["--no-config"]).goal is None


def test_a_hook_does_not_watch_longer_for_it(file: Path) -> None:
    file.write_text(ALL)
    assert commands.parser("").settled(["--state", "s"]).window is None
    assert commands.parser("").settled(["--profile"]).window is None
    assert commands.parser("compare").settled(["a", "b"]).window is None  # its own: 20 s


def test_a_theme_of_the_environment_goes_before_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", "dracula")
    file.write_text(ALL)
    commands.parser("").settled([])
    assert os.environ["TEXTUAL_THEME"] == "dracula"


def test_each_command_takes_what_it_has(file: Path) -> None:
    file.write_text(ALL)
    for name in ("", *commands.ABOUT):
        parser = commands.parser(name)
        assert ("--no-config" in parser.spellings) == bool(parser.configured)
        assert set(parser.configured) <= set(config._SET)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('windo = "5s"', "no setting 'windo'; did you mean 'window'?"),
        ("colour = 1", "no setting 'colour'; there are window, goal, slo, rules, theme, skip"),
        ('token = "s3cr3t"', "secrets do not belong there: --token-file"),
        ('[header]\nX = "s3cr3t"', "secrets do not belong there: --token-file"),
        ('api_key = "s3cr3t"', "secrets do not belong there: --token-file"),
        ("window = true", 'window: write window = "10s"'),
        ("window = -1", 'window: write window = "10s"'),
        ("window = nan", 'window: write window = "10s"'),
        ('window = "2 weeks"', 'window: write window = "10s"'),
        ('goal = "speed"', 'goal: write goal = "throughput" or goal = "latency"'),
        ("slo = {ttft = 2}", 'slo: write slo = {ttft = "2s", itl = "50ms"}'),
        ('slo = {ttft = "2"}', 'slo: write slo = {ttft = "2s", itl = "50ms"}'),
        ('slo = {e2e = "2s"}', 'slo: write slo = {ttft = "2s", itl = "50ms"}'),
        ("skip = [1]", 'skip: write skip = ["prefix-cache-off"]'),
        ('theme = "\\u001b[31m"', 'theme: write theme = "nord"'),
        ("window = [1, 2", "is no TOML: "),
        ("= s3cr3t", "is no TOML: line 1, column 1"),
        ("a = " + "[" * 5000, "is no TOML: "),
        ("x" * 70_000, "is larger than 64 KiB"),
        ('skip = ["premption"]', "no rule 'premption'; did you mean 'preemption'?"),
        ('theme = "a"\ntheme = "b"', "is no TOML: "),
    ],
)
def test_what_is_wrong_is_one_line(text: str, says: str, file: Path, doctor: Doctor) -> None:
    file.write_text(text)
    line = one_line(doctor("http://127.0.0.1:1", "--window", "0", "--text"))
    assert says in line
    assert "s3cr3t" not in line


def test_bytes_that_are_no_text(file: Path, doctor: Doctor) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    assert "it is no UTF-8" in one_line(doctor("http://127.0.0.1:1"))


def test_a_pipe_in_its_place_is_not_waited_for(file: Path, doctor: Doctor) -> None:
    os.mkfifo(file)
    assert "cannot be read" in one_line(doctor("http://127.0.0.1:1"))


def test_json_is_told_as_well(file: Path, doctor: Doctor) -> None:
    file.write_text("x = 1")
    assert doctor("http://127.0.0.1:1", "--json").report["error"]["kind"] == "usage"


@pytest.mark.parametrize("base", ["", "relative/folder"])
def test_where_it_is(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", base)
    monkeypatch.setenv("HOME", "/home/anna")
    assert config.path() == "/home/anna/.config/vllm-doctor/config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/xdg")
    assert config.path() == "/etc/xdg/vllm-doctor/config.toml"


def test_what_does_not_apply_is_no_error_there(file: Path, doctor: Doctor) -> None:
    """`--window` with a log alone is one; a default for servers is none."""
    file.write_text('window = "10s"\n')
    log = FIXTURES / "logs" / "max-num-seqs-cap.log.gz"
    assert doctor(str(log), "--rule", "max-num-seqs-cap").code == 1
    assert "--window is how long a server is watched" in one_line(doctor(str(log), "--window", "10"))
