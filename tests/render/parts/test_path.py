"""Where a request's time goes, in text, in tables and in JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import jsonschema

from tests.making import shipped_catalogue, shipped_rules
from tests.path_pages import A, B, litellm, real, server, vllm_router
from tests.paths import PACKAGE
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Report
from vllm_doctor.render import html, json_v1, markdown, text
from vllm_doctor.session.judge import judge
from vllm_doctor.text import redact


def report(*observations: Observation) -> Report:
    at = datetime(2026, 11, 24, tzinfo=UTC)
    return redact.report(judge(observations, shipped_rules(), shipped_catalogue(), {"goal": "throughput"}, at))


def slow() -> Report:
    return report(litellm(total=0.32, api=0.26), vllm_router(total=0.205), server(A, 50), server(B, 50))


def test_the_text_has_the_way_the_whole_and_each_hop_that_counts() -> None:
    shown = text.render(report(real("litellm"), real("vllm-router"), real("a"), real("b")), False)
    part = shown[shown.index("  Path") : shown.index("  Client")]
    assert [" ".join(line.split()) for line in part.splitlines() if line.strip()] == [
        "Path LiteLLM → vLLM router → 2 × server: a request takes 159 ms, the",
        "mean of 60 requests",
        "queue of the gateway 8.31 ms 5.2 %",
        "gateway itself 9.32 ms 5.9 %",
        "between gateway and router 12 ms 7.5 %",
        "prefill 15 ms 9.4 %",
        "decode 109 ms 68 %",
        "in none of them 2.91 ms 1.8 %",
    ]


def test_a_hop_that_is_named_is_marked_and_its_finding_has_the_numbers() -> None:
    shown = " ".join(text.render(slow(), False).split())
    assert "most to gain: gateway itself, 56 ms" in shown
    assert "gateway itself [gateway-slow] 56 ms 18 %" in shown
    assert (
        "56 ms of 320 ms a request: 320 ms as a whole, less 260 ms for the call behind it and 4 ms in its queue."
        in shown
    )
    assert "55 ms of 320 ms a request: the gateway waits 260 ms, the router takes 205 ms." in shown


def test_tables_have_every_hop_and_how_it_is_known() -> None:
    shown = markdown.render(report(real("litellm"), real("vllm-router"), real("a"), real("b")))
    assert "| between gateway and router | 12 ms | 7.5 % | the gateway waits 141 ms, the router takes 129 ms |" in shown
    assert "| queue of the engine |" in shown
    assert "between gateway and router" in html.render(slow())


def test_json_has_it_as_the_schema_says() -> None:
    document = json.loads(json_v1.render(slow()))
    jsonschema.validate(document, json.loads((PACKAGE / "render/report.v1.schema.json").read_text("utf-8")))
    path = document["path"]
    assert (path["seconds"], path["requests"], path["unknown"]) == (0.32, 100, None)
    assert path["sources"][0] == {"role": "gateway", "target": "http://gateway:4000", "product": "LiteLLM"}
    hops = {hop["hop"]: hop for hop in path["hops"]}
    assert hops["gateway-to-router"] == {
        "hop": "gateway-to-router", "says": "between gateway and router", "seconds": 0.055, "unknown": None,
        "share": 0.171875, "because": "the gateway waits 260 ms, the router takes 205 ms",
        "blamed_by": "path-to-router-slow",
    }  # fmt: skip
    assert [source["role"] for source in document["sources"]] == ["gateway", "router", None, None]
    assert [finding["rule"] for finding in document["findings"]][:2] == ["gateway-slow", "path-to-router-slow"]


def test_what_is_not_known_is_null_with_its_reason() -> None:
    unknown = report(litellm(requests=100), server(A, 300))
    hops = {hop["hop"]: hop for hop in json.loads(json_v1.render(unknown))["path"]["hops"]}
    assert (hops["to-servers"]["seconds"], hops["to-servers"]["unknown"]) == (None, "invalid")
    assert "on to the servers ? (no usable value)" in " ".join(text.render(unknown, False).split())


def test_one_server_has_no_path() -> None:
    alone = report(server(A))
    assert json.loads(json_v1.render(alone))["path"] is None
    assert "\n  Path" not in text.render(alone, False)
