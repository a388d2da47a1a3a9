"""The one-shot output pays nothing for the terminal, and nothing but its command knows it."""

from __future__ import annotations

import pytest

from tests.cli.test_main import python
from tests.serving import pages, serving, vllm
from tests.test_layers import MODULES, imported

PROGRAM = """\
import sys
from vllm_doctor.cli.main import main
main(sys.argv[1:])
print(sorted({name.partition('.')[0] for name in sys.modules} & {'textual', 'rich'}), file=sys.stderr)
"""


@pytest.mark.parametrize("form", ["--json", "--text", "--format=markdown", "--format=nagios"])
def test_other_outputs_import_neither_textual_nor_rich(form: str) -> None:
    with serving(vllm(pages("preemption"))) as server:
        ran = python("-c", PROGRAM, server.url, form, "--window", "0")
    assert ran.stderr.splitlines()[-1] == "[]"
    assert ran.stdout


@pytest.mark.parametrize(
    "unused",
    ["regex", "yaml", "jinja2", "difflib", "statistics", "hyperscan"]
    + [f"vllm_doctor.{name}" for name in ("render.page", "session.view_model", "rules.kernel_table", "model.trace")],
)
def test_a_hook_waits_for_nothing_that_its_report_does_not_need(unused: str, imported_by_json: frozenset[str]) -> None:
    assert unused not in imported_by_json


@pytest.fixture(scope="module")
def imported_by_json() -> frozenset[str]:
    """The modules behind `vllm-doctor URL --json`."""
    told = PROGRAM.partition("print")[0] + "print(*sys.modules, file=sys.stderr)"
    with serving(vllm(pages("preemption"))) as server:
        ran = python("-c", told, server.url, "--json", "--window", "0")
    modules = frozenset(ran.stderr.splitlines()[-1].split())
    assert "vllm_doctor.render.json_v1" in modules
    return modules


@pytest.mark.parametrize("command", ["terminal", "fleet_terminal"])
def test_the_terminal_is_drawn_before_rules_and_sources_are_loaded(command: str) -> None:
    """What its command imports at once is what its first frame waits for."""
    modules = set(python("-c", f"import sys, vllm_doctor.cli.{command}; print(*sys.modules)").stdout.split())
    assert "textual" in modules
    assert not {"httpx", "yaml", "promql_parser", "prometheus_client", "psutil", "hyperscan"} & modules
    late = ("rules.rule", "rules.catalogue", "session.attach", "session.watch", "fleet.fleet", "sources.server.server")
    assert not {f"vllm_doctor.{name}" for name in late} & modules


def test_only_its_commands_know_the_terminal() -> None:
    commands = ("cli.terminal", "cli.fleet_terminal")
    outside = [name for name in MODULES if not name.startswith("tui") and name not in commands]
    assert not [name for name in outside for found, _ in imported(name) if found.startswith("tui")]


def test_the_terminal_knows_no_source_and_no_rule() -> None:
    inside = [name for name in MODULES if name.startswith("tui")]
    known = {found for name in inside for found, _ in imported(name) if not found.startswith("tui")}
    assert not {name for name in known if name.startswith(("sources", "commands"))}
    assert not known & {"rule", "catalogue", "diagnose", "examination", "attach", "watch", "postmortem", "cli"}
    assert not known & {"fleet", "fleet_watch"}
