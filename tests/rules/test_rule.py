from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.making import reads, shipped_catalogue, shipped_rules
from vllm_doctor.model.errors import DocumentError, UsageError
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules import rule
from vllm_doctor.rules.rule import Rule

RULE = """\
rule: slow-queue
title: Requests wait
stage: limit
role: root
why: Because.
here:
  - "{requests_waiting} wait."
applies: engines > 1
when:
  critical: queue_per_running > 5
  warning: queue_per_running > 1
explains: [client-limited]
threshold_from: measured
remedies:
  - do: Admit more
    if: kv_cache_usage < 0.8
    set: {--max-num-seqs: "{requests_that_fit}"}
    unset: [--num-gpu-blocks-override]
    computed: "{kv_cache_size} tokens"
    cost: restart
    risk: none
    expect: less waiting
    gain: {at_most: recompute_factor, basis: "measured"}
see:
  - https://docs.vllm.ai/
examples:
  - {engines: 2, queue_per_running: 6, gives: critical}
  - {engines: 2, queue_per_running: 2, gives: warning}
  - {engines: 2, queue_per_running: 0, gives: ok}
  - {engines: 1, queue_per_running: 9, gives: not-applicable}
  - {engines: 2, gives: unknown}
"""


def written(folder: Path, text: str = RULE, name: str = "slow-queue") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text, "utf-8")
    return path


def read(folder: Path, text: str = RULE) -> Rule:
    return rule.read(written(folder, text), shipped_catalogue())


def edited(old: str, new: str) -> tuple[str, int]:
    """RULE with a part replaced, and the line in which it stands."""
    assert RULE.count(old) == 1, old
    return RULE.replace(old, new), RULE[: RULE.index(old)].count("\n") + 1


# ---- the shipped rules


@pytest.mark.parametrize("shipped", shipped_rules(), ids=lambda shipped: str(shipped.id))
def test_a_shipped_rule(shipped: Rule) -> None:
    assert rule.check_examples(shipped, shipped_catalogue()) >= 3
    assert shipped.id == shipped.table.path.stem
    assert re.fullmatch(rule.ID, shipped.id)
    assert shipped.status in ("experimental", "stable")
    assert shipped.see
    assert all(url.startswith("https://") for url in shipped.see)
    assert set(shipped.explains) <= {other.id for other in shipped_rules()} - {shipped.id}


# ---- reading


