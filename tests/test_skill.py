"""skills/vllm-doctor/SKILL.md: an assistant can load it, and what it tells to run exists."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import yaml

from tests.paths import PACKAGE, ROOT
from vllm_doctor.cli import main

SKILL = ROOT / "skills" / "vllm-doctor" / "SKILL.md"
_, FRONT, BODY = SKILL.read_text("utf-8").split("---\n", 2)
COMMANDS = [code for code in re.findall(r"`(vllm-doctor [^`]+)`", BODY) if "VERSION NAME" not in code]


def test_its_front_matter_is_what_assistants_read() -> None:
    front = yaml.safe_load(FRONT)
    assert front.keys() == {"name", "description", "license"}
    assert front["name"] == SKILL.parent.name
    assert re.fullmatch(r"[a-z0-9-]{1,64}", front["name"])
    assert 0 < len(front["description"]) <= 1024
    assert "<" not in front["description"]


def test_it_is_short() -> None:
    assert len(BODY.splitlines()) < 100


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_the_doctors(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option of it stands in that command's help."""
    words = shlex.split(command)[1:]
    named = [words[0]] if words[0] in ("expect", "flags", "regressions", "rules", "compare") else []
    assert main.main([*named, "--help"]) == 0
    help = capsys.readouterr().out
    own = [word for word in words if word.startswith("--") and named != ["flags"]]
    assert [option for option in own if option not in help] == []


def test_the_keys_that_it_names_are_in_the_report() -> None:
    schema = (PACKAGE / "render" / "report.v1.schema.json").read_text("utf-8")
    names = re.findall(r'"(\w+)"', schema) + list(json.loads(schema)["properties"])
    section = BODY.split("## Read the report")[1].split("##")[0]
    keys = {part for code in re.findall(r"`([a-z_.]+)`", section) for part in code.split(".")}
    assert keys - {"ok", "compare", "symptom", "opportunity", "info"} <= set(names)
