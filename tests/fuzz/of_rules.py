"""Harnesses of rules, signals and their languages."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.harness import file_of, harness, sign_of, text_of
from tests.fuzz.of_commands import YAML
from tests.fuzz.of_servers import wanted
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason


@harness(lambda: [text[:1500] for text in corpus.rules()[::12]], *YAML[9:18], "when:", "rule: x", raises=(), most=2000)
def strict_yaml(data: bytes) -> Hashable:
    """Any document of ours: alone, and with all its mistakes."""
    from vllm_doctor.rules import strict_yaml
    from vllm_doctor.rules.table import Problems

    problems = Problems()
    strict_yaml.parsed(text_of(data), Path("x.yaml"), problems)
    return len(strict_yaml.parsed(text_of(data), Path("x.yaml"), None)), len(problems.lines())


def _problems(read: Callable[[Any], object]) -> Hashable:
    from vllm_doctor.rules.table import Problems

    problems = Problems()
    read(problems)
    return tuple(sorted({re.sub(r"[\d'\"].*", "", line.split(": ", 1)[-1])[:40] for line in problems.lines()}))


def named_x(rule: bytes) -> bytes:
    """As its file is named."""
    return re.sub(rb"\Arule: [\w-]+", b"rule: x", rule)


@harness(
    lambda: corpus.rules("scheduler/*.yaml"),
    "when:",
    "critical: ",
    " and ",
    "remedies:",
    "- do: x",
    "set: {--x: 1}",
    "examples:",
    "gives: ok",
    "explains: [",
    "{kv_cache_usage}",
    weight=0.7,
)
def rule(data: bytes) -> Hashable:
    """A rule's file, and its examples."""
    from tests.making import shipped_catalogue
    from vllm_doctor.rules import rule

    path = file_of(named_x(data), "rules/scheduler/x.yaml")

    def read(problems: Any) -> None:
        rule.check_examples(rule.read(path, shipped_catalogue(), problems), shipped_catalogue(), problems)

    return _problems(read)


@harness(
    lambda: corpus.rules("signals/*.yaml"),
    "promql: ",
    "formula: ",
    "fact: ",
    "unit: s",
    "says: x",
    "from:",
    "where: ",
    "rate(",
    "[$window]",
    "$engine",
    weight=0.7,
)
def signals(data: bytes) -> Hashable:
    from vllm_doctor.rules import signals_file

    path = file_of(data, "signals/signals/x.yaml")
    return _problems(lambda problems: signals_file.load(path.parent.parent, problems=problems))


@harness(
    lambda: corpus.rules("log-lines/*.yaml"),
    "lines:",
    "find: x",
    "pattern: (a+)+b",
    "fields:",
    "example: x",
    "samples:",
    "facts:",
    "gives:",
    weight=0.7,
)
def log_lines(data: bytes) -> Hashable:
    from vllm_doctor.rules import log_lines

    path = file_of(data, "lines/log-lines/x.yaml")
    return _problems(lambda problems: log_lines.read([path.parent.parent], problems))


@harness(
    lambda: [b"overrides:\n  preemption: {skip: true, because: x}\n  idle: {when: {warning: kv_cache_usage > 0.5}}\n"],
    "preemption:",
    "skip: true",
    "when:",
    "warning: ",
    "because: ",
    weight=0.5,
    most=2000,
)
def overrides(data: bytes) -> Hashable:
    from tests.making import shipped_catalogue, shipped_rules
    from vllm_doctor.rules import overrides

    path = file_of(data, "over/overrides.yaml")
    return _problems(lambda problems: overrides.load([path.parent], shipped_rules(), shipped_catalogue(), problems))


@harness(
    lambda: corpus.rules("diagnosis.yaml"), "symptoms:", "refusals:", "negligible:", "outliers:", "when: ", weight=0.5
)
def diagnosis_file(data: bytes) -> Hashable:
    from tests.making import shipped_catalogue
    from vllm_doctor.rules import diagnosis_file

    path = file_of(data, "diagnosis.yaml")
    return _problems(lambda problems: diagnosis_file.load(path, shipped_catalogue().signals, problems))


_OPERATORS = (
    " and ", " or ", "not ", "(", ")", " > ", " <= ", " == ", " + ", " * ", " / ", " - ", "kv_cache_usage", "0.5",
    " in ", "min(", "known(", " if ", " else ", "is_known(", "where(", "**", "lambda: ", "'x'", ", ",
)  # fmt: skip


@harness(lambda: corpus.texts_below("*/*.yaml", "when|if|critical|warning|info"), *_OPERATORS, weight=3, most=400)
def condition(data: bytes) -> Hashable:
    """A condition: written back it is itself; judged, it is true, false or unknown."""
    from vllm_doctor.expr import nodes, parser
    from vllm_doctor.expr.condition import Condition

    text = text_of(data)
    try:
        root = parser.condition(text)
    except parser.ConditionError as error:
        return sign_of(error)
    written = nodes.text(root)
    assert parser.condition(written) == root, written
    verdict, met = Condition(text).judge(_read)
    return verdict, len(met), type(root).__name__


def _read(name: str) -> Reading:
    """A signal's value by the hash of its name: huge, none, text, zero."""
    values: tuple[Reading, ...] = (Known(0.0), Known(1e308), Known(-3.5), Known("x"), Known(True), Unknown(Reason.IDLE))
    return values[zlib.crc32(name.encode("utf-8", "replace")) % len(values)]


@harness(lambda: corpus.texts_below("signals/*.yaml", "formula"), *_OPERATORS, weight=3, most=400)
def formula(data: bytes) -> Hashable:
    """A formula: written back it is itself; its value is finite."""
    from vllm_doctor.expr import nodes, parser
    from vllm_doctor.expr.formula import Formula

    text = text_of(data)
    try:
        found = Formula(text)
    except parser.FormulaError as error:
        return sign_of(error)
    written = nodes.text(found.root)
    assert parser.formula(written) == found.root, written
    value = found.evaluate(_read)
    if isinstance(value, Known) and isinstance(value.value, float):
        assert math.isfinite(value.value)
    return type(value).__name__, type(found.root).__name__


@cache
def _window() -> Any:
    from vllm_doctor.model.window import Window
    from vllm_doctor.sources.server import exposition

    made = Window()
    for at, page in enumerate(corpus.scrapes()):
        made.add(2.0 * at, exposition.parse(page.decode(), wanted()).samples)
    return made


def _queries() -> list[bytes]:
    found = corpus.texts_below("signals/*.yaml", "promql")
    return [text.replace(b"$window", b"5m").replace(b"$engine", b"engine") for text in found]


_PROMQL = (
    "rate(", "sum by (engine) (", "histogram_quantile(0.9, ", "max_over_time(", "[5m]", " or ", " unless ", "increase(",
    " and on (a) ", "vllm:num_requests_running", '{engine=~"(a+)+$"}', "> bool 1", " offset 5m", "@ 1", "le",
)  # fmt: skip


@harness(_queries, *_PROMQL, weight=3, most=600)
def promql(data: bytes) -> Hashable:
    """A query of the subset, over four scrapes."""
    from vllm_doctor.expr.promql_eval import Expression, PromQLError, aggregated_by

    text = text_of(data)
    with suppress(PromQLError):
        aggregated_by(text)
    try:
        values, _ = Expression(text).evaluate(_window())
    except PromQLError as error:
        return sign_of(error)
    return len(values), len(text) // 50
