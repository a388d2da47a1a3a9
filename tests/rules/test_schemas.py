"""rules/*.schema.json: they say what the readers say, and every shipped file is as they have it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from vllm_doctor.model import kinds
from vllm_doctor.model.kinds import Confidence, Role, Stage, State
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules import document, folders, log_lines, overrides, rule, schemas, signals_file, skeleton
from vllm_doctor.rules.document import Table
from vllm_doctor.rules.signal import UNITS

SHIPPED = folders.shipped()
FILES = [
    *(("rule", path) for path in folders.rules(SHIPPED)),
    *(("signals", path) for path in folders.signals(SHIPPED)),
    *(("log-lines", path) for path in folders.log_lines(SHIPPED)),
]


def schema(name: str) -> Any:
    return json.loads(schemas.path(name).read_text("utf-8"))


def plain(value: Any) -> Any:
    if isinstance(value, Table):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", schemas.NAMES)
def test_a_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize(("name", "path"), FILES, ids=lambda value: getattr(value, "stem", value))
def test_a_shipped_file_is_as_its_schema_has_it(name: str, path: Path) -> None:
    Draft202012Validator(schema(name)).validate(plain(document.read(path)))


SEVERITIES = [str(severity) for severity in kinds.SEVERITIES]


@pytest.mark.parametrize(
    ("name", "at", "words"),
    [
        ("rule", "properties", rule.KEYS),
        ("rule", "properties.status.enum", rule.STATUSES),
        ("rule", "properties.stage.enum", tuple(Stage)),
        ("rule", "properties.role.enum", tuple(Role)),
        ("rule", "properties.confidence.enum", tuple(Confidence)),
        ("rule", "properties.threshold_from.enum", rule.ORIGINS),
        ("rule", "properties.when.properties", SEVERITIES),
        ("rule", "$defs.example.properties.gives.enum", tuple(State)),
        ("rule", "$defs.remedy.properties", rule.REMEDY_KEYS),
        ("rule", "$defs.remedy.properties.cost.enum", rule.COSTS),
        ("rule", "$defs.remedy.properties.goal.enum", rule.GOALS),
        ("rule", "$defs.remedy.properties.by.enum", rule.BY),
        ("signals", "$defs.signal.properties", signals_file.KEYS),
        ("signals", "$defs.way.properties", signals_file.WAY_KEYS),
        ("signals", "$defs.signal.properties.unit.enum", UNITS),
        ("signals", "$defs.signal.properties.vital.enum", signals_file.VITALS),
        ("signals", "$defs.signal.properties.reason.enum", tuple(Reason)),
        ("signals", "$defs.signal.properties.exporter.properties.from.enum", signals_file.EXPORTERS),
        ("log-lines", "$defs.line.properties", log_lines.KEYS),
        ("log-lines", "$defs.line.properties.once.enum", log_lines.ONCE),
        ("log-lines", "$defs.line.properties.marks.enum", log_lines.MARKS),
        ("log-lines", "$defs.line.properties.samples.additionalProperties.properties.as.enum", log_lines.KINDS),
        ("overrides", "$defs.override.properties", overrides.KEYS),
        ("overrides", "$defs.override.properties.when.properties", SEVERITIES),
        ("overrides", "$defs.override.properties.severity.properties", SEVERITIES),
        ("overrides", "$defs.override.properties.severity.properties.info.enum", SEVERITIES),
    ],
)
def test_a_schema_knows_the_words_that_the_reader_knows(name: str, at: str, words: Sequence[str]) -> None:
    found: Any = schema(name)
    for key in at.split("."):
        found = found[key]
    assert sorted(map(str, found)) == sorted(map(str, words))


def mistakes(name: str, text: str) -> list[str]:
    return [str(error.json_path) for error in Draft202012Validator(schema(name)).iter_errors(yaml.safe_load(text))]


@pytest.mark.parametrize(
    ("name", "text", "at"),
    [
        ("overrides", "overrides: {preemption: {skip: true}}", []),
        ("overrides", "overrides: {preemption: {when: {warning: null, info: a > 1}}}", []),
        ("overrides", "overrides: {swap: {severity: {warning: worse}}}", ["$.overrides.swap.severity.warning"]),
        ("overrides", "overrides: {preemption: {}}", ["$.overrides.preemption"]),
        ("signals", "signals: {a: {says: a, unit: s, fact: a}}", []),
        ("signals", "signals: {a: {says: a, unit: s}}", ["$.signals.a"]),
        ("signals", "signals: {a: {says: a, unit: s, fact: a, flag: --b}}", ["$.signals.a"]),
        ("signals", "signals: {a: {says: a, unit: seconds, fact: a}}", ["$.signals.a.unit"]),
        ("log-lines", "lines: {a: {find: short, match: x, once: run, example: x}}", ["$.lines.a.find"]),
    ],
)  # fmt: skip
def test_what_a_schema_refuses(name: str, text: str, at: Iterable[str]) -> None:
    assert mistakes(name, text) == list(at)


def test_a_skeleton_names_the_schema_of_rules(tmp_path: Path) -> None:
    text = skeleton.write("my-rule", tmp_path).read_text("utf-8")
    assert text.startswith(f"# yaml-language-server: $schema={schemas.path('rule')}\n")
