"""No text makes a regular expression of the package slow: each takes time in proportion to the text.

All cases, instead of some of each pattern: VLLM_DOCTOR_ALL_PATTERNS=1 pytest tests/test_patterns.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import pytest

from tests.patterns import Use, slow, uses
from vllm_doctor.rules import kernel_table
from vllm_doctor.vllm import model_name, nested_flags

KERNELS = kernel_table.load()
MADE: Mapping[str, tuple[str, Sequence[str]]] = {
    "expr.promql_eval line": ("fullmatch", []),  # a rule author's own, searched with a time limit
    "rules.log_lines line": ("search", []),  # the table's, which are below; with a time limit as well
    "rules.kernel_table line": (
        "search",
        [
            *(mark.pattern.pattern for mark in KERNELS.steps),
            *(pattern.pattern for family in KERNELS.families for pattern in (family.kernels, family.ops)),
            *(pattern.pattern for _, pattern in KERNELS.precisions),
        ],
    ),
    "launch.forms line": ("search", [r"(?m)^[ \t]*EOF[ \t]*$"]),
    "sources.gpu.nvidia_smi found": ("search", ["<uuid>([^<>]{1,100})</uuid>"]),
    "sources.gpu.nvidia_smi line": ("fullmatch", [r"[\w.]{1,40}"]),
    "sources.host.topology found": ("fullmatch", ["node([0-9]{1,5})"]),
    "sources.log.entry line": ("match", [r"(?:[^'\\]++|\\.)*+'"]),
    "text.pseudonyms line": ("search", [r"(?<![\w-])(?:gpu\-box\-17|gpu)(?![\w-])"]),
    "text.words line": ("finditer", [r"(\$\{A\}|\$B)"]),
    "vllm.nested_flags match": (
        "search",
        [rf"\b{key}{nested_flags._VALUE}" for keys in nested_flags.KEYS.values() for key in keys],
    ),
    "vllm.model_name line": ("finditer", [pattern.pattern for pattern, _ in model_name.forms()]),
}
"""Patterns that are made while it runs, by where: how they are used, and as they come out."""
LONGEST = {
    "sources.log.entry_raised _VLLM": 400,  # what _FRAME takes for a path
    "expr.promql_eval _QUOTED": 4000,  # of a definition
}
"""The most characters that the code lets a pattern meet, where it would be slow on more."""
CASES = None if os.environ.get("VLLM_DOCTOR_ALL_PATTERNS") else 24
ALL = uses()
MADE_SOMEWHERE = [use for use in ALL if use.method == "made"]


def _place(use: Use) -> str:
    return re.sub(r" line \d+$", " line", use.where)


def test_all_are_found() -> None:
    assert len(ALL) > 400
    assert {_place(use) for use in MADE_SOMEWHERE} == MADE.keys()


MODULES = sorted({use.where.split(" ")[0] for use in ALL})


@pytest.mark.parametrize("module", MODULES)
def test_time_grows_with_the_text_alone(module: str) -> None:
    told = [use for use in ALL if use.where.split(" ")[0] == module]
    tried = [use for use in told if use.method != "made"]
    for use in told:
        if use.method == "made":
            method, texts = MADE[_place(use)]
            tried += [Use(use.where, text, 0, method) for text in texts]
    found = {use.id: took for use in tried if (took := slow(use, CASES, LONGEST.get(use.where)))}
    assert found == {}


@pytest.mark.parametrize(
    "pattern", [r"(a+)+b", r"[ \t]+$", r"\s*\n\s*", r"(?:\w+@\w+\S*)?x", r".{0,2000}?\bRequest", r"(a|aa)+b", r"(x*)*y"]
)
def test_the_sweep_sees_what_is_slow(pattern: str) -> None:
    assert slow(Use("here", pattern, 0, "search"), CASES)


@pytest.mark.parametrize("pattern", [r"a{1,9}b", r"(?>a+)b", r"^\s*+x", r"-[a-z]*c"])
def test_the_sweep_lets_pass_what_is_not(pattern: str) -> None:
    assert slow(Use("here", pattern, 0, "match"), CASES) is None
