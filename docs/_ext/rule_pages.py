"""A page for each rule, from its YAML: what it means, when it fires, its fixes and for which releases, its sources."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import yaml
from marks import block, code, page, plain, table, toctree
from signal_pages import linked

from vllm_doctor.model.kinds import SEVERITIES, Role, Severity
from vllm_doctor.recording import demo
from vllm_doctor.rules import document
from vllm_doctor.rules.rule import RemedyRule, Rule
from vllm_doctor.rules.rule_set import RuleSet
from vllm_doctor.rules.signal import Signal
from vllm_doctor.text.words import COST, ORIGIN
from vllm_doctor.vllm import flags

GROUPS = {
    "benchmark": "Benchmarks: is the measurement sound?",
    "compile": "Compilation and CUDA graphs",
    "features": "Features of the server, and crashes",
    "gpu": "The GPUs",
    "host": "The host: CPUs, memory, control groups",
    "kernels": "Kernels and quantisation",
    "parallel": "Parallelism",
    "path": "The path of a request: gateway, router, prefill, decode",
    "scaling": "Scaling out",
    "scheduler": "The scheduler and the KV cache",
    "trace": "Traces of a profiler",
    "versions": "Releases",
}
"""The folders of rules/, and what they are about."""
_ROLE = {
    Role.ROOT: "root cause",
    Role.SYMPTOM: "symptom",
    Role.INFO: "note",
    Role.OPPORTUNITY: "opportunity",
    Role.NOT_SERVER: "not the server's fault",
    Role.BLIND: "missing data",
}
_PLACE = re.compile(r"\{(\w+)\}")


def pages(found: RuleSet) -> dict[str, str]:
    """Path below reference/ -> text."""
    signals = found.catalogue.signals
    causes: dict[str, list[str]] = {}
    for rule in found.rules:
        for other in rule.explains:
            causes.setdefault(other, []).append(rule.id)
    made = {f"rules/{rule.id}.md": _page(rule, signals, causes.get(rule.id, [])) for rule in found.rules}
    groups = sorted({rule.group for rule in found.rules})
    for group in groups:
        rules = [rule for rule in found.rules if rule.group == group]
        rows = [(_link(rule.id), plain(rule.title), _severities(rule), _role(rule)) for rule in rules]
        made[f"rules/group-{group}.md"] = page(
            f"# {GROUPS[group]}",
            table(("rule", "what it finds", "severity", "role"), rows),
        )
    made["rules/index.md"] = page(
        "# Rules",
        f"All {len(found.rules)} rules. A finding, an alert and the JSON name a rule by its id; `vllm-doctor rules ID`"
        " prints the page at a terminal. To add one: [](../../contributing.md); to change one for your servers:"
        " [](../../own-rules.md).",
        *(
            f"## {GROUPS[group]}\n\n"
            + table(
                ("rule", "what it finds"),
                [(_link(rule.id), plain(rule.title)) for rule in found.rules if rule.group == group],
            )
            for group in groups
        ),
        toctree(f"group-{group}" for group in groups),
    )
    return made


def _page(rule: Rule, signals: Mapping[str, Signal], causes: list[str]) -> str:
    return page(
        "---\norphan: true\n---",  # two hundred pages would fill the navigation of each page
        f"[Rules](index.md) › [{GROUPS[rule.group]}](group-{rule.group}.md)",
        f"# {plain(rule.title)}",
        f"{code(rule.id)} · {_role(rule)} · confidence {rule.confidence} · {rule.status}",
        *_prose(rule.why),
        f"**Not this rule.** {plain(' '.join(rule.not_this_rule.split()))}" if rule.not_this_rule else "",
        "## When it fires",
        *_when(rule, signals),
        "## What the report says" if rule.here else "",
        "\n".join(f"- {_sentence(text, signals)}" for text in rule.here),
        *_related(rule, causes),
        *_bounds(rule, signals),
        "## Fixes",
        *(
            _fixes(rule, signals)
            or ["Those of its cause." if causes else "No flag and no command is known that fixes it."]
        ),
        *_cases(rule),
        "## Sources",
        "\n".join(f"- <{url}>" for url in rule.see),
        "## Try it",
        *_examples(rule),
    )


def _cases(rule: Rule) -> Iterator[str]:
    """The entries of its table, with the threads that reported them."""
    if rule.cases:
        yield "## Its entries"
        rows = dict.fromkeys((plain(case.says), _threads(case.see)) for case in rule.cases)
        yield table(("what, and of which releases", "reported"), rows)


def _threads(urls: Sequence[str]) -> str:
    return ", ".join(f"[{plain(url.rpartition('/')[2])}]({url})" for url in urls)


def _prose(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield plain(" ".join(paragraph.split()))


def _when(rule: Rule, signals: Mapping[str, Signal]) -> Iterator[str]:
    if rule.cases:
        kind = "improvements of later releases" if rule.cases[0].is_improvement else "known faults of releases"
        yield f"One of {len(rule.cases)} {kind} holds for this server: they stand below. How: [](../../regressions.md)."
        return
    if rule.applies is not None:
        yield f"Judged only where {code(rule.applies.text)}."
    yield block("\n".join(_condition(severity, rule) for severity in SEVERITIES if severity in rule.when))
    yield f"The first that holds, from the top, is the severity. Thresholds: {ORIGIN[rule.threshold_from]}."
    if rule.next is not None:
        yield f"As the next limit, after other changes: {code(rule.next.when.text)}."
    rows = [(linked(name), plain(signals[name].says), plain(signals[name].unit or "number")) for name in rule.signals()]
    yield table(("signal", "meaning", "unit"), rows)
    yield "Where a signal is missing the rule is *skipped*, with the name of what is missing; it is never ok."


def _condition(severity: Severity, rule: Rule) -> str:
    text = f"{severity:<10}{' '.join(rule.when[severity].text.split())}"
    return textwrap.fill(text, 88, subsequent_indent=" " * 10, break_on_hyphens=False, break_long_words=False)


def _related(rule: Rule, causes: list[str]) -> Iterator[str]:
    if rule.explains or causes:
        yield "## Causes and symptoms"
    if rule.explains:
        yield f"Where it is found, these are its symptoms and stand below it: {', '.join(map(_link, rule.explains))}."
    if causes:
        yield f"It is itself a symptom of: {', '.join(map(_link, causes))}."


def _bounds(rule: Rule, signals: Mapping[str, Signal]) -> Iterator[str]:
    if rule.gain is None and rule.costs is None:
        return
    yield "## What it costs"
    if rule.gain is not None:
        yield f"At most a factor of {linked(rule.gain[0])} in throughput: {plain(rule.gain[1])}."
    if rule.costs is not None and rule.costs.signal is not None:
        yield f"At most {linked(rule.costs.signal)} for each output token: {plain(rule.costs.basis)}."
    elif rule.costs is not None:
        told = plain(rule.costs.basis) or "no upper bound is known"
        yield f"It makes each output token take longer: {told}."


def _fixes(rule: Rule, signals: Mapping[str, Signal]) -> list[str]:
    if rule.cases:
        return ["Those of the entry: `vllm-doctor regressions VERSION`."]
    parts = []
    for count, remedy in enumerate(rule.remedies, 1):
        parts += [f"### {count}. {_sentence(remedy.do, signals)}", *_fix(remedy, signals)]
    return parts


def _fix(remedy: RemedyRule, signals: Mapping[str, Signal]) -> Iterator[str]:
    changes = [f"- {_value(flag)}" for flag in remedy.unset]
    changes += [f"+ {flag}" if value is True else f"+ {flag} {_value(value)}" for flag, value in remedy.set.items()]
    changes += [f"+ {name}={_value(value)}" for name, value in remedy.env.items()]
    if changes:
        yield block("\n".join(changes), "diff")
    if remedy.run:
        yield block("\n".join(_value(line) for line in remedy.run))
    if remedy.condition is not None:
        yield f"Offered where {code(remedy.condition.text)}."
    if remedy.goal:
        yield f"For the goal *{remedy.goal}* (`--goal`)."
    yield "\n".join(
        [
            f"- **Cost:** {COST[remedy.cost]}" + ("" if remedy.by == "you" else f"; by the {remedy.by}"),
            f"- **Risk:** {_sentence(remedy.risk, signals)}",
            f"- **Expect:** {_sentence(remedy.expect, signals)}",
            *(f"- **Computed:** {_sentence(text, signals)}" for text in remedy.computed),
            *_releases(remedy),
        ]
    )


def _releases(remedy: RemedyRule) -> Iterator[str]:
    """Which vLLM takes the flags that it sets. One that vLLM lacks is never printed for it."""
    for flag in remedy.set:
        name = flag.partition(" ")[0]
        spans = flags.spans(name)
        if spans:
            told = ", ".join(_span(first, last) for first, last in spans)
            yield f"- **{code(name)}** is in vLLM {told}"


def _span(first: str, last: str) -> str:
    if last == flags.newest():
        return f"{first} and later"
    return first if first == last else f"{first} to {last}"


def _examples(rule: Rule) -> Iterator[str]:
    demos = [name for name in demo.names() if rule.id in _found(name)]
    if demos:
        yield "On a server that was recorded with this finding:"
        yield block("\n".join(f"vllm-doctor demo {name}" for name in demos))
    rows = []
    for example in document.read(rule.table.path).tables("examples"):
        given = ", ".join(f"{name} {value}" for name, value in example.items() if name != "gives")
        rows.append((str(example["gives"]), code(given) if len(given) < 1000 else code(f"{given[:1000]}…")))
    yield "The rule's own examples, which are its tests: what is given, and what the rule says of it."
    yield table(("gives", "given"), rows)


@cache
def _found(name: str) -> frozenset[str]:
    """The findings that the recording of that name must have."""
    expected = yaml.safe_load((demo.folder() / name / "expected.yaml").read_text("utf-8"))
    return frozenset((*(expected.get("found") or ()), *(expected.get("beside") or ())))


def _sentence(text: str, signals: Mapping[str, Signal]) -> str:
    """A template: in the place of each value what it is."""
    parts = _PLACE.split(" ".join(text.split()))
    told = [plain(part) if place % 2 == 0 else f"‹{_says(part, signals)}›" for place, part in enumerate(parts)]
    return "".join(told)


def _says(name: str, signals: Mapping[str, Signal]) -> str:
    return f"*{plain(signals[name].says)}*" if name in signals else plain(name)


def _value(value: object) -> str:
    return _PLACE.sub(lambda found: f"<{found[1]}>", str(value))


def _severities(rule: Rule) -> str:
    named = {case.severity for case in rule.cases} or set(rule.when)
    return ", ".join(severity for severity in SEVERITIES if severity in named)


def _role(rule: Rule) -> str:
    return _ROLE[rule.role]


def _link(id: str) -> str:
    return f"[{code(id)}]({id}.md)"
