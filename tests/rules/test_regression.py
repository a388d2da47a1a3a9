"""The table of known faults: what is shipped, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from vllm_doctor.model.errors import DocumentError
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules import regression, rule_set
from vllm_doctor.rules.regression import Regression
from vllm_doctor.vllm import flags

SHIPPED = rule_set.load([])
SOURCE = """\
    sources:
      - url: https://github.com/vllm-project/vllm/issues/1
        says: it is slow
"""
ENTRY = (
    """\
regressions:
  - id: slow-0.17
    title: Something is slow
    since: 0.17.0
    until: 0.19.0
    when: model_type == 'gpt_oss' and gpu_capability == 9
    cause: PR 1
    effect: 8 % less throughput
    way:
      do: Set it
      env: {VLLM_USE_DEEP_GEMM: 0}
"""
    + SOURCE
)


IMPROVEMENT = (
    """\
improvements:
  - id: fast-0.19
    title: Something runs without its kernel
    since: 0.17.0
    until: 0.19.0
    when: model_type == 'gpt_oss' and gpu_capability == 9
    cause: PR 1
    effect: half of the throughput
    times: 2
    way:
      do: Set it
      env: {VLLM_USE_DEEP_GEMM: 0}
"""
    + SOURCE
)


def _loaded(text: str, folder: Path) -> list[Regression]:
    (folder / "regressions").mkdir(exist_ok=True)
    (folder / "regressions" / "mine.yaml").write_text(text, "utf-8")
    return regression.load([folder], SHIPPED.catalogue.signals)


def _refusal(text: str, old: str, new: str, folder: Path) -> str:
    """Why the entries are refused once this piece of their text is another."""
    assert old in text
    with pytest.raises(DocumentError) as refused:
        _loaded(text.replace(old, new), folder)
    return str(refused.value)


def _held(entry: Regression, **known: float | str) -> list[str]:
    def read(name: str) -> Reading:
        return Known(known[name], origin="") if name in known else Unknown(Reason.ABSENT)

    return [held for held in regression.HELD if entry.holding(held).judge(read)[0]]


def _number(version: str) -> float:
    number = flags.number(version)
    assert number is not None
    return number


@pytest.mark.parametrize("entry", [*SHIPPED.faults, *SHIPPED.improvements], ids=lambda entry: entry.id)
def test_an_entry_has_a_window_a_source_and_an_effect(entry: Regression) -> None:
    assert entry.is_in(entry.since)
    assert entry.is_in(entry.until or entry.since) is (not entry.until)
    assert entry.good is None or entry.is_in(entry.good) is False
    assert entry.sources
    assert all(source.says for source in entry.sources)
    assert entry.effect
    assert set(entry.when.names) <= set(SHIPPED.catalogue.signals)


def test_no_entry_speaks_of_a_server_of_which_only_the_release_is_known() -> None:
    for entry in (*SHIPPED.faults, *SHIPPED.improvements):
        assert _held(entry, vllm_number=_number(entry.since)) == [], entry.id


def test_certain_possible_and_not(tmp_path: Path) -> None:
    (entry,) = _loaded(ENTRY, tmp_path)
    inside = _number("0.18.0")
    assert _held(entry, vllm_number=inside, model_type="gpt_oss", gpu_capability=9.0) == ["certain"]
    assert _held(entry, vllm_number=inside, model_type="gpt_oss") == ["possible"]
    assert _held(entry, vllm_number=inside, model_type="gpt_oss", gpu_capability=8.0) == []
    assert _held(entry, vllm_number=_number("0.19.0"), model_type="gpt_oss", gpu_capability=9.0) == []
    assert _held(entry, vllm_number=_number("0.16.0"), model_type="gpt_oss", gpu_capability=9.0) == []
    assert _held(entry, model_type="gpt_oss", gpu_capability=9.0) == []


def test_what_no_signal_tells_makes_it_possible_only(tmp_path: Path) -> None:
    (entry,) = _loaded(ENTRY.replace("    effect:", "    also: the moon is full\n    effect:"), tmp_path)
    assert _held(entry, vllm_number=_number("0.18.0"), model_type="gpt_oss", gpu_capability=9.0) == ["possible"]


def test_what_has_no_cause_is_possible_only(tmp_path: Path) -> None:
    (entry,) = _loaded(ENTRY.replace("    cause: PR 1\n", ""), tmp_path)
    assert _held(entry, vllm_number=_number("0.18.0"), model_type="gpt_oss", gpu_capability=9.0) == ["possible"]
    assert not entry.can_be_certain


def test_the_end_of_a_window(tmp_path: Path) -> None:
    (entry,) = _loaded(ENTRY.replace("until: 0.19.0", "seen: 0.18.0"), tmp_path)
    assert [entry.is_in(version) for version in ("0.16.0", "0.17.0", "0.18.0", "0.19.0")] == [False, True, True, None]
    assert entry.is_in("nightly") is None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("since: 0.17.0", "since: 0.17.99", "no release"),
        ("since: 0.17.0", "since: 0.20.0", "not before its end"),
        ("until: 0.19.0", "until: 0.19.0\n    good: 0.18.0", "not before 'since'"),
        ("until: 0.19.0", "until: 0.19.0\n    seen: 0.18.0", "'seen' is for what has no 'until'"),
        ("gpu_capability ==", "no_such_signal ==", "no_such_signal"),
        ("== 9", "== 9 and", "invalid syntax"),
        ("VLLM_USE_DEEP_GEMM", "VLLM_NO_SUCH", "does not know VLLM_NO_SUCH"),
        ("env: {VLLM_USE_DEEP_GEMM: 0}", "set: {--no-such: 1}", "is no flag"),
        ("env: {VLLM_USE_DEEP_GEMM: 0}", "env: {X: [1]}", "must be a text or a number"),
        ("https://github.com/vllm-project/vllm/issues/1", "https://example.com/1", "no thread on GitHub"),
        (SOURCE, "", "source"),
        ("id: slow-0.17", "id: Slow!", "id is lower case"),
        ("title: Something", "titel: Something", "titel"),
        ("title: Something is slow", "title: Other\n    title: Something", ""),
        ("effect: 8 % less throughput", "effect: !!python/object/apply:os.system [ls]", ""),
    ],
)  # fmt: skip
def test_an_entry_that_is_refused(old: str, new: str, says: str, tmp_path: Path) -> None:
    refusal = _refusal(ENTRY, old, new, tmp_path)
    assert says in refusal
    assert "mine.yaml:" in refusal


def test_what_came_later_is_a_fault_of_all_before(tmp_path: Path) -> None:
    (entry,) = _loaded(IMPROVEMENT.replace("    since: 0.17.0\n", "").partition("    way:")[0] + SOURCE, tmp_path)
    assert entry.is_improvement
    assert (entry.severity, entry.times) == ("info", 2.0)
    assert [entry.is_in(version) for version in ("0.5.5", "0.18.1", "0.19.0", "0.33.0")] == [True, True, False, False]
    known: dict[str, float | str] = {"model_type": "gpt_oss", "gpu_capability": 9.0}
    assert _held(entry, vllm_number=_number("0.7.1"), **known) == ["certain"]
    assert _held(entry, vllm_number=_number("0.19.0"), **known) == []
    assert _held(entry, vllm_number=_number("0.18.0"), gpu_capability=9.0) == ["possible"]
    assert entry.says.endswith("half of the throughput; there from 0.19.0 on (vllm#1).")


def test_what_came_later_has_a_beginning_where_that_is_told(tmp_path: Path) -> None:
    (entry,) = _loaded(IMPROVEMENT, tmp_path)
    assert [entry.is_in(version) for version in ("0.16.0", "0.17.0", "0.19.0")] == [False, True, False]
    known: dict[str, float | str] = {"model_type": "gpt_oss", "gpu_capability": 9.0}
    assert _held(entry, vllm_number=_number("0.16.0"), **known) == []


@pytest.mark.parametrize("times", ["unknown", "2.5"])
def test_how_much_longer_a_token_takes(times: str, tmp_path: Path) -> None:
    (entry,) = _loaded(IMPROVEMENT.replace("times: 2", f"times: {times}"), tmp_path)
    assert entry.times == (math.inf if times == "unknown" else 2.5)
    (none,) = _loaded(IMPROVEMENT.replace("    times: 2\n", ""), tmp_path)
    assert none.times is None


def test_a_release_before_all_are_known_may_be_named(tmp_path: Path) -> None:
    (entry,) = _loaded(
        IMPROVEMENT.replace("0.17.0", "0.6.3").replace("0.19.0", "0.7.1").partition("    way:")[0] + SOURCE, tmp_path
    )
    assert (entry.is_in("0.6.2"), entry.is_in("0.7.0"), entry.is_in("0.7.1")) == (False, True, False)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("until: 0.19.0", "until: 0.19.99", "no release"),
        ("until: 0.19.0", "until: v0.7.1", "no release"),
        ("since: 0.17.0", "since: 0.19.0", "not before the release that brought it"),
        ("    until: 0.19.0\n", "", "until"),
        ("times: 2", "times: 1", "above 1"),
        ("times: 2", "times: true", "above 1"),
        ("times: 2", "severity: warning", "severity"),
        ("times: 2", "good: 0.16.0", "good"),
        ("since: 0.17.0\n    until: 0.19.0", "since: 0.7.0\n    until: 0.7.1", "nothing is known of the flags"),
        ("VLLM_USE_DEEP_GEMM", "VLLM_NO_SUCH", "does not know VLLM_NO_SUCH"),
        (SOURCE, "", "source"),
    ],
)  # fmt: skip
def test_what_came_later_that_is_refused(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert says in _refusal(IMPROVEMENT, old, new, tmp_path)


def test_an_id_stands_once(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="stands twice"):
        _loaded(ENTRY + ENTRY.partition("\n")[2], tmp_path)
