"""The vital signs as a dashboard of Grafana, with the thresholds that rules have for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vllm_doctor.model.facts import ENGINE_METRIC
from vllm_doctor.model.kinds import GRAVE
from vllm_doctor.prometheus import query
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import Rule
from vllm_doctor.rules.signal import Signal

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_UNIT = {"share": "percentunit", "s": "s", "bytes": "bytes", "tokens": "short", "requests": "short"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3
_VARIABLES = {"model": "model_name", "instance": "instance"}


def render(catalogue: Catalogue, rules: Sequence[Rule], scope: query.Scope) -> str:
    """The dashboard, to be imported. A panel a vital sign that Prometheus can have, a line an engine."""
    chosen = tuple(query.Matcher(label, "=~", f"${name}") for name, label in _VARIABLES.items())
    scope = replace(scope, matchers=(*scope.matchers, *chosen), window="$__rate_interval")
    vitals = [signal for signal in catalogue.signals.values() if signal.vital and signal.way == "promql"]
    panels = [
        _alerts(),
        *(_panel(signal, rules, scope) for signal in vitals if query.is_told(signal.definition, scope)),
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, _COLUMNS)
        panel |= {"id": number + 1, "datasource": _SOURCE}
        panel["gridPos"] = {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
    dashboard = {
        "title": "vLLM, as vllm-doctor sees it",
        "uid": "vllm-doctor",
        "tags": ["vllm"],
        "schemaVersion": 38,
        "editable": True,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}, *_variables()]},
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    for name, label in _VARIABLES.items():
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": f"label_values({ENGINE_METRIC}, {label})",
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        }


def _alerts() -> dict[str, Any]:
    firing = 'ALERTS{alertname=~"Vllm.*", alertstate="firing", model_name=~"$model|", instance=~"$instance"}'
    return {
        "type": "table",
        "title": "Firing alerts",
        "targets": [{"refId": "A", "expr": firing, "instant": True, "format": "table"}],
    }


def _panel(signal: Signal, rules: Sequence[Rule], scope: query.Scope) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    mark = _threshold(signal.name, rules)
    if mark is not None:
        steps.append({"color": "orange", "value": mark})
    legend = " ".join(f"{{{{{label}}}}}" for label in ("model_name", "instance", "engine"))
    return {
        "type": "timeseries",
        "title": f"{signal.says}{' per second' if signal.unit == '1/s' else ''}",
        "targets": [{"refId": "A", "expr": query.text(signal.definition, scope), "legendFormat": legend}],
        "fieldConfig": {
            "defaults": {
                "unit": _UNIT.get(signal.unit, "short"),
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                "custom": {"thresholdsStyle": {"mode": "line" if mark is not None else "off"}},
            },
            "overrides": [],
        },
    }


def _threshold(signal: str, rules: Sequence[Rule]) -> float | None:
    """The least value above which a rule warns."""
    marks = [
        value
        for rule in rules
        for severity in GRAVE
        if severity in rule.when
        for name, value in rule.when[severity].above()
        if name == signal and value > 0
    ]
    return min(marks, default=None)
