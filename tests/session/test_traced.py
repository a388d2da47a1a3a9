"""What a trace alone concludes: an all-clear is earned, and never given where the trace does not tell."""

from __future__ import annotations

from pathlib import Path

from tests import trace_files
from tests.trace_files import GEMM, Made
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Verdict
from vllm_doctor.session import traced
from vllm_doctor.sources.trace import source


def _concluded(folder: Path, made: Made) -> tuple[Verdict, str]:
    found = traced.concluded([source.examine([made.write(folder / "t.json")], "")])
    assert found is not None
    return found


def test_a_busy_device_is_an_all_clear(tmp_path: Path) -> None:
    assert _concluded(tmp_path, trace_files.busy()) == (
        Verdict.OK,
        "The device works 100 % of the time, most of it GEMM",
    )


def test_an_idle_one_is_none_though_no_rule_is_sure(tmp_path: Path) -> None:
    made = trace_files.eager(gap=30, length=50)
    made.stacks()
    verdict, headline = _concluded(tmp_path, made)
    assert verdict is Verdict.UNKNOWN
    assert headline.startswith("The device is idle 37 % of the time, most of it host, within a step; Python's stacks")


def test_idle_time_without_a_cause_is_said(tmp_path: Path) -> None:
    made = Made()
    made.launch(0, (GEMM, 10, 100))
    made.launch(1, (GEMM, 1000, 100))
    verdict, headline = _concluded(tmp_path, made)
    assert verdict is Verdict.UNKNOWN
    assert "the trace does not show why" in headline


def test_a_server_beside_it_concludes_for_itself(tmp_path: Path) -> None:
    seen = source.examine([trace_files.busy().write(tmp_path / "t.json")], "")
    assert traced.concluded([seen, Observation(SourceKind.SERVER, "http://x")]) is None


def test_the_real_trace_of_a_build_for_cpus_is_no_all_clear() -> None:
    path = Path(__file__).parents[1] / "data" / "trace" / "vllm-0.32-cpu.pt.trace.json.gz"
    found = source.examine([path], "")
    assert found.trace is not None
    rank = found.trace.told
    assert (rank.vllm, rank.steps, rank.is_on_cpu) == ("0.32.0", 14, True)
    assert {kind.name: kind.steps for kind in rank.kinds} == {"decode": 11, "empty": 1, "prefill": 1, "mixed": 1}
    assert rank.families[0].name == "gemm"
    verdict, headline = traced.concluded([found]) or (None, "")
    assert verdict is Verdict.UNKNOWN
    assert headline.startswith("A trace without a device: 15 % of the time is in operators")