def test_a_rule_is_read_whole(tmp_path: Path) -> None:
    found = read(tmp_path / "scheduler")
    assert (found.id, found.group, found.status, found.confidence) == (
        "slow-queue", "scheduler", "experimental", "medium",
    )  # fmt: skip
    assert list(found.when) == ["critical", "warning"]
    assert found.signals() == ("engines", "queue_per_running")
    assert rule.check_examples(found, shipped_catalogue()) == 5


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param("rule: slow-queue", "rule: Slow_Queue", "a rule's id is lower case words", id="id"),
        pytest.param("rule: slow-queue", "rule: slow-queues", "the rule's id 'slow-queues' is not the", id="file name"),
        pytest.param("title: Requests wait", "titel: Requests wait", "unknown key 'titel'; meant", id="unknown key"),
        pytest.param("title: Requests wait", "title: 5", "'title' must be a text", id="no text"),
        pytest.param("stage: limit", "stage: end", "'stage' must be one of", id="stage"),
        pytest.param("role: root", "role: cause", "'role' must be one of", id="role"),
        pytest.param("threshold_from: measured", "threshold_from: gut", "'threshold_from' must be", id="origin"),
        pytest.param("  critical: q", "  fatal: q", "unknown key 'fatal'", id="unknown severity"),
        pytest.param("  critical: queue_per_running > 5", "  critical: queue > 5", "'queue' is not a", id="signal"),
        pytest.param("  critical: queue_per_running > 5", "  critical: open('x') > 5", "compare a signal", id="call"),
        pytest.param("  critical: queue_per_running > 5", "  critical: queue_per_running >", "", id="half"),
        pytest.param("applies: engines > 1", "applies: motors > 1", "'motors' is not a signal", id="applies"),
        pytest.param("    if: kv_cache_usage < 0.8", "    if: kv_usage < 0.8", "'kv_usage' is not a signal", id="if"),
        pytest.param("    set: {--max-num-seqs: ", "    set: {max-num-seqs: ", "'max-num-seqs' is not a", id="no --"),
        pytest.param("    set: {--max-num-seqs: ", "    set: {--max-nun-seqs: ", "--max-nun-seqs is a flag", id="flag"),
        pytest.param("    unset: [--num-gpu-b", "    unset: [--num-gpus-b", "--num-gpus-blocks-over", id="unset"),
        pytest.param('"{requests_that_fit}"', '"{what_fits}"', "{what_fits} is not a signal", id="value"),
        pytest.param('"{requests_that_fit}"', "[1]", "the value of --max-num-seqs must be", id="a list as value"),
        pytest.param('"{kv_cache_size} tokens"', '"{kv_pool} tokens"', "{kv_pool} is not a signal", id="computed"),
        pytest.param('"{kv_cache_size} tokens"', '"see: vllm-doctor flags {vllm_version}"', "a command with", id="see"),
        pytest.param(
            "    risk: none", "    run: [\"x '{vllm_version}'\"]", "{vllm_version} stands within", id="quotes"
        ),
        pytest.param("  - do: Admit more", "  - do: Admit {engines} more", "what to do is the same", id="do"),
        pytest.param("    cost: restart", "    cost: high", "'cost' must be one of", id="cost"),
        pytest.param("    gain: {at_most: recompute", "    gain: {at_most: re", "'re_factor' is not a", id="gain"),
        pytest.param("    gain: {at_most: ", "    gain: {most: ", "unknown key 'most'", id="gain's key"),
        pytest.param("threshold_from: measured", "gain: much", "'gain' must be a", id="gain"),
        pytest.param(
            '    gain: {at_most: recompute_factor, basis: "measured"}',
            "    goal: speed",
            "'goal' must be one of",
            id="goal",
        ),
        pytest.param("    risk: none", '    then: ["{x}"]', "{x} is not a signal", id="then"),
        pytest.param("explains: [client-limited]", "explains: client-limited", "'explains' must be a list", id="text"),
    ],
)
def test_a_mistake_is_told_with_file_and_line(old: str, new: str, says: str, tmp_path: Path) -> None:
    text, line = edited(old, new)
    path = written(tmp_path, text)
    with pytest.raises(DocumentError) as refused:
        rule.read(path, shipped_catalogue())
    assert str(refused.value).startswith(f"{path}:{line}: {says}")


def test_an_unknown_placeholder_in_a_sentence_is_told(tmp_path: Path) -> None:
    text, line = edited("{requests_waiting} wait", "{waiting} wait")
    path = written(tmp_path, text)
    with pytest.raises(DocumentError) as refused:
        rule.read(path, shipped_catalogue())
    assert str(refused.value).startswith(f"{path}:{line - 1}: {{waiting}} is not a signal")  # under `here:`


@pytest.mark.parametrize("lacks", ["rule", "title", "stage", "role", "why", "threshold_from"])
def test_what_a_rule_must_have(lacks: str, tmp_path: Path) -> None:
    text = "\n".join(line for line in RULE.splitlines() if not line.startswith(f"{lacks}:"))
    with pytest.raises(DocumentError, match=rf"slow-queue\.yaml:1: '{lacks}' must be"):
        read(tmp_path, text)


def test_a_rule_must_have_a_condition(tmp_path: Path) -> None:
    text = "\n".join(line for line in RULE.splitlines() if not line.startswith(("  critical", "  warning")))
    with pytest.raises(DocumentError, match=r"slow-queue\.yaml:9: 'when' needs a condition"):
        read(tmp_path, text)


# ---- a folder of rules


