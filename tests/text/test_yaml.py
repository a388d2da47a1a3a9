from __future__ import annotations

import pytest
import yaml

from vllm_doctor.text import yaml as yaml_text


@pytest.mark.parametrize(
    "text",
    ["0.9", "true", "64", "y", "N", "on", "null", "~", "", "1e3", "0x1f", "1:30", "2024-01-01", ".inf", "<<", "=",
     "- x", "a: b", "# c", "&a", "*a", "{}", "[1]", "'", '"', "a ", "é", "\u2028", "\x1b[31m", "---", "...", "%x"],
)  # fmt: skip
def test_what_is_no_plain_word_is_quoted(text: str) -> None:
    [line] = yaml_text.dump({"k": text})
    assert line.startswith('k: "')
    assert line.isascii()
    assert line.isprintable()
    assert yaml.safe_load(line) == {"k": text}


@pytest.mark.parametrize("text", ["m", "--max-num-seqs", "--x=64", "org/model", "vllm", "-tp"])
def test_a_plain_word_stays_one(text: str) -> None:
    assert yaml_text.dump([text]) == [f"- {text}"]


def test_several_lines_stay_lines_and_long_ones_are_not_folded() -> None:
    assert yaml_text.dump({"a": "x\n  y # z\n"}) == ["a: |", "  x", "    y # z"]
    assert len(yaml_text.dump({"a": "word " * 500 + "end"})) == 1


def test_no_anchors() -> None:
    twice = ["a", {"b": 1}]
    assert yaml_text.dump({"x": twice, "z": twice}) == ["x:", "  - a", "  - b: 1", "z:", "  - a", "  - b: 1"]
