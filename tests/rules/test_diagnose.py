from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.making import catalogue_of, shipped_catalogue, shipped_rules, window
from vllm_doctor.model.kinds import State
from vllm_doctor.model.reading import Known, Reading, Subject, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Finding, Remedy, Verdict
from vllm_doctor.model.snapshot import Series, Snapshot
from vllm_doctor.rules import diagnose, rule
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnose import Diagnosis
from vllm_doctor.rules.rule import Rule
from vllm_doctor.vllm import flags

SIGNALS = """
signals:
  vllm_version: {says: the version, unit: text, fact: vllm_version}
  slo: {says: the target, unit: s, fact: slo, reason: not-given, target: latency}
  cpu: {says: cores of the server, unit: cores, promql: cpu}
  load: {says: requests running, unit: requests, promql: load, vital: sum, needed: true}
  usage: {says: cache in use, unit: share, promql: usage, vital: max}
  queue: {says: requests waiting, unit: requests, promql: queue}
  latency: {says: latency p99, unit: s, promql: latency}
  fit: {says: requests that fit, unit: requests, formula: load + queue}
  factor: {says: work done twice, unit: factor, formula: load + queue}
  goal: {says: what the user wants, unit: text, fact: goal, reason: not-given}
  seqs: {says: --max-num-seqs, unit: requests, flag: --max-num-seqs, none: 8}
  seqs_grown: {says: what they grow to, unit: tokens, formula: seqs * 100}
"""
DIAGNOSIS = """
negligible: {below: 1.02, when: goal == 'throughput'}
refusals:
  - {when: seqs > 64, says: "{seqs} are too many", from: a test}
symptoms:
  - {when: queue > 0, says: "{queue} requests wait, and nothing says why", verdict: unknown}
  - {when: latency > slo, says: "{latency} misses {slo}", verdict: warning}
  - {when: latency > 60, says: nobody waits so long, verdict: critical}
"""


@pytest.fixture
def signals(tmp_path: Path) -> Catalogue:
    return catalogue_of(tmp_path, SIGNALS, DIAGNOSIS)


class Rules:
    """Writes rules and diagnoses with them."""

    def __init__(self, folder: Path, signals: Catalogue) -> None:
        self._folder, self._signals = folder, signals
        self.rules: list[Rule] = []

    def add(
        self,
        id: str,
        when: str,
        *,
        severity: str = "warning",
        role: str = "root",
        stage: str = "limit",
        explains: str = "[]",
        here: str = "[]",
        remedies: str = "[]",
        gain: str = "unknown",
        rank: int = 0,
    ) -> None:
        path = self._folder / f"{id}.yaml"
        path.write_text(
            f"{{rule: {id}, title: The {id}, stage: {stage}, role: {role}, why: so, here: {here}, "
            f"when: {{{severity}: {when}}}, explains: {explains}, threshold_from: measured, "
            f"rank: {rank}, gain: {gain}, remedies: {remedies}}}",
            "utf-8",
        )
        self.rules.append(rule.read(path, self._signals))

    def diagnose(self, *snapshots: Snapshot, measured: bool = True) -> Diagnosis:
        return diagnose.diagnose(self.rules, self._signals, snapshots, measured)


@pytest.fixture
def rules(tmp_path: Path, signals: Catalogue) -> Rules:
    return Rules(tmp_path, signals)


Seen = Mapping[str, Reading | Value]


def server(*engines: Seen, tag: Subject = (), **common: Reading | Value) -> Snapshot:
    """A snapshot of engines 0, 1, ... of model m, each with a load of 1 if not said; `common` is the server's."""
    subjects = tuple((("engine", str(number)), ("model_name", "m")) for number in range(len(engines)))
    readings: dict[str, dict[Subject, Reading]] = {name: {(): _reading(value)} for name, value in common.items()}
    for subject, seen in zip(subjects, engines, strict=True):
        for name, value in ({"load": 1.0} | dict(seen)).items():
            readings.setdefault(name, {})[subject] = _reading(value)
    return Snapshot(subjects, {name: Series(of) for name, of in readings.items()}, {"slo": Reason.NOT_GIVEN}, tag)


def _reading(value: Reading | Value) -> Reading:
    return value if isinstance(value, Known | Unknown) else Known(value)


def found(diagnosis: Diagnosis) -> dict[str, Finding]:
    by_rule = {finding.rule: finding for finding in diagnosis.findings}
    assert len(by_rule) == len(diagnosis.findings)
    return by_rule


# ---- causes and symptoms


def test_what_a_finding_explains_is_its_symptom_and_stands_last(rules: Rules) -> None:
    rules.add("symptom", "queue > 1", severity="critical")
    rules.add("cause", "usage > 0.8", explains="[symptom, another]")
    diagnosis = rules.diagnose(server({"queue": 5.0, "usage": 0.9}))
    assert [(f.rule, f.role, f.explained_by) for f in diagnosis.findings] == [
        ("cause", "root", None),
        ("symptom", "symptom", "cause"),
    ]
    assert diagnosis.headline == "The cause"
    assert diagnosis.verdict is Verdict.WARNING  # as grave as the cause, not as its symptom


def test_without_its_cause_a_symptom_is_a_finding(rules: Rules) -> None:
    rules.add("symptom", "queue > 1")
    rules.add("cause", "usage > 0.8", explains="[symptom]")
    finding = found(rules.diagnose(server({"queue": 5.0, "usage": 0.1})))["symptom"]
    assert (finding.role, finding.explained_by) == ("root", None)


def test_a_cause_explains_only_its_own_engine_and_server(rules: Rules) -> None:
    rules.add("symptom", "queue > 1")
    rules.add("cause", "usage > 0.8", explains="[symptom]")
    of_engines = rules.diagnose(server({"queue": 5.0, "usage": 0.1}, {"queue": 0.0, "usage": 0.9}))
    assert {f.explained_by for f in of_engines.findings} == {None}
    ill, full = {"queue": 5.0, "usage": 0.1}, {"queue": 0.0, "usage": 0.9}
    of_servers = rules.diagnose(server(ill, tag=(("server", "a"),)), server(full, tag=(("server", "b"),)))
    assert {f.explained_by for f in of_servers.findings} == {None}


