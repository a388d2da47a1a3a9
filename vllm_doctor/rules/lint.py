"""The check of a folder of rules: every mistake in it, and what its examples give."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from vllm_doctor.rules import document, log_lines, rule, rule_set, signal_lint
from vllm_doctor.rules import folders as places
from vllm_doctor.rules.document import Problems, Table
from vllm_doctor.rules.log_lines import LogLines
from vllm_doctor.rules.rule_set import RuleSet


def check(folder: Path) -> tuple[list[str], str]:
    """All mistakes of a folder, one line each, by file and line; and what is in it. Raises UsageError: no folder."""
    places.check([folder])
    problems = Problems()
    found = rule_set.load([folder], problems)
    lines = log_lines.read([places.shipped(), *rule_set.own([folder])], problems)
    examples = _check_rules(folder, found, problems)
    _check_signals(folder, lines, problems)
    told = [f"{_counted(len(places.rules(folder)), 'rule')} and {_counted(examples, 'example')}"]
    for count, noun in (
        (sum(len(_entries(path, "signals")) for path in places.signals(folder)), "signal"),
        (sum(len(_entries(path, "lines")) for path in places.log_lines(folder)), "log line"),
        (sum(len(_entries(path, "overrides")) for path in places.overrides(folder)), "override"),
    ):
        if count:
            told.append(_counted(count, noun))
    return problems.lines(), ", ".join(told)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _check_rules(folder: Path, found: RuleSet, problems: Problems) -> int:
    """Run the examples of the folder's rules: how many there are."""
    paths = {path.resolve() for path in places.rules(folder)}
    ids = [one.id for one in found.rules]
    examples = 0
    for one in found.as_written:
        if one.table.path.resolve() not in paths:
            continue
        for other in one.explains:
            if other not in ids:
                near = get_close_matches(other, ids, 1)
                one.table.mistake(f"no rule {other!r}" + (f"; did you mean {near[0]!r}?" if near else ""), "explains")
        with document.gathered(problems):
            examples += rule.check_examples(one, found.catalogue, problems)
    return examples


def _check_signals(folder: Path, lines: LogLines, problems: Problems) -> None:
    roots = {path: _root(path, problems) for path in places.signals(folder)}
    declared = [name for root in roots.values() for name in root.texts("known_metrics")]
    known = signal_lint.Known(declared, lines)
    for root in roots.values():
        entries = root.table("signals")
        for name in entries:
            known.check_entry(entries.table(name))
    for path in places.log_lines(folder):
        table = _root(path, problems).table("lines")
        for id in table:
            samples = table.table(id).table("samples")
            for metric in samples:
                known.check_metric(samples, metric, metric.partition("{")[0])


def _root(path: Path, problems: Problems) -> Table:
    """Read again: what is wrong with it was noted the first time, and is said once."""
    with document.gathered(problems):
        return document.read(path, problems=problems)
    empty = Table()
    empty.path, empty.line, empty.lines, empty.problems = path, 1, {}, problems
    return empty


def _entries(path: Path, key: str) -> Table:
    return _root(path, Problems()).table(key)
