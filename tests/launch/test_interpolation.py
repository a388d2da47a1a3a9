from __future__ import annotations

import pytest

from vllm_doctor.launch import budget
from vllm_doctor.launch.budget import ExhaustedError
from vllm_doctor.launch.interpolation import Interpolation
from vllm_doctor.launch.unexpanded import mark


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("$$HOME", "$HOME"),
        ("a $KNOWN ${KNOWN} b", "a 7 7 b"),
        ("${OTHER:-4} ${OTHER-5}", "4 5"),
        ("${EMPTY:-4}|${EMPTY-5}", "4|"),
        ("${KNOWN:-4}", "7"),
        ("${A:-${B:-${KNOWN}}}", "7"),
        ("${KNOWN:+--x}", "--x"),
        ("${OTHER:+--x}", mark("${OTHER}")),
        ("${OTHER:?say it}", mark("${OTHER}")),
        ("${API_KEY:-secret}", mark("${API_KEY}")),
        ("100% $ 5 ${", "100% $ 5 ${"),
        ("${OTHER:-no end", "no end"),
    ],
)
def test_what_is_known_is_filled_in(text: str, read: str) -> None:
    assert Interpolation({"KNOWN": "7", "EMPTY": ""}).text(text) == read


def test_the_defaults_that_were_taken_are_named() -> None:
    variables = Interpolation({"SET": "1"})
    variables.text("${MODEL:-org/m} ${SET:-2} ${SEQS-3} ${HF_TOKEN:-x}")
    assert list(variables.defaults) == ["MODEL", "SEQS"]


def test_nesting_ends() -> None:
    with budget.limited(), pytest.raises(ExhaustedError):
        Interpolation().text("${A:-${B:-1}}" * 100_000)
    assert Interpolation().text("${A:-" * 100_000)
    assert "x" not in Interpolation().text("${A:-" * 20 + "x" + "}" * 20)
