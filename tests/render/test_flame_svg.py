"""A flame graph as SVG: whole, without a script, and the same each time."""

from __future__ import annotations

from xml.etree import ElementTree

from vllm_doctor.model.profile import Box, Flame
from vllm_doctor.render import flame_svg

PARTS = {"logging": "logging", "http": "HTTP & streaming", "idle": "idle"}
SVG = "{http://www.w3.org/2000/svg}"
FLAME = Flame(
    100,
    (
        Box(0, 0, 100, "main thread", ""),
        Box(1, 0, 60, "serve (vllm/x.py)", "http"),
        Box(1, 60, 1, "write (logging/__init__.py)", "logging"),
        Box(1, 61, 39, "idle", "idle"),
    ),
)


def test_each_box_is_as_wide_as_its_share() -> None:
    root = ElementTree.fromstring(flame_svg.drawn(FLAME, PARTS))
    assert [rect.get("width") for rect in root.iter("rect")] == ["1200.0", "720.0", "12.0", "468.0"]
    assert [rect.get("x") for rect in root.iter("rect")] == ["0.0", "0.0", "720.0", "732.0"]


def test_its_name_stands_in_full_in_its_title() -> None:
    root = ElementTree.fromstring(flame_svg.drawn(FLAME, PARTS))
    titles = [title.text for title in root.iter("title")]
    assert titles[1] == "serve (vllm/x.py): 60 %, 60 samples; HTTP & streaming"
    assert titles[2] == "write (logging/__init__.py): 1 %, 1 sample; logging"
    labels = [label.text for label in root.iter("text")]
    assert labels == ["main thread", "serve (vllm/x.py)", "idle"]  # the narrow one has no room for it


def test_a_name_that_does_not_fit_is_cut() -> None:
    drawn = flame_svg.drawn(Flame(100, (Box(0, 0, 100, "main thread", ""), Box(1, 0, 5, "f" * 50, ""))), PARTS)
    assert ">fffffff…</text>" in drawn


def test_names_are_only_text() -> None:
    name = "</title><script>alert(1)</script><!-- \" ' & ]]> onload=x"
    flame = Flame(9, (Box(0, 0, 9, name, name),))
    root = ElementTree.fromstring(f"<div>{flame_svg.drawn(flame, PARTS)}{flame_svg.legend(flame, PARTS)}</div>")
    assert {one.tag for one in root.iter()} == {"div", "svg", "g", "title", "rect", "text", "ul", "li"}
    assert not any(key.startswith("on") for one in root.iter() for key in one.keys())  # noqa: SIM118


def test_each_part_has_its_own_colour_and_all_are_told() -> None:
    legend = ElementTree.fromstring(flame_svg.legend(FLAME, PARTS))
    assert ["".join(item.itertext()) for item in legend.iter("li")] == ["logging", "HTTP & streaming", "idle"]
    colours = [rect.get("fill") for rect in legend.iter("rect")]
    assert len(set(colours)) == 3


def test_the_same_stacks_give_the_same_bytes() -> None:
    assert flame_svg.drawn(FLAME, PARTS) == flame_svg.drawn(FLAME, dict(PARTS))


def test_nothing_is_an_empty_drawing() -> None:
    ElementTree.fromstring(flame_svg.drawn(Flame(0, ()), PARTS))
