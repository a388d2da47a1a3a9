"""Blocks of a report on the full-screen terminal: colours repeat signs and words, and nothing moves the cursor."""

from __future__ import annotations

from vllm_doctor.model.kinds import State
from vllm_doctor.render.page import Diff, Labelled, Lines, Shell, soft
from vllm_doctor.tui.ink import COLOUR, SIGN, painted


def styles(block: Labelled) -> list[tuple[str, list[str]]]:
    return [(line.plain.strip(), [str(span.style) for span in line.spans]) for line in painted((block,), 60)]


def test_a_remedy_is_painted_by_what_its_lines_are() -> None:
    changes, run = Diff((("-", "--old"), ("+", "--new 1"))), Shell(("ulimit -n 9",))
    said = Lines(
        ("+  not a change", soft("risk: a long one that is folded, and stays of less weight on its next line"))
    )
    assert styles(Labelled("Fix", "Do it", (changes, run, said))) == [
        ("Fix         Do it", ["bold"]),
        ("-  --old", ["red"]),
        ("+  --new 1", ["green"]),
        ("$  ulimit -n 9", ["cyan"]),
        ("+  not a change", []),
        ("risk: a long one that is folded, and stays of", ["dim"]),
        ("less weight on its next line", ["dim"]),
    ]


def test_nothing_from_outside_is_obeyed() -> None:
    [line] = painted((Labelled("Why", "\x1b[31m[red]x[/red]"),), 60)
    assert line.plain == "  Why         \\u001b[31m[red]x[/red]"


def test_signs_and_colours_are_those_of_the_states() -> None:
    assert {name: SIGN[name] for name in State} == {state: state.sign for state in State}
    assert {name: COLOUR[name] for name in State} == {state: state.colour for state in State}
