from __future__ import annotations

import math

import pytest

from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.text import words


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0, "", "0"), (7, "", "7"), (1.8, "factor", "1.8"), (1.234, "factor", "1.23"), (1234.5, "tokens", "1,234"),
        (1234567, "tokens", "1,234,567"), (99.96, "", "100"), (0.0123, "", "0.0123"), (0.0001, "", "0.0001"),
        (math.inf, "", "∞"), (-math.inf, "", "-∞"), (-0.0, "", "0"),
        (0, "share", "0 %"), (0.034, "share", "3.4 %"), (0.03, "share", "3 %"), (0.5, "share", "50 %"),
        (0.999, "share", "100 %"), (1, "share", "100 %"), (0.00001, "share", "under 0.1 %"),
        (0, "s", "0 s"), (0.0071, "s", "7.1 ms"), (0.05, "s", "50 ms"), (2.5, "s", "2.5 s"), (125.4, "s", "125 s"),
        (math.inf, "s", "∞"),
        (9000, "1/s", "9,000/s"), (0.5, "1/s", "0.5/s"), (12.34, "1/s", "12.3/s"),
        (0, "bytes", "0 bytes"), (1023, "bytes", "1,023 bytes"), (1024, "bytes", "1 KiB"),
        (67108864, "bytes", "64 MiB"),
        (1.5 * 2**30, "bytes", "1.5 GiB"), (80 * 2**30, "bytes", "80 GiB"), (5000 * 2**30, "bytes", "5,000 GiB"),
        (534.25, "W", "534 W"), (70, "W", "70 W"), (1980, "MHz", "1,980 MHz"), (61, "°C", "61 °C"),
        (61.25, "°C", "61.2 °C"), (0.5, "cores", "0.5"), (3, "cores", "3"),
        (2, "requests", "2"), (2.34, "requests", "2.3"), (18.4, "requests", "18"), (1065, "requests", "1,065"),
    ],
)  # fmt: skip
def test_number(value: float, unit: str, expected: str) -> None:
    assert words.number(value, unit) == expected


@pytest.mark.parametrize("unit", ["", "factor", "tokens", "share", "s", "1/s", "requests", "cores"])
@pytest.mark.parametrize(("value", "expected"), [(math.inf, "∞"), (-math.inf, "-∞"), (math.nan, "?")])
def test_what_is_no_finite_number_has_a_word_in_every_unit(value: float, unit: str, expected: str) -> None:
    assert words.number(value, unit) == expected
    assert words.reading(Known(value), unit) == expected


@pytest.mark.parametrize(
    ("known", "unit", "expected"),
    [
        pytest.param(Known(18.0), "requests", "18", id="a number"),
        pytest.param(Known(True), "flag", "yes", id="yes"),
        pytest.param(Known(False), "flag", "no", id="no"),
        pytest.param(Known("auto"), "text", "auto", id="a text"),
        pytest.param(Known(2.0, 1.0, 2.5), "s", "1–2.5 s", id="a span names its unit once"),
        pytest.param(Known(2.0, 0.5, 2.5), "s", "500 ms–2.5 s", id="a span over two units names both"),
        pytest.param(Known(0.02, 0.01, 0.05), "s", "10–50 ms", id="a span of ms"),
        pytest.param(Known(0.02, 0.0, 0.05), "s", "0–50 ms", id="a span from 0"),
        pytest.param(Known(10.0, 10.0, math.inf), "s", "over 10 s", id="above the last bucket"),
        pytest.param(Known(2.0, 2.0, 2.0), "s", "2 s", id="bounds that agree"),
        pytest.param(Known(0.02, 0.01, 0.05), "share", "1–5 %", id="shares"),
    ],
)
def test_reading(known: Known, unit: str, expected: str) -> None:
    assert words.reading(known, unit) == expected


def read(name: str) -> tuple[Reading, str]:
    seen: dict[str, tuple[Reading, str]] = {
        "wait": (Known(2.0, 1.0, 2.5), "s"),
        "queue": (Known(12.0), "requests"),
        "dtype": (Known("{queue}"), "text"),
    }
    return seen.get(name, (Unknown(Reason.ABSENT), ""))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{queue} wait {wait}", "12 wait 1–2.5 s"),
        ("nothing to fill", "nothing to fill"),
        ("{queue} wait, {gone} fit", None),
        ("{gone}", None),
        ("{dtype}", "{queue}"),  # a value is not a template
    ],
)
def test_a_sentence_with_a_hole_is_not_said(template: str, expected: str | None) -> None:
    assert words.fill(template, read) == expected


def test_names_of_a_template() -> None:
    assert words.names("{queue} of {max_queue}: {wait}") == ["queue", "max_queue", "wait"]


