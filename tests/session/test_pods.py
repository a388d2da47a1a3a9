"""Several pods, each judged alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Patient, Report, Verdict
from vllm_doctor.session import pods

VERDICTS = {"a": Verdict.OK, "b": Verdict.UNKNOWN, "c": Verdict.CRITICAL, "d": Verdict.WARNING}


def judged(own: Sequence[Observation]) -> Report:
    nobody = Patient(None, None, None)
    name = own[0].patient
    return Report(datetime.now(UTC), VERDICTS[name], f"of {name}", nobody, (), (), (), (), (), (), {})


def of(name: str, kind: SourceKind = SourceKind.KUBERNETES) -> list[Observation]:
    return [Observation(SourceKind.SERVER, name, patient=name), Observation(kind, name, patient=name)]


def test_the_worst_is_the_first() -> None:
    seen = pods.seen([o for name in "abcd" for o in of(name)], judged, lambda: False)
    assert [(pod.target, pod.verdict) for pod in seen] == [
        ("c", "critical"),
        ("d", "warning"),
        ("b", "unknown"),
        ("a", "ok"),
    ]
    assert seen[0].headline == "of c"


def test_one_pod_and_other_servers_are_no_list() -> None:
    assert pods.seen(of("a"), judged, lambda: False) == ()
    assert pods.seen([*of("a"), *of("b", SourceKind.HOST)], judged, lambda: False) == ()


def test_those_for_which_there_is_no_time_are_unknown() -> None:
    seen = pods.seen([o for name in "ac" for o in of(name)], judged, lambda: True)
    assert [(pod.target, pod.verdict) for pod in seen] == [("c", "unknown"), ("a", "ok")]
    assert "--timeout" in seen[0].headline
