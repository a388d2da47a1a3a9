from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.render.reports import finding
from vllm_doctor.launch.correction import corrected
from vllm_doctor.model.reading import Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Change, Finding, Remedy
from vllm_doctor.text.changes import differences

COMMAND = ("vllm", "serve", "m", "-tp", "2", "--max_num_seqs=64", "--enforce-eager", "--no-enable-prefix-caching")


def remedy(**changes: Any) -> Remedy:
    [written] = finding("x").remedies
    plain = replace(written, set={}, was={}, unset=(), env={}, run=(), by="you", needs={})
    return replace(plain, **changes)


def found(rule: str, *remedies: Remedy, severity: str = "warning", role: str = "root") -> Finding:
    return replace(finding(rule, severity=severity, role=role), remedies=remedies)


MORE_SEQS = remedy(set={"--max-num-seqs": 128.0}, was={"--max-num-seqs": 64.0})
FEWER_SEQS = remedy(set={"--max-num-seqs": 11.0}, was={"--max-num-seqs": 64.0})
CACHE = remedy(set={"--enable-prefix-caching": True}, was={"--enable-prefix-caching": False})
GRAPHS = remedy(unset=("--enforce-eager",), was={"--enforce-eager": True})


def now(*findings: Finding) -> str | None:
    correction = corrected(findings, COMMAND)
    return " ".join(correction.now) if correction else None


def test_the_cures_of_all_roots_are_one_command() -> None:
    correction = corrected([found("cap", MORE_SEQS), found("cache", CACHE), found("eager", GRAPHS)], COMMAND)
    assert correction is not None
    assert correction.now == (
        "vllm", "serve", "m", "-tp", "2", "--max-num-seqs", "128", "--enable-prefix-caching",
    )  # fmt: skip
    assert correction.changes == (
        Change("--max-num-seqs", 64.0, 128.0, "cap"),
        Change("--enable-prefix-caching", False, True, "cache"),
        Change("--enforce-eager", True, None, "eager"),
    )
    assert differences(correction) == (
        ("-", "--max-num-seqs 64"),
        ("+", "--max-num-seqs 128"),
        ("-", "--no-enable-prefix-caching"),
        ("+", "--enable-prefix-caching"),
        ("-", "--enforce-eager"),
    )


def test_the_first_root_wins_and_another_takes_its_second_remedy() -> None:
    second = remedy(set={"--watermark": 0.02}, was={})
    text = now(found("preemption", FEWER_SEQS), found("cap", MORE_SEQS, second))
    assert text is not None
    assert "--max-num-seqs 11 " in text
    assert text.endswith("--watermark 0.02")
    assert "--watermark" not in str(now(found("preemption", FEWER_SEQS), found("cap", MORE_SEQS)))


@pytest.mark.parametrize(
    "other",
    [
        found("symptom", MORE_SEQS, role="symptom"),
        found("chance", MORE_SEQS, role="opportunity"),
        found("note", MORE_SEQS, severity="info"),
        found("administrator", remedy(set={"--x": 1.0}, by="administrator")),
        found("more-gpus", remedy(set={"--tensor-parallel-size": 8.0}, cost="capacity")),
        found("not-computed", remedy(needs={"kv_room": Reason.ABSENT})),
        found("in-force", remedy(set={"--max-num-seqs": 64.0}, was={"--max-num-seqs": 64.0})),
        found("not-given", remedy(unset=("--cpu-offload-gb",))),
        found("not-checked", replace(MORE_SEQS, validated_for=None)),
        found("no-flags", remedy(run=("ulimit -n 65536",))),
    ],
    ids=lambda other: other.rule,
)
def test_what_does_not_change_the_command(other: Finding) -> None:
    assert now(other) is None
    assert now(found("cache", CACHE), other) == now(found("cache", CACHE))


def test_what_hides_all_else_is_cured_though_it_is_a_note() -> None:
    blind = remedy(unset=("--disable-log-stats",), was={"--disable-log-stats": True})
    correction = corrected(
        [found("stats-disabled", blind, severity="info", role="blind")], ("vllm", "serve", "m", "--disable-log-stats")
    )
    assert correction is not None
    assert correction.now == ("vllm", "serve", "m")


def test_a_variable_is_a_change_beside_the_command() -> None:
    correction = corrected([found("threads", remedy(env={"OMP_NUM_THREADS": 1.0}))], COMMAND)
    assert correction is not None
    assert correction.now == COMMAND
    assert differences(correction) == (("+", "OMP_NUM_THREADS=1  (environment)"),)


def test_without_a_command_there_is_none_to_correct() -> None:
    assert corrected([found("cap", MORE_SEQS)], ()) is None


def left_out(*findings: Finding, **more: Any) -> list[tuple[str, str]]:
    correction = corrected(findings, COMMAND, **more)
    assert correction is not None
    return [(left.rule, left.reason) for left in correction.left_out]


