"""The README: short, and true of the project's files; its commands run in tests/docs/test_commands.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.paths import PACKAGE, ROOT
from vllm_doctor import __version__

README = (ROOT / "README.md").read_text()


def test_it_is_short() -> None:
    assert len(README.encode()) < 8_000


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_quick_start_is_two_commands() -> None:
    quick = README.split("## Quick start")[1].split("\n## ")[0]
    assert len(re.findall(r"```sh\n(.*?)\n```", quick)) == 2


def test_ci_runs_exactly_its_commands() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert '"$(command_of 1)"' in script
    assert '"$(command_of 2)"' in script


PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/architecture.md", "docs/api.md")
BESIDE = ("LICENSE", "NOTICE", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "README.md", "pyproject.toml")


@pytest.mark.parametrize("page", PAGES)
def test_the_paths_that_a_page_names_exist(page: str) -> None:
    """What looks like a path of the checkout or of the package (`docs/api.md`, `render/`) is one."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL)
    made = set(re.findall(r"^New file `([^`]+)`", text, re.MULTILINE))
    named = set(re.findall(r"`((?:\.?[\w-]+/)+(?:[\w-]+\.[\w.]+)?|[\w-]+\.py)`", text)) - made
    roots = (ROOT, PACKAGE, *(folder for folder in PACKAGE.rglob("*") if folder.is_dir()))
    assert [name for name in sorted(named) if not any((root / name).exists() for root in roots)] == []


def test_the_hooks_of_pre_commit_are_programs_of_the_environment() -> None:
    """Local ones, so that nothing is fetched; and the README's own."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    entries = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    for program in (".venv/bin/ruff check", ".venv/bin/ruff format --check", ".venv/bin/mypy"):
        assert program in README
        assert any(entry.startswith(program) for entry in entries)
    assert ".venv/bin/vllm-doctor rules --check rules" in entries


def test_the_hosted_workflow_runs_the_commands_of_the_readme() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    assert ".venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy" in workflow
    assert ".ci/run" in workflow
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f'"{project["requires-python"].removeprefix(">=")}"' in workflow
    yaml.safe_load(workflow)


@pytest.mark.parametrize("form", sorted((ROOT / ".github/ISSUE_TEMPLATE").iterdir()), ids=lambda path: path.stem)
def test_an_issue_form_asks_for_a_recording(form: Path) -> None:
    fields = yaml.safe_load(form.read_text("utf-8"))["body"]
    assert "recording" in {field.get("id") for field in fields}
    assert re.search(r"vllm-doctor record .*--share", form.read_text("utf-8"))


def test_the_changelog_begins_with_this_version_or_what_comes_after_it() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[1] == __version__


def test_the_sdist_holds_what_a_fork_needs(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    (sdist,) = tmp_path.glob("vllm_throughput_doctor-*.tar.gz")
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {*BESIDE, "vllm_doctor/py.typed", "rules/scheduler/preemption.yaml", "docs/architecture.md"}
    assert wanted | {"fixtures/preemption/recording.json", "tests/conftest.py"} <= names


def test_the_wheel_ships_rules_signals_recordings_schema_and_licence(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        env=os.environ | {"PYTHONSAFEPATH": "1"},  # as pipx starts pip
        check=True,
    )
    (wheel,) = tmp_path.glob("vllm_throughput_doctor-*.whl")
    with zipfile.ZipFile(wheel) as held:
        names = set(held.namelist())
        (metadata,) = (held.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    for name in ("LICENSE", "NOTICE"):
        assert any(held_name.endswith(f".dist-info/licenses/{name}") for held_name in names)
    assert "vllm_doctor/py.typed" in names
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    for path in ROOT.glob("rules/**/*.yaml"):
        assert f"vllm_doctor/rules/shipped/{path.relative_to(ROOT / 'rules').as_posix()}" in names
    demos = {path.parent for path in ROOT.glob("fixtures/*/recording.json")}
    files = {path.relative_to(ROOT / "fixtures").as_posix() for demo in demos for path in demo.rglob("*.*")}
    shipped = "vllm_doctor/recording/shipped/"
    assert {name.removeprefix(shipped) for name in names if name.startswith(shipped)} == files  # the rest is for tests
    assert "vllm_doctor/render/report.v1.schema.json" in names
    assert "vllm_doctor/render/fleet.v1.schema.json" in names
    assert "vllm_doctor/render/compare.v1.schema.json" in names
    assert "vllm_doctor/render/expect.v1.schema.json" in names
    for path in (ROOT / "vllm_doctor/vllm/data").iterdir():
        assert f"vllm_doctor/vllm/data/{path.name}" in names
