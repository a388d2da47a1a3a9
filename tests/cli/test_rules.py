"""`vllm-doctor rules`: the list, a page, the lint; and rules of one's own, wherever rules judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_main import URL, Doctor, doctor, one_line, recorded
from tests.making import shipped_rules
from tests.serving import edited
from tests.sources.log.test_runs import busy, record, start, written
from vllm_doctor.rules import folders, rule

__all__ = ["doctor"]


def test_the_list_of_rules(doctor: Doctor) -> None:
    ran = doctor("rules")
    assert (ran.code, ran.err) == (0, "")
    for shipped in shipped_rules():
        assert f"\n  {shipped.id} " in ran.out
    assert f"\n{len(shipped_rules())} rules; " in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_the_page_of_each_rule(doctor: Doctor) -> None:
    for shipped in shipped_rules():
        ran = doctor("rules", shipped.id)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith(f"{shipped.title}\n")
        cures = ["Fixes"] if shipped.remedies else []  # a symptom has none: its cause has
        for part in ("When", *cures, "See", "Examples", *shipped.see):
            assert part in ran.out


def test_a_rule_that_is_nearly_one(doctor: Doctor) -> None:
    assert "no rule 'preemptions'; did you mean 'preemption'?" in one_line(doctor("rules", "preemptions"))
    assert "the list: vllm-doctor rules" in one_line(doctor("rules", "xyz"))


def test_the_list_of_signals(doctor: Doctor) -> None:
    ran = doctor("rules", "--signals")
    assert (ran.code, ran.err) == (0, "")
    assert "requests_running  [requests]\n" in ran.out
    assert "promql: sum by ($engine) (rate(vllm:num_preemptions_total[$window]))" in ran.out


MINE = """\
rule: my-rule
title: Something of mine
stage: limit
role: root
why: Because.
when:
  critical: requests_running > 10
threshold_from: heuristic
remedies:
  - {do: Less, set: {--max-num-seqs: 8}, cost: restart, risk: none, expect: less}