def test_a_finding_that_cannot_be_cured_with_the_others_is_told() -> None:
    second = remedy(set={"--watermark": 0.02})
    assert left_out(found("preemption", FEWER_SEQS), found("cap", MORE_SEQS)) == [
        ("cap", "--max-num-seqs 11 fixes preemption")
    ]
    assert left_out(found("preemption", FEWER_SEQS), found("cap", MORE_SEQS, second)) == []
    again = remedy(set={"--enforce-eager": True}, was={})
    assert left_out(found("eager", GRAPHS), found("other", again)) == [("other", "without --enforce-eager fixes eager")]


def test_a_flag_that_was_not_checked_is_told() -> None:
    unchecked = found("cap", replace(MORE_SEQS, validated_for=None))
    assert [rule for rule, why in left_out(found("cache", CACHE), unchecked) if "not known whether" in why] == ["cap"]


def test_one_key_of_a_flag_contradicts_the_whole() -> None:
    whole = remedy(unset=("--compilation-config",), was={"--compilation-config": "{}"})
    key = remedy(set={"--compilation-config.mode": 3.0})
    assert left_out(found("a", whole), found("b", key)) == [("b", "without --compilation-config fixes a")]
    assert left_out(found("b", key), found("a", whole)) == [("a", "--compilation-config.mode 3 fixes b")]


def test_of_one_fault_on_two_engines_one_cure_is_enough() -> None:
    eleven, ten = found("preemption", FEWER_SEQS), found("preemption", remedy(set={"--max-num-seqs": 10.0}))
    assert left_out(eleven, ten) == []
    assert "--max-num-seqs 11 " in str(now(eleven, ten))


@pytest.mark.parametrize(("goal", "wanted"), [("throughput", "8192"), ("latency", "2048"), (None, "2048")])
def test_of_two_that_contradict_each_other_the_goal_decides(goal: str | None, wanted: str) -> None:
    small = found("large", remedy(set={"--max-num-batched-tokens": 2048.0}, goal="latency"))
    large = found("small", remedy(set={"--max-num-batched-tokens": 8192.0}, goal="throughput"))
    correction = corrected([small, large, found("cap", MORE_SEQS)], COMMAND, goal)
    assert correction is not None
    assert correction.now[-2:] == ("--max-num-batched-tokens", wanted)
    assert "128" in correction.now
    assert len(correction.left_out) == 1


def test_what_does_not_contradict_is_done_whatever_goal_it_serves() -> None:
    streams = found("api", remedy(set={"--stream-interval": 5.0}, goal="throughput"))
    correction = corrected([streams], COMMAND, "latency")
    assert correction is not None
    assert correction.now[-2:] == ("--stream-interval", "5")


@pytest.mark.parametrize(
    ("was", "value"),
    [
        (0.9, "0.90"),
        ("0.90", 0.9),
        (64.0, 64),
        ("true", True),
        ("True", True),
        ('{"a": 1, "b": [2]}', '{"b":[2],"a":1.0}'),
        ("auto", "auto"),
    ],
)
def test_what_is_in_force_in_another_spelling_is_no_change(was: Value, value: Value) -> None:
    assert now(found("x", remedy(set={"--flag": value}, was={"--flag": was}))) is None


@pytest.mark.parametrize(("was", "value"), [(1.0, True), ("0.9", 0.92), ('{"a": 1}', '{"a": 2}'), ("[" * 9999, "[")])
def test_what_only_looks_alike_is_a_change(was: Value, value: Value) -> None:
    assert now(found("x", remedy(set={"--flag": value}, was={"--flag": was}))) is not None


def test_a_default_is_in_force_without_being_given() -> None:
    interval = remedy(set={"--stream-interval": 1.0}, validated_for="0.32.0")
    assert now(found("x", interval)) is None
    assert now(found("x", replace(interval, was={"--stream-interval": 5.0}))) is not None


def test_a_variable_that_is_set_so_already_is_no_change() -> None:
    assert now(found("threads", remedy(env={"OMP_NUM_THREADS": 1.0}, was={"OMP_NUM_THREADS": 1.0}))) is None


def test_a_command_that_would_not_start_is_not_given() -> None:
    asked: list[dict[str, Value | None]] = []

    def refuses(flags: Mapping[str, Value | None]) -> str | None:
        asked.append(dict(flags))
        return "too many" if flags.get("--max-num-seqs") == 128.0 and "--max-num-batched-tokens" in flags else None

    budget = found("budget", remedy(set={"--max-num-batched-tokens": 64.0}))
    assert left_out(budget, found("cap", MORE_SEQS), refuses=refuses) == [("cap", "too many")]
    assert asked[-1] == {"--max-num-batched-tokens": 64.0, "--max-num-seqs": 128.0}  # both together
    assert left_out(found("cap", MORE_SEQS), found("eager", GRAPHS), refuses=refuses) == []
    assert asked[-1] == {"--max-num-seqs": 128.0, "--enforce-eager": None}
