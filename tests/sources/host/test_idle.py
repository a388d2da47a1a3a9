from __future__ import annotations

from pathlib import Path

import pytest

from vllm_doctor.sources.host.idle import idle_processor
from vllm_doctor.sources.host.kernel import Kernel


def answers(root: Path, running: list[int], processors: int) -> list[bool]:
    """What is answered while so many want to run, the doctor among them."""
    (root / "proc").mkdir(exist_ok=True)
    is_idle = idle_processor(Kernel(root), processors)
    given = []
    for count in running:
        (root / "proc" / "loadavg").write_text(f"9.99 9.99 9.99 {count}/812 4711\n")
        given.append(is_idle())
    return given


@pytest.mark.parametrize(
    ("running", "processors", "last"),
    [
        ([1] * 8, 2, True),
        ([1, 2] * 8, 2, True),
        ([1, 2, 2] * 8, 2, False),  # an engine that serves
        ([2] * 8, 64, True),
        ([64] * 8, 64, False),
        ([1] * 8, 1, False),
    ],
)
def test_one_is_idle_if_few_want_to_run(tmp_path: Path, running: list[int], processors: int, last: bool) -> None:
    assert answers(tmp_path, running, processors)[-1] is last


def test_one_look_tells_nothing(tmp_path: Path) -> None:
    assert answers(tmp_path, [1] * 10, 2) == [False] * 7 + [True] * 3


def test_without_a_kernel_that_tells_none_is_idle(tmp_path: Path) -> None:
    assert not idle_processor(Kernel(tmp_path), 64)()
