"""Checkmk: four parts a line, service names unique."""

from __future__ import annotations

import re

import pytest

from tests.render.reports import unreachable
from tests.test_fixtures import NAMES, judged
from vllm_doctor.render import checkmk

LINE = re.compile(r'[0-3] "vLLM[a-z0-9 -]*" (-|[a-z_]+=[0-9.]+(\|[a-z_]+=[0-9.]+)*) \S.*')


@pytest.mark.parametrize("name", NAMES)
def test_each_line_has_four_parts_and_its_own_service(name: str) -> None:
    lines = checkmk.render(judged(name, slice(0, 4))).splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    services = [line.split('"')[1] for line in lines]
    assert len(services) == len(set(services))


def test_states_are_the_rules() -> None:
    shown = checkmk.render(judged("max-num-seqs-cap", slice(0, 4)))
    assert shown.startswith('1 "vLLM" ')
    assert '1 "vLLM max-num-seqs-cap" - Requests queue' in shown
    assert '"vLLM preemption"' not in shown


def test_what_was_skipped_is_one_line_that_never_fails() -> None:
    report = judged("max-num-seqs-cap", slice(0, 4))
    *others, last = checkmk.render(report).splitlines()
    checked, of = report.coverage
    assert last.startswith(f'0 "vLLM skipped checks" checks_made={checked}|checks_skipped={of - checked} ')
    assert f"{checked} of {of} checks made, {of - checked} skipped" in last
    assert len(others) == 1 + len({finding.rule for finding in report.findings})
    assert not any(line.startswith("3 ") for line in others)
    assert "skipped checks" not in checkmk.render(unreachable())


def test_all_of_them() -> None:
    report = judged("max-num-seqs-cap", slice(0, 4))
    shown = checkmk.render(report, is_whole=True)
    assert '0 "vLLM preemption" - ok' in shown
    assert all(LINE.fullmatch(line) for line in shown.splitlines())
    assert len(shown.splitlines()) == 1 + sum(state != "not-applicable" for state in report.states.values())


def test_nobody_answered() -> None:
    assert checkmk.render(unreachable()).startswith('3 "vLLM" - http://127.0.0.1:1 refuses')