def test_rules_are_found_in_folders_of_folders_and_ordered_by_id(tmp_path: Path) -> None:
    written(tmp_path / "b" / "c", RULE)
    written(tmp_path / "z", RULE.replace("slow-queue", "a-queue"), "a-queue")
    found = rule.load([tmp_path], shipped_catalogue())
    assert [(r.id, r.group) for r in found] == [("a-queue", "z"), ("slow-queue", "c")]


def test_a_rule_may_not_stand_twice(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a"), written(tmp_path / "b")
    with pytest.raises(DocumentError) as refused:
        rule.load([tmp_path / "a", tmp_path / "b"], shipped_catalogue())
    assert str(refused.value).startswith(f"{second}:1: rule 'slow-queue' stands twice (first in {first})")


def test_rules_may_not_explain_each_other_in_a_circle(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        text = RULE.replace("rule: slow-queue", f"rule: {name}").replace("[client-limited]", f"[{other}]")
        written(tmp_path, text, name)
    with pytest.raises(DocumentError, match=r"a\.yaml:12: rules explain each other in a circle: a -> b -> c -> a$"):
        rule.load([tmp_path], shipped_catalogue())


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder of rules"):
        rule.load([tmp_path / "none"], shipped_catalogue())


# ---- judging


@pytest.mark.parametrize(
    ("values", "state"),
    [
        pytest.param({"engines": 2.0, "queue_per_running": 6.0}, "critical", id="the highest that holds"),
        pytest.param({"engines": 2.0, "queue_per_running": 2.0}, "warning", id="the next"),
        pytest.param({"engines": 2.0, "queue_per_running": 1.0}, "ok", id="none holds"),
        pytest.param({"engines": 2.0}, "unknown", id="none is known"),
        pytest.param({"engines": 1.0}, "not-applicable", id="does not apply, and needs no more"),
        pytest.param({"queue_per_running": 6.0}, "unknown", id="perhaps applies"),
    ],
)
def test_judge(values: dict[str, Value], state: str, tmp_path: Path) -> None:
    assert read(tmp_path).judge(reads(**values)).state == state


@pytest.mark.parametrize(
    ("values", "state", "because"),
    [
        pytest.param(
            {"engines": 2.0, "queue_per_running": Unknown(Reason.FIRST_SCRAPE)},
            "unknown",
            {"queue_per_running": Reason.FIRST_SCRAPE},
            id="why",
        ),
        pytest.param({"engines": Unknown(Reason.DENIED)}, "unknown", {"engines": Reason.DENIED}, id="why of applies"),
        pytest.param({"engines": 2.0, "queue_per_running": 1.0}, "ok", {}, id="known"),
    ],
)
def test_unknown_says_which_signal_and_why(
    values: dict[str, Reading | Value], state: str, because: dict[str, Reason], tmp_path: Path
) -> None:
    outcome = read(tmp_path).judge(reads(**values))
    assert (outcome.state, dict(outcome.because)) == (state, because)


def test_unknown_names_the_right_side_with_its_own_reason(tmp_path: Path) -> None:
    text, _ = edited("critical: queue_per_running > 5", "critical: ttft_p99 > slo_ttft")
    outcome = read(tmp_path, text).judge(
        reads(engines=2.0, queue_per_running=0.0, ttft_p99=1.0, slo_ttft=Unknown(Reason.NOT_GIVEN))
    )
    assert (outcome.state, outcome.because) == ("unknown", (("slo_ttft", Reason.NOT_GIVEN),))


@pytest.mark.parametrize(
    ("usage", "waiting", "state"),
    [
        pytest.param(0.9, Unknown(Reason.IDLE), "warning", id="critical unknown, warning holds"),
        pytest.param(0.1, Unknown(Reason.IDLE), "unknown", id="critical unknown, warning does not hold"),
        pytest.param(Unknown(Reason.IDLE), 0.0, "unknown", id="critical does not hold, warning unknown"),
        pytest.param(Unknown(Reason.IDLE), 9.0, "critical", id="critical holds, warning unknown"),
    ],
)
def test_what_is_known_is_not_held_back_by_what_is_not(
    usage: Reading | Value, waiting: Reading | Value, state: str, tmp_path: Path
) -> None:
    text = (
        RULE.replace("critical: queue_per_running > 5", "critical: requests_waiting > 5")
        .replace("warning: queue_per_running > 1", "warning: kv_cache_usage > 0.8")
        .replace("applies: engines > 1\n", "")
    )
    assert read(tmp_path, text).judge(reads(kv_cache_usage=usage, requests_waiting=waiting)).state == state


def test_evidence_is_only_what_holds(tmp_path: Path) -> None:
    text, _ = edited("warning: queue_per_running > 1", "warning: queue_per_running > 1 or kv_cache_usage > 0.5")
    outcome = read(tmp_path, text).judge(reads(engines=2.0, queue_per_running=2.0, kv_cache_usage=0.1))
    assert [(c.signal, c.is_, c.than) for c in outcome.evidence] == [("queue_per_running", ">", Known(1.0))]


# ---- a rule's own examples


def test_an_example_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    text, line = edited("queue_per_running: 2, gives: warning", "queue_per_running: 2, gives: critical")
    with pytest.raises(DocumentError, match=rf":{line}: the example gives warning, not critical"):
        rule.check_examples(read(tmp_path, text), shipped_catalogue())


@pytest.mark.parametrize("gives", ["critical", "warning", "ok", "unknown"])
def test_an_example_of_each_state_must_be_there(gives: str, tmp_path: Path) -> None:
    text = "\n".join(line for line in RULE.splitlines() if f"gives: {gives}" not in line)
    with pytest.raises(DocumentError, match=rf"slow-queue\.yaml:26: an example with gives: {gives} is missing"):
        rule.check_examples(read(tmp_path, text), shipped_catalogue())


@pytest.mark.parametrize("given", ["[1]", "[1, x]", "[1, true]", "[]", "[1, 2, 3]", "[[1, 2], 3]", "{a: 1}", "null"])
def test_an_example_gives_values_or_bounds_only(given: str, tmp_path: Path) -> None:
    text, line = edited("queue_per_running: 2, gives: warning", f"queue_per_running: {given}, gives: warning")
    with pytest.raises(DocumentError, match=rf":{line}: 'queue_per_running' must be a number, a text, true, false, or"):
        rule.check_examples(read(tmp_path, text), shipped_catalogue())


def test_an_example_names_signals_only(tmp_path: Path) -> None:
    text, line = edited("engines: 1, queue_per_running: 9", "engines: 1, queue: 9")
    with pytest.raises(DocumentError, match=rf":{line}: 'queue' is not a signal"):
        rule.check_examples(read(tmp_path, text), shipped_catalogue())


@pytest.mark.parametrize(
    ("bounds", "gives"), [("[1, 2]", "warning"), ("[0.5, 2]", "unknown"), ("[0.5, 1]", "ok"), ("[5, 9]", "critical")]
)
def test_an_example_may_give_the_bounds_of_a_quantile(bounds: str, gives: str, tmp_path: Path) -> None:
    text, _ = edited(
        "queue_per_running: 2, gives: warning",
        f"queue_per_running: {bounds}, gives: {gives}}}\n  - {{engines: 2, queue_per_running: 2, gives: warning",
    )
    assert rule.check_examples(read(tmp_path, text), shipped_catalogue()) == 6


def test_rules_have_a_name_that_follows_their_texts(tmp_path: Path) -> None:
    def folder(name: str, **files: str) -> Path:
        (tmp_path / name / "x").mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / name / "x" / f"{file}.yaml").write_text(text)
        return tmp_path / name

    first = rule.version([folder("a", one="1", two="2")])
    assert len(first) == 12
    assert rule.version([folder("b", two="2", one="1")]) == first
    assert rule.version([folder("c", one="1", two="3")]) != first
    assert rule.version([folder("d", one="12", two="")]) != first
    assert rule.version([rule.shipped()]) == rule.version([rule.shipped()])
