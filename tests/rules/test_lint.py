"""The check of a folder: every mistake at once, and what a definition names that nobody has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.test_rule import RULE, written
from vllm_doctor.rules import folders, lint, skeleton

LINE = """\
lines:
  slow-thing:
    find: "The thing is slow: "
    match: 'The thing is slow: (?P<kind>\\w+), (?P<seconds>[\\d.]+) s'
    once: run
    example: "WARNING 11-20 10:00:00 [thing.py:12] The thing is slow: big, 4.5 s"
    gives: {kind: big, seconds: 4.5}
"""


def check(folder: Path, **files: str) -> list[str]:
    """What is said of these files, without the folder: `signals` is signals.yaml, log_lines log-lines/mine.yaml."""
    for name, text in files.items():
        path = folder / ("log-lines/mine.yaml" if name == "log_lines" else f"{name.replace('_', '-')}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return [line.removeprefix(f"{folder}/") for line in lint.check(folder)[0]]


def signal(text: str) -> str:
    if text.startswith("promql: "):
        text = f"promql: '{text.removeprefix('promql: ')}'"
    return f"signals:\n  mine: {{says: mine, unit: s, {text}}}\n"


def test_what_is_shipped_is_well() -> None:
    mistakes, counted = lint.check(folders.shipped())
    assert mistakes == []
    assert counted.endswith(" log lines")


def test_every_mistake_is_reported_in_one_run(tmp_path: Path) -> None:
    text = (
        RULE.replace("title: Requests wait", "titel: Requests wait")
        .replace("stage: limit", "stage: end")
        .replace("critical: queue_per_running > 5", "critical: queue > 5 and motors > 1")
        .replace("cost: restart", "cost: high")
        .replace("--max-num-seqs", "--max-nun-seqs")
        .replace("{engines: 2, gives: unknown}", "{motors: 2, gives: unknown}")
    )
    found = check(
        tmp_path,
        slow_queue=text,
        signals=signal("promql: sum by ($engine) (vllm:nope)"),
        log_lines=LINE.replace("once: run", "once: never").replace("seconds: 4.5}", "second: 4.5}"),
    )
    assert [line.partition(": ")[0] for line in found] == [
        "log-lines/mine.yaml:5", "log-lines/mine.yaml:7", "signals.yaml:2",
        *(f"slow-queue.yaml:{number}" for number in (2, 3, 10, 10, 17, 20, 31)),
    ]  # fmt: skip
    assert found[3].endswith("unknown key 'titel'; meant 'title'?")
    assert [line.partition(": ")[2][:21] for line in found[5:7]] == ["'queue' is not a sign", "'motors' is not a sig"]


def test_a_mistake_has_no_consequences(tmp_path: Path) -> None:
    assert check(tmp_path, slow_queue=RULE.replace("rule: slow-queue", "rule: 5")) == [
        "slow-queue.yaml:1: 'rule' must be a text"
    ]
    found = check(tmp_path, slow_queue=RULE, signals=signal("flag: 5"))
    assert found == ["signals.yaml:2: 'flag' must be a text"]
    found = check(tmp_path, signals=signal("formula: nobody + 1") + "  other: {says: o, unit: s, formula: mine * 2}\n")
    assert found == ["signals.yaml:2: formula of 'mine' uses 'nobody', which is no signal"]


def test_what_is_no_yaml_does_not_hide_the_rest(tmp_path: Path) -> None:
    written(tmp_path, RULE.replace("stage: limit", "stage: [limit"), "broken")
    written(tmp_path, RULE.replace("title: Requests wait", "title: a\ntitle: b").replace("role: root", "role: &x root"))
    found = check(tmp_path, signals=signal("fact: !!python/name:os.system x").replace("fact", "fact"))
    assert [line.partition(": ")[0] for line in found] == ["broken.yaml:4", "signals.yaml:2", "slow-queue.yaml:3"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            "promql: sum by ($engine) (rate(vllm:corrupted_requests_totl[$window]))",
            "no vLLM has a metric vllm:corrupted_requests_totl; did you mean vllm:corrupted_requests_total?",
            id="metric",
        ),
        pytest.param("info: 'vllm:cache_config_inf{block_size}'", "did you mean vllm:cache_config_info?", id="info"),
        pytest.param("present: ['vllm:lora_requests_inf']", "did you mean vllm:lora_requests_info?", id="present"),
        pytest.param("from: [{info: 'vllm:x{y}'}, '1']", "no vLLM has a metric vllm:x ", id="a way"),
        pytest.param("promql: sum by ($engine) (vllm:prompt_tokens)", "mean vllm:prompt_tokens_total?", id="_total"),
        pytest.param("promql: sum by ($engine) (other_metric)", "no vLLM has a metric other_metric", id="of others"),
        pytest.param(
            "promql: sum by ($engine) (rate(vllm:prompt_tokens_total[5m]))",
            "a fixed range, [5m]: write [$window]",
            id="range",
        ),
        pytest.param(
            "promql: rate(vllm:prompt_tokens_total[$window])", "vllm:prompt_tokens_total is not aggregated", id="bare"
        ),
        pytest.param(
            "promql: sum by (engine) (vllm:num_requests_running)", "aggregated by (engine): write by ($engine)", id="by"
        ),
        pytest.param(
            "log: slow-thing.knd", "log line slow-thing: 'knd' is no value of the line; meant 'kind'?", id="v"
        ),
        pytest.param("log: slow-thin", "no log line 'slow-thin'; did you mean 'slow-thing'?", id="line"),
    ],
)
def test_what_nobody_has(text: str, says: str, tmp_path: Path) -> None:
    (found,) = check(tmp_path, signals=signal(text), log_lines=LINE)
    assert found.startswith("signals.yaml:2: ")
    assert says in found


@pytest.mark.parametrize(
    "text",
    [
        "promql: sum by ($engine, le) (rate(vllm:time_to_first_token_seconds_bucket[$window]))",
        "promql: sum(rate(process_cpu_seconds_total[$window]))",
        'promql: sum(rate(http_requests_total{status=~"[45].."}[$window]))',
        "promql: max by ($model) (vllm:of_my_fork)",
        "log: slow-thing.kind",
        "log: slow-thing@serving",
        "from: [{log: slow-thing.seconds}, '1']",
    ],
)
def test_what_is_there(text: str, tmp_path: Path) -> None:
    assert check(tmp_path, signals="known_metrics: ['vllm:of_my_fork']\n" + signal(text), log_lines=LINE) == []


def test_a_sample_of_a_log_line_is_a_metric(tmp_path: Path) -> None:
    text = LINE + "    samples:\n      vllm:prompt_tokns_total: {of: seconds, as: total}\n"
    (found,) = check(tmp_path, log_lines=text)
    assert "did you mean vllm:prompt_tokens_total?" in found


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("match: 'The thing", "match: '(The thing", "'match' is no regular expression: missing )"),
        ("match: 'The thing is slow", "match: 'Some thing is slow", "'match' does not match the example's message"),
        ('find: "The thing is slow: "', 'find: "The other thing"', "the example holds none of the texts under"),
        ("kind: big", "kind: small", "the example gives kind 'big', not 'small'"),
        ('"WARNING 11-20', '"At 11-20', "the example must be a whole line"),
        ("once: run", "once: run\n    since: soon", "'since' must be a release of vLLM"),
        ("once: run", "once: run\n    complete: size", "'size' is no value of the line"),
        ("once: run", "once: run\n    fields: {size: thing}", "'size' needs a group"),
        ("slow-thing:", "engine-config:", "the line 'engine-config' stands twice (first in "),
        ("slow-thing:", "Slow_Thing:", "a line's id is lower case words"),
    ],
)
def test_a_log_line_that_is_not_well(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert LINE.count(old) == 1
    (found,) = check(tmp_path, log_lines=LINE.replace(old, new))
    assert found.partition(": ")[2].startswith(says)


def test_a_name_that_is_shipped_is_told_with_both_places(tmp_path: Path) -> None:
    (found,) = check(tmp_path, signals=signal("fact: x").replace("mine:", "requests_running:"))
    assert found.startswith("signals.yaml:2: signal 'requests_running' stands twice (first in ")
    assert str(folders.shipped()) in found


def test_a_rule_that_explains_nobody(tmp_path: Path) -> None:
    (found,) = check(tmp_path, slow_queue=RULE.replace("[client-limited]", "[client-limitd]"))
    assert found == "slow-queue.yaml:12: no rule 'client-limitd'; did you mean 'client-limited'?"


def test_a_skeleton_says_what_is_to_be_filled_in(tmp_path: Path) -> None:
    path = skeleton.write("my-rule", tmp_path)
    mistakes, _ = lint.check(tmp_path)
    lines = path.read_text("utf-8").splitlines()
    named = [lines[int(line.split(":")[1]) - 1].strip(" -").partition(":")[0] for line in mistakes]
    assert named == [
        "title", "stage", "role", "why", "here", "warning", "threshold_from", "do", "cost", "risk", "expect", "see",
        "examples",
    ]  # fmt: skip
