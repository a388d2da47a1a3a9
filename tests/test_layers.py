"""The direction of imports: a folder may know only those above it in this list."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

import pytest

from tests.paths import PACKAGE, ROOT

FOLDERS = (
    "model",
    "expr",
    "text",
    "vllm",
    "rules",
    "sources.server",
    "sources.host",
    "sources.gpu",
    "sources.collect_env",
    "sources.profile",
    "sources.log",
    "sources.trace",
    "sources.prefix",
    "sources.kubernetes",
    "prometheus",
    "launch",
    "sources.bench",
    "intake",
    "recording",
    "session",
    "regressions",
    "compare",
    "fleet",
    "alerting",
    "render",
    "tui",
    "cli",
    "api",
)
"""Why in this order, and what each folder is for: docs/architecture.md."""

_TABLES = ("rules.log_lines", "rules.kernel_table", "rules.parts")

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def _folder(module: str) -> str | None:
    """The folder of FOLDERS that a module is in; None: it is at the top, which all may know."""
    return next((name for name in FOLDERS if module == name or module.startswith(f"{name}.")), None)


def imported(module: str) -> Iterator[tuple[str, int]]:
    """What a module imports of this package, wherever in it, and in which line."""
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: write imports whole"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("vllm_doctor."):
                yield name.removeprefix("vllm_doctor."), node.lineno


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_knows_only_those_before_it(folder: str) -> None:
    allowed = FOLDERS[: FOLDERS.index(folder) + 1]
    wrong = [
        f"{module}:{line} imports {name}"
        for module in MODULES
        if _folder(module) == folder
        for name, line in imported(module)
        if _folder(name) not in {*allowed, None}
    ]
    assert wrong == []


def test_the_architecture_page_has_the_folders_in_this_order() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8").split("## The folders")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w/]+?)(?:/|\.py)` \|", page, re.MULTILINE)
    assert tuple(row.replace("/", ".") for row in rows) == FOLDERS


def test_every_module_is_in_a_folder() -> None:
    assert {module for module in MODULES if _folder(module) is None} == {"__init__", "__main__", "sources"}


def test_every_folder_says_what_it_is_for() -> None:
    assert [name for name in FOLDERS if not ast.get_docstring(ast.parse(MODULES[name].read_text("utf-8")))] == []


def test_sources_know_nothing_of_judging() -> None:
    """The tables of log lines, of kernels and of the parts of a profile are what they may know of the rules."""
    known = {name for module in MODULES if module.startswith("sources.") for name, _ in imported(module)}
    assert {name for name in known if name.startswith("rules.") and not name.startswith(_TABLES)} == set()


@pytest.mark.parametrize("folder", ["tests/lab", "tests/benchmarks", "vllm_doctor/vllm"])
def test_a_folder_of_scripts_hides_no_module_of_the_standard_library(folder: str) -> None:
    """A program that is run by its path finds what lies beside it first: torch imports cProfile, that profile."""
    assert {path.stem for path in (ROOT / folder).glob("*.py")} & sys.stdlib_module_names == set()


def test_no_command_knows_another() -> None:
    """What two of them need is a module of its own."""
    names = {
        f"cli.{command}"
        for command in (
            "examine",
            "demo",
            "compare",
            "record",
            "fleet",
            "alerts",
            "rules",
            "flags",
            "expect",
            "regressions",
            "recipe",
            "profile",
        )
    }
    known = {name for module in names for name, _ in imported(module)}
    assert {name for name in known if name.removeprefix("vllm_doctor.") in names} == set()


def test_the_check_sees_imports_of_every_kind() -> None:
    assert {"model.errors.UsageError", "sources.server.access.Access"} <= {name for name, _ in imported("cli.options")}
