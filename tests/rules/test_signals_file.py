"""signals_file: entries of rules/signals/ become signals, or a mistake with its file and line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.making import catalogue_of, shipped_catalogue, window
from vllm_doctor.model.errors import DocumentError
from vllm_doctor.model.facts import COMMAND, LOG
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules import catalogue, rulebook
from vllm_doctor.rules.prediction import Changed

GIB = """
signals:
  size:
    says: s
    unit: tokens
    from: [{log: kv-cache-size.tokens}, {flag: --max-model-len, none: 7}, "max(other, 3)", 1]
  other: {says: s, unit: tokens, fact: other}
  held: {says: s, unit: tokens, fact: held, where: other > 2}
  chosen: {says: s, unit: tokens, formula: 10, when: other > 2 or is_known(held), otherwise: other * 2}
  seen: {says: s, unit: flag, is_known: other}
  either: {says: s, unit: "", from: [{formula: 5, where: other == 4}, {fact: one}, {fact: two, reason: not-given}]}
"""


def read(folder: Path, name: str, facts: Mapping[str, Value | Reason]) -> Reading:
    given: dict[str, Reading] = {
        fact: Unknown(value) if isinstance(value, Reason) else Known(value) for fact, value in facts.items()
    }
    return catalogue_of(folder, GIB).snapshot(window(), given).read(name, ())[1]


# ---- ways, and where they hold


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("size", {LOG: True, "log:kv-cache-size.tokens": 9.0, "--max-model-len": 8.0}, Known(9.0)),
        ("size", {"--max-model-len": 8.0}, Known(8.0)),
        ("size", {COMMAND: True}, Known(7.0)),
        ("size", {"other": 4.0}, Known(4.0)),
        ("size", {}, Known(1.0)),
        ("either", {"other": 4.0}, Known(5.0)),
        ("either", {"other": 3.0, "one": 1.0, "two": 2.0}, Known(1.0)),
        ("either", {"two": 2.0}, Known(2.0)),
        ("held", {"held": 6.0, "other": 3.0}, Known(6.0)),
        ("held", {"held": 6.0, "other": 1.0}, Unknown(Reason.INVALID)),
        ("held", {"held": Reason.DENIED, "other": 3.0}, Unknown(Reason.DENIED)),
        ("held", {"held": 6.0, "other": Reason.DENIED}, Unknown(Reason.DENIED)),
        ("chosen", {"other": 3.0}, Known(10.0)),
        ("chosen", {"other": 1.0}, Known(2.0)),
        ("chosen", {"held": 1.0, "other": 3.0}, Known(10.0)),
        ("seen", {"other": 0.0}, Known(1.0)),
        ("seen", {}, Known(0.0)),
    ],
)
def test_the_first_way_that_is_known_wins_where_it_holds(
    name: str, facts: Mapping[str, Value | Reason], expected: Reading, tmp_path: Path
) -> None:
    assert read(tmp_path, name, facts) == expected


def test_where_no_way_is_known_the_reason_is_that_of_the_first(tmp_path: Path) -> None:
    assert read(tmp_path, "either", {"other": Reason.DENIED, "one": Reason.STALE}) == Unknown(Reason.DENIED)


def test_a_flag_among_the_ways_is_predicted_and_said_in_the_list_under_its_signal(tmp_path: Path) -> None:
    made = catalogue_of(tmp_path, GIB)
    now = made.snapshot(window(), {"--max-model-len": Known(8.0)})
    assert Changed(now, (), made, {"--max-model-len": 16})("size") == Known(16.0)
    listed = rulebook.signals(made)
    assert "size  [tokens]\n  s\n  log: kv-cache-size.tokens\n  else flag: --max-model-len\n" in listed
    assert "either  [number]\n  s\n  formula: 5, where other == 4\n  else fact: one\n  else fact: two\n" in listed
    assert "__" not in listed


def test_a_shipped_signal_has_no_name_of_a_way() -> None:
    signals = shipped_catalogue().signals.values()
    assert {signal.way_of for signal in signals} <= {None, *(signal.name for signal in signals)}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{from: [{fact: a}]}", "a list of ways, two at least"),
        ("{from: {fact: a}}", "a list of ways, two at least"),
        ("{from: [{fact: a}, true]}", "a way is a mapping"),
        ("{from: [{fact: a, log: b}, 1]}", "exactly one of"),
        ("{from: [{fact: a, says: b}, 1]}", "unknown key 'says'"),
        ("{from: [{flag: --nothing}, 1]}", "--nothing is a flag of no vLLM"),
        ("{from: [{fact: a}, b + 1]}", "uses 'b', which is no signal"),
        ("{from: [{fact: a}, 1 +]}", "not a formula"),
        ("{from: [{fact: a}, 1], none: 2}", "'none' is said of a way that is read"),
        ("{fact: a, where: b > 1}", "uses 'b', which is no signal"),
        ("{fact: a, where: 1 +}", "not a condition"),
        ("{fact: a, where: 1 + 1}", "not part of a formula"),
        ("{fact: a, when: 1 > 0}", "'when' and 'otherwise' need each other"),
        ("{fact: a, otherwise: 1}", "'when' and 'otherwise' need each other"),
        ("{is_known: b}", "uses 'b', which is no signal"),
    ],
)
def test_a_mistake_in_a_way(entry: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as refused:
        catalogue_of(tmp_path, f"signals:\n  x: {{says: s, unit: s, {entry[1:]}\n")
    assert str(refused.value).startswith(f"{tmp_path / 'signals' / 'signals.yaml'}:2: ")
    assert says in str(refused.value)


def test_the_name_of_a_way_is_no_name_of_a_signal(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="name 'x__flag' without it"):
        catalogue_of(tmp_path, "signals:\n  x__flag: {says: s, unit: s, fact: a}\n")


# ---- mistakes in the file


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param("signal:\n", 1, "unknown key 'signal'; meant 'signals'?", id="unknown key at the top"),
        pytest.param("signals:\n  a: {fact: a, says: s, unit: s, sum: 1}", 2, "unknown key 'sum'", id="unknown key"),
        pytest.param(
            "signals:\n  a:\n    says: s\n    unit: s\n    fact: a\n    promql: a",
            3,
            "signal 'a' needs exactly one of promql, info, present, fact, flag, env, log, formula",
            id="two ways",
        ),
        pytest.param("signals:\n  a:\n    says: s\n    unit: s", 3, "signal 'a' needs exactly one of", id="no way"),
        pytest.param("signals:\n  a: text", 2, "'a' must be a mapping", id="no mapping"),
        pytest.param("signals:\n  a: {fact: a, unit: s}", 2, "'says' must be a text", id="no meaning"),
        pytest.param("signals:\n  a: {fact: a, says: s, unit: miles}", 2, "'unit' must be one of", id="unknown unit"),
        pytest.param("signals:\n  a: {fact: a, says: s, unit: s, vital: avg}", 2, "'vital' must be one", id="vital"),
        pytest.param("signals:\n  a: {fact: a, says: s, unit: s, reason: why}", 2, "'reason' must be one", id="reason"),
        pytest.param(
            "signals:\n  a:\n    says: s\n    unit: s\n    formula: b + 1",
            5,
            "formula of 'a' uses 'b', which is no signal",
            id="formula of no signal",
        ),
        pytest.param(
            "signals:\n  a:\n    says: s\n    unit: s\n    formula: a + 1",
            5,
            "signals are computed from each other in a circle: a -> a",
            id="of itself",
        ),
        pytest.param(
            "signals:\n  a:\n    says: s\n    unit: s\n    formula: b + 1\n  b: {formula: a, says: s, unit: s}",
            5,
            "signals are computed from each other in a circle: a -> b -> a",
            id="a circle",
        ),
        pytest.param(
            "signals:\n  a:\n    says: s\n    unit: s\n    formula: open(1)", 5, "not part of a formula", id="formula"
        ),
        pytest.param("signals:\n  a:\n    says: s\n    unit: s\n    promql: sum by (", 5, "", id="bad PromQL"),
        pytest.param(
            "signals:\n  a:\n    says: s\n    unit: s\n    promql: absent(a)", 5, "not in the subset", id="PromQL"
        ),
        pytest.param(
            "signals:\n  a:\n    says: s\n    unit: s\n    info: metric", 5, "write an info signal as metric", id="info"
        ),
        pytest.param(
            "signals:\n  a: {fact: a, says: s, unit: s}\n  a: {fact: a, says: s, unit: s}",
            3,
            "key 'a' stands twice (first in line 2)",
            id="twice",
        ),
    ],
)
def test_a_mistake_is_told_with_file_and_line(text: str, line: int, says: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as refused:
        catalogue_of(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'signals' / 'signals.yaml'}:{line}: {says}")


def test_a_signal_that_stands_in_two_files_is_a_mistake_with_both_places(tmp_path: Path) -> None:
    entry = "signals:\n  a: {fact: a, says: s, unit: s}\n"
    catalogue_of(tmp_path, entry)
    other = tmp_path / "signals" / "other.yaml"
    other.write_text(f"# Others.\n{entry}", "utf-8")
    with pytest.raises(DocumentError) as refused:
        catalogue.load(tmp_path)
    then = tmp_path / "signals" / "signals.yaml"
    assert str(refused.value).startswith(f"{then}:2: signal 'a' stands twice (first in {other}:3)")


def test_a_formula_may_use_what_stands_below_it_and_in_another_file(tmp_path: Path) -> None:
    catalogue_of(tmp_path, "signals:\n  c: {fact: c, says: s, unit: s}\n")
    (tmp_path / "signals" / "a.yaml").write_text(
        "signals:\n  a: {formula: b + c, says: s, unit: s}\n  b: {fact: b, says: s, unit: s}\n", "utf-8"
    )
    seen = catalogue.load(tmp_path).snapshot(window(), {"b": Known(1.0), "c": Known(2.0)})
    assert seen.read("a", ())[1] == Known(3.0)


def test_a_flag_of_no_vllm_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="--max-number-seqs is a flag of no vLLM") as refused:
        catalogue_of(tmp_path, "signals:\n  a:\n    says: s\n    unit: s\n    flag: --max-number-seqs")
    assert str(refused.value).startswith(f"{tmp_path / 'signals' / 'signals.yaml'}:5: ")


EXPORTED = """\
signals:
  x:
    says: s
    unit: s
    fact: x
    exporter: {from: cadvisor, promql: "max by (pod) (rate(y[$window]))"}
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("y[$window]", "y[", "promql|parse|unexpected"),
        ("max by (pod) (rate(y[$window]))", "rate(y[$window])", "aggregate by the labels"),
        ("max by (pod)", "max without (pod)", "aggregate by the labels"),
        ("cadvisor", "nobody", "cadvisor"),
        ("fact: x", "promql: up", "only a fact of the host has an exporter"),
        ("promql:", "query:", "query"),
    ],
)
def test_a_mistake_in_an_exporter(old: str, new: str, says: str, tmp_path: Path) -> None:
    exporter = catalogue_of(tmp_path, EXPORTED).signals["x"].exporter
    assert exporter is not None
    assert exporter.labels == ("pod",)
    with pytest.raises(DocumentError, match=says):
        catalogue_of(tmp_path, EXPORTED.replace(old, new))
