"""A fleet as text, and as JSON that its schema holds for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import referencing

from tests.fake_prometheus import FakePrometheus, targets
from tests.fleet.test_fleet import asked, engines, judged, survey
from tests.paths import PACKAGE
from vllm_doctor.fleet.fleet import FleetReport
from vllm_doctor.model.reading import Values
from vllm_doctor.model.report import Problem
from vllm_doctor.render import fleet_json, fleet_text, json_v1

FOLDER = PACKAGE / "render"
SCHEMA = json.loads((FOLDER / "fleet.v1.schema.json").read_text())
REPORT = json.loads((FOLDER / "report.v1.schema.json").read_text())
REGISTRY = referencing.Registry().with_resource(
    "vllm-doctor/report/v1", referencing.Resource.from_contents(REPORT)
)  # fmt: skip


@pytest.fixture(scope="module")
def sick() -> FleetReport:
    names = ["preemption", "max-num-seqs-cap", "prefix-cache-off", *["healthy-busy"] * 5]
    return asked(FakePrometheus(zip(targets(8), names, strict=True)))


def valid(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA, registry=REGISTRY).validate(document)
    return document


def as_json(report: FleetReport) -> dict[str, Any]:
    return valid("".join(fleet_json.render(report, json_v1.document)))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_fleet_is_valid(sick: FleetReport) -> None:
    document = as_json(sick)
    assert document["counts"] == {"engines": 8, "ok": 5, "warning": 2, "critical": 1, "unknown": 0}
    first = document["engines"][0]
    assert first["rules"] == [{"rule": "preemption", "severity": "critical"}]
    assert first["report"]["schema"] == "vllm-doctor/report/v1"
    assert first["report"]["findings"][0]["evidence"][0]["from"] == "prometheus"
    assert first["source"] == f"prom+{sick.target}/?instance=host-0%3A8000"
    assert document["models"][0]["verdicts"]["critical"] == 1
    assert document["source"]["queries"] < 140  # one for each signal of /metrics, not for each engine


def test_an_engine_that_does_not_answer_is_valid() -> None:
    lost = {"instance": "h9", "job": "vllm", "model_name": "m"}
    document = as_json(judged(survey({}, engines(1), gone=(lost,), down=(lost,))))
    assert document["verdict"] == "unknown"
    assert document["engines"][0]["report"]["error"]["kind"] == "unreachable"


def test_a_failure_is_valid() -> None:
    from datetime import UTC, datetime

    document = valid(fleet_json.failed(datetime.now(UTC), Problem("no-vllm", "nothing there")))
    assert (document["verdict"], document["error"]["kind"]) == ("unknown", "no-vllm")


def test_the_text_names_the_sick_ones_worst_first(sick: FleetReport) -> None:
    text = fleet_text.render(sick)
    lines = text.splitlines()
    assert lines[0].startswith("CRITICAL  8 engines of 1 model")
    assert "✖ 1 critical" in lines[0]
    assert text.index("host-0:8000") < text.index("host-1:8000")
    assert "[preemption]" in text
    assert f"Open         vllm-doctor 'prom+{sick.target}/?instance=host-0%3A8000'" in text
    assert max(map(len, lines)) <= fleet_text.WIDTH


def test_what_stands_out_has_its_unit() -> None:
    usage = Values([0.1, 0.1, 0.1, 0.9])
    text = fleet_text.render(judged(survey({"kv_cache_usage_usual": usage}, engines(4))))
    assert "h3: KV in use 90 %, p50 10 % (× 9)" in text


def test_a_healthy_fleet_says_so_and_what_it_could_not_see() -> None:
    text = fleet_text.render(judged(survey({}, engines(3))))
    assert text.startswith("OK  3 engines of 1 model")
    assert "Not checked" in text
    assert "Open" not in text


def test_many_engines_with_the_same_trouble_are_a_line() -> None:
    usage = Values([None] * 30)
    text = fleet_text.render(judged(survey({"kv_cache_usage": usage}, engines(30))))
    assert "on 30 engines: h0, h1" in text
    assert "and 22 more" in text
    assert len(text.splitlines()) < 25


def test_colour_only_repeats(sick: FleetReport) -> None:
    import re

    assert re.sub(r"\x1b\[[\d;]*m", "", fleet_text.render(sick, True)) == fleet_text.render(sick)


def test_notes_are_told(sick: FleetReport) -> None:
    assert "Partial" in fleet_text.render(replace(sick, notes=("partial response",)))
