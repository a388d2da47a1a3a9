"""What is expected of a command, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from tests.paths import PACKAGE
from tests.render import expected
from tests.render.reports import AT, finding
from vllm_doctor.model.expectation import Expectation
from vllm_doctor.model.report import Cost, Problem
from vllm_doctor.render import expect_json, expect_text, html, json_v1, markdown, text

SCHEMA = json.loads((PACKAGE / "render" / "expect.v1.schema.json").read_text("utf-8"))
REPORT_SCHEMA = json.loads((PACKAGE / "render" / "report.v1.schema.json").read_text("utf-8"))
ALL = {
    "fits": expected.fitting(),
    "one-request": expected.fitting(expected.load(1)),
    "queue": expected.fitting(expected.load(64, running=16)),
    "short-of-context": expected.short_of_context(),
    "too-large": expected.too_large(),
    "refused": expected.refused(),
    "unknown-gpu": expected.of_unknown_gpu(),
}


def shown(expectation: Expectation) -> str:
    return expect_text.render(expected.report(expectation), expectation)


def one_line(shown: str) -> str:
    return " ".join(shown.split())


def document(expectation: Expectation) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(expect_json.render(expected.report(expectation)))
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


def test_the_schema_is_a_schema_and_reports_have_the_same() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for name, part in SCHEMA["$defs"].items():
        assert REPORT_SCHEMA["$defs"][name] == part


@pytest.mark.parametrize("name", ALL)
def test_it_fits_80_columns(name: str) -> None:
    assert max(map(len, shown(ALL[name]).splitlines())) <= 80


@pytest.mark.parametrize("name", ALL)
def test_json_is_valid_alone_and_in_a_report(name: str) -> None:
    alone = document(ALL[name])
    in_report = json.loads(json_v1.render(expected.report(ALL[name])))
    jsonschema.Draft202012Validator(REPORT_SCHEMA).validate(in_report)
    assert in_report["expect"] == alone["expect"]
    assert alone["command"][:2] == ["vllm", "serve"]


def test_the_answer_comes_first() -> None:
    assert shown(ALL["fits"]).startswith("EXPECT  97.3 tokens/s for each of 16 requests, 1,557 in total\n")
    assert shown(ALL["one-request"]).startswith("EXPECT  97.3 tokens/s per request\n")
    assert one_line(shown(ALL["too-large"])).startswith(
        "TOO LARGE The model needs 4 GPUs of this size; the command uses 1 GPU"
    )
    assert one_line(shown(ALL["refused"])).startswith("REFUSED vLLM does not start: 64 attention heads cannot be")
    assert shown(ALL["unknown-gpu"]).startswith("UNKNOWN  The speed cannot be estimated\n")


def test_each_figure_with_its_range_and_bound() -> None:
    lines = [" ".join(line.split()) for line in shown(ALL["fits"]).splitlines()]
    assert "Speed time per output token 10 ms 8–15.5 ms bound 5 ms" in lines
    assert "time to first token 70 ms 50–140 ms bound 20 ms" in lines
    assert "tokens/s per request 97.3 60–120 bound 180" in lines
    assert "total tokens/s 1,557 960–1,920 bound 2,880" in lines


def test_whether_it_fits_in_figures() -> None:
    fits = one_line(shown(ALL["fits"]))
    assert "Fits yes: 15 GiB of weights on each GPU, of 80 GiB of which vLLM takes 90 %" in fits
    assert "50 GiB on each GPU for the KV cache: 800,000 tokens, 520 requests of 1,536 tokens" in fits
    assert "of the full context of 131,072 tokens an engine holds 6.1" in fits
    short = one_line(shown(ALL["short-of-context"]))
    assert "Fits only with a lower context limit" in short
    assert "it does with --max-model-len 50144" in short


def test_findings_with_what_they_cost() -> None:
    costly = replace(finding("enforce-eager", "No graphs"), cost=Cost(0.034, "launches"))
    report = replace(expected.report(ALL["fits"]), findings=(costly, finding("flag-unknown", "A flag of nobody")))
    shown = one_line(expect_text.render(report, ALL["fits"]))
    assert "▲ No graphs [enforce-eager]: at most 34 ms more a token" in shown
    assert "▲ A flag of nobody [flag-unknown] The speed above is without what these cost." in shown
    document = json.loads(expect_json.render(report))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert [one["costs_at_most_ms"] for one in document["findings"]] == [34, None]


def test_what_waits_is_said() -> None:
    assert one_line(shown(ALL["queue"])).startswith(
        "EXPECT 97.3 tokens/s for each of 16 requests that run, 1,557 in total; 48 wait"
    )
    assert "16 run concurrently; the other 48 wait for their turn, 30 s typically" in one_line(shown(ALL["queue"]))
    assert "wait for their turn" not in shown(ALL["fits"])
    queue = document(ALL["queue"])["expect"]
    assert (queue["requests_running"], queue["requests_queued"]) == (16, 48)
    assert queue["queue_ms"]["typical"] == 30_000


def test_assumptions_and_what_is_not_known() -> None:
    lines = [" ".join(line.split()) for line in shown(ALL["fits"]).splitlines()]
    assert "Assumed weights of the model 30 GiB its name" in lines
    assert "parameters of the model 16 billion its config.json" in lines
    assert "its bandwidth 3,350 GB/s data sheet" in lines
    assert "its 16-bit operations 989 TFLOPS data sheet" in lines
    assert not [line for line in lines if line.startswith("pipeline parallel size")]  # one, by default
    assert "Not known the GPU's memory: name the GPUs: --gpu 4xH100" in one_line(shown(ALL["unknown-gpu"]))
    told = document(ALL["unknown-gpu"])["expect"]
    assert told["unknown"] == [{"what": "the GPU's memory", "how": "name the GPUs: --gpu 4xH100"}]
    assert told["assumptions"][2] == {"what": "its bandwidth", "value": 3.35e12, "unit": "bytes/s", "from": "--gpu"}
    assert told["fits"] is None


def test_numbers_are_numbers_in_milliseconds_and_null_where_unknown() -> None:
    told = document(ALL["fits"])["expect"]
    assert told["tpot_ms"] == {"bound": 5, "low": 8, "typical": 10, "high": 15.5}
    assert told["output_tokens_per_second"]["bound"] == 2880
    assert told["weights_gib_per_gpu"] == 15
    assert document(ALL["too-large"])["expect"]["tpot_ms"] == dict.fromkeys(("bound", "low", "typical", "high"))


def test_nothing_told_is_valid() -> None:
    nothing = json.loads(expect_json.failed(AT, Problem("usage", "which model?")))
    jsonschema.Draft202012Validator(SCHEMA).validate(nothing)
    assert nothing["expect"] is None


def test_a_report_on_a_command_says_what_it_will_give() -> None:
    report = expected.report(expected.fitting(expected.load(1), expected.load(16), expected.load(520)))
    shown = text.render(report)
    assert max(map(len, shown.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "1 request 97.3 (60–120) each 97.3 in total TTFT 70 ms" in lines
    assert "520 requests 97.3 (60–120) each 50,596 in total TTFT 70 ms" in lines
    for painted in (markdown.render(report), html.render(report)):
        assert "What this command will give" in painted
        assert "its config.json" in painted


def test_a_report_on_a_command_of_which_nothing_is_known_is_as_before() -> None:
    nothing = replace(expected.of_unknown_gpu(), weights_per_gpu=None)
    assert "Fits" not in text.render(expected.report(nothing))
