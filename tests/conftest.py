"""Fixtures of the tests that talk to servers; and which tests are fast (`pytest -m fast`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from fnmatch import translate
from pathlib import Path

import pytest

from tests.making import shipped_catalogue
from tests.paths import ROOT
from tests.serving import Clock
from vllm_doctor.rules import pickled
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.sources.server import server
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.route import DIRECT, Route
from vllm_doctor.sources.server.server import Server

SLOW = (
    "tests/session/sources/test_ways.py*",
    # whole folders and modules: they start processes, servers or terminals, or live through real seconds
    "tests/alerting/*",
    "tests/cli/*",
    "tests/deploy/test_chart.py*",
    "tests/deploy/test_release.py*",
    "tests/tui/*",
    "tests/sources/profile/test_py_spy.py*",
    "tests/sources/kubernetes/*",
    "tests/session/sources/test_kubernetes.py*",
    "tests/fleet/*",
    "tests/compare/test_bench_run.py*",
    "tests/fuzz/test_structures.py*",
    "tests/launch/test_budget.py*",
    "tests/launch/test_patches.py*",
    "tests/launch/test_region.py*",
    "tests/prometheus/test_real_prometheus.py*",
    "tests/prometheus/test_survey.py*",
    "tests/recording/test_demo.py*",
    "tests/render/test_html.py*",
    "tests/rules/test_columns.py*",
    "tests/rules/test_lint.py*",
    "tests/rules/test_overrides.py*",
    "tests/recording/test_metrics.py*",
    "tests/sources/host/test_hidepid.py*",
    "tests/sources/host/test_output.py*",
    "tests/sources/log/test_source.py*",
    "tests/sources/log/test_bytes_unpacked.py*",
    "tests/session/test_attach.py*",
    "tests/session/test_capture.py*",
    "tests/session/test_inputs.py*",
    "tests/session/test_local.py*",
    "tests/session/test_watch.py*",
    "tests/sources/gpu/test_nvml.py*",
    "tests/sources/server/test_server.py*",
    "tests/test_alerts_page.py*",
    "tests/test_words.py*",
    "tests/test_api.py*",
    "tests/test_confused_deputy.py*",
    "tests/test_credentials.py*",
    "tests/test_contributing.py*",
    "tests/test_guides.py*",
    "tests/test_hooks.py*",
    "tests/test_pasted.py*",
    "tests/test_programs.py*",
    "tests/docs/test_commands.py*",
    "tests/docs/test_site.py*",
    "tests/test_readme.py*",
    "tests/test_secrets.py*",
    "tests/vllm/test_flag_catalogue.py*",
    "tests/vllm/test_installed.py*",
    # wherever it stands: what floods a reader to see that it holds, and what has a process of its own
    "*take*_long*",
    "*too_long*",
    "*one_short_line*",
    "*hundred_thousand*",
    "*endless*",
    "*giant*",
    "*mutations_begin_with*",
    "*too_strange*",
    "*without_end*",
    "*::test_a_bomb*",
    "*::test_a_wheel_is_made_of_what_it_copies*",
    "*::test_any_division*",
    "*::test_a_real_process*",
    "*::test_a_template_engine*",
    "*::test_the_report_is_the_same_whichever_version_holds_it*",
    "*::test_standard_input*",
    "*::test_a_named_pipe*",
    "*::test_nothing_is_read_before_the_first_question*",
    "tests/rules/test_*::test_it_is_written_where_python_writes_its_own*",
)
"""Tests that are not fast, as patterns of their names: `tests/FOLDER/MODULE.py::TEST`. All others are."""

_PROCESS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn"})
_running: list[str] = []
"""The fast test that runs."""


_is_slow = re.compile("|".join(translate(pattern) for pattern in SLOW)).match


def _no_process_in_a_fast_test(event: str, _: object) -> None:
    if event in _PROCESS and _running:
        pytest.fail(f"a fast test starts a process ({event}): name its place in SLOW, tests/conftest.py", pytrace=False)


sys.addaudithook(_no_process_in_a_fast_test)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m fast` modules without a fast test are not even imported."""
    name = collection_path.relative_to(ROOT).as_posix() if collection_path.is_relative_to(ROOT) else ""
    return True if config.getoption("markexpr") == "fast" and _is_slow(name) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test is fast, or is named in SLOW."""
    for item in items:
        if not _is_slow(item.nodeid):
            item.add_marker(pytest.mark.fast)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Whether a fast test runs, for the process guard."""
    _running[:] = [item.nodeid] if item.get_closest_marker("fast") else []
    try:
        return (yield)
    finally:
        _running.clear()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names of tests without the bytes they are given: these may hold a time, and parallel workers compare names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def no_config_of_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user of this machine configures changes no test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


@pytest.fixture(scope="session")
def signals() -> Catalogue:
    return shipped_catalogue()


@pytest.fixture
def kept_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a program keeps what it made of the rules and log lines; nothing is kept yet."""
    folder = tmp_path / pickled.FOLDER
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(pickled, "_BROUGHT", tmp_path / "none")
    monkeypatch.setattr(pickled, "_OWN", folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return folder


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line does not wait between scrapes: each server's clock is set forward instead."""

    class Hurried(Server):
        def __init__(
            self,
            url: str,
            wanted: frozenset[str],
            access: Access | None = None,
            clock: Callable[[], float] | None = None,
            sleep: Callable[[float], None] | None = None,
            route: Route = DIRECT,
            role: str = "",
        ) -> None:
            skipping = Clock()
            clock, sleep = clock or skipping.now, sleep or skipping.sleep
            super().__init__(url, wanted, access, clock, sleep, route, lambda: 0.0, role)

    monkeypatch.setattr(server, "Server", Hurried)
