from __future__ import annotations

from dataclasses import replace

import pytest

from tests.render.reports import unreachable
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.report import Change, Correction, Patch, SourceSeen
from vllm_doctor.render import patch

CHANGE = Change("--max-num-seqs", 64.0, 10.0, "preemption")
YAML = Patch("compose", "c.yaml", {"services.a.command": (CHANGE,)}, ("do this with PATCH",), ("services: {}",))
NOBODY = replace(unreachable(), error=None, command=())


def test_comments_say_where_why_and_how() -> None:
    assert patch.render(replace(NOBODY, patches=(YAML,))) == (
        "# c.yaml: services.a.command\n"
        "# --max-num-seqs 64 -> 10 [preemption]\n"
        "# do this with PATCH\n"
        "services: {}\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (Change("--enforce-eager", True, None, "r"), "# --enforce-eager on -> not set [r]"),
        (Change("--enable-x", False, True, "r"), "# --enable-x off -> on [r]"),
        (Change("--dtype", None, "a\nb: c", "r"), "# --dtype not set -> a b: c [r]"),
    ],
)
def test_a_change_is_one_line(change: Change, says: str) -> None:
    text = patch.render(replace(NOBODY, patches=(replace(YAML, changes={"x\ny": (change,)}),)))
    assert text.splitlines()[:2] == ["# c.yaml: x y", says]


def test_documents_are_parted_and_diffs_are_not() -> None:
    diff = replace(YAML, form="shell", lines=("--- a", "+++ b"))
    assert patch.render(replace(NOBODY, patches=(YAML, YAML))).count("\n---\n") == 1
    assert patch.render(replace(NOBODY, patches=(diff, diff))).count("\n---\n") == 0


@pytest.mark.parametrize("form", ["compose", "kubernetes", "helm", "systemd", "config"])
def test_what_was_masked_on_its_way_is_not_to_be_applied(form: str) -> None:
    text = patch.render(replace(NOBODY, patches=(replace(YAML, form=form, lines=("a: [masked]", "b: 1")),)))
    assert all(line.startswith("#") for line in text.splitlines())


def test_where_nothing_is_to_change_nothing_is_printed() -> None:
    assert patch.render(NOBODY) == ""


def test_the_remark_beside_it() -> None:
    written = replace(NOBODY, sources=(SourceSeen(SourceKind.COMMAND, "c.yaml", 0.0, 0, None),))
    assert patch.remark(replace(NOBODY, patches=(YAML,))) == ""
    assert patch.remark(replace(NOBODY, patches=(replace(YAML, lines=(), problem="why"),))) == "why"
    assert patch.remark(NOBODY) == "no command was found, so there is none to change"
    assert patch.remark(written) == "no change of the command is advised"
    advised = replace(written, correction=Correction(("vllm",), (CHANGE,)))
    assert patch.remark(advised) == "the written command has already what is advised"
