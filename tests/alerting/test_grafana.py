"""The dashboard: a panel a vital sign, with queries that Prometheus takes, and the rules' thresholds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.promtool import promtool
from tests.test_fixtures import RULES, SIGNALS
from vllm_doctor.alerting import grafana
from vllm_doctor.prometheus.query import Scope

DASHBOARD: dict[str, Any] = json.loads(grafana.render(SIGNALS, RULES, Scope()))


def queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_each_vital_sign_of_prometheus_is_a_panel() -> None:
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    for signal in SIGNALS.signals.values():
        if signal.vital and signal.way == "promql":
            assert any(title.startswith(signal.says) for title in titles), signal.name
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]}
    assert len(places) == len(titles)


def test_prometheus_takes_its_queries(tmp_path: Path) -> None:
    texts = [text.replace("$__rate_interval", "5m") for text in queries()]
    rules = [{"record": f"panel{number}", "expr": text} for number, text in enumerate(texts)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", "panels.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_they_are_of_what_was_chosen() -> None:
    for text in queries():
        assert 'model_name=~"$model' in text
        assert 'instance=~"$instance"' in text


def test_a_threshold_is_the_least_that_a_rule_has() -> None:
    (panel,) = (panel for panel in DASHBOARD["panels"] if panel["title"] == "KV cache in use (peak)")
    defaults = panel["fieldConfig"]["defaults"]
    assert (defaults["unit"], defaults["thresholds"]["steps"][1]["value"]) == ("percentunit", 0.8)
    (panel,) = (panel for panel in DASHBOARD["panels"] if panel["title"].startswith("generation tokens"))
    assert len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"]) == 1


def test_what_is_not_exported_has_no_panel() -> None:
    few = json.loads(grafana.render(SIGNALS, RULES, Scope(exported=frozenset({"vllm:num_requests_running"}))))
    assert [panel["title"] for panel in few["panels"]] == ["Firing alerts", "requests running, on average"]
