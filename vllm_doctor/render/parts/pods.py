"""The pods of a workload, a line each, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vllm_doctor.model.kinds import State
from vllm_doctor.model.pod import PodSeen
from vllm_doctor.model.report import Report
from vllm_doctor.render.page import Labelled, Lines, Words, code, rule

_PREFIX = "k8s://"


def pods(report: Report) -> tuple[Labelled, ...]:
    """Nothing where one server was examined."""
    if not report.pods:
        return ()
    counts = Counter(pod.verdict for pod in report.pods)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    one = report.pods[0].target
    lines = (*_lines(report), ("one of them alone: ", code(f"vllm-doctor {one}")))
    return (Labelled("Pods", f"{len(report.pods)}: {told}", (Lines(lines, close=True),)),)


def _lines(report: Report) -> Iterator[Words]:
    for pod in report.pods:
        named: Words = (f"{State(pod.verdict).sign} ", code(_short(pod.target)), f": {_headline(pod)}")
        yield (*named, " ", rule(pod.findings[0])) if pod.findings else named


def _short(target: str) -> str:
    """Its name alone."""
    return target.removeprefix(_PREFIX).partition("?")[0].rpartition("/")[2]


def _headline(pod: PodSeen) -> str:
    """Without the pod's name, which stands beside it."""
    return pod.headline.removeprefix(pod.target).lstrip(" :")