@pytest.mark.parametrize(
    ("value", "expected"), [(11.0, 11), (0.92, 0.92), ("auto", "auto"), (True, True), (math.inf, math.inf)]
)
def test_plain_whole_numbers_have_no_point(value: Value, expected: Value) -> None:
    assert repr(words.plain(value)) == repr(expected)


def test_a_word_is_quoted_so_that_a_shell_expands_what_is_meant_to_be() -> None:
    variables = {"$M": False, "$MORE": True, "${A[@]}": False, "$(…)": False}
    quoted = [
        words.quoted(word, variables)
        for word in ("a b", "$M", "$MORE", "x-$M", '{"a": "$M"}', "${A[@]}", "$(…)", "$OTHER", "p$MORE")
    ]
    assert quoted == [
        "'a b'", '"$M"', "$MORE", 'x-"$M"', """'{"a": "'"$M"'"}'""", '"${A[@]}"', "'$(…)'", "'$OTHER'", 'p"$MORE"',
    ]  # fmt: skip
    assert words.folded(["serve", "$M"], 80) == ["serve '$M'"]


@pytest.mark.parametrize("unit", ["", "share", "s", "bytes", "requests", "1/s", "W"])
@pytest.mark.parametrize("value", [1e308, -1.7e308, 1e30, 5e-324, float("inf"), float("nan")])
def test_any_number_is_told_shortly(value: float, unit: str) -> None:
    assert len(words.number(value, unit)) < 30
    assert len(str(words.plain(value))) < 30


_HOSTILE: dict[str, tuple[Reading, str]] = {
    "name": (Known("$(id); x"), "text"),
    "list": (Known("--a --b`id`"), "words"),
    "count": (Known(1024.0), "tokens"),
    "place": (Known("{name}'"), "text"),
    "gone": (Unknown(Reason.ABSENT), "text"),
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("docker update --cpus {count} {name}", "docker update --cpus 1024 '$(id); x'"),
        ("vllm-doctor flags {list}", "vllm-doctor flags --a '--b`id`'"),
        ("x {place} {name}", "x '{name}'\"'\"'' '$(id); x'"),  # a value is no template
        ("x A={name}", "x A='$(id); x'"),
        ("x {gone}", "x {gone}"),
    ],
)
def test_a_command_has_its_values_quoted(template: str, expected: str) -> None:
    assert words.command(template, _HOSTILE.__getitem__) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("x {a}", ""),
        ("x $(y -p {a})", ""),
        ("x 'b' {a}", ""),
        ("x '{a}'", "{a}"),
        ('x "$(y {a})"', "{a}"),
        ("x 'y' \"z {a}", "{a}"),
    ],
)
def test_a_place_within_quotes_cannot_be_quoted(template: str, expected: str) -> None:
    assert words.unquotable(template) == expected


def test_flags_and_variables_are_shown_as_a_shell_takes_them() -> None:
    assert words.flag("--chat-template", "a $(id)") == "--chat-template 'a $(id)'"
    assert words.flag("--x`id`", True) == "'--x`id`'"
    assert words.setting("--chat-template", "a $(id)") == ("--chat-template", "a $(id)")
    assert words.variable("A", "`id`") == "A='`id`'"


@pytest.mark.parametrize("text", ["a 'b  c' d", "pgrep -g $(ps -o 'x y') | xargs -n 1", "it's", ""])
def test_a_folded_command_is_the_same_command(text: str) -> None:
    lines = words.folded_text(text, 8)
    assert " ".join(line.removesuffix(" \\").strip() for line in lines) == text


@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (2.8, "× 2.8"),
        (759.4, "× 759"),
        (0.11, "÷ 9.1"),
        (0.5, "÷ 2"),
        (0.0086, "÷ 120"),
        (2.1e-05, "÷ 48,000"),
        (0.0, "× 0"),
    ],
)
def test_a_factor_has_no_exponent(factor: float, says: str) -> None:
    assert words.times(factor) == says


@pytest.mark.parametrize(
    ("value", "says"), [(0.00021, "0.00021"), (0.00009, "0.00009"), (2.1e-05, "0.000021"), (1e-09, "under 0.000001")]
)
def test_a_small_number_has_none(value: float, says: str) -> None:
    assert words.number(value) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("the host has 1 GPUs; 1 requests run, 1 requests wait", "the host has 1 GPU; 1 request runs, 1 request waits"),
        ("11 requests run, 1,001 tokens", "11 requests run, 1,001 tokens"),
        ("0.1 requests, 2–1 steps", "0.1 requests, 2–1 steps"),
        ("1 processes of 4 processes", "1 process of 4 processes"),
    ],
)  # fmt: skip
def test_one_is_singular(text: str, says: str) -> None:
    assert words.singular(text) == says
