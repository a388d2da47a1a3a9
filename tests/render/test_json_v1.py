"""JSON v1: every output is valid against the published schema."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from tests.paths import PACKAGE
from tests.render.reports import finding, postmortem, unreachable
from tests.test_fixtures import NAMES, judged
from vllm_doctor.model.kinds import Stage
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Change, Correction, Gain, LeftOut
from vllm_doctor.render import json_v1

SCHEMA = json.loads((PACKAGE / "render" / "report.v1.schema.json").read_text())


def no_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def valid(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text, parse_constant=no_constant)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("scrapes", [slice(0, 1), slice(0, 4)], ids=["first-scrape", "3s"])
@pytest.mark.parametrize("name", NAMES)
def test_every_report_is_valid(name: str, scrapes: slice) -> None:
    document = valid(json_v1.render(judged(name, scrapes)))
    assert next(iter(document)) == "schema"
    assert sum(document["counts"].values()) == len(document["rules"])


def test_a_report_on_nobody_is_valid() -> None:
    document = valid(json_v1.render(unreachable()))
    assert document["verdict"] == "unknown"
    assert document["error"]["kind"] == "unreachable"


def test_what_is_unknown_is_null_with_its_reason() -> None:
    document = valid(json_v1.render(judged("preemption", slice(0, 1))))
    assert document["vitals"]["generation_tokens_per_second"] is None
    assert document["vitals_unknown"]["generation_tokens_per_second"] == "first-scrape"


def test_a_quantile_is_its_buckets_bounds() -> None:
    vitals = valid(json_v1.render(judged("preemption", slice(0, 4))))["vitals"]
    assert vitals["ttft_p99"] == {"low": 0.25, "high": 0.5}


def test_the_preemption_finding() -> None:
    document = valid(json_v1.render(judged("preemption", slice(0, 4))))
    finding = document["findings"][0]
    assert finding["rule"] == "preemption"
    assert finding["role"] == "root"
    assert finding["subject"] == {"engine": "0", "model_name": "tiny"}
    evidence = {item["signal"]: item for item in finding["evidence"]}["preemptions_per_request"]
    assert evidence["is"] == ">"
    assert evidence["than"] == 0.1
    assert evidence["value"] > 1
    assert evidence["from"] == "metrics"
    symptom = next(item for item in document["findings"] if item["rule"] == "kv-cache-saturated")
    assert (symptom["role"], symptom["explained_by"]) == ("symptom", "preemption")


def test_the_command_as_it_was_and_as_it_should_be() -> None:
    report = postmortem()
    told = valid(json_v1.render(report))["command"]
    assert told == {"was": list(report.command), "now": None, "changes": [], "left_out": [], "next_caps": []}
    correction = Correction(("vllm", "serve", "x"), (Change("--max-num-seqs", 64.0, None, "cap"),))
    told = valid(json_v1.render(replace(report, correction=correction)))["command"]
    assert told["now"] == ["vllm", "serve", "x"]
    assert told["changes"] == [{"name": "--max-num-seqs", "was": 64, "now": None, "rule": "cap"}]


def test_the_gain_and_what_will_be() -> None:
    [remedy] = finding("cap").remedies
    gain = Gain(1.5, "slots")
    told = replace(
        remedy, gain=gain, then=("11 fit.",), starts_unknown={"gpu_memory_at_start": Reason.DENIED}, goal="latency"
    )
    one = replace(finding("cap"), gain=Gain(2.25, "all"), stage=Stage.LIMIT, remedies=(told, remedy))
    document = valid(json_v1.render(postmortem([one])))
    [shown] = document["findings"]
    assert (shown["prize"], shown["stage"]) == ({"at_most": 2.25, "basis": "all"}, "limit")
    first, second = shown["remedies"]
    assert first["gain"] == {"at_most": 1.5, "basis": "slots"}
    assert (first["then"], first["goal"]) == (["11 fit."], "latency")
    assert first["starts_unknown"] == {"gpu_memory_at_start": "denied"}
    assert (second["gain"], second["then"], second["starts_unknown"], second["goal"]) == (None, [], {}, None)
    assert valid(json_v1.render(postmortem([finding("cap")])))["findings"][0]["prize"] is None


def test_what_the_command_does_not_cure() -> None:
    left = (LeftOut("other", "Admit less", "--max-num-seqs 64 cures cap"),)
    correction = Correction(("vllm",), (Change("--max-num-seqs", 64.0, None, "cap"),), left)
    told = valid(json_v1.render(replace(postmortem(), correction=correction)))["command"]
    assert told["left_out"] == [{"rule": "other", "do": "Admit less", "reason": "--max-num-seqs 64 cures cap"}]
