"""Blocks in lines of a given width: what stands where, and in which tone."""

from __future__ import annotations

import pytest

from vllm_doctor.render.columns import ADDED, DROPPED, LABEL, PLAIN, RUN, SOFT, lay
from vllm_doctor.render.page import (
    Block,
    Command,
    Diff,
    Footer,
    Head,
    Heading,
    Kind,
    Labelled,
    Lines,
    Shell,
    Span,
    Table,
    code,
    plain,
    rule,
    soft,
)


def shown(*blocks: Block, width: int = 80) -> list[str]:
    return ["".join(piece.text for piece in line).rstrip() for line in lay(blocks, width)]


def tones(*blocks: Block) -> list[tuple[str, str]]:
    return [(piece.text.strip(), piece.tone) for line in lay(blocks, 80) for piece in line if piece.text.strip()]


def test_a_rule_stands_at_the_right_edge_or_below() -> None:
    assert shown(Head("ok", "Fine", "a-rule"), width=24) == ["OK  Fine        [a-rule]"]
    assert shown(Head("ok", "It is fine all over", "a-rule"), width=24) == [
        "OK  It is fine all over",
        " " * 16 + "[a-rule]",
    ]


def test_a_label_stands_in_the_margin_and_its_paragraph_beside_it() -> None:
    assert shown(Labelled("Why", "one two three"), width=25) == ["  Why         one two", "              three"]
    assert tones(Labelled("Why", "one")) == [("Why", LABEL), ("one", PLAIN)]


def test_what_belongs_to_a_label_is_set_in_and_has_its_tone() -> None:
    fix = Labelled(
        "Fix",
        "Do it",
        (
            Diff((("-", "--old"), ("+", "--new 1"))),
            Shell(("ulimit -n 9",), "as an administrator"),
            Lines(("an hour", soft("risk: none"))),
        ),
    )
    assert shown(fix) == [
        "  Fix         Do it",
        "              -  --old",
        "              +  --new 1",
        "              $  ulimit -n 9  # as an administrator",
        "              an hour",
        "              risk: none",
    ]
    assert [tone for _, tone in tones(fix)] == [LABEL, PLAIN, DROPPED, ADDED, RUN, PLAIN, SOFT]


def test_a_command_to_run_is_folded_and_never_cut() -> None:
    """Else the next line would be a command of its own."""
    run = Shell(("docker update --cpus 4 'a b' $(ps -o 'x  y' -p 1) reboot",), "as an administrator")
    assert shown(run, width=45) == [
        "              # as an administrator",
        "              $  docker update --cpus 4 \\",
        "                     'a b' $(ps -o 'x  y' \\",
        "                     -p 1) reboot",
    ]


def test_a_command_folds_so_that_it_can_be_pasted() -> None:
    command = Command(("vllm", "serve", "m", "--chat-template", "a b"))
    assert shown(command, width=30) == ["  vllm serve m \\", "      --chat-template 'a b'"]
    assert shown(Labelled("Restart", "so:", (command,)), width=35)[1:] == [
        "              vllm serve m \\",
        "                  --chat-template \\",
        "                  'a b'",
    ]


def test_a_table_is_aligned_and_its_first_column_gives_way() -> None:
    table = Table(
        ("What", "Value", "Threshold", "From"),
        (("a long name of a signal", "1", (code("> 2 (signal)"),), "log"), ("b", "10.5", "", "host")),
        frozenset({1}),
        ("a note",),
    )
    assert shown(Labelled("Evidence", body=(table,))) == [
        "  Evidence    a long name of a signal     1  > 2 (signal)  log",
        "              b                        10.5                host",
        "              a note",
    ]
    assert shown(Labelled("Evidence", body=(table,)), width=45) == [
        "  Evidence    a long name of     1  > 2  log",
        "                a signal",
        "              b               10.5       host",
        "              a note",
    ]


def test_a_line_ends_at_its_break_only_where_it_must() -> None:
    line = Lines((("one two", Span(" · ", Kind.BREAK), "three four"),))
    assert shown(line) == ["  one two · three four"]
    assert shown(line, width=18) == ["  one two", "  three four"]


def test_a_rule_within_a_sentence_is_in_brackets() -> None:
    assert plain(("slow ", rule("a"), " by ", code("--x"))) == "slow [a] by --x"


@pytest.mark.parametrize(
    ("block", "is_apart"),
    [
        (Lines(("x",)), True),
        (Lines(("x",), close=True), False),
        (Command(("x",)), False),
        (Labelled("Why", "x"), True),
        (Labelled("Fix", "x", (Lines(("y",)),)), True),
        (Footer(("x",)), True),
    ],
)
def test_an_empty_line_parts_what_is_not_of_one_piece(block: Block, is_apart: bool) -> None:
    above = Lines(("above",))
    assert (shown(above, block)[1] == "") is is_apart
    assert (lay((block,), 80, above)[0] == ()) is is_apart


def test_signposts_are_for_pages_that_are_scrolled() -> None:
    assert shown(Heading("Over time")) == []
