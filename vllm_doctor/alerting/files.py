"""The rules as files for Prometheus, its operator for Kubernetes, Alertmanager, promtool and Loki.

The values that an alert saw are asked for when it is sent (`query` in the templates of its annotations), of the series
that were recorded for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_doctor.alerting.alerts import Alert, Alerts, Case, LeftOut, alert_name
from vllm_doctor.alerting.log_alerts import LogAlert
from vllm_doctor.alerting.recording_rules import ENGINE
from vllm_doctor.expr.promql import Constant, Series
from vllm_doctor.model.reading import Value
from vllm_doctor.model.version import __version__
from vllm_doctor.prometheus import query
from vllm_doctor.rules.log_lines import LogLine
from vllm_doctor.rules.rule import RemedyRule, Rule
from vllm_doctor.rules.signal import Signal
from vllm_doctor.text import durations
from vllm_doctor.text.words import COST, names, plain
from vllm_doctor.text.yaml import dump
from vllm_doctor.vllm import flags

SIGNALS_FILE, ALERTS_FILE, TESTS_FILE = "signals.rules.yaml", "alerts.rules.yaml", "promtool-tests.yaml"
BLIND = "vllm-doctor-blind"
"""What the alert that something cannot be seen has for a rule's id."""

_RUNBOOK = "https://docs.vllm.ai/en/stable/usage/metrics/"
_SHOWN = 6
_MINUTE = 60
_FORMAT = {"share": "humanizePercentage", "s": "humanizeDuration", "bytes": "humanize1024"}
_DIGITS = {"requests": 1, "tokens": 0, "blocks": 0, "engines": 0}
_JOINT = re.compile(r" (?=(?:and|or|unless) )")


@dataclass(frozen=True, slots=True)
class Choices:
    """`hold`: for how many seconds a condition must hold before it alerts. `vllm`: the version, where it is known.
    `runbooks`: where the documentation site is served, whose pages alerts name; "": they name the rules' sources."""

    hold: float = 300
    vllm: str | None = None
    runbooks: str = ""

    def runbook(self, rule: Rule) -> dict[str, str]:
        """The annotation that says where to read on; empty for a rule without a source."""
        if self.runbooks:
            return {"runbook_url": f"{self.runbooks}/reference/rules/{rule.id}.html"}
        return {"runbook_url": rule.see[0]} if rule.see else {}


def stream(alerts: Alerts, choices: Choices) -> str:
    """One rule file with everything, and what was left out as comments."""
    lines = [*_head("Load it in Prometheus as it is (rule_files)."), *dump({"groups": _groups(alerts, choices)}), ""]
    return "\n".join([*lines, *(f"# {line}" for line in left_out(alerts))]) + "\n"


def files(alerts: Alerts, choices: Choices) -> dict[str, str]:
    """All files of the folder, by name."""
    signals, fired = _groups(alerts, choices)
    kubernetes = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "vllm-doctor", "labels": {"app.kubernetes.io/name": "vllm-doctor"}},
        "spec": {"groups": [signals, fired]},
    }
    operator = (
        "For the Prometheus operator. Its ruleSelector may want a label more: kube-prometheus-stack's is `release`."
    )
    inhibit = "Add these to alertmanager.yml: what follows from another alert of the same engine is not sent."
    return {
        SIGNALS_FILE: _file({"groups": [signals]}, "What the alerts are made of. Load it with alerts.rules.yaml."),
        ALERTS_FILE: _file({"groups": [fired]}, "Load it with signals.rules.yaml."),
        TESTS_FILE: _file(_tests(alerts, choices), f"The rules' own examples: promtool test rules {TESTS_FILE}"),
        "prometheusrule.yaml": _file(kubernetes, operator),
        "alertmanager-inhibit.yaml": _file({"inhibit_rules": _inhibitions(alerts)}, inhibit),
        "left-out.txt": "\n".join(left_out(alerts)) + "\n",
    }


def left_out(alerts: Alerts) -> list[str]:
    """Which rules are no alerts, or narrower ones, and why; a line each."""
    quiet = [entry.rule for entry in alerts.left_out if entry.why.startswith("only worth knowing")]
    told = [entry for entry in alerts.left_out if entry.rule not in quiet]
    lines = ["Rules that are no alerts, as Prometheus lacks what they need:", ""]
    lines += [f"  {_which(entry)}: {entry.why}" for entry in told]
    narrower = {alert.rule.id: alert.without for alert in alerts.alerts if alert.without}
    if narrower:
        lines += ["", "Alerts that fire in fewer cases than the doctor's rule, as Prometheus lacks a signal:", ""]
        lines += [f"  {rule}: {', '.join(without)}" for rule, without in narrower.items()]
    if quiet:
        lines += ["", "Rules that are only worth knowing, and never a warning:", "", f"  {', '.join(quiet)}"]
    return lines


