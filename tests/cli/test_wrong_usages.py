"""Each wrong usage of tests/data/wrong-usages.yaml: what is said to it stands there verbatim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import wrong_usages

pytestmark = pytest.mark.xdist_group("host")
USAGES = wrong_usages.usages()


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Mapping[str, str]]]:
    folder = tmp_path_factory.mktemp("wrong")
    with wrong_usages.places(folder) as there:
        yield folder, there


@pytest.mark.parametrize("usage", USAGES, ids=lambda usage: usage["usage"])
def test_what_is_said_to_it(usage: Mapping[str, Any], bed: tuple[Path, Mapping[str, str]]) -> None:
    assert f"{wrong_usages.said(usage, *bed)}\n" == usage["after"]


def test_they_are_forty_and_more_and_each_is_said_so() -> None:
    assert len(USAGES) >= 40
    wrong = [usage for usage in USAGES if usage["usage"] not in ("help", *_ANSWERED)]
    assert all(usage["after"].endswith("exit code 3\n") for usage in wrong)
    assert all(usage["after"].startswith("vllm-doctor: ") for usage in wrong)
    assert not [usage for usage in USAGES if "hunter2" in usage["after"] or "4711" in usage["after"]]


_ANSWERED = ("flags 0.32.0 --max-num-seq", "flags 0.23.99", "regressions 0.23.99")
"""Answered, with what it was taken for."""
