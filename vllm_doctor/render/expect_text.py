"""What a server should do, as text: 80 columns."""

from __future__ import annotations

from vllm_doctor.model.expectation import Expectation
from vllm_doctor.model.report import Report
from vllm_doctor.render import expect_page, text


def render(report: Report, expectation: Expectation, colour: bool = False) -> str:
    """Of a report on a command alone."""
    return text.paint(expect_page.page(report, expectation), colour)
