"""`vllm-doctor rules`: the list, a page, the lint; and rules of one's own, wherever rules judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_main import URL, Doctor, doctor, one_line, recorded
from tests.making import shipped_rules
from tests.serving import edited
from vllm_doctor.rules import rule

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
        cures = ["Cures"] if shipped.remedies else []  # a symptom has none: its cause has
        for part in ("When", *cures, "See", "Examples", *shipped.see):
            assert part in ran.out


def test_a_rule_that_is_nearly_one(doctor: Doctor) -> None:
    assert "no rule 'preemptions'; meant 'preemption'?" in one_line(doctor("rules", "preemptions"))
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
    assert (ran.code, ran.out, ran.err) == (0, "1 rules and 3 examples are well\n", "")


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
    told = one_line(doctor("rules", "--check", folder))
    assert f"{folder / 'my-rule.yaml'}:{line or ''}" in told
    assert said in told


@pytest.mark.parametrize("folder", ["", "scheduler"])
def test_the_shipped_rules_are_well(folder: str, doctor: Doctor) -> None:
    ran = doctor("rules", "--check", rule.shipped() / folder)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(" examples are well\n")


def test_a_rule_that_is_shipped_already(doctor: Doctor, tmp_path: Path) -> None:
    [source] = rule.shipped().rglob("preemption.yaml")
    folder = folder_of(tmp_path, source.read_text("utf-8"), "preemption.yaml")
    assert "rule 'preemption' is shipped already" in one_line(doctor("rules", "--check", folder))


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