def test_a_servers_cause_explains_the_symptoms_of_its_engines(rules: Rules) -> None:
    rules.add("symptom", "queue > 1")
    rules.add("cause", "cpu > 0.9", explains="[symptom]")
    diagnosis = rules.diagnose(server({"queue": 5.0}, {"queue": 6.0}, cpu=1.0))
    assert [(f.rule, f.explained_by) for f in diagnosis.findings] == [
        ("cause", None),
        ("symptom", "cause"),
        ("symptom", "cause"),
    ]


def test_what_is_only_worth_knowing_does_not_explain_a_warning_away(rules: Rules) -> None:
    rules.add("symptom", "queue > 1")
    rules.add("note", "usage > 0.8", severity="info", role="info", explains="[symptom]")
    diagnosis = rules.diagnose(server({"queue": 5.0, "usage": 0.9}))
    assert found(diagnosis)["symptom"].role == "root"
    assert diagnosis.headline == "The symptom"


# ---- whom a finding is about


def test_a_rule_over_the_servers_signals_finds_once_for_eight_engines(rules: Rules) -> None:
    rules.add("server-wide", "cpu > 0.9")
    finding = found(rules.diagnose(server(*[{} for _ in range(8)], cpu=1.0)))["server-wide"]
    assert finding.subject == {}


def test_a_rule_over_an_engines_signals_finds_for_each_engine(rules: Rules) -> None:
    rules.add("engine-wide", "cpu > 0.9 and queue > 1")
    diagnosis = rules.diagnose(server({"queue": 5.0}, {"queue": 0.0}, {"queue": 7.0}, cpu=1.0))
    assert [f.subject for f in diagnosis.findings] == [
        {"engine": "0", "model_name": "m"},
        {"engine": "2", "model_name": "m"},
    ]


def test_of_several_servers_the_subject_says_which(rules: Rules) -> None:
    rules.add("server-wide", "cpu > 0.9")
    rules.add("engine-wide", "queue > 1")
    one = server({"queue": 5.0}, tag=(("server", "a"),), cpu=1.0)
    two = server({"queue": 0.0}, tag=(("server", "b"),), cpu=1.0)
    diagnosis = rules.diagnose(one, two)
    assert sorted((f.rule, f.subject["server"]) for f in diagnosis.findings) == [
        ("engine-wide", "a"),
        ("server-wide", "a"),
        ("server-wide", "b"),
    ]
    assert [e.subject["server"] for e in diagnosis.engines] == ["a", "b"]


def test_the_order_is_severity_then_stage_then_gain(rules: Rules) -> None:
    gain = "[{do: it, cost: none, risk: none, expect: more, gain: {at_most: factor, basis: b}}]"
    rules.add("late", "queue > 0", stage="slow-path")
    rules.add("early", "queue > 0", stage="host")
    rules.add("poor", "queue > 0")
    rules.add("rich", "queue > 0", remedies=gain)
    rules.add("grave", "queue > 0", severity="critical", stage="slow-path")
    rules.add("chance", "queue > 0", severity="info", stage="blind", role="opportunity")
    rules.add("note", "queue > 0", severity="info", stage="slow-path", role="info")
    diagnosis = rules.diagnose(server({"queue": 5.0}, factor=1.8))
    assert [f.rule for f in diagnosis.findings] == ["grave", "early", "rich", "poor", "late", "note", "chance"]


def test_evidence_and_sentences_have_the_numbers(rules: Rules) -> None:
    rules.add("queues", "queue > load", here='["{queue} wait.", "{latency} is not known and this is not said."]')
    finding = found(rules.diagnose(server({"queue": 5.0, "load": 2.0})))["queues"]
    assert finding.here == "5 wait."
    [evidence] = finding.evidence
    assert (evidence.signal, evidence.seen, evidence.is_, evidence.than, evidence.than_signal, evidence.origin) == (
        "queue", Known(5.0), ">", 2.0, "load", "metrics",
    )  # fmt: skip


# ---- the verdict


@pytest.mark.parametrize(
    ("role", "headline"),
    [
        ("not-server", "The aside: 9 runs."),
        ("info", "The aside: 9 runs."),
        ("opportunity", "No limit found in what could be checked"),
    ],
)
def test_what_is_not_the_servers_fault_leaves_it_well(rules: Rules, role: str, headline: str) -> None:
    rules.add("aside", "load > 0", severity="info", role=role, here='["{load} runs."]')
    diagnosis = rules.diagnose(server({"load": 9.0}))
    assert (diagnosis.verdict, diagnosis.headline) == (Verdict.OK, headline)
    assert found(diagnosis)["aside"].role == role


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        (["info"], Verdict.OK),
        (["info", "warning"], Verdict.WARNING),
        (["warning", "critical"], Verdict.CRITICAL),
    ],
)
def test_the_verdict_is_the_worst_severity(rules: Rules, severities: list[str], verdict: Verdict) -> None:
    for severity in severities:
        rules.add(f"a-{severity}", "load > 0", severity=severity)
    assert rules.diagnose(server({})).verdict is verdict


def test_nothing_found_is_well(rules: Rules) -> None:
    rules.add("ill", "queue > 1")
    diagnosis = rules.diagnose(server({"queue": 0.0}))
    assert (diagnosis.verdict, diagnosis.headline) == (Verdict.OK, "No limit found in what could be checked")
    assert diagnosis.findings == ()


