"""parts/speed: the measured speed in a sentence, beside what is expected, and what explains the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.render.reports import finding, postmortem
from vllm_doctor.model.report import Patient, Report
from vllm_doctor.model.speed import Assumption, Expected, Pace, Share, Standing
from vllm_doctor.render import json_v1, report_page, text
from vllm_doctor.render.page import Lines, plain
from vllm_doctor.render.parts import speed

SLOW = Expected(
    subject={"engine": "0"},
    standing=Standing.SLOW,
    tpot=Pace(0.2, 1 / 110, 1 / 95, 1 / 75, 1 / 60),
    tokens=Pace(40, 880, 480, 600, 760),
    batch=8,
    gpus=8,
    assumptions=(Assumption("GPU A100: 2,039 GB/s", "--gpu"),),
    explained=(Share("enforce-eager", 0.09),),
    measure_next=("nvidia-smi -q -d CLOCK", "py-spy dump"),
)


def report(*speeds: Expected) -> Report:
    return replace(postmortem(), speeds=speeds, patient=Patient("0.22.1", "org/model-8B", 1, 8, "A100"))


def lines(expected: Expected, whole: bool = False) -> list[str]:
    """The sentence, and what stands below it."""
    (block,) = speed.speed(report(expected), whole)
    if isinstance(block, Lines):
        return [plain(item) for item in block.items]
    return [plain(block.text), *(plain(item) for part in block.body if isinstance(part, Lines) for item in part.items)]


def test_what_is_missing_and_what_explains_it() -> None:
    assert lines(SLOW) == [
        "A request gets 5 tokens/s; this model on 8 × A100 does 60–95 with 8 concurrent requests (bound 110): 93 % is "
        "missing.",
        "of that, at most: enforce-eager 9 %",
        "91 % of it is unexplained",
        "to decide: nvidia-smi -q -d CLOCK",
        "GPU A100: 2,039 GB/s (--gpu)",
    ]
    assert "to decide: py-spy dump" in lines(SLOW, whole=True)


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (replace(SLOW, explained=()), "no finding explains it"),
        (
            replace(SLOW, explained=(Share("host-swap", None),)),
            "of that, at most: host-swap all (its cost is not known)",
        ),
    ],
)
def test_what_nobody_can_explain_is_said(expected: Expected, said: str) -> None:
    assert said in lines(expected)


def test_where_all_is_explained_nothing_more_is_to_be_measured() -> None:
    told = lines(replace(SLOW, explained=(Share("cpu-offload", 1.0),)))
    assert not any("to decide" in line or "unexplained" in line for line in told)


@pytest.mark.parametrize(
    ("expected", "end"),
    [
        (replace(SLOW, standing=Standing.TYPICAL, tpot=replace(SLOW.tpot, measured=1 / 70)), ": as expected."),
        (replace(SLOW, standing=Standing.FAST, tpot=replace(SLOW.tpot, measured=1 / 100)), ": faster than typical."),
        (
            replace(SLOW, standing=Standing.BEYOND, tpot=replace(SLOW.tpot, measured=1 / 200)),
            ": faster than physics: GPU, model or load are not what is assumed.",
        ),
    ],
)
def test_a_speed_that_is_not_slow(expected: Expected, end: str) -> None:
    assert lines(expected)[0].endswith(end)
    assert not any("of that" in line for line in lines(expected))


def test_a_speed_that_is_not_judged_says_what_would_tell() -> None:
    unknown = Expected({}, Standing.UNKNOWN, Pace(measured=0.2), Pace(), 8, lacks=("GPU unknown, give --gpu NAME",))
    assert lines(unknown) == ["5 tokens/s per request · not judged: GPU unknown, give --gpu NAME"]
    assert lines(unknown, whole=True) == ["A request gets 5 tokens/s; not judged: GPU unknown, give --gpu NAME."]
    assert json_v1.document(report(unknown))["expected"]["why_unknown"] == ["GPU unknown, give --gpu NAME"]


def test_an_idle_server_has_no_speed() -> None:
    idle = Expected({}, Standing.IDLE, Pace(), Pace(), 1, lacks=("idle, no request ran",))
    assert speed.speed(report(idle), whole=False) == ()
    assert speed.in_short(report(idle)) is None
    assert speed.speed(report(), whole=True) == ()


def test_of_several_engines_the_one_that_lacks_most_is_told() -> None:
    worse = replace(SLOW, subject={"engine": "1"}, tpot=replace(SLOW.tpot, measured=0.4))
    well = replace(SLOW, standing=Standing.TYPICAL, tpot=replace(SLOW.tpot, measured=1 / 70))
    assert report(well, SLOW, worse).expected == worse
    assert report(well).expected == well


def test_json_has_the_figures_in_milliseconds_and_the_shares() -> None:
    expected = json_v1.document(report(SLOW))["expected"]
    assert expected["tpot_ms"]["measured"] == 200
    assert expected["output_tokens_per_second"]["typical"] == 600
    assert expected["missing"] == pytest.approx(0.933333)
    assert expected["explained"] == [{"rule": "enforce-eager", "share": 0.09}]
    assert expected["unexplained"] == pytest.approx(0.91)
    assert expected["assumptions"] == ["GPU A100: 2,039 GB/s (--gpu)"]


def test_a_headline_of_speed_has_no_fix_of_a_finding_below_it() -> None:
    small = postmortem([finding("enforce-eager")], headline="Slower than expected").findings
    slow = replace(report(SLOW), findings=small, headline="Slower than expected: a request gets 5 tokens/s")
    assert speed.of_headline(slow) == speed.sentence(slow)
    assert report_page.whole(slow)[0].gist == ()  # type: ignore[union-attr]
    assert speed.of_headline(replace(slow, headline=small[0].title)) is None


def test_a_terminal_has_it_in_half_a_line() -> None:
    assert speed.in_short(report(SLOW)) == "5 tokens/s per request; 60–95 expected: 93 % missing"
    assert "Speed       A request gets 5 tokens/s" in text.render(report(SLOW))
