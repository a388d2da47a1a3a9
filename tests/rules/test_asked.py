"""rules/signals/asked.yaml: grammars, logprobs and parsers, of the shipped signals and rules."""

from __future__ import annotations

import pytest

from tests.making import shipped_catalogue, shipped_rules, window
from tests.rules.test_costs import facts
from tests.rules.test_costs import server as of_speed
from vllm_doctor.model.facts import COMMAND, LOG
from vllm_doctor.model.kinds import Role
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.report import Finding
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.rules.diagnose import diagnose

ENGINE = 'engine="0",model_name="m"'


def page(at: float, tokens: float, cpu: float, *more: str) -> str:
    """A scrape after so many seconds, of 8 requests that get so many tokens a second together."""
    return "\n".join([
        f"vllm:num_requests_running{{{ENGINE}}} 8",
        f"vllm:num_requests_waiting{{{ENGINE}}} 0",
        f"vllm:kv_cache_usage_perc{{{ENGINE}}} 0.1",
        f"vllm:generation_tokens_total{{{ENGINE}}} {1000 + tokens * at}",
        f"vllm:prompt_tokens_total{{{ENGINE}}} {5000 + at}",
        f"vllm:time_to_first_token_seconds_count{{{ENGINE}}} {10 + at / 10}",
        f"process_cpu_seconds_total {cpu * at}",
        *more,
    ])  # fmt: skip


def server(flags: dict[str, str], tokens: float = 300, cpu: float = 0.98, parsed: float | None = None) -> Snapshot:
    """Ten seconds of it. `parsed`: chunks that the tool parser gets each second; None: a release that tells none."""

    def at(seconds: float) -> str:
        labels = 'model_name="m",mode="streaming",outcome="tool_call",request_type="chat_completions"'
        told = [] if parsed is None else [f"vllm:tool_call_parser_invocations_total{{{labels}}} {parsed * seconds}"]
        return page(seconds, tokens, cpu, *told)

    return shipped_catalogue().snapshot(window(at(0), at(5), at(10), every=5), started(flags))


def started(flags: dict[str, str]) -> dict[str, Reading]:
    return {COMMAND: Known("vllm serve m"), **{flag: Known(value) for flag, value in flags.items()}}


def findings(snapshot: Snapshot) -> dict[str, Finding]:
    found = diagnose(shipped_rules(), shipped_catalogue(), [snapshot]).findings
    return {finding.rule: finding for finding in found}


def test_a_core_that_tokens_and_prompts_do_not_explain_is_the_parsers() -> None:
    found = findings(server({"--tool-call-parser": "llama3_json"}))
    assert found["parser-overhead"].role is Role.ROOT
    assert found["api-server-bound"].explained_by == "parser-overhead"


@pytest.mark.parametrize(
    ("flags", "tokens", "parsed"),
    [
        ({}, 300.0, None),  # no parser
        ({"--tool-call-parser": "llama3_json"}, 6000.0, None),  # so many tokens take a core by themselves
        ({"--tool-call-parser": "llama3_json"}, 300.0, 0.0),  # given, and no client sends tools
    ],
)
def test_a_core_that_something_else_explains_is_not_the_parsers(
    flags: dict[str, str], tokens: float, parsed: float | None
) -> None:
    found = findings(server(flags, tokens, parsed=parsed))
    assert "parser-overhead" not in found
    assert found["api-server-bound"].role is Role.ROOT


def test_a_parser_that_is_called_counts_whatever_the_command_is() -> None:
    assert "parser-overhead" in findings(server({"--tool-call-parser": "hermes"}, parsed=290.0))


@pytest.mark.parametrize(
    ("flags", "lora", "known"),
    [
        ({}, "", True),
        ({"--kv-transfer-config": '{"kv_connector": "NixlConnector"}'}, "", False),
        ({"--ec-transfer-config": "{}"}, "", False),
        ({}, 'vllm:lora_requests_info{running_lora_adapters="a",waiting_lora_adapters="b",max_lora="1"} 1', False),
    ],
)
def test_what_is_deferred_waits_for_its_grammar_where_nothing_else_can_defer_it(
    flags: dict[str, str], lora: str, known: bool
) -> None:
    deferred = f'vllm:num_requests_waiting_by_reason{{{ENGINE},reason="deferred"}} 4'
    pages = [page(at, 300, 0.1, deferred, lora) for at in (0.0, 5.0, 10.0)]
    snapshot = shipped_catalogue().snapshot(window(*pages, every=5), started(flags))
    [subject] = [one for one in snapshot.subjects if one]
    reading = snapshot.read("deferred_for_grammar", subject)[1]
    assert (reading == Known(4.0)) if known else not isinstance(reading, Known)


def logged(share: float, number: float, tpot: float) -> dict[str, Finding]:
    """Of a log in which this share of the requests asks for so many logprobs, on a server whose speed is known."""
    told: dict[str, Reading] = {
        LOG: Known(True),
        "log:request-logged": Known(100.0),
        "log:request-logprobs": Known(100 * share),
        "log:request-logprobs.number": Known(number),
        "log:request-prompt-logprobs": Known(0.0),
    }
    return findings(of_speed({**facts(), **told}, tpot=tpot))


def test_logprobs_are_no_matter_where_tokens_come_as_fast_as_expected() -> None:
    assert "logprobs-overhead" not in logged(1.0, 5, tpot=0.008)


def test_a_few_logprobs_explain_no_server_that_is_many_times_too_slow() -> None:
    finding = logged(1.0, 5, tpot=0.2)["logprobs-overhead"]
    assert finding.cost is not None
    assert finding.cost.share is not None
    assert finding.cost.share < 0.1
    assert finding.is_minor


def test_thousands_of_logprobs_explain_it() -> None:
    finding = logged(1.0, 2000, tpot=0.2)["logprobs-overhead"]
    assert finding.cost is not None
    assert finding.cost.share == 1.0