def test_who_is_blind_has_no_verdict(rules: Rules) -> None:
    rules.add("blindness", "cpu > 0", role="blind", stage="blind")
    rules.add("ill", "queue > 1", severity="critical")
    diagnosis = rules.diagnose(server({"queue": 5.0}, cpu=1.0))
    assert (diagnosis.verdict, diagnosis.headline) == (Verdict.UNKNOWN, "The blindness")


@pytest.mark.parametrize(
    ("seen", "verdict", "headline"),
    [
        pytest.param(
            {"load": Unknown(Reason.STALE), "usage": 0.1},
            Verdict.UNKNOWN,
            "Key metrics could not be read: requests running (stale)",
            id="needed",
        ),
        pytest.param(
            {"usage": Unknown(Reason.IDLE)}, Verdict.OK, "No limit found in what could be checked", id="not needed"
        ),
    ],
)
def test_without_a_needed_vital_sign_there_is_no_ok(rules: Rules, seen: Seen, verdict: Verdict, headline: str) -> None:
    diagnosis = rules.diagnose(server(seen))
    assert (diagnosis.verdict, diagnosis.headline) == (verdict, headline)


def test_harm_that_is_seen_wins_over_a_vital_sign_that_is_not(rules: Rules) -> None:
    rules.add("ill", "usage > 0.8")
    diagnosis = rules.diagnose(server({"load": Unknown(Reason.STALE), "usage": 0.9}))
    assert (diagnosis.verdict, diagnosis.headline) == (Verdict.WARNING, "The ill")


@pytest.mark.parametrize(
    ("seen", "verdict", "headline"),
    [
        pytest.param({"queue": 5.0}, Verdict.UNKNOWN, "5 requests wait, and nothing says why", id="queue, no cause"),
        pytest.param({"latency": 3.0}, Verdict.WARNING, "3 s misses 2 s", id="missed SLO, no cause"),
        pytest.param(
            {"latency": Known(3.0, 2.5, 5.0)}, Verdict.WARNING, "2.5–5 s misses 2 s", id="missed SLO, in buckets"
        ),
        pytest.param(
            {"latency": Known(3.0, 1.0, 5.0)},
            Verdict.OK,
            "No limit found in what could be checked",
            id="perhaps missed",
        ),
        pytest.param({"queue": 5.0, "latency": 3.0}, Verdict.WARNING, None, id="both: the worse"),
        pytest.param({"queue": 5.0, "usage": 0.9}, Verdict.WARNING, "The cause", id="queue with its cause"),
        pytest.param({"queue": 5.0, "usage": 0.6}, Verdict.UNKNOWN, None, id="an info is no cause"),
    ],
)
def test_a_symptom_demands_a_cause(rules: Rules, seen: Seen, verdict: Verdict, headline: str | None) -> None:
    rules.add("cause", "usage > 0.8")
    rules.add("note", "usage > 0.5", severity="info", role="info")
    diagnosis = rules.diagnose(server(seen, slo=2.0))
    assert diagnosis.verdict is verdict
    assert headline is None or diagnosis.headline == headline


@pytest.mark.parametrize(
    ("engines", "verdict"),
    [
        pytest.param([{"latency": 99.0, "usage": 0.9}, {}], Verdict.WARNING, id="its own engine"),
        pytest.param([{"latency": 99.0, "usage": 0.1}, {"usage": 0.9}], Verdict.CRITICAL, id="another engine"),
    ],
)
def test_only_a_cause_on_its_own_engine_answers_a_symptom(rules: Rules, engines: list[Seen], verdict: Verdict) -> None:
    rules.add("cause", "usage > 0.8")
    assert rules.diagnose(server(*engines)).verdict is verdict


# ---- remedies


def remedy(rules: Rules, text: str, **common: Reading | Value) -> Remedy | None:
    """The remedy in a finding, or None where it is left out."""
    rules.add("ill", "load > 0", remedies=f"[{{do: it, cost: restart, risk: none, expect: more, {text}}}]")
    finding = found(rules.diagnose(server({}, tag=(), **common)))["ill"]
    assert len(finding.remedies) <= 1
    return finding.remedies[0] if finding.remedies else None


@pytest.mark.parametrize(
    ("text", "common", "there"),
    [
        pytest.param("if: usage > 0.8", {"usage": 0.9}, True, id="its if holds"),
        pytest.param("if: usage > 0.8", {"usage": 0.1}, False, id="its if does not hold"),
        pytest.param("if: usage > 0.8", {}, True, id="its if is not known"),
        pytest.param("set: {--watermark: 0.02}", {"vllm_version": "0.32.0"}, True, id="the version has the flag"),
        pytest.param("set: {--watermark: 0.02}", {"vllm_version": "0.11.0"}, False, id="the version lacks the flag"),
        pytest.param("set: {--watermark: 0.02}", {}, True, id="the version is not known"),
        pytest.param(
            "set: {--max-num-seqs: 8, --watermark: 0.02}", {"vllm_version": "0.11.0"}, False, id="lacks one of two"
        ),
    ],
)
def test_a_remedy_that_does_not_fit_is_left_out(rules: Rules, text: str, common: Seen, there: bool) -> None:
    assert (remedy(rules, text, **common) is not None) is there


@pytest.mark.parametrize(
    ("text", "version", "validated"),
    [
        pytest.param("set: {--max-num-seqs: 8}", "0.32.0", "0.32.0", id="the flag is of that version"),
        pytest.param("set: {--max-num-seqs: 8}", None, None, id="the version is not known"),
        pytest.param("set: {--max-num-seqs: 8}", "99.0.0", None, id="the version is newer than the list"),
        pytest.param("set: {--watermark: 0.02}", "0.23.5", None, id="between two samples"),
        pytest.param("set: {}", "0.32.0", "0.32.0", id="no flag"),
    ],
)
def test_the_version_a_remedy_is_validated_for(
    rules: Rules, text: str, version: str | None, validated: str | None
) -> None:
    made = remedy(rules, text, **({"vllm_version": version} if version else {}))
    assert made is not None
    assert made.validated_for == validated


