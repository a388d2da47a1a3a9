"""deciding: the fewest comparisons by which a condition holds, does not, or is unknown."""

from __future__ import annotations

import pytest

from tests.making import reads
from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.deciding import decided
from vllm_doctor.model.reading import Reading, Value


@pytest.mark.parametrize(
    ("condition", "values", "holds", "by"),
    [
        ("a > 1", {"a": 2.0}, True, ["a"]),
        ("a > 1 and b > 1", {"a": 2.0, "b": 2.0}, True, ["a", "b"]),
        ("a > 1 and b > 1", {"a": 2.0, "b": 0.0}, False, ["b"]),
        ("a > 1 and b > 1", {"a": 0.0}, False, ["a"]),  # what is not known does not matter
        ("a > 1 and b > 1", {"a": 2.0}, None, ["b"]),
        ("a > 1 or b > 1", {"a": 0.0, "b": 2.0}, True, ["b"]),
        ("a > 1 or b > 1", {"a": 0.0, "b": 0.0}, False, ["a", "b"]),
        ("a > 1 or b > 1", {"a": 0.0}, None, ["b"]),
        ("(a > 1 or b > 1) and c > 1", {"a": 0.0, "b": 0.0, "c": 0.0}, False, ["c"]),  # one is fewer than two
        ("not (a > 1 and b > 1)", {"a": 2.0, "b": 0.0}, True, ["b"]),
        ("a > 1 and a > 1", {"a": 2.0}, True, ["a"]),
    ],
)
def test_what_decided(condition: str, values: dict[str, Reading | Value], holds: bool | None, by: list[str]) -> None:
    found, comparisons = decided(Condition(condition).root, reads(**values))
    assert found is holds
    assert [comparison.signal for comparison in comparisons] == by


def test_it_agrees_with_how_the_condition_is_judged() -> None:
    condition = Condition("(a > 1 or not b > 1) and (c == 2 or b > 1)")
    for a in (0.0, 2.0, None):
        for b in (0.0, 2.0, None):
            for c in (2.0, 3.0, None):
                read = reads(**{name: value for name, value in (("a", a), ("b", b), ("c", c)) if value is not None})
                assert decided(condition.root, read)[0] is condition.judge(read)[0]


def test_below_a_not_a_comparison_reads_as_it_was_found() -> None:
    _, (one,) = decided(Condition("not a > 1").root, reads(a=0.0))
    assert (one.is_, one.holds) == ("<=", True)
