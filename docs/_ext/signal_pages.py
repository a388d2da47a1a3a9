"""The signals, by their file in rules/signals/: what each is, how it is known, and which rules use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from marks import code, page, plain, table, toctree

from vllm_doctor.rules.rule_set import RuleSet
from vllm_doctor.rules.signal import Signal


def linked(name: str) -> str:
    """A signal in a page, with a link to its row."""
    return f"[{code(name)}](#signal-{name})"


def pages(found: RuleSet) -> dict[str, str]:
    """Path below reference/ -> text."""
    files = {path.stem: _names(path) for path in sorted((found.catalogue.path / "signals").glob("*.yaml"))}
    used: dict[str, list[str]] = {}
    for rule in found.rules:
        for name in rule.signals():
            used.setdefault(name, []).append(rule.id)
    signals = found.catalogue.signals
    made = {}
    for stem, names in files.items():
        rows = [_row(signals[name], used.get(name, [])) for name in names if name in signals]
        made[f"signals/{stem}.md"] = page(
            f"# Signals: {stem.replace('-', ' ')}",
            f"As {code(f'rules/signals/{stem}.yaml')} has them.",
            table(("signal", "meaning", "known by, in this order", "rules"), rows),
        )
    made["signals/index.md"] = page(
        "# Signals",
        "A signal is what rules name: a value with a unit, and the ways by which it is known. No rule names a metric, a"
        " flag or a line of the log itself; where vLLM renames a metric, one signal changes.",
        table(
            ("way", "what it reads"),
            [
                ("`promql`", "`/metrics`, over the window; `$engine` stands for the labels of an engine"),
                ("`info`, `present`", "a label of an info metric; whether the server exports a metric"),
                ("`flag`, `env`", "the server's command line and environment"),
                ("`log`", "how often a line of `rules/log-lines/` stands in the log, or a value of it"),
                ("`fact`", "what a source or the user knows: the host, the GPUs, the model, a goal"),
                ("`formula`", "other signals"),
            ],
        ),
        table(("file", "signals"), [(f"[{stem}]({stem}.md)", f"{len(names):,}") for stem, names in files.items()]),
        toctree(files),
    )
    return made


def _names(path: Path) -> list[str]:
    return list(yaml.safe_load(path.read_text("utf-8")).get("signals") or ())


def _row(signal: Signal, rules: list[str]) -> tuple[str, str, str, str]:
    unit = f" ({plain(signal.unit)})" if signal.unit else ""
    ways = "<br>".join(code(way) for way in _ways(signal))
    users = ", ".join(f"[{code(id)}](../rules/{id}.md)" for id in rules)
    return f"[{code(signal.name)}]{{#signal-{signal.name}}}", f"{plain(signal.says)}{unit}", ways, users


def _ways(signal: Signal) -> Iterator[str]:
    yield from signal.written
    if signal.exporter is not None:
        yield f"in a Prometheus, by {signal.exporter.origin}: {signal.exporter.promql}"
