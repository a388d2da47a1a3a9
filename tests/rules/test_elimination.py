"""elimination: each gate and each rule, kept or dropped, by the comparison that decided it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.making import catalogue_of, shipped_catalogue, shipped_rules
from vllm_doctor.model.elimination import Gate, Suspect
from vllm_doctor.model.kinds import Fate
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.snapshot import Series, Snapshot
from vllm_doctor.rules import diagnose, elimination, rule
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import Rule

SIGNALS = """
signals:
  running: {says: requests running, unit: requests, fact: running}
  waiting: {says: requests waiting, unit: requests, fact: waiting}
  slots: {says: slots, unit: requests, fact: slots}
  usage: {says: cache in use, unit: share, fact: usage}
  gpus: {says: GPUs, unit: "", fact: gpus}
"""
DIAGNOSIS = """
gates:
  - {gate: slots, title: Slots, rules: [cap], shows: ["{running} of {slots} run"], binds: running >= slots,
     measure: [{do: count the slots, when: waiting > 0}]}
  - {gate: pool, title: Pool, stages: [limit], shows: ["{usage} used"], binds: usage > 0.9}
  - {gate: others, title: Others, stages: [host]}
"""


class Rules:
    def __init__(self, folder: Path, signals: Catalogue) -> None:
        self._folder, self._signals = folder, signals
        self.rules: list[Rule] = []

    def add(self, id: str, when: str, *, stage: str = "limit", explains: str = "[]", applies: str = "") -> None:
        path = self._folder / f"{id}.yaml"
        path.write_text(
            f"{{rule: {id}, title: The {id}, stage: {stage}, role: root, why: so, when: {{{when}}}, "
            f"{f'applies: {applies}, ' if applies else ''}explains: {explains}, threshold_from: measured}}",
            "utf-8",
        )
        self.rules.append(rule.read(path, self._signals))

    def gates(self, explained: bool = True, **seen: Reading | Value) -> dict[str, Gate]:
        readings = {
            name: Series({(): value if isinstance(value, Known | Unknown) else Known(value)})
            for name, value in seen.items()
        }
        found = diagnose.diagnose(self.rules, self._signals, [Snapshot(((),), readings)], explained=explained)
        return {gate.gate: gate for gate in found.gates}

    def suspects(self, **seen: Reading | Value) -> Mapping[str, Suspect]:
        return {one.rule: one for gate in self.gates(True, **seen).values() for one in gate.suspects}


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    return Rules(tmp_path, catalogue_of(tmp_path, SIGNALS, DIAGNOSIS))


def test_a_rule_belongs_to_the_gate_that_names_it_else_to_that_of_its_stage(rules: Rules) -> None:
    rules.add("cap", "warning: waiting > 0")
    rules.add("full", "warning: usage > 0.9")
    rules.add("swap", "warning: usage > 0.9", stage="host")
    gates = rules.gates(waiting=0.0, usage=0.1)
    assert {name: [one.rule for one in gate.suspects] for name, gate in gates.items()} == {
        "slots": ["cap"],
        "pool": ["full"],
        "others": ["swap"],
    }


def test_a_dropped_rule_has_the_number_that_excludes_it(rules: Rules) -> None:
    rules.add("full", "critical: usage > 0.99 and waiting > 0, warning: usage > 0.9 and waiting > 0")
    one = rules.suspects(usage=0.5, waiting=3.0)["full"]
    assert one.fate is Fate.DROPPED
    (by,) = one.by
    assert (by.signal, by.says, by.is_, by.than, by.holds) == ("usage", "cache in use", ">", 0.9, False)
    assert isinstance(by.seen, Known)
    assert by.seen.value == 0.5


def test_a_kept_rule_and_what_follows_from_it(rules: Rules) -> None:
    rules.add("full", "warning: usage > 0.9", explains="[queue]")
    rules.add("queue", "warning: waiting > 0")
    gate = rules.gates(usage=0.95, waiting=3.0)["pool"]
    assert gate.kept is True
    assert [(one.rule, one.fate, one.explained_by) for one in gate.suspects] == [
        ("full", Fate.KEPT, None),
        ("queue", Fate.CONSEQUENCE, "full"),
    ]
    assert [by.holds for one in gate.suspects for by in one.by] == [True, True]


def test_an_unknown_rule_says_what_is_missing(rules: Rules) -> None:
    rules.add("full", "warning: usage > 0.9 and waiting > 0")
    one = rules.suspects(waiting=3.0, usage=Unknown(Reason.NOT_IN_LOG))["full"]
    assert one.fate is Fate.UNKNOWN
    assert [by.missing for by in one.by] == [{"usage": Reason.NOT_IN_LOG}]


def test_a_rule_that_is_not_about_such_a_server(rules: Rules) -> None:
    rules.add("full", "warning: usage > 0.9", applies="gpus > 1")
    one = rules.suspects(usage=0.95, gpus=1.0)["full"]
    assert (one.fate, [by.signal for by in one.by]) == (Fate.NOT_APPLICABLE, ["gpus"])


def test_a_note_is_no_cause(rules: Rules) -> None:
    rules.add("full", "info: usage > 0.9")
    gate = rules.gates(usage=0.5, waiting=0.0)["pool"]
    assert [one.fate for one in gate.suspects] == [Fate.DROPPED]
    assert [one.fate for one in rules.gates(usage=0.95)["pool"].suspects] == [Fate.NOTE]


@pytest.mark.parametrize(
    ("seen", "kept"),
    [
        ({"running": 4.0, "slots": 4.0}, True),
        ({"running": 3.0, "slots": 4.0}, False),
        ({"running": 3.0, "slots": Unknown(Reason.NOT_LOCAL)}, None),
    ],
)
def test_a_gate_is_kept_excluded_or_open(rules: Rules, seen: dict[str, Reading | Value], kept: bool | None) -> None:
    rules.add("cap", "warning: waiting > 0")
    gate = rules.gates(True, waiting=0.0, **seen)["slots"]
    assert gate.kept is kept
    assert gate.numbers == (() if kept is None else (f"{seen['running']:g} of 4 run",))
    assert gate.measure == ""  # nothing waits: no measurement is proposed
    assert rules.gates(True, waiting=1.0, **seen)["slots"].measure == "count the slots"


def test_a_gate_without_a_condition_is_open_while_one_of_its_rules_is(rules: Rules) -> None:
    rules.add("swap", "warning: usage > 0.9", stage="host")
    assert rules.gates(usage=0.5)["others"].kept is False
    assert rules.gates(usage=Unknown(Reason.DENIED))["others"].kept is None
    assert rules.gates(usage=0.95)["others"].kept is True


def test_the_gates_are_there_without_their_suspects_too(rules: Rules) -> None:
    rules.add("full", "warning: usage > 0.9")
    gate = rules.gates(explained=False, usage=0.95)["pool"]
    assert (gate.kept, gate.suspects) == (True, ())


def test_every_shipped_rule_has_a_gate_and_none_has_two() -> None:
    gates, rules = shipped_catalogue().gates, shipped_rules()
    of_rule = elimination.belongs(gates, rules)
    assert [id for id, gate in of_rule.items() if not gate] == []
    named = [id for gate in gates for id in gate.rules]
    assert len(named) == len(set(named))
    assert set(named) <= {rule.id for rule in rules}
    stages = [stage for gate in gates for stage in gate.stages]
    assert len(stages) == len(set(stages))