@pytest.mark.parametrize(
    ("window", "given", "validated"),
    [
        pytest.param("0.24.0 0.25.0", {}, "0.25.0", id="each possible release has it"),
        pytest.param("0.22.0 0.25.0", {}, None, id="one has not"),
        pytest.param("0.22.0 0.25.0", {"--watermark": 0.1}, None, id="the command has it, one of its releases has not"),
        pytest.param("", {}, None, id="nothing tells the release"),
    ],
)
def test_what_each_possible_release_has_is_checked_without_a_version(
    rules: Rules, window: str, given: dict[str, Value], validated: str | None
) -> None:
    rules.add(
        "ill", "queue > 0", remedies="[{do: it, cost: restart, risk: none, expect: more, set: {--watermark: 0.02}}]"
    )
    common: dict[str, Any] = {"flags_window": window} if window else {}
    seen = server({"queue": 5.0}, **common)
    assert remedy_of(rules.diagnose(replace(seen, flags=given))).validated_for == validated


def test_what_the_command_has_and_every_release_is_checked_without_a_version(rules: Rules) -> None:
    rules.add(
        "ill", "queue > 0", remedies="[{do: it, cost: restart, risk: none, expect: more, set: {--max-num-seqs: 8}}]"
    )
    seen = replace(server({"queue": 5.0}), flags={"--max-num-seqs": 4.0})
    assert remedy_of(rules.diagnose(seen)).validated_for == flags.newest()


@pytest.mark.parametrize(
    ("text", "risk"),
    [
        ("set: {--watermark: 0.02, --max-num-seqs: 8}", "none; --watermark is there from vLLM 0.24.0 on"),
        ("set: {--max-num-seqs: 8}", "none"),
    ],
)
def test_a_flag_that_not_all_possible_releases_have_is_told(rules: Rules, text: str, risk: str) -> None:
    made = remedy(rules, text, flags_checked_by="0.25.0", flags_window="0.22.0 0.23.0 0.24.0 0.25.0")
    assert made is not None
    assert (made.risk, made.validated_for) == (risk, "0.25.0")


@pytest.mark.parametrize(
    ("known", "fits"),
    [
        ({"flags_window": "0.8.3 0.9.2 0.10.2"}, False),  # the log tells no version, but which it can be
        ({"flags_window": "0.23.0 0.24.0"}, True),
        ({"flags_window": "0.8.3 0.9.2", "vllm_version": "0.24.0"}, True),
        ({}, True),
    ],
)
def test_a_flag_that_no_possible_release_has_is_not_proposed(rules: Rules, known: dict[str, str], fits: bool) -> None:
    made = remedy(rules, "set: {--watermark: 0.02}", **known)
    assert (made is not None) == fits
    assert made is None or ("is there from" in made.risk) == (known.get("flags_window") == "0.23.0 0.24.0")


def test_a_remedy_computes_its_values(rules: Rules) -> None:
    made = remedy(
        rules,
        'set: {--max-num-seqs: "{fit}", --compilation-config: "size {fit}"}, env: {VLLM_X: "{fit}"}, '
        'unset: [--enforce-eager], computed: "{load} and {queue}", gain: {at_most: factor, basis: b}',
        fit=11.0,
        queue=10.0,
        factor=1.8,
    )
    assert made is not None
    assert made.set == {"--max-num-seqs": 11, "--compilation-config": "size 11"}
    assert type(made.set["--max-num-seqs"]) is int
    assert (made.env, made.unset, made.needs) == ({"VLLM_X": 11}, ("--enforce-eager",), {})
    assert made.computed == "1 and 10"
    assert made.gain is not None
    assert (made.gain.at_most, made.gain.basis) == (1.8, "b")


def test_a_remedy_whose_value_is_not_known_says_what_it_needs_and_sets_nothing(rules: Rules) -> None:
    made = remedy(
        rules,
        'set: {--max-num-seqs: "{fit}", --watermark: 0.02}, env: {VLLM_X: 1}, computed: "{load} and {fit}", '
        "gain: {at_most: factor, basis: b}",
        fit=Unknown(Reason.FIRST_SCRAPE),
    )
    assert made is not None
    assert made.needs == {"fit": Reason.FIRST_SCRAPE}
    assert (made.set, made.env, made.computed, made.gain) == ({}, {}, None, None)


@pytest.mark.parametrize(
    ("condition", "needs"),
    [
        pytest.param("usage > 0.8 and queue > 1", {"usage": Reason.IDLE}, id="left"),
        pytest.param("queue > slo", {"slo": Reason.NOT_GIVEN}, id="right"),
        pytest.param("usage > slo", {"usage": Reason.IDLE, "slo": Reason.NOT_GIVEN}, id="both sides"),
        pytest.param("queue > 9 or not queue < slo", {"slo": Reason.NOT_GIVEN}, id="only what is undecided"),
    ],
)
def test_a_remedy_whose_if_is_not_known_says_so_and_sets_nothing(
    condition: str, needs: dict[str, Reason], rules: Rules
) -> None:
    made = remedy(
        rules,
        f"if: {condition}, set: {{--max-num-seqs: 8}}, unset: [--enforce-eager], env: {{VLLM_X: 1}}",
        usage=Unknown(Reason.IDLE),
        queue=5.0,
    )
    assert made is not None
    assert made.needs == needs
    assert (made.set, made.unset, made.env) == ({}, (), {})


# ---- what was seen and what was not


