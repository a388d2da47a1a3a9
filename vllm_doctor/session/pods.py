"""Several pods of a workload: each is an examination of its own, the worst first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.pod import PodSeen
from vllm_doctor.model.report import Report, Verdict

_WORST_FIRST = (Verdict.CRITICAL, Verdict.WARNING, Verdict.UNKNOWN, Verdict.OK)
_NO_TIME = "not judged in time: raise --timeout"


def seen(
    observations: Sequence[Observation],
    judged: Callable[[Sequence[Observation]], Report],
    is_over: Callable[[], bool],
) -> tuple[PodSeen, ...]:
    """Nothing where there is one. `judged`: the report on what was observed of one pod."""
    of_pod: dict[str, list[Observation]] = {}
    for one in observations:
        of_pod.setdefault(one.patient or one.target, []).append(one)
    of_pod = {name: seen for name, seen in of_pod.items() if any(o.kind is SourceKind.KUBERNETES for o in seen)}
    if len(of_pod) < 2:
        return ()
    found: list[tuple[int, PodSeen]] = []
    for name, own in of_pod.items():
        if found and is_over():
            found.append((_WORST_FIRST.index(Verdict.UNKNOWN), PodSeen(name, Verdict.UNKNOWN.value, _NO_TIME)))
            continue
        report = judged(own)
        rules = tuple(dict.fromkeys(finding.rule for finding in report.main))
        pod = PodSeen(name, report.verdict.value, report.headline, rules)
        found.append((_WORST_FIRST.index(report.verdict), pod))
    return tuple(pod for _, pod in sorted(found, key=lambda pair: pair[0]))
