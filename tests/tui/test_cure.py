"""What `c` copies can be pasted: a command, or lines that say what is to be done with one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.render.reports import finding, postmortem
from vllm_doctor.model.report import Change, Correction, Finding
from vllm_doctor.tui.cure import to_copy


def cap(**changes: Any) -> Finding:
    """A finding with one remedy, which changes so much."""
    found = finding("cap")
    [remedy] = found.remedies
    nothing: dict[str, Any] = {"set": {}, "was": {}, "unset": (), "env": {}, "run": ()}
    return replace(found, remedies=(replace(remedy, **{**nothing, **changes}),))


def test_a_flag_that_is_to_go_is_a_comment_for_pasted_alone_it_would_be_set_again() -> None:
    found = cap(unset=("--num-gpu-blocks-override",))
    assert to_copy(postmortem([found]), [found]) == (
        "# remove --num-gpu-blocks-override from the command",
        "what to take out",
    )


def test_a_flag_in_place_of_another_is_both() -> None:
    found = cap(unset=("--swap-space",), set={"--kv-offloading-size": 8.0})
    text, what = to_copy(postmortem([found]), [found])
    assert text == "# remove --swap-space from the command\n--kv-offloading-size 8"
    assert what == "what to change"


def test_what_is_set_elsewhere_is_not_the_same_command_again() -> None:
    found = cap(set={"--max-num-seqs": 32.0})
    correction = Correction(("vllm", "serve", "m"), (Change("--max-num-seqs", 4.0, 32.0, "cap"),))
    report = replace(postmortem([found]), correction=correction, command=("vllm", "serve", "m"))
    assert to_copy(report, [found])[0].splitlines() == [
        "# remove --max-num-seqs 4 from the file or the environment that sets it",
        "# add --max-num-seqs 32 to the file or the environment that sets it",
    ]


def test_the_call_of_a_program_says_what_goes_and_what_comes() -> None:
    found = cap(set={"--max-num-seqs": 32.0})
    settings = (("-", "max_num_seqs=4"), ("+", "max_num_seqs=32"))
    correction = Correction((), (Change("--max-num-seqs", 4.0, 32.0, "cap"),), settings=settings)
    text, _ = to_copy(replace(postmortem([found]), correction=correction), [found])
    assert text == "# remove max_num_seqs=4 from the call\nmax_num_seqs=32"


def test_no_value_ends_the_comment_that_it_stands_in() -> None:
    found = cap(set={"--served-model-name": "m"})
    change = Change("--served-model-name", "a\ntouch pwned", "m", "cap")
    report = replace(postmortem([found]), correction=Correction(("vllm",), (change,)), command=("vllm",))
    assert all(line.startswith("# ") for line in to_copy(report, [found])[0].splitlines())