def test_a_rules_state_is_the_first_that_any_engine_gives_it(rules: Rules) -> None:
    rules.add("ill", "queue > 1")
    rules.add("perhaps", "latency > 1")
    rules.add("well", "load > 100")
    diagnosis = rules.diagnose(
        server({"queue": 5.0, "latency": 0.1}, {"latency": Unknown(Reason.IDLE)}, {"queue": 0.0, "latency": 0.1})
    )
    assert diagnosis.states == {"ill": "warning", "perhaps": "unknown", "well": "ok"}
    # What one engine could not be judged on is told, also where another engine has the finding.
    assert [(u.rule, dict(u.because)) for u in diagnosis.unknown] == [
        ("ill", {"queue": Reason.ABSENT}),
        ("perhaps", {"latency": Reason.IDLE}),
    ]


def test_vital_signs_add_up_over_engines_and_servers(rules: Rules) -> None:
    one = server({"load": 3.0, "usage": 0.2}, {"load": 4.0, "usage": 0.9}, tag=(("server", "a"),))
    two = server({"load": 5.0, "usage": 0.5}, tag=(("server", "b"),))
    diagnosis = rules.diagnose(one, two)
    assert {vital.name: vital.seen for vital in diagnosis.vitals} == {"load": Known(12.0), "usage": Known(0.9)}
    assert [vital.seen for engine in diagnosis.engines for vital in engine.vitals] == [
        Known(3.0), Known(0.2), Known(4.0), Known(0.9), Known(5.0), Known(0.5),
    ]  # fmt: skip


def test_a_sum_with_an_unknown_part_is_unknown(rules: Rules) -> None:
    diagnosis = rules.diagnose(server({"load": 3.0}, {"load": Unknown(Reason.STALE)}))
    assert diagnosis.vitals[0].seen is Reason.STALE


@pytest.mark.parametrize(
    ("latency", "met"),
    [
        pytest.param(Known(1.9), True, id="below"),
        pytest.param(Known(2.1), False, id="above"),
        pytest.param(Known(1.5, 1.0, 2.0), True, id="a bucket that ends at it"),
        pytest.param(Known(3.0, 2.0, 5.0), False, id="a bucket that starts at it"),
        pytest.param(Known(3.0, 1.0, 5.0), None, id="a bucket around it"),
        pytest.param(Unknown(Reason.IDLE), None, id="not known"),
    ],
)
def test_whether_a_target_is_met(rules: Rules, latency: Reading, met: bool | None) -> None:
    [target] = rules.diagnose(server({"latency": latency}, slo=2.0)).targets
    assert (target.name, target.seconds, target.met) == ("slo", 2.0, met)
    assert target.seen == (latency.reason if isinstance(latency, Unknown) else latency)


def test_a_target_is_missed_where_the_slowest_engine_misses_it(rules: Rules) -> None:
    [target] = rules.diagnose(server({"latency": 0.5}, {"latency": 2.5}, {"latency": 1.0}, slo=2.0)).targets
    assert (target.met, target.seen) == (False, Known(2.5))


def test_without_a_target_there_is_none(rules: Rules) -> None:
    assert rules.diagnose(server({"latency": 9.0})).targets == ()


# ---- symptoms


def test_a_symptom_with_its_cause(rules: Rules) -> None:
    rules.add("starved", "usage < 0.5", severity="info", role="symptom", stage="slow-path")
    rules.add("cause", "queue > 1", explains="[starved]", stage="host")
    diagnosis = rules.diagnose(server({"queue": 5.0, "usage": 0.1}))
    assert [(f.rule, f.role, f.explained_by) for f in diagnosis.findings] == [
        ("cause", "root", None),
        ("starved", "symptom", "cause"),
    ]


def test_a_symptom_without_its_cause_is_worth_knowing(rules: Rules) -> None:
    rules.add("starved", "usage < 0.5", severity="info", role="symptom", stage="slow-path")
    rules.add("cause", "queue > 1", explains="[starved]", stage="host")
    diagnosis = rules.diagnose(server({"queue": 0.0, "usage": 0.1}))
    assert [(f.rule, f.role, f.explained_by) for f in diagnosis.findings] == [("starved", "info", None)]
    assert (diagnosis.verdict, diagnosis.headline) == (Verdict.OK, "The starved")


def test_the_shipped_gpu_starved_is_explained_by_cpu_contention() -> None:
    signals, shipped = shipped_catalogue(), {rule.id: rule for rule in shipped_rules()}
    chosen = [shipped["cpu-contention"], shipped["gpu-starved"]]
    starved: dict[str, Any] = {
        "gpus": 1.0,
        "gpu_utilization": 0.3,
        "requests_running": 8.0,
        "requests_running_usual": 8.0,
        "server_running": 8.0,
    }
    others: dict[str, Any] = {
        "cpu_wait": 0.95,
        "engine_cpu_wait": 0.0,
        "foreign_cpu_share": 0.9,
        "cpu_steal": 0.0,
        "foreign_processes": "stress",
    }
    diagnosis = diagnose.diagnose(chosen, signals, [server({}, **(starved | others))])
    assert [(f.rule, f.role, f.explained_by) for f in diagnosis.findings] == [
        ("cpu-contention", "root", None),
        ("gpu-starved", "symptom", "cpu-contention"),
    ]
    assert diagnosis.verdict in (Verdict.WARNING, Verdict.CRITICAL)
    diagnosis = diagnose.diagnose(chosen, signals, [server({}, **(starved | others | {"cpu_wait": 0.0}))])
    assert [(f.rule, f.role) for f in diagnosis.findings] == [("gpu-starved", "info")]


# ---- commands, and what flags were


def remedy_of(diagnosis: Diagnosis) -> Remedy:
    [finding] = diagnosis.findings
    [remedy] = finding.remedies
    return remedy


def told(rules: Rules, remedy: str, **signals: Any) -> Remedy:
    rules.add("ill", "queue > 0", remedies=f"[{{do: it, cost: none, risk: none, expect: more, {remedy}}}]")
    return remedy_of(rules.diagnose(server({"queue": 5.0}, **signals)))


