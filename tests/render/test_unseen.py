"""What could not be seen: all of it, in an order, and how to see it."""

from __future__ import annotations

from dataclasses import replace

from tests.render.reports import postmortem, unreachable
from vllm_doctor.render import unseen


def test_a_rule_that_could_not_be_judged_stands_by_each_of_its_reasons() -> None:
    told = {found.reason: found.rules for found in unseen.told(postmortem()) if found.reason}
    assert told == {
        "not-in-log": ("preemption", "flashinfer-missing"),
        "not-given": ("latency",),
        "not-local": ("flashinfer-missing", "cpu-throttled"),
    }
    assert list(told) == ["not-in-log", "not-given", "not-local"], "the log's own first, what another host shows last"


def test_a_source_says_what_it_could_not_read() -> None:
    report = postmortem()
    source = replace(report.sources[0], notes=("3 lines cannot be read",))
    said = list(unseen.told(replace(report, sources=(source,))))
    assert (said[0].target, said[0].says) == ("/var/log/vllm.log", "3 lines cannot be read")
    assert next(unseen.told(unreachable())).says.startswith("http://127.0.0.1:1 refuses connections")


def test_a_source_that_is_missing_is_named_with_how_to_give_it() -> None:
    of_log = [found.says for found in unseen.told(postmortem())]
    assert "CPU and GPUs: run vllm-doctor on the server's host" in of_log
    assert "the log: add its file as another argument" not in of_log
    assert "the log: add its file as another argument" in [found.says for found in unseen.told(unreachable())]


def test_the_rules_are_counted_in_words() -> None:
    report = postmortem()
    assert unseen.count(report) == "4 rules could not be judged"
    assert unseen.count(replace(report, unknown=report.unknown[:1])) == "1 rule could not be judged"
    assert unseen.count(replace(report, unknown=())) == ""