see: [https://example.com/]
examples:
  - {requests_running: 11, gives: critical}
  - {requests_running: 1, gives: ok}
  - {requests_waiting: 1, gives: unknown}
"""


def folder_of(tmp_path: Path, text: str = MINE, name: str = "my-rule.yaml") -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name).write_text(text, "utf-8")
    return folder


def test_a_folder_of_good_rules(doctor: Doctor, tmp_path: Path) -> None:
    ran = doctor("rules", "--check", folder_of(tmp_path))
    assert (ran.code, ran.out, ran.err) == (0, "1 rule and 3 examples pass\n", "")


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("stage: limit", "stages: limit", 3, "unknown key 'stages'"),
        ("stage: limit", "stage: end", 3, "'stage' must be one of"),
        ("requests_running > 10", "requests_runing > 10", 7, "'requests_runing' is not a signal"),
        ("requests_running > 10", "requests_running >", 7, ""),
        ("gives: ok", "gives: critical", 14, "the example gives ok, not critical"),
        ("  - {requests_waiting: 1, gives: unknown}\n", "", 12, "an example with gives: unknown is missing"),
        ("rule: my-rule", "rule: other-rule", 1, "is not the file's name"),
        ("title: Something", "title: a\ntitle: b", 3, "stands twice"),
        ("why: Because.", "why: [", None, ""),
        ("--max-num-seqs", "--max-number-seqs", 10, "is a flag of no vLLM"),
    ],
)
def test_a_folder_of_bad_rules(old: str, new: str, line: int | None, said: str, doctor: Doctor, tmp_path: Path) -> None:
    [text] = edited([MINE], (old, new))
    folder = folder_of(tmp_path, text)
    ran = doctor("rules", "--check", folder)
    assert one_line(ran).startswith(f"vllm-doctor: 1 mistake in {folder} (")
    assert ran.out.startswith(f"{folder / 'my-rule.yaml'}:{line or ''}")
    assert ran.out.count("\n") == 1
    assert said in ran.out


def test_every_mistake_of_a_folder_is_a_line(doctor: Doctor, tmp_path: Path) -> None:
    [text] = edited([MINE], ("stage: limit", "stage: end"), ("title: Something", "titel: Something"))
    folder = folder_of(tmp_path, text)
    ran = doctor("rules", "--check", folder)
    assert one_line(ran) == f"vllm-doctor: 2 mistakes in {folder} (1 rule and 3 examples)\n"
    assert [line.split(":")[1] for line in ran.out.splitlines()] == ["2", "3"]


def test_a_folder_that_is_not_there_is_told(doctor: Doctor, tmp_path: Path) -> None:
    assert "no such folder of rules" in one_line(doctor("rules", "--check", tmp_path / "none"))


@pytest.mark.parametrize("folder", ["", "scheduler"])
def test_the_shipped_rules_are_well(folder: str, doctor: Doctor) -> None:
    ran = doctor("rules", "--check", rule.shipped() / folder)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(" pass\n")


def test_a_rule_that_is_shipped_already(doctor: Doctor, tmp_path: Path) -> None:
    [source] = [path for path in folders.rules(rule.shipped()) if path.name == "preemption.yaml"]
    folder = folder_of(tmp_path, source.read_text("utf-8"), "preemption.yaml")
    ran = doctor("rules", "--check", folder)
    assert ran.code == 3
    assert ran.out.startswith(f"{folder / 'preemption.yaml'}:1: rule 'preemption' is shipped already ({source}): ")


def test_a_rule_is_begun(doctor: Doctor, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    ran = doctor("rules", "--new", "my-rule", "-o", folder)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{folder / 'my-rule.yaml'}: ")
    checked = doctor("rules", "--check", folder)
    assert checked.code == 3
    assert f"{folder / 'my-rule.yaml'}:4: 'title' must be a text\n" in checked.out
    before = (folder / "my-rule.yaml").read_text("utf-8")
    assert "is there already" in one_line(doctor("rules", "--new", "my-rule", "-o", folder))
    assert (folder / "my-rule.yaml").read_text("utf-8") == before
    assert "lower case words" in one_line(doctor("rules", "--new", "../x", "-o", folder))


def test_the_schemas_are_where_it_says(doctor: Doctor) -> None:
    for line in doctor("rules", "--schemas").out.splitlines():
        assert json.loads(Path(line.split()[1]).read_text("utf-8"))["type"] == "object"


OWN = {
    "signals.yaml": "signals:\n  slow_things: {says: slow things, unit: '', log: slow-thing}\n",
    "log-lines/things.yaml": (
        "lines:\n  slow-thing:\n    find: 'The thing is slow: '\n    match: 'The thing is slow: (?P<kind>\\w+)'\n"
        "    once: run\n    example: 'WARNING 11-20 10:00:00 [thing.py:12] The thing is slow: big'\n"
    ),
    "my-rule.yaml": MINE.replace("requests_running", "slow_things").replace("> 10", "> 0").replace(": 1,", ": 0,", 1),
    "overrides.yaml": "overrides:\n  my-rule: {severity: {critical: warning}, because: it is small}\n",
}


def test_signals_log_lines_and_overrides_of_ones_own(doctor: Doctor, tmp_path: Path) -> None:
    for name, text in OWN.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text, "utf-8")
    log = written(
        tmp_path / "vllm.log", [*start(0), record(50, "The thing is slow: big", level="WARNING"), *busy(60, 90)]
    )
    folder = tmp_path / "mine"
    ran = doctor("rules", "--check", folder)
    assert (ran.code, ran.out) == (0, "1 rule and 3 examples, 1 signal, 1 log line, 1 override pass\n")
    report = doctor(log, "--rules", folder, "--json").report
    (mine,) = [finding for finding in report["findings"] if finding["rule"] == "my-rule"]
    assert mine["severity"] == "warning"
    assert mine["here"].endswith(f"This rule is changed by {folder / 'overrides.yaml'}:2 (it is small).")
    assert "changed by" in doctor("rules", "my-rule", "--rules", folder).out
    (folder / "overrides.yaml").write_text("overrides: {my-rule: {skip: true}}\n")
    report = doctor(log, "--rules", folder, "--json").report
    assert "my-rule" not in [finding["rule"] for finding in report["findings"]]


@pytest.mark.usefixtures("hurried")
def test_rules_of_ones_own(doctor: Doctor, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    with recorded("healthy-busy") as server:
        ran = doctor(server.url, "--rules", folder, "--json")
    assert ran.code == 2
    assert [finding["rule"] for finding in ran.report["findings"]] == ["my-rule"]
    assert "my-rule" in doctor("rules", "--rules", folder).out
    assert doctor("rules", "my-rule", "--rules", folder).out.startswith("Something of mine\n")


def test_rules_of_ones_own_that_are_bad(doctor: Doctor, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, MINE.replace("requests_running > 10", "os.system > 10"))
    ran = doctor(URL, "--rules", folder, "--json")
    assert f"{folder / 'my-rule.yaml'}:7: " in one_line(ran)
    assert ran.report["error"]["kind"] == "usage"
