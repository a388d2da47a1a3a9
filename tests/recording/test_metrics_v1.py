"""The answers of recordings of version 1, which are no longer written."""

from __future__ import annotations

import pytest

from vllm_doctor.model.errors import SourceError
from vllm_doctor.recording import metrics_v1
from vllm_doctor.recording.metrics_v1 import of_file


def test_each_answer_comes_back_byte_for_byte() -> None:
    text = (
        b"@ 0.000 page 3 1795000000\na 1\nb 1\n\n@ 1.000 lines 1 1795000001\n2 b 2\n@ 2.000 lines 0\n"
        b"@ 3.500 page 2\na 2\nb\n@ 4.500 lines 1\n2 @ 9.000 lines 7\n"
    )
    found = of_file(text, "m")
    assert found.times == (0.0, 1.0, 2.0, 3.5, 4.5)
    assert found.pages == (b"a 1\nb 1\n", b"a 1\nb 2\n", b"a 1\nb 2\n", b"a 2\nb", b"a 2\n@ 9.000 lines 7")
    assert [answer.clock for answer in found.answers()] == [1_795_000_000, 1_795_000_001, None, None, None]


@pytest.mark.parametrize(
    "text",
    ["x\n", "@ 0 page 2\na 1\n", "@ 0 page -1\n", "@ nan page 0\n", "@ 1e999 page 0\n", "@ 0 pages 0\n",
     "@ 0 page 1\na 1\n@ 0 page 1\na 1\n", "@ 0 page 1\na 1\n@ 1 lines 1\n2 b\n", "@ 0 page 1\na\n@ 1 lines 1\n0 b\n",
     "@ 0 page 1\na\n@ 1 lines 1\nx b\n", "@ 0 lines 1\n1 b\n", "@ 0 page 99999999999999999999\na\n"],
)  # fmt: skip
def test_scrapes_that_are_none(text: str) -> None:
    with pytest.raises(SourceError, match=r"m, line \d"):
        _ = of_file(text.encode(), "m").times


def test_lines_that_would_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_v1, "_MAX_LINES", 100)
    with pytest.raises(SourceError, match="more than 100 lines"):
        _ = of_file(b"@ 0 page 200\n" + b"a 1\n" * 200, "m").times
