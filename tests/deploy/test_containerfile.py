"""The Containerfile: it copies what the build needs and no more, and what it makes is not root and needs no shell."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tests.paths import ROOT

TEXT = (ROOT / "Containerfile").read_text("utf-8")
LINES = [line for line in re.sub(r"\\\n", " ", TEXT).splitlines() if line and not line.startswith("#")]
LAST_STAGE = LINES[max(number for number, line in enumerate(LINES) if line.startswith("FROM ")) :]
COPIED = [name for line in LINES if re.match(r"COPY (?!--from)", line) for name in line.split()[1:-1]]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def of_last_stage(instruction: str) -> list[str]:
    """What stands behind each of these."""
    return [line.removeprefix(f"{instruction} ") for line in LAST_STAGE if line.startswith(f"{instruction} ")]


def test_what_it_copies_is_there_and_reaches_the_build() -> None:
    passed = {line.removeprefix("!") for line in (ROOT / ".containerignore").read_text().split() if line[0] == "!"}
    assert set(COPIED) == passed
    assert [name for name in COPIED if not (ROOT / name).exists()] == []


def test_a_wheel_is_made_of_what_it_copies(tmp_path: Path) -> None:
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "made"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "made").iterdir()
    with zipfile.ZipFile(wheel) as held:
        names = set(held.namelist())
    assert {"vllm_doctor/py.typed", "vllm_doctor/rules/kept/rules.pickle"} <= names
    assert sum(name.endswith(("/licenses/LICENSE", "/licenses/NOTICE")) for name in names) == 2
    assert sum(name.startswith("vllm_doctor/rules/shipped/") for name in names) > 100


def test_its_user_is_a_number_and_not_root() -> None:
    """A number, or Kubernetes does not start it with runAsNonRoot."""
    (user,) = of_last_stage("USER")
    assert [int(part) > 0 for part in user.split(":")] == [True, True]


def test_it_starts_the_doctor_and_its_last_stage_needs_no_shell() -> None:
    assert of_last_stage("ENTRYPOINT") == ['["vllm-doctor"]']
    assert of_last_stage("RUN") == []
    assert of_last_stage("HEALTHCHECK") == []
    assert "vllm-doctor" in PROJECT["scripts"]


def test_the_licence_is_in_it() -> None:
    assert "LICENSE NOTICE /licenses/" in of_last_stage("COPY")
    assert f'org.opencontainers.image.licenses="{PROJECT["license"]}"' in TEXT


def test_its_arguments_are_true() -> None:
    comment = " ".join(line for line in TEXT.splitlines() if line.startswith("#"))
    named = {extra for group in re.findall(r"\[([a-z,-]+)\]", comment) for extra in group.split(",")}
    assert named
    assert named <= PROJECT["optional-dependencies"].keys()
    (image,) = re.findall(r"^ARG BASE=\S+/python:([\d.]+)-slim$", TEXT, re.MULTILINE)
    assert f"Programming Language :: Python :: {image}" in PROJECT["classifiers"]
    assert f"({PROJECT['requires-python'].removeprefix('>=')} or later)" in comment
    assert {line.split()[1].partition("=")[0] for line in LINES if line.startswith("ARG ")} == set(
        re.findall(r"([A-Z]{4,}): ", comment)
    )