@pytest.mark.parametrize(
    ("template", "seen", "expected"),
    [
        ("docker update --cpus {cpu} x", {"cpu": 1024.0}, "docker update --cpus 1024 x"),
        ("--cpus {cpu}", {"cpu": 1.5}, "--cpus 1.5"),
        ("-l {cpu}", {"cpu": 123456789.0}, "-l 123456789"),
        ("stop {vllm_version}", {"vllm_version": "vllm.service"}, "stop vllm.service"),
        ("stop {vllm_version}", {"vllm_version": "a; rm -rf ~"}, "stop 'a; rm -rf ~'"),
        ("stop {vllm_version}", {"vllm_version": "$(id)'`id`"}, """stop '$(id)'"'"'`id`'"""),
        ("stop {vllm_version}", {"vllm_version": "{cpu}", "cpu": 7.0}, "stop '{cpu}'"),
        ("{cpu}-{cpu} {vllm_version}", {"cpu": 3.0, "vllm_version": "x"}, "3-3 x"),
        ("nvidia-smi -pm 1", {}, "nvidia-smi -pm 1"),
    ],
)
def test_commands_have_values_as_a_shell_reads_them(
    template: str, seen: dict[str, Value], expected: str, rules: Rules
) -> None:
    remedy = told(rules, f"run: ['{template}'], by: administrator", **seen)
    assert (remedy.run, remedy.by, dict(remedy.needs)) == ((expected,), "administrator", {})


def test_a_command_whose_value_is_not_known_is_not_printed(rules: Rules) -> None:
    remedy = told(rules, "run: ['a {slo}', 'b']")
    assert (remedy.run, remedy.by, dict(remedy.needs)) == ((), "you", {"slo": Reason.NOT_GIVEN})


def test_what_the_flags_were(rules: Rules) -> None:
    remedy = "set: {--max-num-seqs: 8, --max-num-batched-tokens: 99}, unset: [--enforce-eager, --disable-log-stats]"
    rules.add("ill", "queue > 0", remedies=f"[{{do: it, cost: none, risk: none, expect: more, {remedy}}}]")
    flags: dict[str, Value] = {"--max-num-seqs": 64.0, "--enforce-eager": True, "--port": 8000.0}
    seen = replace(server({"queue": 5.0}), flags=flags)
    assert remedy_of(rules.diagnose(seen)).was == {"--max-num-seqs": 64.0, "--enforce-eager": True}
    assert remedy_of(rules.diagnose(server({"queue": 5.0}))).was == {}


# ---- the size of the gain

PRIZE = "{at_most: factor, basis: work done twice}"


@pytest.mark.parametrize(
    ("factor", "goal", "severity"),
    [
        (1.01, "throughput", "info"),
        (1.02, "throughput", "critical"),
        (2.0, "throughput", "critical"),
        (1.01, "latency", "critical"),
        (1.01, Unknown(Reason.NOT_GIVEN), "critical"),
        (Unknown(Reason.FIRST_SCRAPE), "throughput", "critical"),
        (Known(1.01, 1.0, 1.3), "throughput", "critical"),  # it may be as much
        (Known(1.01, 1.0, 1.015), "throughput", "info"),
    ],
)
def test_a_cause_that_costs_next_to_nothing_is_only_worth_knowing(
    rules: Rules, factor: Reading | Value, goal: Reading | Value, severity: str
) -> None:
    rules.add("frightening", "usage > 0.8", severity="critical", gain=PRIZE)
    diagnosis = rules.diagnose(server({"usage": 0.9}, factor=factor, goal=goal))
    assert found(diagnosis)["frightening"].severity == severity
    assert diagnosis.states == {"frightening": severity}
    assert diagnosis.verdict is (Verdict.OK if severity == "info" else Verdict.CRITICAL)


def test_only_of_a_cause_the_gain_is_asked(rules: Rules) -> None:
    rules.add("blind", "usage > 0.8", role="blind", gain=PRIZE)
    finding = found(rules.diagnose(server({"usage": 0.9}, factor=1.0, goal="throughput")))["blind"]
    assert (finding.severity, finding.asks_gain) == ("warning", False)
    rules.add("broken", "usage > 0.8", stage="broken")
    rules.add("slow", "usage > 0.8")
    asked = found(rules.diagnose(server({"usage": 0.9})))
    assert {id for id, finding in asked.items() if finding.asks_gain} == {"slow"}


def test_a_cause_of_no_weight_hides_nothing(rules: Rules) -> None:
    rules.add("petty", "usage > 0.8", gain=PRIZE, explains="[symptom]")
    rules.add("symptom", "queue > 1")
    diagnosis = rules.diagnose(server({"queue": 5.0, "usage": 0.9}, factor=1.0, goal="throughput"))
    assert found(diagnosis)["symptom"].role == "root"
    assert diagnosis.headline == "The symptom"


def test_a_queue_is_not_explained_by_what_costs_nothing(rules: Rules) -> None:
    rules.add("petty", "usage > 0.8", gain=PRIZE)
    diagnosis = rules.diagnose(server({"queue": 5.0, "usage": 0.9}, factor=1.0, goal="throughput"))
    assert diagnosis.verdict is Verdict.UNKNOWN
    assert "nothing says why" in diagnosis.headline


def test_a_finding_has_its_gain_and_its_remedies_bring_no_more(rules: Rules) -> None:
    cure = "do: it, cost: none, risk: none, expect: more"
    rules.add(
        "dear",
        "queue > 0",
        gain=PRIZE,
        remedies=f"[{{{cure}}}, {{{cure}, gain: unknown}}, {{{cure}, gain: {{at_most: fit, basis: all}}}}]",
    )
    finding = found(rules.diagnose(server({"queue": 5.0}, factor=1.8, fit=4.0)))["dear"]
    assert finding.gain is not None
    assert (finding.gain.at_most, finding.gain.basis) == (1.8, "work done twice")
    assert [remedy.gain and remedy.gain.at_most for remedy in finding.remedies] == [1.8, None, 4.0]
    unknown = found(rules.diagnose(server({"queue": 5.0}, factor=Unknown(Reason.IDLE))))["dear"]
    assert unknown.gain is None


