"""explain, speed, verdict: a cause must explain the size of the loss; OK is earned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.making import catalogue_of
from vllm_doctor.model.kinds import Severity
from vllm_doctor.model.reading import Known, Reading, Subject, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Finding, Verdict
from vllm_doctor.model.snapshot import Series, Snapshot
from vllm_doctor.model.speed import Standing
from vllm_doctor.rules import diagnose, rule
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnose import Diagnosis
from vllm_doctor.rules.rule import Rule

SIGNALS = """
signals:
  step: {says: time per output token, unit: s, fact: step}
  bound: {says: its bound, unit: s, fact: bound}
  low: {says: of a fast server, unit: s, fact: low}
  typical: {says: of a usual one, unit: s, fact: typical}
  high: {says: of a slow one, unit: s, fact: high}
  batch: {says: requests in a step, unit: requests, fact: batch}
  running: {says: requests that run, unit: requests, fact: running}
  gpus: {says: GPUs, unit: "", fact: gpus}
  gpu: {says: the GPU, unit: text, fact: gpu}
  cost: {says: what the first costs, unit: s, fact: cost}
  other_cost: {says: what the second costs, unit: s, fact: other_cost}
  growth: {says: requests in flight / running, unit: factor, fact: growth}
  freed: {says: a thread's time / without a part of it, unit: factor, fact: freed}
  spread: {says: the busiest engine / the average one, unit: factor, fact: spread}
  room: {says: the bound of all requests / the speed now, unit: factor, fact: room}
  steps: {says: step / its bound, unit: factor, fact: steps}
  goal: {says: what the user wants, unit: text, fact: goal}
"""
DIAGNOSIS = """
negligible: {below: 1.02, when: goal == 'throughput'}
speed:
  measured: step
  bound: bound
  low: low
  typical: typical
  high: high
  slow_above: high
  batch: batch
  gpus: gpus
  load: running
  least_share: 0.1
  leads: 0.5
  beyond_flags: 0.05
  share_there: 0.5
  outweighs: 0.5
  limits:
    - {limit: steps, gains: [freed], says: "expected speed: a step takes {step}, at least {bound}"}
    - {gains: [spread]}
    - {limit: room, says: "expected speed: the bound of all"}
  assumes: [{from: gpu, says: "GPU: {gpu}"}]
  needs:
    - {signal: step, when: running == 0, says: "idle"}
    - {signal: step, says: "not measured"}
    - {signal: gpu, says: "GPU unknown, give --gpu NAME"}
  measure_next:
    - {do: "nvidia-smi -q -d CLOCK"}
    - {do: "one request alone", when: batch > 4}
symptoms:
  - {when: step > high, says: "slow: {step}", verdict: warning, of_speed: true}
"""
USUAL: Mapping[str, Value] = {
    "bound": 0.01, "low": 0.015, "typical": 0.02, "high": 0.03, "batch": 8.0, "running": 8.0, "gpus": 2.0,
    "gpu": "A100", "goal": "throughput",
}  # fmt: skip


@pytest.fixture
def signals(tmp_path: Path) -> Catalogue:
    return catalogue_of(tmp_path, SIGNALS, DIAGNOSIS)


class Rules:
    """Rules that always find something, of different costs."""

    def __init__(self, folder: Path, signals: Catalogue) -> None:
        self._folder, self._signals = folder, signals
        self.rules: list[Rule] = []

    def add(
        self,
        id: str,
        costs: str | None,
        stage: str = "slow-path",
        severity: str = "warning",
        gain: str = "unknown",
        role: str = "root",
    ) -> None:
        path = self._folder / f"{id}.yaml"
        written = f", costs: {costs}" if costs is not None else ""
        path.write_text(
            f"{{rule: {id}, title: The {id}, stage: {stage}, role: {role}, why: so, here: [], "
            f"when: {{{severity}: running > 0}}, explains: [], threshold_from: measured, gain: {gain}, "
            f"remedies: []{written}}}",
            "utf-8",
        )
        self.rules.append(rule.read(path, self._signals))

    def diagnose(self, *engines: Mapping[str, Reading | Value]) -> Diagnosis:
        subjects = [(("engine", str(place)), ("model_name", "m")) for place in range(len(engines))]
        readings: dict[str, dict[Subject, Reading]] = {}
        for subject, seen in zip(subjects, engines, strict=True):
            for name, value in ({**USUAL, **seen}).items():
                reading = value if isinstance(value, Known | Unknown) else Known(value)
                readings.setdefault(name, {})[subject] = reading
        snapshot = Snapshot(tuple(subjects), {name: Series(of) for name, of in readings.items()})
        return diagnose.diagnose(self.rules, self._signals, [snapshot])


@pytest.fixture
def rules(tmp_path: Path, signals: Catalogue) -> Rules:
    return Rules(tmp_path, signals)


UNKNOWN = Unknown(Reason.ABSENT)
NOTHING = "no finding explains it"
FIRST, SECOND = "{at_most: cost, basis: b}", "{at_most: other_cost, basis: b}"
QUEUE = "{at_most: growth, basis: b}"


def found(diagnosis: Diagnosis, id: str) -> Finding:
    return next(finding for finding in diagnosis.findings if finding.rule == id)


def gain_of(rules: Rules, signal: str, **seen: Reading | Value) -> tuple[float, str]:
    """What a cause with this gain promises at most, and how that is bounded."""
    rules.add("rich", None, gain=f"{{at_most: {signal}, basis: b}}")
    gain = found(rules.diagnose({"step": 0.025, **seen}), "rich").gain
    assert gain is not None
    return gain.at_most, gain.basis


def test_no_gain_is_more_than_the_bound_leaves(rules: Rules) -> None:
    assert gain_of(rules, "freed", freed=3.0, steps=2.5) == (2.5, "expected speed: a step takes 25 ms, at least 10 ms")


@pytest.mark.parametrize(
    ("signal", "seen", "told"),
    [
        ("freed", {"freed": 2.0, "steps": 2.5}, (2.0, "b")),
        ("growth", {"growth": 9.0, "room": 4.0}, (4.0, "expected speed: the bound of all")),
        ("growth", {"growth": 4.0, "room": 4.0}, (4.0, "expected speed: the bound of all")),
        ("growth", {"growth": 9.0, "room": 0.5}, (1.0, "expected speed: the bound of all")),
        ("growth", {"growth": 9.0, "room": Unknown(Reason.ABSENT)}, (9.0, "b")),
        ("spread", {"spread": 9.0, "room": 4.0}, (9.0, "b")),
        ("growth", {"growth": 9.0, "room": 4.0, "step": Unknown(Reason.ABSENT)}, (9.0, "b")),
    ],
    ids=["below", "capped", "equal", "at-the-bound", "bound-unknown", "several-engines", "not-judged"],
)
def test_which_limit_a_gain_has(
    rules: Rules, signal: str, seen: Mapping[str, Reading | Value], told: tuple[float, str]
) -> None:
    assert gain_of(rules, signal, **seen) == told


@pytest.mark.parametrize(
    ("step", "standing"),
    [
        (0.005, Standing.BEYOND),
        (0.012, Standing.FAST),
        (0.025, Standing.TYPICAL),
        (0.031, Standing.SLOW),
        (UNKNOWN, Standing.UNKNOWN),
    ],
)
def test_where_a_speed_stands(rules: Rules, step: Reading | Value, standing: Standing) -> None:
    (speed,) = rules.diagnose({"step": step}).speeds
    assert speed.standing is standing
    assert (speed.missing is None) == (standing is Standing.UNKNOWN)


def test_the_figures_of_a_speed(rules: Rules) -> None:
    (speed,) = rules.diagnose({"step": 0.2}).speeds
    assert speed.missing == pytest.approx(0.9)
    assert (speed.tokens.measured, speed.tokens.bound, speed.tokens.typical) == pytest.approx((40, 800, 400))
    assert speed.tokens.low is not None
    assert speed.tokens.high is not None
    assert speed.tokens.low < speed.tokens.high  # the slow end of the time is the low end of the tokens
    assert [one.says for one in speed.assumptions] == ["GPU: A100"]


@pytest.mark.parametrize(
    ("seen", "headline"),
    [
        ({"step": 0.02}, "No limit found, and requests get the speed that is expected"),
        (
            {"step": 0.02, "gpu": UNKNOWN, "high": UNKNOWN},
            "Nothing wrong found; speed not judged: GPU unknown, give --gpu NAME",
        ),
        ({"step": UNKNOWN}, "Nothing wrong found; speed not judged: not measured"),
        ({"step": UNKNOWN, "running": 0.0}, "Nothing wrong found; idle, so its speed is not judged"),
        ({"step": 0.005}, "Nothing wrong found; speed not judged: it is beyond what the assumed GPU and model can do"),
    ],
)
def test_ok_claims_no_more_than_was_seen(rules: Rules, seen: Mapping[str, Reading | Value], headline: str) -> None:
    diagnosis = rules.diagnose(seen)
    assert (diagnosis.verdict, diagnosis.headline) == (Verdict.OK, headline)


def test_who_waits_for_clients_has_a_speed_that_is_known(rules: Rules) -> None:
    rules.add("client-limited", None, stage="client", severity="info", role="not-server")
    assert rules.diagnose({"step": 0.02}).headline == "The client-limited"
    assert rules.diagnose({"step": 0.02, "high": UNKNOWN, "gpu": UNKNOWN}).headline.startswith("Nothing wrong found;")


def test_a_server_that_is_slow_without_a_cause_is_not_ok(rules: Rules) -> None:
    diagnosis = rules.diagnose({"step": 0.1})
    assert (diagnosis.verdict, diagnosis.headline) == (
        Verdict.WARNING,
        "slow: 100 ms; no finding explains it",
    )
    (speed,) = diagnosis.speeds
    assert speed.unexplained == 1.0
    assert speed.measure_next == ("nvidia-smi -q -d CLOCK", "one request alone")


def test_causes_stand_in_the_order_of_what_they_explain(rules: Rules) -> None:
    rules.add("little", FIRST, stage="host")
    rules.add("much", SECOND)
    rules.add("unbounded", "unknown")
    diagnosis = rules.diagnose({"step": 0.1, "cost": 0.01, "other_cost": 0.06})
    assert [finding.rule for finding in diagnosis.findings] == ["much", "unbounded", "little"]
    assert diagnosis.headline == "The much"
    (speed,) = diagnosis.speeds
    assert [(one.rule, one.share) for one in speed.explained] == [
        ("much", pytest.approx(0.75)), ("unbounded", None), ("little", pytest.approx(0.125)),
    ]  # fmt: skip
    assert speed.unexplained is None  # of what nobody can bound any part may be explained


def test_what_explains_less_than_a_tenth_is_no_headline(rules: Rules) -> None:
    rules.add("small", FIRST)
    diagnosis = rules.diagnose({"step": 0.1, "cost": 0.004})
    assert diagnosis.headline == "slow: 100 ms; what was found explains at most 5 %"
    assert diagnosis.verdict is Verdict.WARNING
    assert (found(diagnosis, "small").severity, found(diagnosis, "small").is_minor) == (Severity.WARNING, True)
    assert diagnosis.speeds[0].unexplained == pytest.approx(0.95)


def test_what_takes_no_two_hundredths_of_a_step_is_only_worth_knowing(rules: Rules) -> None:
    rules.add("tiny", FIRST)
    assert found(rules.diagnose({"step": 0.02, "cost": 0.0003}), "tiny").severity is Severity.INFO
    assert found(rules.diagnose({"step": 0.02, "cost": 0.001}), "tiny").severity is Severity.WARNING
    assert found(rules.diagnose({"step": UNKNOWN, "cost": 0.0003}), "tiny").severity is Severity.WARNING
    assert found(rules.diagnose({"step": 0.02, "cost": UNKNOWN}), "tiny").severity is Severity.WARNING


def test_a_queue_is_the_headline_of_a_server_whose_speed_is_as_expected(rules: Rules) -> None:
    rules.add("cap", None, stage="limit", gain=QUEUE)
    rules.add("path", FIRST)
    diagnosis = rules.diagnose({"step": 0.02, "growth": 3.0, "cost": 0.005})
    assert diagnosis.headline == "The cap"


def test_a_cause_of_the_missing_speed_comes_before_a_queue(rules: Rules) -> None:
    rules.add("cap", None, stage="limit", gain=QUEUE)
    rules.add("path", FIRST)
    assert rules.diagnose({"step": 0.2, "growth": 3.0, "cost": 0.1}).headline == "The path"


@pytest.mark.parametrize(("step", "headline"), [(0.035, "The cap"), (0.2, f"slow: 200 ms; {NOTHING}")])
def test_a_queue_is_outweighed_where_half_of_the_speed_is_missing(rules: Rules, step: float, headline: str) -> None:
    rules.add("cap", None, stage="limit", gain=QUEUE)
    assert rules.diagnose({"step": step, "growth": 3.0}).headline == headline


def test_a_critical_finding_comes_before_a_missing_speed(rules: Rules) -> None:
    rules.add("cap", None, stage="limit", severity="critical", gain=QUEUE)
    assert rules.diagnose({"step": 0.2, "growth": 3.0}).headline == "The cap"


def test_a_note_that_explains_most_of_what_is_missing_is_the_cause(rules: Rules) -> None:
    rules.add("fallback", FIRST, severity="info")
    little, most = rules.diagnose({"step": 0.2, "cost": 0.05}), rules.diagnose({"step": 0.2, "cost": 0.15})
    assert found(little, "fallback").severity is Severity.INFO
    assert found(most, "fallback").severity is Severity.WARNING
    assert (most.headline, most.verdict) == ("The fallback", Verdict.WARNING)
    assert most.states["fallback"] == "warning"


def test_a_note_of_unknown_cost_is_suspected_where_speed_is_missing(rules: Rules) -> None:
    rules.add("fallback", "unknown", severity="info")
    assert rules.diagnose({"step": 0.2}).headline == "slow: 200 ms; suspected: The fallback"
    assert rules.diagnose({"step": 0.02}).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ({"high": UNKNOWN}, Verdict.UNKNOWN),
        ({"high": UNKNOWN, "growth": 1.0}, Verdict.OK),  # it is known to cost nothing
        ({}, Verdict.OK),  # requests get the speed that is expected
    ],
)
def test_a_limit_that_is_reached_is_not_ok_where_the_speed_is_not_judged(
    rules: Rules, seen: Mapping[str, Reading | Value], verdict: Verdict
) -> None:
    rules.add("cap", None, stage="limit", severity="info", gain=QUEUE)
    diagnosis = rules.diagnose({"step": 0.02, "growth": 2.0, **seen})
    assert diagnosis.verdict is verdict
    assert diagnosis.headline.startswith("The cap") == (verdict is Verdict.UNKNOWN)


def test_an_ok_names_the_suspects_whose_cost_nobody_knows(rules: Rules) -> None:
    rules.add("fallback", "unknown", severity="info")
    assert rules.diagnose({"step": UNKNOWN}).headline.startswith("Nothing wrong found besides fallback, whose cost")


def test_below_a_twentieth_of_the_speed_no_flag_is_the_cause(rules: Rules) -> None:
    rules.add("flag", FIRST)
    rules.add("path", "unknown")
    diagnosis = rules.diagnose({"step": 1.0, "cost": 0.3})
    assert diagnosis.headline == "slow: 1 s; what path costs is not known"
    assert diagnosis.speeds[0].is_beyond_flags
    rules.add("swap", "unknown", stage="host")
    assert rules.diagnose({"step": 1.0, "cost": 0.3}).headline == "The swap"


def test_below_a_twentieth_a_cause_that_reaches_it_is_the_headline(rules: Rules) -> None:
    rules.add("offload", FIRST)
    assert rules.diagnose({"step": 1.0, "cost": 1.4}).headline == "The offload"
    assert rules.diagnose({"step": 1.0, "cost": 1.4}).speeds[0].unexplained == 0.0


def test_a_cause_explains_its_own_engine_only(rules: Rules) -> None:
    rules.add("path", FIRST)
    diagnosis = rules.diagnose({"step": 0.1, "cost": 0.06}, {"step": 0.02, "cost": 0.0001})
    slow, well = diagnosis.speeds
    assert [one.rule for one in slow.explained] == ["path"]
    assert (well.standing, well.explained) == (Standing.TYPICAL, ())
    assert diagnosis.headline == "The path"
