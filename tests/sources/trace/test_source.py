"""What a trace says of a step: each planted cause is told by its name, and what is not in the file is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import trace_files
from tests.trace_files import ALL_REDUCE, GEMM, Made
from vllm_doctor.model import trace
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.trace import TraceSeen
from vllm_doctor.sources.trace import source


def _seen(tmp_path: Path, *made: Made) -> TraceSeen:
    found = _examined(tmp_path, *made).trace
    assert found is not None
    return found


def _examined(tmp_path: Path, *made: Made) -> Observation:
    paths = [one.write(tmp_path / f"rank{place}.pt.trace.json.gz") for place, one in enumerate(made)]
    return source.examine(paths, "server")


def test_a_step_from_graphs_without_gaps_is_all_compute(tmp_path: Path) -> None:
    rank = _seen(tmp_path, trace_files.busy()).told
    assert rank.share(trace.COMPUTE) == pytest.approx(1.0)
    assert (rank.steps, rank.marked_by, rank.device) == (5, "vLLM's steps", "NVIDIA H100 80GB HBM3")
    assert rank.from_graphs == rank.kernels == 55
    assert rank.idle_unknown == ""


def test_kernels_that_are_launched_late_are_the_hosts_fault(tmp_path: Path) -> None:
    rank = _seen(tmp_path, trace_files.eager(gap=60, length=20)).told
    assert rank.share(trace.HOST_WITHIN, trace.HOST_BETWEEN) == pytest.approx(0.75, abs=0.02)
    assert rank.share(trace.HOST_BETWEEN) < rank.share(trace.HOST_WITHIN)


def test_a_wait_before_a_steps_first_kernel_is_between_steps(tmp_path: Path) -> None:
    made = Made()
    for step in range(4):
        at = 1000.0 * step
        made.step(at, 500)
        made.launch(at + 10, (GEMM, at + 20, 400), (GEMM, at + 420, 100), call="cudaGraphLaunch")
    rank = _seen(tmp_path, made).told
    assert rank.share(trace.HOST_BETWEEN) == pytest.approx(1500 / 3500, abs=0.01)
    assert rank.share(trace.HOST_WITHIN) == 0


def test_time_before_a_step_of_new_requests_alone_may_have_been_without_any(tmp_path: Path) -> None:
    made = Made()
    for step in range(4):
        at = 100_000.0 * step
        made.step(at, 500, context=1, generation=0)
        made.launch(at + 10, (GEMM, at + 20, 400))
    seen = _seen(tmp_path, made)
    assert seen.told.share(*trace.WAITS_FOR_HOST) == 0
    assert any(note.startswith("299 ms before steps that only had new requests") for note in seen.notes)


def test_launched_kernels_that_follow_late_are_gaps_and_later_ones_unexplained(tmp_path: Path) -> None:
    made = Made()
    made.launch(0, (GEMM, 100, 100))
    made.launch(5, (GEMM, 210, 100))
    made.launch(9, (GEMM, 510, 100))
    parts = _seen(tmp_path, made).told.parts
    assert parts[trace.GAPS] == pytest.approx(10e-6)
    assert parts[trace.UNEXPLAINED] == pytest.approx(200e-6)


def test_communication_counts_where_nothing_is_computed_beside_it(tmp_path: Path) -> None:
    made = Made()
    made.launch(0, (GEMM, 100, 100))
    made.launch(1, (ALL_REDUCE, 150, 150), stream=9)
    made.copy(2, 290, 60)
    rank = _seen(tmp_path, made).told
    assert rank.parts == {
        trace.COMPUTE: pytest.approx(100e-6),
        trace.COMMUNICATION: pytest.approx(100e-6),
        trace.COPIES: pytest.approx(50e-6),
    }
    assert rank.overlapped == pytest.approx(50e-6)


def test_the_rank_that_others_wait_for_is_named(tmp_path: Path) -> None:
    seen = _seen(tmp_path, *(trace_files.busy(rank=rank, world=3, late=90.0 * (rank == 1)) for rank in range(3)))
    assert seen.slowest == 1
    assert seen.told.rank == 1
    assert [rank.waits for rank in seen.ranks] == pytest.approx([450e-6, 0.0, 450e-6])


def test_ranks_that_come_late_in_turns_have_no_slowest(tmp_path: Path) -> None:
    each = []
    for rank in range(2):
        made = Made(rank, 2)
        for step in range(6):
            at, late = 1000.0 * step, 300.0 * (step % 2 == rank)
            made.step(at, 200)
            made.launch(at + 10, (GEMM, at + 20, 500 + late), (ALL_REDUCE, at + 520 + late, 400 - late))
        each.append(made)
    seen = _examined(tmp_path, *each)
    assert seen.trace is not None
    assert seen.trace.slowest is None
    assert seen.facts["trace_rank_lag"] == Known(0.0, origin="trace")
    assert all(rank.waits == pytest.approx(900e-6) for rank in seen.trace.ranks)


def test_ranks_alike_have_no_slowest(tmp_path: Path) -> None:
    assert _seen(tmp_path, *(trace_files.busy(rank=rank, world=2) for rank in range(2))).slowest is None


def test_ranks_with_other_collectives_are_not_compared(tmp_path: Path) -> None:
    other = trace_files.busy(rank=1, world=2)
    other.launch(9000, (ALL_REDUCE, 9100, 50))
    seen = _seen(tmp_path, trace_files.busy(world=2), other)
    assert seen.slowest is None
    assert any("5 to 6 collectives" in note for note in seen.notes)


def test_graph_replays_without_kernels_leave_idle_time_unjudged(tmp_path: Path) -> None:
    made = trace_files.busy()
    for step in range(5, 10):
        made.step(1000.0 * step, 200)
        made.launch(1000.0 * step + 50, call="cudaGraphLaunch")
    seen = _examined(tmp_path, made)
    assert seen.trace is not None
    assert seen.trace.told.idle_unknown == "5 of 10 graph replays have no kernels in it"
    assert seen.facts["trace_host"] == Unknown(Reason.NOT_IN_TRACE)


def test_dropped_events_leave_idle_time_unjudged(tmp_path: Path) -> None:
    made = trace_files.eager()
    for place in range(30):
        made.launch(100.0 * place)
    assert "30 of 80 launches have no kernel in it" in _seen(tmp_path, made).told.idle_unknown


def test_steps_of_which_kernels_lack_are_left_out(tmp_path: Path) -> None:
    made = trace_files.busy(steps=40)
    made.step(40_000, 200)
    made.launch(40_050, (GEMM, 40_300, 900), call="cudaGraphLaunch")
    rank = _seen(tmp_path, made).told
    assert (rank.steps, rank.idle_unknown) == (40, "")


def test_a_first_step_that_takes_far_longer_is_warm_up(tmp_path: Path) -> None:
    made = Made()
    starts = [0.0, 5000.0, 6000.0, 7000.0, 8000.0]
    for at in starts:
        made.step(at, 500)
        made.launch(at + 10, (GEMM, at + 20, 900), call="cudaGraphLaunch")
    rank = _seen(tmp_path, made).told
    assert (rank.steps, rank.warm_up) == (4, 1)


def test_a_step_in_which_kernels_are_loaded_is_warm_up(tmp_path: Path) -> None:
    made = trace_files.busy()
    made.add("cuda_driver", "cuModuleLoadData", 2100.0, 500.0, {})
    assert (_seen(tmp_path, made).told.steps, _seen(tmp_path, made).told.warm_up) == (4, 1)


def test_kernels_by_family(tmp_path: Path) -> None:
    rank = _seen(tmp_path, trace_files.busy()).told
    assert [(family.name, family.precision) for family in rank.families] == [("gemm", "BF16"), ("attention", "")]
    assert rank.families[0].longest == GEMM


def test_recorded_stacks_are_said(tmp_path: Path) -> None:
    made = trace_files.eager()
    made.stacks()
    seen = _examined(tmp_path, made)
    assert seen.facts["trace_stacks"] == Known(1.0, origin="trace")
    assert any("upper bound" in note for note in seen.notes)


def test_a_trace_without_a_device_is_told_by_operators(tmp_path: Path) -> None:
    made = Made()
    made.add("cpu_op", "aten::linear", 0.0, 100.0, {})
    made.add("cpu_op", "aten::addmm", 10.0, 80.0, {})
    made.add("cpu_op", "aten::rms_norm", 150.0, 50.0, {})
    rank = _seen(tmp_path, made).told
    assert rank.is_on_cpu
    assert rank.parts == {trace.OPERATORS: pytest.approx(150e-6), trace.OUTSIDE: pytest.approx(50e-6)}
    assert [(family.name, round(family.seconds * 1e6)) for family in rank.families] == [("gemm", 100), ("norm", 50)]


def test_a_file_that_cannot_be_read_is_a_note_beside_those_that_can(tmp_path: Path) -> None:
    good = trace_files.busy().write(tmp_path / "a.json")
    seen = source.examine([good, tmp_path / "missing.json"], "server")
    assert seen.error is None
    assert any("does not exist" in note for note in seen.notes)
    alone = source.examine([tmp_path / "missing.json"], "server")
    assert alone.error is not None
    assert alone.error.kind == "not-found"


def test_a_device_whose_clock_runs_behind_is_not_judged(tmp_path: Path) -> None:
    made = Made()
    for step in range(5):
        at = 1000.0 * step
        made.step(at, 500)
        for place in range(10):
            made.launch(at + 800 + 2 * place, (GEMM, at + 20 * place, 10))
    seen = _seen(tmp_path, made)
    assert "the device's clock is not the host's" in seen.told.idle_unknown
    assert seen.told.share(*trace.WAITS_FOR_HOST) == 0


def test_a_few_kernels_are_no_server_at_work(tmp_path: Path) -> None:
    made = Made()
    for at in (0.0, 1000.0):
        made.launch(at, (GEMM, at + 10, 20))
    assert _examined(tmp_path, made).facts["trace_host"] == Unknown(Reason.NOT_IN_TRACE)


@pytest.mark.parametrize(
    ("mark", "tokens", "requests", "held"),
    [
        ("execute_context_2(18)_generation_5(5)", 23, 7, None),
        ("execute_context_1(888_788544)_generation_0(0)", 888, 1, None),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", 32, 32, 55086),
        ("execute_new_2_cached_3", None, 5, None),
        ("step[DECODE bs=63]", 63, 63, None),
        ("step[EXTEND bs=17 toks=8192]", 8192, 17, None),
        ("gpu_model_runner: forward", None, None, None),
    ],
)
def test_what_a_step_computes_is_read_from_its_mark(
    tmp_path: Path, mark: str, tokens: float | None, requests: float | None, held: float | None
) -> None:
    made = Made()
    for step in range(3):
        at = 1000.0 * step
        made.add("user_annotation", mark, at, 500.0, {})
        made.launch(at + 10, (GEMM, at + 20, 400), (ALL_REDUCE, at + 420, 100))
    rank = _seen(tmp_path, made).told
    (kind,) = rank.kinds
    assert (kind.tokens, kind.requests, kind.kv_tokens) == (tokens, requests, held)
    assert kind.families == {"gemm": pytest.approx(400e-6), "communication": pytest.approx(100e-6)}
    assert rank.bounded is kind


def test_a_trace_of_2021_marks_steps_as_operators(tmp_path: Path) -> None:
    made = Made()
    for step in range(3):
        made.add("Operator", f"ProfilerStep#{step}", 1000.0 * step, 900.0, {})
        made.launch(1000.0 * step + 10, (GEMM, 1000.0 * step + 20, 400))
    for event in made.events:
        event["cat"] = {"kernel": "Kernel", "cuda_runtime": "Runtime"}.get(event["cat"], event["cat"])
    rank = _seen(tmp_path, made).told
    assert (rank.marked_by, rank.steps, rank.is_forward) == ("the profiler's steps", 3, False)