def _which(entry: LeftOut) -> str:
    return entry.rule if entry.severity is None else f"{entry.rule}, {entry.severity}"


def _head(says: str) -> list[str]:
    return [f"# Written by vllm-doctor alerts, {__version__}. {says}"]


def _file(content: Mapping[str, Any], says: str) -> str:
    return "\n".join([*_head(says), *dump(content)]) + "\n"


# ---- rules ---------------------------------------------------------------------------------------------------------


def _groups(alerts: Alerts, choices: Choices) -> list[dict[str, Any]]:
    records = [{"record": name, "expr": expression} for name, expression in alerts.records.items()]
    fired = [_alert(alert, alerts, choices) for alert in alerts.alerts]
    return [
        {"name": "vllm-doctor-signals", "rules": records},
        {"name": "vllm-doctor-alerts", "rules": [*fired, _blind(alerts, choices)]},
    ]


def _alert(alert: Alert, alerts: Alerts, choices: Choices) -> dict[str, Any]:
    rule = alert.rule
    annotations = {
        "summary": f"{_engine(alerts)}: {_plain(rule.title)}",
        "description": f"{_plain(_sentence(rule.why))} {_values(alert, alerts)}".strip(),
        "remedy": _remedies(alert, alerts, choices),
    }
    return {
        "alert": alert.name,
        "expr": _JOINT.sub("\n", alert.when) if len(alert.when) > 100 else alert.when,
        "for": durations.promql(choices.hold),
        "labels": {"severity": alert.severity, "rule": rule.id},
        "annotations": annotations | choices.runbook(rule),
    }


def _blind(alerts: Alerts, choices: Choices) -> dict[str, Any]:
    signal = "{{ $labels.signal }}"
    return {
        "alert": alert_name(BLIND.removeprefix("vllm-")),
        "expr": alerts.blind.when.replace(" or label_replace", "\nor label_replace"),
        "for": durations.promql(choices.hold),
        "labels": {"severity": "warning", "rule": BLIND},
        "annotations": {
            "summary": f"{_engine(alerts)}: its key metrics are missing ({signal})",
            "description": f"This vLLM cannot be judged: {signal} is missing on its /metrics, which answers. "
            "That the alerts about it are silent does not mean that it is healthy.",
            "remedy": "Start it without --disable-log-stats; see whether metric_relabel_configs drop its series; "
            f"{_ask(alerts)} says what it exports.",
            "runbook_url": f"{choices.runbooks}/alerts.html" if choices.runbooks else _RUNBOOK,
        },
    }


def _ask(alerts: Alerts) -> str:
    """The command that tells more of this server."""
    if "instance" not in alerts.recorder.scope.identity:
        return "vllm-doctor URL"
    # A label may hold anything; in single quotes a shell takes all but these as it stands.
    return """vllm-doctor 'http://{{ reReplaceAll "'" "" $labels.instance }}'"""


def _engine(alerts: Alerts) -> str:
    """Which engine it is: of which model, and of which server."""
    identity = alerts.recorder.scope.identity
    server = f"{{{{ $labels.{'instance' if 'instance' in identity else identity[-1]} }}}}"
    return "{{ with $labels.model_name }}{{ . }}, engine {{ $labels.engine }} of {{ end }}" + server


def _plain(text: str) -> str:
    """A text in a template that is no template."""
    return text.replace("{{", '{{ "{{" }}')


def _sentence(text: str) -> str:
    """The first of them."""
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]


def _values(alert: Alert, alerts: Alerts) -> str:
    """What the condition saw, asked for when the alert is sent."""
    signals = alerts.recorder.catalogue.signals
    shown = []
    for name, series in list(alert.seen.items())[:_SHOWN]:
        ends = dict.fromkeys((series.low, series.high))
        values = " to ".join(_value(end, signals[name].unit) for end in ends)
        shown.append(f"{_plain(signals[name].says)}: {values}")
    return f"{_of_this_engine(alerts)}Evidence: {'; '.join(shown)}." if shown else ""


def _of_this_engine(alerts: Alerts) -> str:
    """Sets $of to the matchers of the alert's own engine."""
    labels = dict.fromkeys((*query.ENGINE, *alerts.recorder.scope.identity))
    matchers = ",".join(f"{label}=%q" for label in labels)
    return f'{{{{ $of := printf "{{{matchers}}}" {" ".join(f"$labels.{label}" for label in labels)} }}}}'


def _value(series: str, unit: str) -> str:
    form = _FORMAT.get(unit) or f'printf "%.{_DIGITS.get(unit, 2)}f"'
    return _asked(series, form, "unknown") + ("/s" if unit == "1/s" else "")


