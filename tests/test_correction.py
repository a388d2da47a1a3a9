from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.render.reports import finding
from vllm_doctor.correction import corrected
from vllm_doctor.report import Change, Finding, Remedy
from vllm_doctor.signal import Reason

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
    assert correction.differences == (
        "-  --max-num-seqs 64",
        "+  --max-num-seqs 128",
        "-  --no-enable-prefix-caching",
        "+  --enable-prefix-caching",
        "-  --enforce-eager",
    )


def test_the_first_root_wins_and_another_takes_its_second_remedy() -> None:
    second = remedy(set={"--watermark": 0.02})
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
    assert correction.differences == ("+  OMP_NUM_THREADS=1  (environment)",)


def test_without_a_command_there_is_none_to_correct() -> None:
    assert corrected([found("cap", MORE_SEQS)], ()) is None
