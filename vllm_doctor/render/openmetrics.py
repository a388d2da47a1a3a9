"""For node_exporter's textfile collector: no timestamps (it would skip the file), one sample a state.

Write it with -o FILE.prom: the file appears whole or not at all.
"""

from __future__ import annotations

from vllm_doctor.model.kinds import State
from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import Report, Verdict
from vllm_doctor.render import json_values

_STATES = ("ok", "info", "warning", "critical", "unknown", "not-applicable")
_KNOWN = frozenset({State.OK, State.INFO, State.WARNING, State.CRITICAL})


def render(report: Report, is_whole: bool = False) -> str:
    """Of each rule that was judged, the state that holds. `is_whole`: every state of every rule, as --all asks for."""
    lines = [
        "# HELP vllm_doctor_checked_timestamp_seconds Time of the last check.",
        "# TYPE vllm_doctor_checked_timestamp_seconds gauge",
        f"vllm_doctor_checked_timestamp_seconds {report.at.timestamp():.0f}",
        "# HELP vllm_doctor_verdict The verdict: 1 at the one that holds.",
        "# TYPE vllm_doctor_verdict gauge",
    ]
    for verdict in Verdict:
        lines.append(f'vllm_doctor_verdict{{verdict="{verdict.value}"}} {int(verdict is report.verdict)}')
    lines += [
        "# HELP vllm_doctor_rules How many rules are in each state.",
        "# TYPE vllm_doctor_rules gauge",
        *(f'vllm_doctor_rules{{state="{name}"}} {report.count(State(name))}' for name in _STATES),
        "# HELP vllm_doctor_rule_state The state of each rule: 1 at the one that holds.",
        "# TYPE vllm_doctor_rule_state gauge",
    ]
    for rule, state in report.states.items():
        for name in _STATES if is_whole else [state] if state in _KNOWN else []:
            lines.append(f'vllm_doctor_rule_state{{rule="{rule}",state="{name}"}} {int(name == state)}')
    for vital in report.vitals:
        if not vital.needed:
            continue
        name = f"vllm_doctor_{vital.name}"
        rate = " per second" if vital.unit == "1/s" else ""
        lines += [f"# HELP {name} {vital.says[0].upper()}{vital.says[1:]}{rate}.", f"# TYPE {name} gauge"]
        for engine in report.engines:
            seen = next((v.seen for v in engine.vitals if v.name == vital.name), None)
            if isinstance(seen, Known):
                labels = ",".join(
                    f'{label}="{_escaped(text)}"' for label, text in json_values.labels(engine.subject).items()
                )
                lines.append(f"{name}{{{labels}}} {float(seen.value):g}")
    lines += _speeds(report)
    return "\n".join(lines) + "\n# EOF\n"


def _speeds(report: Report) -> list[str]:
    """Of each engine the time per output token as measured, and as such a server has it."""
    lines = []
    for name, says in (("measured", "Time per output token"), ("typical", "Time per output token of a healthy server")):
        metric = f"vllm_doctor_tpot_{name}_seconds"
        told = [
            (speed.subject, seconds) for speed in report.speeds if (seconds := getattr(speed.tpot, name)) is not None
        ]
        lines += [f"# HELP {metric} {says}.", f"# TYPE {metric} gauge"] if told else []
        for subject, seconds in told:
            labels = ",".join(f'{label}="{_escaped(text)}"' for label, text in json_values.labels(subject).items())
            lines.append(f"{metric}{{{labels}}} {seconds:g}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