def _asked(series: str, form: str, other: str) -> str:
    """The value of the series for this engine, or the other text."""
    of = f'printf "{series}%s" $of | query'
    return f"{{{{ with {of} }}}}{{{{ . | first | value | {form} }}}}{{{{ else }}}}{other}{{{{ end }}}}"


def _remedies(alert: Alert, alerts: Alerts, choices: Choices) -> str:
    """Each that may fit. Whether it does, and whether vLLM starts with it, the doctor itself says."""
    signals = alerts.recorder.catalogue.signals
    goal = alerts.recorder.term("goal")
    wanted = goal.value if isinstance(goal, Constant) else ""
    fitting = [remedy for remedy in alert.rule.remedies if _may_fit(remedy, alerts, choices)]
    fitting.sort(key=lambda remedy: remedy.goal not in ("", wanted))
    if not fitting:
        return f"What fixes it here: {_ask(alerts)}"
    told = " Or: ".join(f"{_plain(remedy.do)}{_changes(remedy, alert, signals)}." for remedy in fitting)
    which = f"{'Which of these fits' if len(fitting) > 1 else 'Whether it fits'}, and the whole command: {_ask(alerts)}"
    return f"{_of_this_engine(alerts) if alert.values else ''}{told} {which}".strip()


def _may_fit(remedy: RemedyRule, alerts: Alerts, choices: Choices) -> bool:
    if remedy.condition is not None and alerts.recorder.holds(remedy.condition, False) is True:
        return False
    return not any(flags.has(choices.vllm or flags.newest(), flag) is False for flag in remedy.set)


def _changes(remedy: RemedyRule, alert: Alert, signals: Mapping[str, Signal]) -> str:
    """(--max-num-seqs 10; without --num-gpu-blocks-override; restart)"""
    changes = [_set(flag, value, " ", alert, signals) for flag, value in remedy.set.items()]
    changes += [_set(name, value, "=", alert, signals) for name, value in remedy.env.items()]
    unset = [flag for flag in remedy.unset if not names(flag)]
    changes += [f"without {', '.join(unset)}"] if unset else []
    changes += [f"run: {_plain(command)}" for command in remedy.run if not names(command)]
    return f" ({'; '.join([*changes, COST[remedy.cost]])})"


def _set(name: str, value: Value, between: str, alert: Alert, signals: Mapping[str, Signal]) -> str:
    """A flag with its value; a computed one is asked for when the alert is sent, where Prometheus can compute it."""
    if not isinstance(value, str):
        return name if value is True else f"{name}{between}{plain(value)}"
    computed = names(value)
    if not computed:
        return f"{name}{between}{_plain(value)}"
    series = alert.values.get(computed[0])
    if series is None or value != f"{{{computed[0]}}}":
        return f"{name}{between}N"
    form = 'printf "%.2f"' if signals[computed[0]].unit == "share" else 'printf "%.0f"'
    return f"{name}{between}{_asked(series.low, form, 'N')}"


# ---- Alertmanager --------------------------------------------------------------------------------------------------


def _inhibitions(alerts: Alerts) -> list[dict[str, Any]]:
    """A warning is silent beside the same alert's critical one, and a symptom beside its cause."""
    engine = [*query.ENGINE, *(label for label in alerts.recorder.scope.identity if label not in query.ENGINE)]
    ours = 'alertname=~"Vllm.*"'
    found: list[dict[str, Any]] = [
        {
            "source_matchers": [ours, 'severity="critical"'],
            "target_matchers": [ours, 'severity="warning"'],
            "equal": ["alertname", *engine],
        }
    ]
    rules = {alert.rule.id: alert.rule for alert in alerts.alerts}
    for rule in rules.values():
        symptoms = [alert_name(other) for other in rule.explains if other in rules]
        if symptoms:
            found.append(
                {
                    "source_matchers": [f'alertname="{alert_name(rule.id)}"'],
                    "target_matchers": [f'alertname=~"{"|".join(symptoms)}"'],
                    "equal": engine,
                }
            )
    return found


# ---- Loki ----------------------------------------------------------------------------------------------------------

_STREAM = ("namespace", "pod", "container", "job", "instance", "host")
_LOGGED = "5m"


