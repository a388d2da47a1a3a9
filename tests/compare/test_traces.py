"""Two traces beside each other: what grew is named, and nothing is concluded where they cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests import trace_files
from tests.cli.test_compare import SCHEMA
from tests.cli.test_main import Doctor, doctor
from tests.trace_files import Made
from vllm_doctor.compare import traces
from vllm_doctor.compare.comparison import Outcome
from vllm_doctor.compare.traces import TraceComparison
from vllm_doctor.model import trace
from vllm_doctor.sources.trace import source

__all__ = ["doctor"]


def _compared(folder: Path, before: Made, after: Made) -> TraceComparison:
    found = [
        source.examine([one.write(folder / f"{place}.json")], "").trace for place, one in enumerate((before, after))
    ]
    assert found[0] is not None
    assert found[1] is not None
    return traces.compared(found[0], found[1])


def test_without_gaps_a_step_is_shorter(tmp_path: Path) -> None:
    compared = _compared(tmp_path, trace_files.eager(gap=60), trace_files.eager(gap=30))
    assert compared.outcome is Outcome.PASS
    assert compared.headline.endswith("most of it idle: host, within a step")


def test_longer_kernels_are_named(tmp_path: Path) -> None:
    compared = _compared(tmp_path, trace_files.eager(length=20), trace_files.eager(length=60))
    assert compared.outcome is Outcome.FAIL
    assert compared.families[0].says == "GEMM, BF16"
    assert compared.families[0].by == pytest.approx(400e-6)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (trace_files.eager(steps=2), trace_files.eager(), "only 2 steps"),
        (trace_files.eager(), trace_files.eager(gap=61), ""),
        (Made(), trace_files.eager(), "nothing marks the steps"),
    ],
    ids=["few", "alike", "no steps"],
)
def test_what_concludes_nothing(tmp_path: Path, before: Made, after: Made, why: str) -> None:
    if not before.events:
        before.launch(0, (trace_files.GEMM, 10, 100))
    compared = _compared(tmp_path, before, after)
    assert compared.outcome is Outcome.INCONCLUSIVE
    assert why in " ".join(compared.reasons)


def test_other_steps_are_another_load(tmp_path: Path) -> None:
    prompts = Made()
    for step in range(5):
        prompts.step(1000.0 * step, 500, context=4, generation=0)
        prompts.launch(1000.0 * step + 1, (trace_files.GEMM, 1000.0 * step + 10, 900))
    compared = _compared(tmp_path, trace_files.eager(), prompts)
    assert any("same kinds" in reason for reason in compared.reasons)


def test_the_command_tells_what_grew(doctor: Doctor, tmp_path: Path) -> None:
    paths = [
        str(made.write(tmp_path / f"{place}.pt.trace.json.gz"))
        for place, made in enumerate((trace_files.eager(gap=30), trace_files.eager(gap=90)))
    ]
    ran = doctor("compare", *paths)
    assert ran.code == 2
    assert "FAIL  A step takes" in ran.out
    assert "idle: host, within a step" in ran.out


def test_the_command_tells_the_same_as_json(doctor: Doctor, tmp_path: Path) -> None:
    paths = [
        str(made.write(tmp_path / f"{place}.pt.trace.json.gz"))
        for place, made in enumerate((trace_files.eager(gap=30), trace_files.eager(gap=90)))
    ]
    ran = doctor("compare", *paths, "--json")
    document = json.loads(ran.out)
    jsonschema.validate(document, SCHEMA)
    assert (ran.code, document["outcome"]) == (2, "FAIL")
    within = next(part for part in document["trace"]["parts"] if part["part"] == trace.HOST_WITHIN)
    assert within["by"] == pytest.approx(within["after"] - within["before"]) == pytest.approx(540e-6)
    (gemm,) = (family for family in document["trace"]["families"] if family["family"] == "gemm")
    assert (gemm["precision"], gemm["by"]) == ("BF16", pytest.approx(0, abs=1e-9))
    assert document["trace"]["steps"] == {"before": 5, "after": 5}
    assert document["before"]["hardware"] == "NVIDIA H100 80GB HBM3"


def test_traces_whose_steps_are_not_marked_are_compared_as_a_whole(tmp_path: Path) -> None:
    one, two = Made(), Made()
    one.launch(0, (trace_files.GEMM, 10, 100))
    two.launch(0, (trace_files.GEMM, 10, 200))
    compared = _compared(tmp_path, one, two)
    assert compared.headline.startswith("The trace takes 100 % longer")
    assert compared.step.says == "all of it"


def test_a_trace_is_compared_with_a_trace(doctor: Doctor, tmp_path: Path) -> None:
    one = str(trace_files.eager().write(tmp_path / "a.json"))
    log = tmp_path / "x.log"
    log.write_text("INFO nothing\n")
    ran = doctor("compare", one, str(log))
    assert ran.code == 3
    assert "is a profiler's trace, and" in ran.err
