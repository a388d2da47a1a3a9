"""What could not be seen: all of it, in an order, and how to see it."""

from __future__ import annotations

from dataclasses import replace

from tests.render.reports import postmortem, unreachable
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.reason import HOW_TO_LEARN, Reason
from vllm_doctor.model.report import Problem, Report, SourceSeen
from vllm_doctor.render.page import plain
from vllm_doctor.render.parts import unseen


def told(report: Report) -> list[str]:
    return [plain(words) for words in unseen.everything(report)]


def test_a_rule_that_could_not_be_judged_stands_by_each_of_its_reasons() -> None:
    assert [said for said in told(postmortem()) if ". Rules: " in said] == [
        "A log does not carry it: ask /metrics. Rules: preemption, flashinfer-missing",
        "No target was given: --slo ttft=2s --slo itl=50ms. Rules: latency",
        f"{HOW_TO_LEARN[Reason.NOT_LOCAL]}. Rules: flashinfer-missing, cpu-throttled",
    ], "the log's own first, what another host shows last"


def test_a_source_says_what_it_could_not_read() -> None:
    report = postmortem()
    source = replace(report.sources[0], notes=("3 lines cannot be read",))
    assert told(replace(report, sources=(source,)))[0] == "/var/log/vllm.log: 3 lines cannot be read"
    assert told(unreachable())[0].startswith("http://127.0.0.1:1 refuses connections")


def test_a_source_that_is_missing_is_named_with_how_to_give_it() -> None:
    assert "CPU and GPUs: run vllm-doctor on the server's host" in told(postmortem())
    assert "the log: add its file as another argument" not in told(postmortem())
    assert "the log: add its file as another argument" in told(unreachable())


def test_the_rules_are_counted_in_words() -> None:
    report = postmortem()
    assert unseen.count(report) == "4 rules could not be checked"
    assert unseen.count(replace(report, unknown=report.unknown[:1])) == "1 rule could not be checked"
    assert unseen.count(replace(report, unknown=())) == ""


def test_what_several_sources_of_a_kind_say_is_said_once() -> None:
    pods = [f"k8s://inference/pod/vllm-{name}" for name in ("a", "b", "c")]
    note = "not seen: no right to get nodes"
    notes = tuple(SourceSeen(SourceKind.KUBERNETES, pod, 0.0, 0, None, (note,)) for pod in pods)
    down = tuple(SourceSeen(SourceKind.SERVER, pod, 0.0, 0, Problem("unreachable", "it is down")) for pod in pods[:2])
    report = replace(postmortem(), sources=(*notes, *down), spans=(), runs=(), timeline=None)
    short = list(unseen.in_short(report))
    assert short.count(f"{pods[0]} and 2 more: {note}") == 1
    assert short.count("it is down") == 1
    assert sum(note in str(said) for said in unseen.everything(report)) == 1
