"""The direction of imports: each module may know only those above it in this list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import vllm_doctor

PACKAGE = Path(vllm_doctor.__file__).parent

LAYERS = [
    "__init__",
    # the core: texts and numbers in, a diagnosis out; no network
    "errors", "signal", "window", "promql", "formula", "condition", "history", "flags", "metric_names", "defaults",
    "model_config", "kv_cache", "parameters", "roofline", "words", "yaml_text", "document", "log_lines", "report",
    "times", "unseen", "catalogue", "query", "recorded", "prediction", "life", "rule", "columns", "observation",
    "measure", "comparison", "picture", "redact", "diagnose", "alerts", "log_alerts", "postmortem",
    "sources", "sources.access", "sources.encoding", "sources.bench", "sources.guidellm", "sources.exposition",
    "sources.scrapes", "sources.state", "sources.server", "sources.archive", "sources.prometheus_api",
    "sources.engine_rows", "sources.prometheus",
    "sources.tape", "sources.recording", "sources.saved_page", "sources.kernel", "sources.kernel_log", "sources.cgroup",
    "sources.environment", "sources.topology", "sources.command_line", "sources.command_diff",
    "sources.process_files", "sources.sockets", "sources.process", "sources.model_files", "sources.host", "sources.gpu",
    "sources.nvidia_smi_fields", "sources.nvidia_smi_text", "sources.nvidia_smi", "sources.nvml", "sources.local",
    "sources.gpu_name",
    "sources.log", "sources.log.blocks", "sources.log.scan", "sources.log.tail", "sources.log.clock",
    "sources.log.wrapper", "sources.log.record", "sources.log.stream", "sources.log.context",
    "sources.log.arguments", "sources.log.kept", "sources.log.reader", "sources.log.lives", "sources.log.source",
    "sources.start", "sources.start.unexpanded", "sources.start.start", "sources.start.shell",
    "sources.start.docker", "sources.start.launch", "sources.start.tree", "sources.start.manifests",
    "sources.start.systemd", "sources.start.processes", "sources.start.model", "sources.start.rewrite",
    "sources.start.patches", "sources.start.source",
    "correction", "examination", "recorder", "fleet", "fleet_picture", "fleet_watch", "tracks", "past", "watch",
    "attach", "bench_serve", "progress", "render", "render.text", "render.json_v1", "render.markdown", "render.html",
    "render.nagios", "render.checkmk", "render.openmetrics", "render.patch", "render.alerts", "render.grafana",
    "render.fleet_text", "render.fleet_json",
    "render.compare_text", "render.compare_json", "sides", "rulebook", "demo",
    "vllm_parser", "ask_vllm", "flag_pages",
    "tui", "tui.ink", "tui.plot", "tui.cure", "tui.lines", "tui.page", "tui.vitals", "tui.finding", "tui.log",
    "tui.overview", "tui.engines", "tui.host", "tui.rules", "tui.chooser", "tui.help", "tui.app",
    "tui.fleet", "commands", "commands.chosen_rules", "commands.options", "commands.output", "commands.packing",
    "commands.one_shot", "commands.terminal", "commands.examine", "commands.demo", "commands.compare",
    "commands.record", "commands.asked_fleet",
    "commands.fleet_one_shot", "commands.fleet_terminal", "commands.fleet", "commands.alerts", "commands.rules",
    "commands.flags",
    "cli", "__main__",
]  # fmt: skip


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {_name(path): path for path in PACKAGE.rglob("*.py") if not {"rules", "recordings"} & set(path.parts)}


def _imported(module: str) -> Iterator[tuple[str, int]]:
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
            if name.split(".")[0] == "vllm_doctor":
                yield _module(name.split(".")[1:]), node.lineno


def _module(parts: list[str]) -> str:
    """The module that holds what is imported: ["report", "Report"] is in report."""
    while parts and ".".join(parts) not in MODULES:
        parts = parts[:-1]
    return ".".join(parts) or "__init__"


def test_every_module_has_its_place() -> None:
    assert sorted(LAYERS) == sorted(MODULES)


@pytest.mark.parametrize("module", LAYERS)
def test_a_module_imports_only_what_stands_before_it(module: str) -> None:
    allowed = LAYERS[: LAYERS.index(module)]
    wrong = [f"line {line}: {name}" for name, line in _imported(module) if name not in allowed]
    assert wrong == []


@pytest.mark.parametrize("module", [name for name in LAYERS if name.startswith("render.")])
def test_a_renderer_knows_neither_another_renderer_nor_a_source(module: str) -> None:
    wrong = [name for name, _ in _imported(module) if name.startswith(("render", "sources"))]
    assert wrong == []


def test_sources_know_nothing_of_rules() -> None:
    sources = [name for name in LAYERS if name.startswith("sources.")]
    assert not {name for module in sources for name, _ in _imported(module)} & {"rule", "diagnose"}


def test_no_command_knows_another() -> None:
    """What two of them need is a module of its own."""
    commands = {"examine", "demo", "compare", "record", "fleet", "alerts", "rules", "flags"}
    names = {f"commands.{command}" for command in commands}
    assert not {name for module in names for name, _ in _imported(module)} & names


def test_the_check_sees_imports_of_every_kind() -> None:
    assert {"signal", "errors", "sources.access"} <= {name for name, _ in _imported("commands.options")}
