"""CONTRIBUTING.md is true: each recipe works on a copy of the checkout, and its commands print what it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.paths import FIXTURES, ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
RECIPES = dict(re.findall(r"^## Recipe: (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
COPIED = ("vllm_doctor", "rules", "tests", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")

RELEASE = {
    "__init__": "",
    "engine/__init__": "",
    "engine/arg_utils": "class EngineArgs:\n    pass\n",
    "platforms/__init__": "",
    "platforms/interface": "class UnspecifiedPlatform:\n    device_type = ''\n",
    "entrypoints/__init__": "",
    "entrypoints/cli/__init__": "",
    "entrypoints/cli/main": """
import argparse
from vllm.platforms.interface import UnspecifiedPlatform

def main():
    parser = argparse.ArgumentParser()
    serve = parser.add_subparsers(dest="subparser").add_parser("serve")
    serve.add_argument("--new-flag", type=int, default=7)
    parser.parse_args()
""",
    "envs": "environment_variables = {}\n",
    "v1/metrics/loggers": """
class Logger:
    def __init__(self):
        self.a = self._gauge_cls(name="vllm:num_requests_running", documentation="d")
""",
}
"""The sources of vLLM 0.99.0."""


@dataclass(frozen=True)
class Step:
    """A fenced block and the line before it."""

    before: str
    kind: str
    text: str

    @property
    def path(self) -> str:
        """The file that the line before names."""
        return self.before.split("`")[1]


def steps(recipe: str) -> list[Step]:
    blocks = re.findall(r"(?:^([^\n]*)\n\n)?^```(\w*)\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL)
    return [Step(*block) for block in blocks]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a recipe may change, with an environment in which the copy runs."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    for name, text in RELEASE.items():
        path = tmp_path / "vllm-0.99.0" / "vllm" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, module in (("vllm-doctor", "vllm_doctor"), ("pytest", "pytest"), ("python", "")):
        started = f"-m {module} " if module else ""
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {started}"$@"\n', "utf-8")
        (programs / name).chmod(0o755)
    return tmp_path


def run(command: str, checkout: Path) -> str:
    """What a command prints; it must end well."""
    path = f"{checkout / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | {"PATH": path, "PYTHONPATH": str(checkout)}
    ran = subprocess.run(
        ["bash", "-euc", command], cwd=checkout, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, f"$ {command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def edited(text: str, diff: str) -> str:
    """A text with a diff applied: its lines with "-" or " " stand there once, and become those with "+" or " "."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    assert f"\n{text}".count(f"\n{old}") == 1, f"not there once:\n{old}"
    return f"\n{text}".replace(f"\n{old}", f"\n{new}")[1:]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_works(recipe: str, checkout: Path) -> None:
    printed = ""
    for step in steps(RECIPES[recipe]):
        if step.before.startswith("New file"):
            assert not (checkout / step.path).exists()
            (checkout / step.path).parent.mkdir(exist_ok=True)
            (checkout / step.path).write_text(step.text, "utf-8")
        elif step.before.startswith("Edit"):
            whole = (checkout / step.path).read_text("utf-8")
            (checkout / step.path).write_text(edited(whole, step.text), "utf-8")
        elif step.kind == "sh":
            printed = "\n".join(run(command, checkout) for command in step.text.splitlines())
        elif step.kind == "text":
            assert [line for line in step.text.splitlines() if line not in printed] == []
        else:
            assert not step.kind, step  # what needs a network is written without a language


def test_there_is_a_recipe_for_each_of_the_seven() -> None:
    for subject in (
        "rule", "signal", "line of the log", "output format", "kind of source", "checkpoint", "vLLM release",
    ):  # fmt: skip
        assert any(subject in recipe for recipe in RECIPES)
