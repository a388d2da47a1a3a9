""".ci/release: what it refuses, with nothing left behind, and what it does of a draft, where nothing can be fetched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.programs import needed
from vllm_doctor.model.version import __version__

NOT_RELEASED = shutil.ignore_patterns(
    ".git",
    ".venv",
    ".lab",
    ".hypothesis",
    "dist",
    "reference",
    "tests",
    "__pycache__",
    ".*_cache",
    "*.egg-info",
    "chart",
)
READY = f"# Changelog\n\n## [Unreleased]\n\n### Added\n\n## [{__version__}] - 2026-11-26\n\n- The first line.\n"


class Checkout:
    """A git repository made of this checkout, or of what is read first of it, and a temporary folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.temporary = root / "checkout", root / "tmp"
        self.temporary.mkdir()

    def with_all(self) -> Checkout:
        shutil.copytree(ROOT, self.root, ignore=NOT_RELEASED)
        return self._kept()

    def with_little(self) -> Checkout:
        """What is read before anything is built."""
        for name in (".ci/release", "vllm_doctor/model/version.py"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        return self._kept()

    def _kept(self) -> Checkout:
        (self.root / "CHANGELOG.md").write_text(READY)
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "ready")
        return self

    def git(self, *words: str) -> str:
        given = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", *words]
        done = subprocess.run(
            ["git", *given], cwd=self.root, env=self._env(), capture_output=True, text=True, check=True
        )
        return done.stdout

    def release(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.root / ".ci" / "release"), *words]
        return subprocess.run(
            command, cwd="/", env={**self._env(), **env}, capture_output=True, text=True, timeout=600, check=False
        )

    def _env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON", "PIP_"))}
        return {**kept, "GIT_CONFIG_GLOBAL": "/dev/null", "TMPDIR": str(self.temporary), "HOME": str(self.root.parent)}

    def left(self) -> list[str]:
        """What stands here that was not committed: files, and tags."""
        files = self.git("status", "--porcelain", "--ignored").splitlines()
        return [*files, *self.git("tag").split(), *(path.name for path in self.temporary.iterdir())]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    needed("git")
    return Checkout(tmp_path)


def test_uncommitted_changes_are_refused(checkout: Checkout) -> None:
    checkout.with_little()
    (checkout.root / "notes.txt").write_text("to do")
    refused(checkout, "the tree has changes that are not committed", left=["?? notes.txt"])


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        (" - 2026-11-26", "", f"CHANGELOG.md has no '## [{__version__}] - YYYY-MM-DD'"),
        (f"## [{__version__}] - 2026-11-26", "## [0.0.1] - 2026-11-26", f"CHANGELOG.md has no '## [{__version__}]"),
        ("### Added\n", "### Added\n\n- A line.\n", "CHANGELOG.md has lines under Unreleased: they belong under ["),
    ],
)
def test_a_changelog_that_is_not_ready_is_refused(checkout: Checkout, was: str, now: str, why: str) -> None:
    checkout.with_little()
    path = checkout.root / "CHANGELOG.md"
    assert was in path.read_text()
    path.write_text(path.read_text().replace(was, now))
    checkout.git("commit", "-q", "-a", "-m", "not ready")
    refused(checkout, why)


def test_a_version_that_is_tagged_is_refused(checkout: Checkout) -> None:
    checkout.with_little().git("tag", f"v{__version__}")
    refused(checkout, f"the tag v{__version__} is there already", left=[f"v{__version__}"])


def test_a_word_that_it_does_not_know_is_refused(checkout: Checkout) -> None:
    checkout.with_little()
    done = checkout.release("--drafts")
    assert done.returncode == 3
    assert "usage: .ci/release [--draft]" in done.stdout
    assert checkout.left() == []


def refused(checkout: Checkout, why: str, left: list[str] | None = None) -> None:
    done = checkout.release()
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"release: {why}")
    assert done.returncode == 1
    assert checkout.left() == (left or [])


def test_a_draft_is_built_and_tried_and_not_signed(checkout: Checkout, tmp_path: Path) -> None:
    python = tmp_path / "python"
    offline = Path(__file__).with_name("offline_python.py")
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{offline}" "$@"\n')
    python.chmod(0o755)
    checkout.with_all()
    (checkout.root / "notes.txt").write_text("to do")
    done = checkout.release("--draft", PYTHON=str(python), PYTHONS=f"{python} {tmp_path / 'python0'}")
    assert (done.returncode, done.stderr) == (0, "")
    version = re.escape(__version__)
    for line in (
        "draft: the tree has changes that are not committed",
        r"twine check --strict dist/\S+\.tar\.gz dist/\S+\.whl|twine check --strict dist/\S+\.whl dist/\S+\.tar\.gz",
        rf"{re.escape(str(python))}: Python {re.escape(sys.version.split()[0])}, \d+ MB",
        rf"{re.escape(str(tmp_path / 'python0'))}: not here",
        rf"[0-9a-f]{{64}}  vllm_throughput_doctor-{version}\.tar\.gz",
        rf"[0-9a-f]{{64}}  vllm_throughput_doctor-{version}-py3-none-any\.whl",
        "draft: dist/ is built and checked; nothing is signed or tagged",
    ):
        assert re.search(f"^(?:{line})$", done.stdout, re.MULTILINE), f"{line}\n{done.stdout}"
    assert {path.suffix for path in (checkout.root / "dist").iterdir()} == {".gz", ".whl", ""}
    assert checkout.left() == ["?? notes.txt", "!! dist/"]