def test_no_cure_makes_it_slower(rules: Rules) -> None:
    rules.add("dear", "queue > 0", gain=PRIZE)
    finding = found(rules.diagnose(server({"queue": 5.0}, factor=0.7)))["dear"]
    assert finding.gain is not None
    assert finding.gain.at_most == 1.0


def test_the_order_of_findings_knows_their_gain(rules: Rules) -> None:
    rules.add("poor", "queue > 0")
    rules.add("rich", "queue > 0", gain=PRIZE)
    assert [f.rule for f in rules.diagnose(server({"queue": 5.0}, factor=1.8)).findings] == ["rich", "poor"]


def test_of_one_stage_and_severity_the_higher_rank_stands_first(rules: Rules) -> None:
    rules.add("rich", "queue > 0", gain=PRIZE)
    rules.add("higher", "queue > 0", rank=1)
    rules.add("grave", "queue > 0", severity="critical")
    assert [f.rule for f in rules.diagnose(server({"queue": 5.0}, factor=1.8)).findings] == ["grave", "higher", "rich"]


# ---- before a restart


def test_a_remedy_with_which_vllm_would_not_start_is_not_given(rules: Rules) -> None:
    assert remedy(rules, "set: {--max-num-seqs: 65}") is None


def test_what_a_remedy_foretells_counts_with_its_own_flags(rules: Rules) -> None:
    made = remedy(rules, "set: {--max-num-seqs: 64}, then: ['{seqs} grow to {seqs_grown}.', 'Not {slo}.']")
    assert made is not None
    assert made.then == ("64 grow to 6,400.",)
    assert made.starts_unknown == {}


def test_of_a_value_that_is_not_known_nothing_is_foretold(rules: Rules) -> None:
    made = remedy(
        rules, 'set: {--max-num-seqs: "{fit}"}, then: ["{seqs} run."]', fit=Unknown(Reason.FIRST_SCRAPE), seqs=8.0
    )
    assert made is not None
    assert (made.then, made.needs) == ((), {"fit": Reason.FIRST_SCRAPE})


@pytest.mark.parametrize(
    ("goal", "first"),
    [("throughput", "fast"), ("latency", "steady"), (Unknown(Reason.NOT_GIVEN), "steady")],
)
def test_remedies_that_serve_the_other_goal_come_last(rules: Rules, goal: Reading | Value, first: str) -> None:
    cost = "cost: none, risk: none, expect: more"
    rules.add("x", "queue > 0", remedies=f"[{{do: steady, goal: latency, {cost}}}, {{do: fast, {cost}}}]")
    finding = found(rules.diagnose(server({"queue": 5.0}, goal=goal)))["x"]
    assert finding.remedies[0].do == first
    assert len(finding.remedies) == 2


@pytest.mark.parametrize(("goal", "first"), [("latency", "steady"), ("throughput", "fast")])
def test_what_buys_latency_with_throughput_comes_first_where_latency_is_asked_for(
    rules: Rules, goal: str, first: str
) -> None:
    cost = "cost: none, risk: fewer tokens per second, expect: more"
    rules.add("x", "queue > 0", remedies=f"[{{do: fast, {cost}}}, {{do: steady, goal: latency, {cost}}}]")
    remedies = found(rules.diagnose(server({"queue": 5.0}, goal=goal)))["x"].remedies
    assert (remedies[0].do, remedies[0].risk) == (first, "fewer tokens per second")


def test_where_nothing_is_measured_nothing_is_hidden(rules: Rules) -> None:
    rules.add("stats", "usage > 0.8", role="blind", stage="blind")
    rules.add("grave", "queue > 0", severity="critical")
    one = server({"queue": 5.0, "usage": 0.9})
    assert rules.diagnose(one).verdict is Verdict.UNKNOWN
    diagnosis = rules.diagnose(one, measured=False)
    assert (diagnosis.verdict, diagnosis.headline) == (Verdict.CRITICAL, "The grave")
    assert found(diagnosis)["stats"].role == "root"


# ---- what the shipped catalogue calls slow

STUCK = "Requests run (8), and no tokens are generated: a very long prompt, or an engine that is stuck"
QUEUED = (
    "Requests wait (2), not for KV blocks (40 % used, room for 12 more): a cap of 8 on the slots, or a step's tokens; "
    "--max-num-seqs in its command decides"
)


def seen_for_ten_seconds(
    running: int = 8, waiting: int = 0, tokens: float = 0, prompts: float = 0, finished: float = 0, waited: float = 0
) -> Snapshot:
    """Two pages of one engine; between them 50 steps, and as many requests finished that had each `waited` so long."""

    def page(share: float) -> str:
        return "\n".join(
            f'{name}{{engine="0",model_name="m"}} {value}'
            for name, value in (
                ("vllm:num_requests_running", running),
                ("vllm:num_requests_waiting", waiting),
                ("vllm:kv_cache_usage_perc", 0.4),
                ("vllm:generation_tokens_total", 1000 + share * tokens),
                ("vllm:prompt_tokens_total", 5000 + share * prompts),
                ("vllm:request_success_total", 9 + share * finished),
                ("vllm:iteration_tokens_total_count", 100 + share * 50),
                ("vllm:request_queue_time_seconds_count", 9 + share * finished),
                ("vllm:request_queue_time_seconds_sum", 1 + share * finished * waited),
            )
        )

    return shipped_catalogue().snapshot(window(page(0), page(1), every=10.0), {})


