"""Fixtures of the tests that talk to servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.making import shipped_catalogue
from tests.serving import Clock
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.sources.server import server
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.server import Server


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names of tests without the bytes they are given: these may hold a time, and parallel workers compare names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def signals() -> Catalogue:
    return shipped_catalogue()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line does not wait between scrapes: each server's clock is set forward instead."""

    class Hurried(Server):
        def __init__(
            self,
            url: str,
            wanted: frozenset[str],
            access: Access | None = None,
            clock: Callable[[], float] | None = None,
            sleep: Callable[[float], None] | None = None,
        ) -> None:
            skipping = Clock()
            super().__init__(url, wanted, access, clock or skipping.now, sleep or skipping.sleep)

    monkeypatch.setattr(server, "Server", Hurried)
