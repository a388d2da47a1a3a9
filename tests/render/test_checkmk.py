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
    assert '0 "vLLM preemption" - ok' in shown


def test_nobody_answered() -> None:
    assert checkmk.render(unreachable()).startswith('3 "vLLM" - http://127.0.0.1:1 refuses')