def loki(found: Sequence[LogAlert], selector: str, choices: Choices) -> str:
    """A rule file for Loki's ruler. `selector`: the streams of vLLM's logs."""
    entries = []
    for alert in found:
        rule = alert.rule
        where = "".join(f"{{{{ with $labels.{label} }}}} {label} {{{{ . }}}}{{{{ end }}}}" for label in _STREAM)
        entries.append(
            {
                "alert": alert_name(rule.id),
                "expr": "\nor ".join(_logged(line, selector) for line in alert.lines),
                "for": "0s",
                "labels": {"severity": alert.severity, "rule": rule.id},
                "annotations": {
                    "summary": f"{_plain(rule.title)}:{where}",
                    "description": " ".join(filter(None, (_plain(_sentence(rule.why)), _not_this(rule)))),
                    "remedy": "The first cause and its fix, from the log: vllm-doctor FILE",
                    **choices.runbook(rule),
                },
            }
        )
    says = f"For Loki's ruler. {selector} selects vLLM's streams: change it to yours."
    return _file({"groups": [{"name": "vllm-doctor-logs", "rules": entries}]}, says)


def _not_this(rule: Rule) -> str:
    return f"Not meant: {_plain(rule.not_this_rule)}" if rule.not_this_rule else ""


def _logged(line: LogLine, selector: str) -> str:
    """Where such a line stands in the last minutes: it has one of the fixed texts, and looks as it must."""
    finds = "|".join(re.escape(text.decode()) for text in line.find)
    # Go's expressions are linear by themselves, and lack what makes Python's so: (?>…) and x++.
    go = re.sub(r"(?<!\\)([+*?}])\+", r"\1", line.match.replace("(?>", "(?:"))
    pattern = rf"(?:^|\s)(?:{go})"
    wanted = f"{selector} |~ {json.dumps(finds)} |~ {json.dumps(pattern, ensure_ascii=False)}"
    return f"sum by ({', '.join(_STREAM)}) (count_over_time({wanted} [{_LOGGED}])) > 0"


# ---- promtool ------------------------------------------------------------------------------------------------------

_MODEL = "m"


def _tests(alerts: Alerts, choices: Choices) -> dict[str, Any]:
    by_rule: dict[str, list[Case]] = {}
    for case in alerts.cases:
        by_rule.setdefault(case.rule, []).append(case)
    tests = [_test(alert_name(rule), rule, cases, choices) for rule, cases in by_rule.items()]
    return {
        "rule_files": [ALERTS_FILE],
        "evaluation_interval": "1m",
        "tests": [*tests, _blind_test(alerts, choices)],
    }


def _test(alert: str, rule: str, cases: Sequence[Case], choices: Choices) -> dict[str, Any]:
    series: list[tuple[str, float]] = []
    fires: list[str] = []
    for case in cases:
        engine = f'engine="0", instance="{case.says}", job="vllm", model_name="{_MODEL}"'
        series += [(f"{name}{{{engine}}}", value) for name, value in case.values.items()]
        fires += [f'rule="{rule}", severity="{severity}", {engine}' for severity in case.fires]
    return _expecting(rule, series, alert, fires, choices)


def _blind_test(alerts: Alerts, choices: Choices) -> dict[str, Any]:
    """An engine with all vital signs, others without one each, and a server that has lost all."""
    alert, label = alert_name(BLIND.removeprefix("vllm-")), f'rule="{BLIND}", severity="warning"'
    series: list[tuple[str, float]] = []
    fires: list[str] = []
    seen = {name: term for name in alerts.blind.signals if isinstance(term := alerts.recorder.term(name), Series)}
    for without in (None, *seen):
        engine = f'engine="0", instance="without {without}", job="vllm", model_name="{_MODEL}"'
        series.append((f"{ENGINE}{{{engine}}}", 1))
        series += [(f"{term.low}{{{engine}}}", 1) for name, term in seen.items() if name != without]
        fires += [f'{label}, signal="{without}", {engine}'] if without else []
    unseen = [name for name in alerts.blind.signals if name not in seen]
    fires += [
        f'{label}, signal="{name}", engine="0", instance="without {without}", job="vllm", model_name="{_MODEL}"'
        for name in unseen
        for without in (None, *seen)
    ]
    lost = 'instance="lost", job="vllm"'
    series += [(f"up{{{lost}}}", 1), (f"{query.servers(alerts.recorder.scope)}{{{lost}}}", 1)]
    fires.append(f'{label}, signal="all of them", {lost}')
    return _expecting(BLIND, series, alert, fires, choices)


def _expecting(
    name: str, series: Iterable[tuple[str, float]], alert: str, fires: Sequence[str], choices: Choices
) -> dict[str, Any]:
    minutes = -(-round(choices.hold) // _MINUTE) + 1
    firing = f'alertname="{alert}", alertstate="firing"'
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": text, "values": f"{value:.15g}+0x{minutes + 1}"} for text, value in series],
        "promql_expr_test": [
            {
                "expr": f"ALERTS{{{firing}}}",
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": f"ALERTS{{{firing}, {labels}}}", "value": 1} for labels in fires],
            }
        ],
    }
