"""`vllm-doctor rules`: the list, one rule's page, and the signals."""

from __future__ import annotations

import textwrap

from vllm_doctor.model.kinds import SEVERITIES
from vllm_doctor.rules import document
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import Rule
from vllm_doctor.rules.rule_set import RuleSet
from vllm_doctor.text.words import ORIGIN

_WIDTH = 80


def listing(found: RuleSet) -> str:
    """All rules, a line each, by group."""
    rules = found.rules
    lines = []
    column = 2 + max((len(rule.id) for rule in rules), default=0) + 1
    for group in dict.fromkeys(rule.group for rule in sorted(rules, key=lambda r: r.group)):
        lines.append(f"{group}")
        for rule in rules:
            if rule.group == group:
                changed = " (skipped)" if rule.id in found.skipped else " (changed)" if rule.overridden else ""
                lines += textwrap.wrap(
                    f"{f'  {rule.id}':<{column}}{rule.title}{changed}",
                    _WIDTH,
                    subsequent_indent=" " * column,
                    break_on_hyphens=False,
                )
    return "\n".join(lines) + f"\n\n{len(rules)} rules; one rule's page: vllm-doctor rules ID\n"


def page(rule: Rule, is_skipped: bool = False) -> str:
    """One rule: what it means, when it fires, on whose word, what cures it, sources, examples."""
    lines = [rule.title, "=" * min(_WIDTH, len(rule.title)), ""]
    lines += [f"rule {rule.id} · {rule.group} · {rule.role} · {rule.status} · {rule.confidence} confidence", ""]
    lines += textwrap.wrap(rule.why, _WIDTH)
    lines += ["", "When"]
    if rule.applies:
        lines += _indented(f"applies   {rule.applies.text}", 10)
    for severity in SEVERITIES:
        if rule.cases:
            count = sum(case.severity == severity for case in rule.cases)
            kind = "improvements of later releases" if rule.cases[0].is_improvement else "known faults"
            lines += [f"  {severity:<10}one of {count} {kind} (vllm-doctor regressions)"] if count else []
        elif severity in rule.when:
            lines += _indented(f"{severity:<10}{' '.join(rule.when[severity].text.split())}", 10)
    if rule.next:
        lines += _indented(f"{'next':<10}{' '.join(rule.next.when.text.split())}", 10)
    lines += _indented(f"thresholds: {ORIGIN[rule.threshold_from]}")
    if rule.overridden:
        lines += _indented(f"{'skipped' if is_skipped else 'changed'} by {rule.overridden}")
    if rule.not_this_rule:
        lines += ["", "Not this rule", *_indented(rule.not_this_rule)]
    if rule.explains:
        lines += ["", "Explains", *_indented(", ".join(rule.explains))]
    if rule.gain:
        lines += ["", "It costs at most", *_indented(f"{rule.gain[0]}: {rule.gain[1]}")]
    if rule.costs:
        bound = (
            f"{rule.costs.signal}: {rule.costs.basis}" if rule.costs.signal else "not known: no upper bound is known"
        )
        bound = rule.costs.basis if rule.costs.of_cases else bound
        lines += ["", "It adds to each output token, at most", *_indented(bound)]
    lines += ["", "Fixes"]
    if rule.cases:
        lines += ["  those of the entry: vllm-doctor regressions VERSION"]
    for remedy in () if rule.cases else rule.remedies:
        lines += _indented(f"* {remedy.do}", 4)
        for flag in remedy.unset:
            lines.append(f"      - {flag}")
        for flag, value in remedy.set.items():
            lines.append(f"      + {flag}" if value is True else f"      + {flag} {value}")
        if remedy.condition:
            lines += _indented(f"    if {remedy.condition.text}", 4)
        lines += _indented(f"    cost: {remedy.cost}; risk: {remedy.risk}; expect: {remedy.expect}", 4)
    lines += [
        "",
        "See",
        *(f"  {url}" for url in rule.see),
        "",
        "Examples of the rule as it was written" if rule.overridden else "Examples",
    ]
    for example in document.read(rule.table.path).tables("examples"):
        given = ", ".join(f"{name} {value}" for name, value in example.items() if name != "gives")
        lines += _indented(f"{example['gives']:<16}{given}", 16)
    return "\n".join(lines) + "\n"


def signals(catalogue: Catalogue) -> str:
    """All signals: name, unit, meaning; the ways by which each is known, in order, and where it holds."""
    lines = []
    for signal in catalogue.signals.values():
        if signal.way_of is not None:
            continue
        lines.append(f"{signal.name}  [{signal.unit or 'number'}]")
        lines += _indented(signal.says)
        for written in signal.written:
            lines += _indented(" ".join(written.split()), 4)
        if signal.exporter is not None:
            lines += _indented(f"by {signal.exporter.origin}, in a Prometheus: {signal.exporter.promql}", 4)
    return "\n".join(lines) + "\n"


def _indented(text: str, hanging: int = 0) -> list[str]:
    return textwrap.wrap(f"  {text}", _WIDTH, subsequent_indent=" " * (2 + hanging), break_on_hyphens=False)
