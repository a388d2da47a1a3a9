"""Whose prompts are compared, and when not."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.test_examine_prefixes import RECEIVED, START, STATS, mutated
from tests.sources.prefix.test_request_log import new
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.rules import log_lines, rule
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import noted
from vllm_doctor.session.sources import prefixes
from vllm_doctor.sources.log.source import Log
from vllm_doctor.sources.server.access import Access

ENDPOINT = "tcp://127.0.0.1:5557"


def attachment(**more: object) -> Attachment:
    how = Attachment(frozenset(), Access({}), 1.0, time.monotonic() + 60)
    return replace(how, **more)  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "vllm.log"
    lines = (new(n, None, mutated(n)) + "\n" + RECEIVED.format(n=n) + STATS.format(second=n) for n in range(8))
    path.write_text(START.format(version="0.32.0") + "".join(lines))
    return path


def examined(log: Path) -> Observation:
    return Log([log], log_lines.load(rule.shipped())).examine("")


def test_the_newest_run_knows_it(log: Path) -> None:
    seen = prefixes.with_prompts(examined(log), [log], attachment(), is_alive=False)
    assert seen.prefixes is not None
    assert "prefix_lost_share" in seen.runs[-1].facts
    assert "prefix_lost_share" in seen.facts


def test_a_pipe_is_read_once(log: Path) -> None:
    seen = prefixes.with_prompts(examined(log), [None], attachment(), is_alive=False)
    assert seen.prefixes is None
    assert "prompts in it are not compared: give the log as a file, not by a pipe" in seen.notes


def test_beside_a_server_there_may_be_no_time(log: Path) -> None:
    how = attachment(deadline=time.monotonic())
    assert prefixes.with_prompts(examined(log), [log], how, is_alive=True).prefixes is None


def test_events_are_of_the_one_server() -> None:
    how = attachment(kv_events=(ENDPOINT, ENDPOINT))
    one, other = (noted(SourceKind.HOST, name, name, "") for name in ("a", "b"))
    assert [source.patient for source in prefixes.of_endpoints(how, [one])] == ["a"]
    assert [source.patient for source in prefixes.of_endpoints(how, [one, other])] == [ENDPOINT]
    assert prefixes.of_endpoints(attachment(), [one]) == []


def test_no_endpoint() -> None:
    with pytest.raises(UsageError):
        prefixes.of_endpoints(attachment(kv_events=("nowhere",)), [])
