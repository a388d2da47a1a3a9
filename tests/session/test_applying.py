"""Options that say something of one kind of source."""

from __future__ import annotations

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.session.applying import Given
from vllm_doctor.session.source import Source


def source(kind: SourceKind, patient: str = "http://127.0.0.1:8000") -> Source:
    return Source(kind, patient, patient, lambda: Observation(kind, patient))


LOG, SERVER = source(SourceKind.LOG, "vllm.log"), source(SourceKind.SERVER)
POD = source(SourceKind.SERVER, "k8s://inference/pod/vllm-0")


@pytest.mark.parametrize(
    ("option", "sources"),
    [
        ("--since", [SERVER]),
        ("--window", [LOG]),
        ("--window", [source(SourceKind.COMMAND), source(SourceKind.PAGE), source(SourceKind.GPU)]),
        ("--header", [LOG]),
        ("--insecure", [POD]),
        ("--profile", [SERVER, source(SourceKind.HOST)]),
        ("--show-text", [SERVER]),
        ("--state", [LOG]),
    ],
)
def test_one_that_says_nothing_of_any_source_is_an_error(option: str, sources: list[Source]) -> None:
    with pytest.raises(UsageError, match=f"^{option} "):
        Given({option}).meet(sources)


@pytest.mark.parametrize(
    ("option", "sources"),
    [
        ("--since", [SERVER, LOG]),
        ("--window", [LOG, SERVER]),
        ("--window", [POD]),
        ("--window", [source(SourceKind.KV_EVENTS)]),
        ("--header", [LOG, source(SourceKind.PROMETHEUS)]),
        ("--profile", [SERVER, source(SourceKind.PROFILE)]),
        ("--show-text", [LOG]),
        ("--state", [source(SourceKind.HOST)]),
        ("--gpu", [LOG]),
    ],
)
def test_one_that_says_something_of_one_of_them_is_none(option: str, sources: list[Source]) -> None:
    Given({option}).meet(sources)


def test_further_sources_are_waited_for() -> None:
    given = Given({"--since", "--header"}, is_more=True)
    given.meet([LOG])
    with pytest.raises(UsageError, match=r"^--header "):
        given.check()
    given.meet([SERVER])
    given.check()
