"""Engines of one server that are not alike: requests that name their rank, or ones that are longer."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.making import shipped_catalogue, shipped_rules
from tests.path_pages import A, counted
from vllm_doctor.model.report import Finding
from vllm_doctor.session.judge import judge

AT = datetime(2026, 11, 24, tzinfo=UTC)


def found(*engines: tuple[float, float, float]) -> Finding:
    """On a server of engines that finished, run and let wait so many requests."""
    counts, gauges = {}, {}
    for number, (finished, running, waiting) in enumerate(engines):
        of = f'engine="{number}",model_name="m"'
        counts[f'vllm:request_success_total{{{of},finished_reason="stop"}}'] = finished
        gauges[f"vllm:num_requests_running{{{of}}}"] = running
        gauges[f"vllm:num_requests_waiting{{{of}}}"] = waiting
    report = judge([counted(A, counts, gauges)], shipped_rules(), shipped_catalogue(), {"goal": "throughput"}, AT)
    return next(finding for finding in report.findings if finding.rule == "dp-imbalance")


@pytest.mark.parametrize(
    ("engines", "share", "remedy"),
    [
        (((200, 40, 6), (0, 0, 0), (1, 0, 0), (0, 0, 0)), "100 %", "Send requests without X-data-parallel-rank"),
        (((60, 51, 117), (62, 10, 0), (61, 20, 0), (60, 12, 0)), "25 %", "Spread the requests by load"),
        (((15, 40, 6), (0, 0, 0), (0, 0, 0), (0, 0, 0)), "100 %", "Spread the requests by load"),  # too few to tell
    ],
    ids=["pinned", "long", "few"],
)
def test_who_chose_the_engine(engines: tuple[tuple[float, float, float], ...], share: str, remedy: str) -> None:
    finding = found(*engines)
    assert finding.here.endswith(f"requests that ended it had {share}.")
    assert [one.do.partition(",")[0].partition(" and not")[0] for one in finding.remedies] == [remedy]
