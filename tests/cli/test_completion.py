"""What the shells complete, asked of the shells."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.programs import needed
from vllm_doctor.cli import commands, completion
from vllm_doctor.cli.main import main

pytest.importorskip("shtab")

ASKED = [
    ("vllm-doctor recor", {"record"}),
    ("vllm-doctor help comp", {"compare", "completion"}),
    ("vllm-doctor demo preem", {"preemption"}),
    ("vllm-doctor rules max-num-seqs", {"max-num-seqs-cap", "max-num-seqs-large"}),
    ("vllm-doctor --goa", {"--goal"}),
    ("vllm-doctor --goal ", {"throughput", "latency"}),
    ("vllm-doctor compare --format ", {"text", "json"}),
    ("vllm-doctor compare --fail", set()),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("scripts")
    found = {shell: folder / f"vllm-doctor.{shell}" for shell in completion.SHELLS}
    for shell, path in found.items():
        with pytest.MonkeyPatch.context() as patched:
            said: list[str] = []
            patched.setattr(completion, "say", said.append)
            assert main(["completion", shell]) == 0
        path.write_text("".join(said))
    return found


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "server.log").touch()
    return tmp_path


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_it_is_a_script_of_that_shell(shell: str, scripts: dict[str, Path]) -> None:
    subprocess.run([needed(shell), "-n", str(scripts[shell])], check=True)
    for shtabs, ours in completion._WITH_FILES[shell]:
        assert ours in scripts[shell].read_text(), f"shtab writes {shtabs!r} no more"


def by_bash(script: Path, line: str, here: Path) -> set[str]:
    words = [*line.split(), *([""] if line.endswith(" ") else [])]
    listed = " ".join(f"'{word}'" for word in words)
    code = f"""source {script}; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}
    _shtab_vllm_doctor vllm-doctor '{words[-1]}' '{words[-2]}'; printf '%s\\n' "${{COMPREPLY[@]}}\""""
    ran = subprocess.run([needed("bash"), "-c", code], capture_output=True, text=True, check=True, cwd=here)
    return set(ran.stdout.split())


def by_fish(script: Path, line: str, here: Path) -> set[str]:
    code = f"source {script}; complete -C '{line}'"
    ran = subprocess.run([needed("fish"), "-c", code], capture_output=True, text=True, check=True, cwd=here)
    return {told.split("\t")[0] for told in ran.stdout.splitlines()}


@pytest.mark.parametrize(("line", "offered"), ASKED)
def test_bash(line: str, offered: set[str], scripts: dict[str, Path], here: Path) -> None:
    found = by_bash(scripts["bash"], line, here)
    assert found == offered if not line.startswith("vllm-doctor rules") else offered & found


@pytest.mark.parametrize(("line", "offered"), [*ASKED, ("vllm-doctor ser", {"server.log"})])
def test_fish(line: str, offered: set[str], scripts: dict[str, Path], here: Path) -> None:
    found = by_fish(scripts["fish"], line, here)
    assert found == offered if not line.startswith("vllm-doctor rules") else offered & found


def test_every_command_is_in_each(scripts: dict[str, Path]) -> None:
    for path in scripts.values():
        text = path.read_text()
        assert all(name in text for name in commands.ABOUT)
