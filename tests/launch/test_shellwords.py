from __future__ import annotations

import time

import pytest

from vllm_doctor.launch.shellwords import words
from vllm_doctor.launch.start import Flaw


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a  b\tc\nd", ["a", "b", "c", "d"]),
        ("a 'b \\c' \"d e\" f\\ g''", ["a", "b \\c", "d e", "f g"]),
        ('a "b\\ c" "\\"d\\"" "\\x"', ["a", "b c", '"d"', "x"]),
        ("a \\\n  b", ["a", "\n", "b"]),
        ("a \\ b", ["a", " b"]),
        ("a # b $C `d`", ["a", "#", "b", "$C", "`d`"]),
        ("a && b", ["a"]),
        ("a ';' > b", ["a", ";"]),
        ('a ""', ["a", ""]),
        ("", []),
    ],
)
def test_what_compose_makes_of_a_text(text: str, expected: list[str]) -> None:
    found, broken = words(text)
    assert [word.text for word in found] == expected
    assert broken is None
    assert all(words(text[word.start : word.end])[0][0].text == word.text for word in found)


def test_each_word_has_its_line() -> None:
    assert [word.line for word in words("a 'b\nc' \\\nd\ne", 3)[0]] == [3, 3, 4, 6]


@pytest.mark.parametrize("text", ["a 'b", 'a "b\\"', "a \\"])
def test_a_quote_that_nothing_closes(text: str) -> None:
    found, broken = words(text)
    assert [word.text for word in found] == ["a"]
    assert broken is not None
    assert broken.kind is Flaw.UNBALANCED_QUOTE


@pytest.mark.parametrize("piece", ["'", '"', "\\", "a\\", '\\"', "a ", "''", "\n"])
def test_a_hostile_text_does_not_take_long(piece: str) -> None:
    started = time.process_time()
    words(piece * (1_000_000 // len(piece)))
    assert time.process_time() - started < 4
