"""From observations to the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.making import shipped_catalogue, shipped_rules, window
from tests.sources.log.test_runs import LogFolder, busy, log, start, stats
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Problem, Report, Verdict
from vllm_doctor.model.window import Window
from vllm_doctor.session.judge import judge

__all__ = ["log"]

A, B = "http://a:8000", "http://b:8000"
AT = datetime(2026, 11, 20, tzinfo=UTC)


def scraped(running: int = 3) -> Window:
    labels = 'engine="0",model_name="m"'
    page = f"vllm:num_requests_running{{{labels}}} {running}\nvllm:num_requests_waiting{{{labels}}} 0\n"
    return window(page, page)


def seen(
    kind: str,
    patient: str,
    scrapes: Window | None = None,
    error: Problem | None = None,
    processes: tuple[tuple[str, int], ...] = (),
    command: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    **facts: Reading | Value,
) -> Observation:
    """What a watcher saw."""
    readings = {name: value if isinstance(value, Known | Unknown) else Known(value) for name, value in facts.items()}
    return Observation(
        SourceKind(kind),
        patient if kind == "server" else f"the {kind}",
        scrapes or Window(),
        readings,
        patient=patient,
        error=error,
        processes=processes,
        command=command,
        notes=notes,
    )


def judged(*observations: Observation, rules: tuple[str, ...] = (), strict: bool = False) -> Report:
    chosen = [rule for rule in shipped_rules() if not rules or rule.id in rules]
    return judge(observations, chosen, shipped_catalogue(), {"goal": "throughput"}, AT, strict)


def rules_of(report: Report) -> dict[str, Mapping[str, str]]:
    return {finding.rule: finding.subject for finding in report.findings}


SHARED: dict[str, Any] = {"gpus": 1.0, "gpu_memory_foreign": 9e9, "gpu_name": "A10G"}


def test_facts_of_one_patient_add_up() -> None:
    report = judged(
        seen("server", A, scraped(), vllm_version="0.32.0"),
        seen("host", A, processes=(("api-server", 7),), command=("vllm", "serve", "m"), cores_usable=2.0,
             api_servers=1.0, engine_cores=1.0, workers=1.0, coordinators=0.0, cores_terms="1 + 1 + 1"),
        seen("gpu", A, **SHARED),
    )  # fmt: skip
    assert (report.patient.vllm, report.patient.gpus, report.patient.gpu) == ("0.32.0", 1, "A10G")
    assert (report.patient.cores_usable, report.patient.cores_wanted) == (2.0, 3.0)
    assert report.patient.cores_terms == "1 + 1 + 1"
    assert report.patient.processes == (("api-server", 7),)
    assert report.command == ("vllm", "serve", "m")
    assert report.patient.model == "m"
    assert report.patient.engines == 1
    assert "gpu-shared" in rules_of(report)
    assert rules_of(report)["gpu-shared"].get("server") is None
    assert [(s.kind, s.target) for s in report.sources] == [("server", A), ("host", "the host"), ("gpu", "the gpu")]


def test_the_first_who_knows_a_fact_is_believed() -> None:
    report = judged(
        seen("server", A, scraped(), vllm_version="0.32.0"),
        seen("host", A, vllm_version="0.28.0"),
    )
    assert report.patient.vllm == "0.32.0"
    report = judged(seen("server", A, scraped()), seen("host", A, vllm_version="0.28.0"))
    assert report.patient.vllm == "0.28.0"


def test_two_patients_are_told_apart() -> None:
    report = judged(
        seen("server", A, scraped()),
        seen("gpu", A, **SHARED),
        seen("server", B, scraped()),
        seen("gpu", B, **(SHARED | {"gpu_memory_foreign": 0.0})),
    )
    assert [f.subject for f in report.findings if f.rule == "gpu-shared"] == [{"server": A}]
    assert [engine.subject["server"] for engine in report.engines] == [A, B]
    assert report.patient.gpus == 2
    assert report.patient.cores_terms is None
    assert report.command == ()


def test_a_host_without_an_answering_server_is_judged_on_what_is_there() -> None:
    error = Problem("unreachable", "nobody answers")
    report = judged(seen("server", A, error=error), seen("gpu", A, **SHARED))
    assert "gpu-shared" in rules_of(report)
    assert report.verdict is Verdict.WARNING
    assert report.headline == "Another process uses the server's GPU"
    assert report.error == error
    assert "unreachable" in {reason for unknown in report.unknown for reason in unknown.because.values()}
    assert report.states["preemption"] == "unknown"


def test_where_a_server_does_not_answer_the_verdict_is_never_ok() -> None:
    error = Problem("unreachable", "nobody answers")
    report = judged(seen("server", A, error=error), seen("gpu", A, **(SHARED | {"gpu_memory_foreign": 0.0})))
    assert (report.verdict, report.headline, report.error) == (Verdict.UNKNOWN, "nobody answers", error)


def test_gpus_that_cannot_be_seen_change_no_verdict() -> None:
    """They are among the unknown."""
    error = Problem("timeout", "the driver did not answer in time")
    server = seen("server", A, scraped(), vllm_version="0.32.0")
    alone = judged(server, rules=("gpu-shared", "preemption"))
    ill = judged(server, seen("gpu", A, error=error), rules=("gpu-shared", "preemption"))
    assert (ill.verdict, ill.headline, ill.error) == (alone.verdict, alone.headline, None)
    assert ill.sources[1].error == error
    assert ill.states["gpu-shared"] == "unknown"


def test_no_driver_is_the_reason_of_the_gpus_rules() -> None:
    no_driver = Unknown(Reason.NO_DRIVER)
    report = judged(seen("server", A, scraped()), seen("gpu", A, gpus=no_driver, gpu_memory_foreign=no_driver))
    [unknown] = [unknown for unknown in report.unknown if unknown.rule == "gpu-shared"]
    assert set(unknown.because.values()) == {Reason.NO_DRIVER}
    assert report.patient.gpus is None


def test_a_server_without_a_gpu_has_no_gpu_rules() -> None:
    report = judged(seen("server", A, scraped()), seen("gpu", A, gpus=0.0, gpus_on_host=0.0))
    assert {report.states[rule.id] for rule in shipped_rules() if rule.group == "gpu"} == {"not-applicable"}
    assert report.patient.gpus == 0


@pytest.mark.parametrize("error", [None, Problem("unreachable", "nobody answers")])
def test_nothing_at_all(error: Problem | None) -> None:
    report = judged(seen("server", A, error=error), seen("host", A, notes=("port 80 is nginx",)))
    assert report.verdict is Verdict.UNKNOWN
    assert report.headline == (error.message if error else "Nothing was examined")
    assert (report.findings, report.vitals) == ((), ())
    assert report.sources[1].notes == ("port 80 is nginx",)


def test_strict() -> None:
    server = seen("server", A, scraped(), stats_published=True)
    assert judged(server, rules=("preemption", "gpu-shared"), strict=True).verdict is Verdict.UNKNOWN


def test_the_processes_own_command_goes_before_what_its_log_and_a_text_say() -> None:
    text = Observation(SourceKind.COMMAND, "--command", patient=A, command=("vllm", "serve", "text"))
    log = Observation(SourceKind.LOG, "vllm.log", patient=A, command=("vllm", "serve", "log"))
    host = seen("host", A, command=("/opt/vllm", "serve", "m"), cores_usable=2.0)
    assert judged(text, log, host).command == ("/opt/vllm", "serve", "m")
    assert judged(text, log, seen("host", A, cores_usable=2.0)).command == ("vllm", "serve", "log")


# ---- time ---------------------------------------------------------------------------------------------------------


def many(engines: int) -> Window:
    page = "".join(
        f'vllm:num_requests_running{{engine="{n}",model_name="m"}} 3\n'
        f'vllm:num_requests_waiting{{engine="{n}",model_name="m"}} 0\n'
        for n in range(engines)
    )
    return window(page, page)


def over_after(times: int) -> Callable[[float], bool]:
    """The time is up once it was asked for so often."""
    asked = iter(range(times))
    return lambda share: next(asked, None) is None


def judged_until(is_over: Callable[[float], bool], *observations: Observation) -> Report:
    return judge(observations, shipped_rules(), shipped_catalogue(), {}, AT, is_over=is_over)


def test_where_time_is_up_the_engines_that_were_not_judged_are_told() -> None:
    report = judged_until(over_after(19 + 9), seen("server", A, many(20)))
    assert report.error == Problem("timeout", "10 of 20 engines were not judged in time: raise --timeout")
    assert report.verdict is Verdict.UNKNOWN
    assert len(report.engines) == 10
    assert {vital.seen for vital in report.vitals} == {Reason.TIMEOUT}


def test_signals_that_there_was_no_time_for_are_told_as_well() -> None:
    report = judged_until(over_after(4), seen("server", A, many(20)))
    assert report.error == Problem("timeout", "19 of 20 engines were not judged in time: raise --timeout")


def test_one_engine_is_judged_whatever_the_time() -> None:
    report = judged_until(lambda share: True, seen("server", A, many(1)))
    assert (report.error, len(report.engines)) == (None, 1)


def test_servers_that_there_was_no_time_for_are_told() -> None:
    report = judged_until(lambda share: True, *(seen("server", f"http://{n}:8000", scraped()) for n in range(5)))
    assert report.error == Problem("timeout", "4 of 5 engines were not judged in time: raise --timeout")
    assert report.verdict is Verdict.UNKNOWN


def test_with_time_for_all_nothing_is_told() -> None:
    report = judged_until(lambda share: False, seen("server", A, many(20)))
    assert (report.error, len(report.engines)) == (None, 20)


def test_a_host_that_a_starved_doctor_could_not_look_at_leaves_no_ok() -> None:
    """Who takes the doctor's CPU may take the server's, too."""
    starved = Problem("starved", "the doctor itself waited 8.0 s for a CPU: pid 1 was not read in time")
    report = judged(seen("server", A, scraped()), seen("host", A, error=starved))
    assert report.verdict is Verdict.UNKNOWN
    assert report.headline == starved.message


# ---- what is true now, and what a log says of before -----------------------------------------------------------------

LATE = Problem("timeout", "it did not answer")
WELL: dict[str, Any] = {"processes_held": 0.0, "processes_held_before": 0.0, "processes_gone": 0.0}


def of_log(log: LogFolder, *lines: str) -> Observation:
    return Observation(SourceKind.LOG, "vllm.log", runs=tuple(log.runs(list(lines))), patient=A)


def test_a_stopped_server_that_does_not_answer_is_not_judged_by_its_old_log(log: LogFolder) -> None:
    stopped = {**WELL, "processes_held": 1.0, "processes_held_says": "API server (pid 7) stopped by a signal"}
    report = judged(
        seen("server", A, error=LATE),
        seen("host", A, processes=(("api-server", 7),), **stopped),
        of_log(log, *start(0), *busy(40, 900, 2)),
    )
    assert (report.verdict, report.findings[0].rule) == (Verdict.CRITICAL, "process-stopped")
    assert report.headline == report.findings[0].title
    assert report.error == LATE
    assert len(report.runs) == 1, "what the log tells is reported all the same"


def test_a_log_is_judged_where_nothing_is_wrong_with_the_processes(log: LogFolder) -> None:
    queue = [stats(at, 4, 12) for at in range(100, 900, 10)]
    report = judged(
        seen("server", A, error=LATE),
        seen("host", A, processes=(("api-server", 7),), **WELL),
        of_log(log, *start(0), *queue),
    )
    assert report.findings[0].rule == "max-num-seqs-cap"
    assert report.spans


@pytest.mark.parametrize("beside", [("gpu", {"gpus": 1.0, "gpu_name": "A10G"}), ("command", {"commands_written": 1.0})])
@pytest.mark.parametrize("why", ["timeout", "starved"])
def test_of_a_log_that_was_not_read_in_time_nothing_is_claimed(why: str, beside: tuple[str, dict[str, Any]]) -> None:
    late = Problem(why, "a.log was not read to its end in time: raise --timeout")
    kind, facts = beside
    report = judged(seen("log", A, error=late), seen(kind, A, **facts))
    assert (report.verdict, report.headline, report.error) == (Verdict.UNKNOWN, late.message, late)


def test_beside_a_server_that_answers_such_a_log_decides_nothing() -> None:
    late = Problem("timeout", "a.log was not read to its end in time: raise --timeout")
    assert judged(seen("server", A, scraped()), seen("log", A, error=late)).error is None


def test_a_benchmark_without_a_figure_measured_nothing() -> None:
    report = judged(seen("bench", A, bench_given=1.0, bench_requests=100.0, bench_failed=0.0))
    assert report.verdict is Verdict.UNKNOWN
    assert report.headline == "A benchmark's command without its result: nothing was measured"


def test_a_server_that_starts_is_told_by_its_process(log: LogFolder) -> None:
    refused = Problem("unreachable", f"{A} refuses connections: is the server up, and is this its port?")
    starting = start(0)[:3]
    alive = seen("host", A, processes=(("api-server", 7),), process_id=7.0, **WELL)
    report = judged(seen("server", A, error=refused), alive, of_log(log, *starting))
    assert report.verdict is Verdict.UNKNOWN
    assert report.headline == (
        f"{A} does not answer, and its api-server is there (pid 7): it is starting, stopping, or hangs"
    )
    assert "start-ended-silently" not in rules_of(report)
    gone = judged(seen("server", A, error=refused), of_log(log, *starting))
    assert gone.headline == refused.message
    assert "start-ended-silently" in rules_of(gone)
