"""What a real `vllm bench` saved and printed gets the findings of fixtures/bench/expected.yaml, and no others."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.making import shipped_catalogue, shipped_rules
from tests.paths import FIXTURES
from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import Report
from vllm_doctor.session.judge import judge
from vllm_doctor.sources.bench import source

BENCH = FIXTURES / "bench"
EXPECTED: dict[str, Any] = yaml.safe_load((BENCH / "expected.yaml").read_text("utf-8"))
SIGNALS = shipped_catalogue()
RULES = shipped_rules()


def judged(names: str) -> Report:
    """The report on these files, each as a patient of its own."""
    results = source.results([BENCH / name for name in names.split()])
    seen = [result.examine(result.target) for result in results]
    return judge(seen, RULES, SIGNALS, {"goal": "throughput"}, datetime(2026, 11, 23, tzinfo=UTC))


@pytest.mark.parametrize("names", EXPECTED)
def test_what_was_measured_wrongly_is_found(names: str) -> None:
    report = judged(names)
    assert {finding.rule: finding.severity.value for finding in report.findings} == EXPECTED[names]


def test_each_file_is_named() -> None:
    assert {path.name for path in BENCH.iterdir()} - {"README.md", "expected.yaml"} == set(" ".join(EXPECTED).split())


@pytest.mark.parametrize("name", sorted({name.partition(".")[0] for name in " ".join(EXPECTED).split()}))
def test_saved_and_printed_say_the_same(name: str) -> None:
    saved, printed = (source.results([BENCH / f"{name}.{form}"])[0].run for form in ("json", "txt"))
    for figure in ("completed", "failed", "duration", "output_rate", "total_rate"):
        a, b = getattr(saved, figure), getattr(printed, figure)
        if a is not None and b is not None:
            assert b == pytest.approx(a, abs=0.006), figure
    for time in ("ttft", "tpot", "itl", "e2e"):
        for statistic in ("mean", "median", "p99"):
            a, b = getattr(getattr(saved, time), statistic), getattr(getattr(printed, time), statistic)
            if a is not None and b is not None:
                assert b == pytest.approx(a, abs=0.000006), (time, statistic)


def test_a_sound_benchmark_alone_is_ok_and_says_that_its_speed_was_not_judged() -> None:
    report = judged("sound.json")
    assert report.verdict == "ok"
    assert report.headline.startswith("No fault found in how the benchmark was made; the server's speed is not judged")
    (seen,) = report.benchmarks
    assert (seen.requests, seen.concurrency, seen.tool) == (1000, 8, "vllm bench serve")


def test_what_the_second_run_gained_from_the_cache_is_told() -> None:
    (finding,) = (found for found in judged("cold.json warm.json").findings if found.rule == "bench-warm-cache")
    assert "2.42 times as fast" in finding.here
    assert finding.subject["server"].endswith("warm.json")


def test_the_gpu_that_the_text_around_a_table_lists(tmp_path: Path) -> None:
    table = (BENCH / "sound.txt").read_text()
    issue = tmp_path / "issue.md"
    issue.write_text(f"GPU models and configuration: GPU 0: NVIDIA L20\n\n```text\n{table}```\n")
    [result] = source.results([issue])
    assert result.examine("it").facts["gpu_written"] == Known("NVIDIA L20", origin="bench")
    [plain] = source.results([BENCH / "sound.txt"])
    assert "gpu_written" not in plain.examine("it").facts