@pytest.mark.parametrize(
    ("seen", "verdict", "headline"),
    [
        pytest.param(seen_for_ten_seconds, Verdict.UNKNOWN, STUCK, id="stuck"),
        pytest.param(partial(seen_for_ten_seconds, waiting=14), Verdict.UNKNOWN, STUCK, id="stuck, with a queue"),
        pytest.param(partial(seen_for_ten_seconds, tokens=400), Verdict.OK, None, id="it generates"),
        pytest.param(partial(seen_for_ten_seconds, prompts=900), Verdict.OK, None, id="it reads prompts"),
        pytest.param(partial(seen_for_ten_seconds, finished=1), Verdict.OK, None, id="it finishes requests"),
        pytest.param(partial(seen_for_ten_seconds, running=0), Verdict.OK, None, id="nothing runs"),
        # 200 requests in ten seconds that had waited 0.1 s are a queue of two: but a step takes 0.2 s
        pytest.param(
            partial(seen_for_ten_seconds, tokens=200, prompts=9000, finished=200, waited=0.1),
            Verdict.OK,
            None,
            id="half a step",
        ),
        pytest.param(
            partial(seen_for_ten_seconds, tokens=200, prompts=9000, finished=20, waited=1.0),
            Verdict.UNKNOWN,
            QUEUED,
            id="steps",
        ),
        pytest.param(
            partial(seen_for_ten_seconds, waiting=2, tokens=200, prompts=9000, finished=200, waited=0.1),
            Verdict.UNKNOWN,
            QUEUED,
            id="half a step, and some wait",
        ),
    ],
)
def test_what_is_called_slow_without_a_cause(
    seen: Callable[[], Snapshot], verdict: Verdict, headline: str | None
) -> None:
    found = diagnose.diagnose([], shipped_catalogue(), [seen()])
    assert found.verdict is verdict
    assert headline is None or found.headline == headline


def seen_second_by_second(tokens: Sequence[float], running: Sequence[int], **facts: float) -> Snapshot:
    """A page a second of one engine: tokens generated by then, and requests that run."""
    pages = [
        "\n".join(
            f'{name}{{engine="0",model_name="m"}} {value}'
            for name, value in (
                ("vllm:num_requests_running", runs),
                ("vllm:num_requests_waiting", 0),
                ("vllm:kv_cache_usage_perc", 0.4),
                ("vllm:generation_tokens_total", made),
                ("vllm:prompt_tokens_total", 5000),
            )
        )
        for made, runs in zip(tokens, running, strict=True)
    ]
    return shipped_catalogue().snapshot(
        window(*pages, every=1.0), {name: Known(value, origin="proc") for name, value in facts.items()}
    )


FLOWING, STOPPING = [900.0 * n for n in range(16)], [900.0 * min(n, 8) for n in range(16)]


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        pytest.param(seen_second_by_second(FLOWING, [8] * 16), Verdict.OK, id="tokens to the end"),
        pytest.param(seen_second_by_second(STOPPING, [8] * 16), Verdict.UNKNOWN, id="none in the second half"),
        pytest.param(seen_second_by_second(STOPPING, [8] * 9 + [0] * 7), Verdict.OK, id="none, and nothing runs"),
        pytest.param(
            seen_second_by_second(STOPPING, [8] * 14 + [0, 8]), Verdict.OK, id="none, and what runs has just come"
        ),
        pytest.param(
            seen_second_by_second([900.0 * min(n, 12) for n in range(16)], [8] * 16), Verdict.OK, id="for a moment"
        ),
        pytest.param(
            seen_second_by_second(STOPPING, [8] * 16, engine_cpu_now=1.0), Verdict.OK, id="it computes: a long prompt"
        ),
    ],
)
def test_a_mean_hides_no_standstill_at_its_end(seen: Snapshot, verdict: Verdict) -> None:
    found = diagnose.diagnose([], shipped_catalogue(), [seen])
    assert found.verdict is verdict
    assert ("no tokens were generated in the last scrapes" in found.headline) is (verdict is Verdict.UNKNOWN)


@pytest.mark.parametrize(("cores", "state"), [(0.001, State.CRITICAL), (0.9, State.OK)])
def test_an_engine_that_does_nothing_while_requests_run_hangs(cores: float, state: State) -> None:
    seen = seen_second_by_second(STOPPING, [8] * 16, engine_cpu_now=cores)
    [stalled] = [one for one in shipped_rules() if one.id == "engine-stalled"]
    assert stalled.judge(diagnose.Reader(seen, seen.subjects[0], shipped_catalogue())).state is state


def test_a_cause_explains_the_symptoms_of_its_own_engines_only(rules: Rules) -> None:
    """Of many engines each finds its own cause; a cause of the whole server explains them all."""
    rules.add("cause", "queue > 5", explains="[effect]")
    rules.add("effect", "load > 0", role="symptom")
    several = rules.diagnose(server(*({"queue": float(n % 2) * 9} for n in range(6))))
    explained = {f.subject["engine"]: f.explained_by for f in several.findings if f.rule == "effect"}
    assert explained == {"0": None, "1": "cause", "2": None, "3": "cause", "4": None, "5": "cause"}
    whole = rules.diagnose(server({}, {}, queue=9.0))
    assert [f.explained_by for f in whole.findings if f.rule == "effect"] == ["cause", "cause"]


def test_a_rule_that_reads_the_same_of_all_engines_is_judged_for_each_where_it_finds_something(rules: Rules) -> None:
    rules.add("of-the-server", "queue > 5")
    [finding] = rules.diagnose(replace(server({}, {}, queue=9.0), alike=frozenset({"queue"}))).findings
    assert finding.subject == {}
    assert rules.diagnose(replace(server({}, {}, queue=1.0), alike=frozenset({"queue"}))).states == {
        "of-the-server": State.OK
    }


def test_engines_that_there_is_no_time_for_are_counted(rules: Rules) -> None:
    rules.add("busy", "load > 0")
    found = diagnose.diagnose(rules.rules, rules._signals, [server({}, {}, {})], is_over=lambda: True)
    assert (found.left_out, len(found.engines), len(found.findings)) == (2, 1, 1)
