"""What a line of the log decides alone, as alerts of Loki: their expressions find the real lines, and are Go's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.promtool import promtool
from tests.test_fixtures import RULES, SIGNALS
from vllm_doctor.alerting import files as render
from vllm_doctor.alerting import log_alerts
from vllm_doctor.alerting.files import Choices
from vllm_doctor.alerting.log_alerts import LogAlert
from vllm_doctor.alerting.recording_rules import Recorder
from vllm_doctor.model.kinds import Severity
from vllm_doctor.prometheus.query import Scope
from vllm_doctor.rules import log_lines, rule

LINES = log_lines.load(rule.shipped() / log_lines.FOLDER)
ALERTS = {
    (alert.rule.id, alert.severity): alert
    for alert in log_alerts.of_rules(RULES, LINES, Recorder(SIGNALS, Scope(), {"goal": "throughput"}))
}
SELECTOR = '{app="vllm"}'


def patterns(alert: LogAlert) -> list[list[str]]:
    """The regular expressions of each of its queries; a line must have all of one."""
    (entry,) = yaml.safe_load(render.loki([alert], SELECTOR, Choices()))["groups"][0]["rules"]
    queries = entry["expr"].split("\nor ")
    return [[json.loads(text) for text in re.findall(r'\|~ ("(?:[^"\\]|\\.)*")', query)] for query in queries]


def fires(alert: LogAlert, line: str) -> bool:
    return any(all(re.search(text, line) for text in texts) for texts in patterns(alert))


def test_a_death_is_known_by_any_line_that_marks_one() -> None:
    alert = ALERTS["engine-died", Severity.WARNING]
    deaths = [line for line in LINES.lines.values() if line.marks == "died" and not line.is_last]
    assert len(deaths) > 5
    for line in deaths:
        assert fires(alert, line.example), line.id
    # Whether the last run ended so, the last minutes of a log do not tell.
    assert ("engine-died", "critical") not in ALERTS


@pytest.mark.parametrize("key", ALERTS)
def test_it_fires_on_the_real_lines_and_on_no_others(key: tuple[str, Severity]) -> None:
    alert = ALERTS[key]
    for line in alert.lines:
        assert fires(alert, line.example), line.id
    others = [line for line in LINES.lines.values() if line not in alert.lines]
    wrong = [line.id for line in others if fires(alert, line.example)]
    # Some lines are ends of others: then both are of the same event.
    assert [
        id for id in wrong if not {word for word in ("dead", "died", "failed") if word in LINES.lines[id].example}
    ] == []


@pytest.mark.parametrize("id", ["profiling-on", "hybrid-kv-off", "tp-spans-nodes", "env-unknown", "worker-stuck"])
def test_what_needs_more_than_a_line_is_no_alert(id: str) -> None:
    """Two counts, a metric besides, a fact that only another line tells; and what is only worth knowing."""
    assert id not in {rule for rule, _ in ALERTS}


def test_every_regular_expression_is_one_of_go(tmp_path: Path) -> None:
    """Loki and Prometheus read them alike: promtool refuses what RE2 lacks."""

    def checked(texts: list[str]) -> int:
        rules = [{"record": f"x{n}", "expr": f"y{{z=~{json.dumps(text)}}}"} for n, text in enumerate(texts)]
        (tmp_path / "patterns.yaml").write_text(yaml.safe_dump({"groups": [{"name": "patterns", "rules": rules}]}))
        return promtool("check", "rules", "patterns.yaml", cwd=tmp_path).returncode

    assert checked([text for alert in ALERTS.values() for texts in patterns(alert) for text in texts]) == 0
    assert checked(["(?=RE2 has no such thing)"]) != 0
