from __future__ import annotations

import pytest

from tests.making import shipped_catalogue, shipped_rules
from tests.sources.log.test_runs import CUDA_OOM, LogFolder, busy, death, idle, log, posix, record, start, stats
from vllm_doctor.model.facts import COMMAND
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.report import Finding, Verdict
from vllm_doctor.model.run import KV_CACHE, RUNNING, WAITING, Death, Round, Run, Series
from vllm_doctor.model.speed import Standing
from vllm_doctor.rules import postmortem
from vllm_doctor.rules.postmortem import NO_STATISTICS, Postmortem
from vllm_doctor.session import named_model

__all__ = ["log"]

GENERATED: Series = ("vllm:generation_tokens_total", ())
QUEUE = [stats(at, 4, 12, kv_cache=8.0) for at in range(100, 700, 10)]


def examine(*runs: Run) -> Postmortem:
    wished: dict[str, Reading] = {"goal": Known("throughput", origin="user")}
    return postmortem.examine(runs, shipped_rules(), shipped_catalogue(), wished)


def found(past: Postmortem) -> dict[str, Finding]:
    return {finding.rule: finding for finding in past.diagnosis.findings}


def held(past: Postmortem, rule: str) -> list[tuple[int, float, float]]:
    """Of which run, from which second to which."""
    return [(s.run, s.first_at - posix(0), s.last_at - posix(0)) for s in past.spans if s.rule == rule]


def lasting(days: float, running: float = 0.0) -> Run:
    """A run with two statistics lines that far apart, and one more at each end."""
    ats = [0.0, 10.0, days * 86400, days * 86400 + 10]
    rounds = tuple(Round(posix(at), {"0": {RUNNING: running, WAITING: 0.0, GENERATED: 10 * at}}) for at in ats)
    return Run(rounds[0].at, rounds[-1].at, False, True, False, None, {"log": Known(True)}, rounds)


# When what held


def test_a_finding_is_of_the_stretch_in_which_it_held(log: LogFolder) -> None:
    past = examine(log.run([*start(0), *idle(40, 90), *QUEUE, *busy(700, 1300, 2)]))
    assert found(past)["max-num-seqs-cap"].severity == "warning"
    assert held(past, "max-num-seqs-cap") == [(0, 90, 690)]


def test_two_stretches_are_two_spans(log: LogFolder) -> None:
    past = examine(
        log.run([*start(0), *QUEUE[:30], *busy(400, 900, 2), *(stats(at, 4, 12) for at in range(910, 1300, 10))])
    )
    spans = held(past, "max-num-seqs-cap")
    assert len(spans) == 2
    assert spans[0][2] < spans[1][1]


def test_what_is_silent_later_leaves_the_stretches_before_as_they_are(log: LogFolder) -> None:
    """Queues of minutes in a busy hour, and then a server that is asked once an hour."""
    load = [stats(40 + 10 * n, 4, 12 * (n % 25 >= 15), kv_cache=8.0) for n in range(100)]
    hourly = [line for hour in range(1, 9) for line in busy(hour * 3600, hour * 3600 + 30, 1)]
    spans = held(examine(log.run([*start(0), *load, *hourly])), "max-num-seqs-cap")
    assert [(first, last) for _, first, last in spans] == [(180, 280), (430, 530), (680, 780), (930, 1030)]


def test_an_engine_whose_steps_take_seconds_is_a_stretch_of_its_own(log: LogFolder) -> None:
    """Two run all the time; for a minute they get a token every twenty seconds, and hardly a prompt comes."""
    slow = [stats(at, 2, 0, prompt=12.7 * (at % 20 == 0), generation=0.1) for at in range(400, 460, 10)]
    past = examine(log.run([*start(0), *busy(40, 400, 2), *slow, *busy(460, 900, 2)]))
    [(_, first, last)] = held(past, "engine-crawls")
    assert [first, last] == pytest.approx([390, 450], abs=0.1)


def test_a_moment_is_no_stretch(log: LogFolder) -> None:
    """One line with a queue, of hundreds."""
    lines = busy(40, 3000, 2)
    lines[100:101] = [stats(1040, 4, 12)]
    assert held(examine(log.run([*start(0), *lines])), "max-num-seqs-cap") == []


def test_spans_are_within_their_runs(log: LogFolder) -> None:
    runs = log.runs([*start(0), *QUEUE, *death(705), *start(800, 500, 600), *busy(840, 1000, who="APIServer pid=500")])
    past = examine(*runs)
    for span in past.spans:
        run = runs[span.run]
        assert run.first_at is not None
        assert run.last_at is not None
        assert run.first_at - run.interval <= span.first_at <= span.last_at <= run.last_at


def test_what_a_life_is_judged_by_does_not_depend_on_the_others(log: LogFolder) -> None:
    calm, queued = log.runs(
        [*start(0), *busy(40, 600, 1)], [*start(1000), *(stats(1000 + at, 4, 12) for at in range(40, 600, 10))]
    )
    assert "max-num-seqs-cap" not in found(examine(calm))
    assert {run for run, *_ in held(examine(calm, queued), "max-num-seqs-cap")} == {1}
    assert examine(calm, queued).diagnosis.verdict is Verdict.WARNING


# Verdicts


def test_a_start_without_statistics_is_unknown(log: LogFolder) -> None:
    past = examine(log.run(start(0)))
    assert past.diagnosis.verdict is Verdict.UNKNOWN
    assert past.diagnosis.headline == NO_STATISTICS
    assert past.timeline is None


def test_a_death_is_critical_and_says_its_cause(log: LogFolder) -> None:
    past = examine(log.run([*start(0), *busy(40, 300), *death(305)]))
    finding = found(past)["engine-died"]
    assert past.diagnosis.verdict is Verdict.CRITICAL
    assert past.diagnosis.findings[0] is finding
    assert CUDA_OOM in finding.here
    assert past.diagnosis.headline == finding.title


def test_a_death_after_which_it_served_again_is_a_warning(log: LogFolder) -> None:
    runs = log.runs(
        [*start(0), *busy(40, 300), *death(305), *start(400, 500, 600), *busy(440, 900, who="APIServer pid=500")]
    )
    assert found(examine(*runs))["engine-died"].severity == "warning"


def test_what_stands_behind_a_death_without_a_time_may_be_of_before(log: LogFolder) -> None:
    """As issues have it: the error first, then the log."""
    died = [
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue",
    ]
    past = examine(log.run([*died, *busy(100, 400, 2)]))
    assert past.diagnosis.headline == "The engine crashed"
    assert not any(one.rule == "engine-died" for one in examine(log.run(busy(100, 400, 2))).diagnosis.findings)


def test_of_several_deaths_the_last_is_told(log: LogFolder) -> None:
    taken = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
    runs = log.runs([*start(0)[:6], *death(25), *start(400, 500, 600)[:8], taken])
    assert "Errno 98" in found(examine(*runs))["engine-died"].here
    assert len(runs) == 2


def test_a_server_that_was_cancelled_is_not_just_well(log: LogFolder) -> None:
    slurm = "slurmstepd: error: *** JOB 4711 ON node07 CANCELLED AT 2025-11-20T10:50:47 DUE TO TIME LIMIT ***"
    past = examine(log.run([*start(0), *busy(40, 900, 1), slurm]))
    assert "TIME LIMIT" in past.diagnosis.headline
    assert "TIME LIMIT" not in examine(log.run([*start(0), *busy(40, 900, 1)])).diagnosis.headline


def test_a_start_that_was_put_right_is_history(log: LogFolder) -> None:
    runs = log.runs([*start(0)[:6], *death(25), *start(400, 500, 600), *busy(440, 3000, who="APIServer pid=500")])
    assert [run.up for run in runs] == [False, True]
    past = examine(*runs)
    assert not [finding.rule for finding in past.diagnosis.findings if finding.is_grave]
    assert found(past)["engine-died"].severity == "info"
    assert past.diagnosis.verdict is not Verdict.CRITICAL
    assert past.diagnosis.headline != found(past)["engine-died"].title


def test_seconds_of_a_log_of_hours_are_no_cause(log: LogFolder) -> None:
    queue = [stats(at, 4, 12, kv_cache=8.0) for at in range(3000, 3060, 10)]
    past = examine(log.run([*start(0), *busy(40, 3000, 2), *queue, *busy(3060, 6000, 2)]))
    assert found(past)["max-num-seqs-cap"].severity == "info"
    assert past.diagnosis.verdict not in (Verdict.WARNING, Verdict.CRITICAL)


def test_what_holds_at_the_end_of_a_log_is_a_cause_however_short_it_was(log: LogFolder) -> None:
    queue = [stats(at, 4, 12, kv_cache=8.0) for at in range(3000, 3060, 10)]
    past = examine(log.run([*start(0), *busy(40, 3000, 2), *queue]))
    assert found(past)["max-num-seqs-cap"].severity == "warning"
    assert past.diagnosis.verdict is Verdict.WARNING


def compiled(at: float) -> str:
    says = "Triton kernel JIT compilation during inference: fused_moe_kernel. This causes a latency spike; consider"
    return record(at, f"{says} extending warmup to cover this shape/config.", "EngineCore pid=200", "WARNING")


def test_kernels_that_are_compiled_in_the_slow_time_are_its_cause(log: LogFolder) -> None:
    slow = [line for at in range(100, 400, 10) for line in (compiled(at - 5), stats(at, 4, 0, generation=1.0))]
    past = examine(log.run([*start(0), *slow]))
    assert past.diagnosis.headline == found(past)["jit-stall"].title
    assert found(past)["jit-warmup"].explained_by == "jit-stall"


def test_kernels_that_were_compiled_at_another_time_are_not(log: LogFolder) -> None:
    slow = [stats(at, 4, 0, generation=1.0) for at in range(2000, 2300, 10)]
    first = [compiled(50 + number) for number in range(30)]
    past = examine(log.run([*start(0), *first, *busy(100, 400, 4), *idle(400, 2000), *slow]))
    assert "jit-stall" not in found(past)
    assert found(past)["jit-warmup"].severity == "info"


def test_without_statistics_a_note_that_would_be_a_cause_leads(log: LogFolder) -> None:
    quiet = examine(log.run(start(0))).diagnosis
    backends = "Using TRITON_ATTN attention backend out of potential backends: ['TRITON_ATTN']."
    slow = examine(log.run([*start(0), f"INFO 11-20 10:00:50 [cuda.py:363] {backends}"])).diagnosis
    assert quiet.headline == NO_STATISTICS
    assert slow.verdict is Verdict.UNKNOWN
    assert slow.headline.endswith("the log has no statistics that show what it costs")


def test_minutes_of_a_start_come_before_what_is_only_set(log: LogFolder) -> None:
    begun = record(5, "Starting to load model /models/tiny...", "", source="model_runner.py:1072")
    there = record(792, "Loading model weights took 16.4605 GB", "", source="model_runner.py:1077")
    backends = "Using TRITON_ATTN attention backend out of potential backends: ['TRITON_ATTN']."
    past = examine(log.run([*start(0)[:5], f"INFO 11-20 10:00:50 [cuda.py:363] {backends}", begun, there]))
    assert past.diagnosis.headline.startswith(found(past)["slow-model-load"].title)
    assert past.diagnosis.verdict is Verdict.UNKNOWN


def test_an_earlier_start_that_stood_still_is_told(log: LogFolder) -> None:
    past = examine(*log.runs([*start(0)[:6], *start(200, 300, 400)]))
    assert past.diagnosis.headline == found(past)["start-unfinished"].title
    assert "start-unfinished" not in found(examine(log.run(start(0))))


def test_the_cure_of_memory_that_moved_and_of_a_large_image(log: LogFolder) -> None:
    moved = (
        "AssertionError: Error in memory profiling. Initial free memory 43.37 GiB, current free memory 43.94 GiB. This"
    )
    item = "ValueError: Chunked MM input disabled but max_tokens_per_mm_item (2496) is larger than"
    for cause, cure in ((moved, "Start it again once"), (f"{item} max_num_batched_tokens (2048). Please", "Raise the")):
        failed = record(25, "EngineCore failed to start.", "EngineCore pid=200", "ERROR", "core.py:1510")
        finding = found(examine(log.run([*start(0)[:5], cause, failed])))["engine-died"]
        assert finding.remedies[0].do.startswith(cure)
        assert not any("Where the exception names a flag" in remedy.do for remedy in finding.remedies)


def test_a_start_that_hangs_comes_before_what_would_make_it_slow(log: LogFolder) -> None:
    past = examine(
        log.run(
            [
                "INFO 12-12 05:27:59 api_server.py:585] vLLM API server version 0.6.4.post1",
                "INFO 12-12 05:27:59 api_server.py:586] args: Namespace(model='m', tensor_parallel_size=4, seed=0)",
                "WARNING 12-12 05:28:31 custom_all_reduce.py:143] Custom allreduce is disabled because it's not "
                "supported on more than two PCIe-only GPUs. To silence this warning, specify "
                "disable_custom_all_reduce=True explicitly.",
                "INFO 12-12 05:28:31 pynccl.py:69] vLLM is using nccl==2.21.5",
            ]
        )
    )
    assert past.diagnosis.verdict is Verdict.WARNING
    assert past.diagnosis.findings[0].rule == "worker-stuck"


def test_what_a_log_cannot_tell_is_unknown_and_not_ok(log: LogFolder) -> None:
    states = examine(log.run(QUEUE)).diagnosis.states
    assert states["max-num-seqs-cap"] in ("warning", "unknown")
    assert states["fd-limit"] == "unknown"
    assert set(states) == {rule.id for rule in shipped_rules()}


def test_idle_is_no_fault(log: LogFolder) -> None:
    past = examine(log.run([*start(0), *idle(40, 900)]))
    assert past.diagnosis.verdict in (Verdict.OK, Verdict.UNKNOWN)
    assert not [f for f in past.diagnosis.findings if f.severity in ("warning", "critical")]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_log_of_few_lines(count: int, log: LogFolder) -> None:
    past = examine(log.run(QUEUE[:count]))
    assert (past.timeline is None) == (count < 2)
    assert all(span.first_at <= span.last_at for span in past.spans)


# Bounds


@pytest.mark.parametrize("days", [1, 49, 50, 4000])
def test_a_server_that_runs_for_long(days: int) -> None:
    """A stretch of 50 days is 2^32 ms long."""
    assert examine(lasting(days)).diagnosis.states


def test_a_crash_loop_of_thousands(log: LogFolder) -> None:
    """Runs of one kind are judged once: it takes no longer than a few."""
    runs = [
        Run(posix(60.0 * n), posix(60.0 * n + 20), True, False, False,
             Death(posix(60.0 * n + 20), n, "EngineCore", CUDA_OOM, False),
             {"log": Known(True), "engine_deaths": Known(5000.0), "engine_dead": Known(True),
              "death_process": Known("EngineCore"), "death_phase": Known("start"), "death_cause": Known(CUDA_OOM)})
        for n in range(5000)
    ]  # fmt: skip
    past = examine(*runs)
    assert past.diagnosis.verdict is Verdict.CRITICAL
    assert len(past.diagnosis.findings) == 1
    assert "5000" in past.diagnosis.findings[0].here.replace(",", "")


def test_a_load_that_changes_with_every_line_is_cut_into_few_stretches(log: LogFolder) -> None:
    run = log.run(
        [*start(0), *(stats(40 + 10 * n, n % 5, 12 * (n % 2), kv_cache=99 * (n % 3 // 2)) for n in range(2000))]
    )
    past = examine(run)
    per_rule = {rule: len(held(past, rule)) for rule in {s.rule for s in past.spans}}
    assert max(per_rule.values(), default=0) <= 48


@pytest.mark.parametrize("hole", [3600, 40000])
def test_a_hole_in_a_log_does_not_slow_the_server_down(hole: int, log: LogFolder) -> None:
    """A rotated file is missing: requests ran before it and after it, and nobody knows what was in between."""
    whole = examine(log.run([*start(0), *busy(40, 600)])).diagnosis
    holed = examine(log.run([*start(0), *busy(40, 300), *busy(310 + hole, 600 + hole)])).diagnosis
    seen = [
        {vital.name: vital.seen for vital in each.vitals}["generation_tokens_per_second"] for each in (whole, holed)
    ]
    assert [known.value for known in seen if isinstance(known, Known)] == [pytest.approx(400), pytest.approx(400)]
    assert (holed.verdict, holed.headline) == (whole.verdict, whole.headline)


# The timeline


def test_the_course_of_a_log(log: LogFolder) -> None:
    past = examine(log.run([*busy(0, 590, 4), *(stats(at, 8, 6, kv_cache=95.0) for at in range(600, 1200, 10))]))
    assert past.timeline is not None
    assert (past.timeline.first_at, past.timeline.last_at) == (
        posix(-10),
        posix(1190),
    )  # the first line tells of ten seconds
    rows = past.timeline.rows
    assert {len(row) for row in rows.values()} == {56}
    assert (rows["running"][0], rows["running"][-1]) == (4, 8)
    assert (rows["waiting"][0], rows["waiting"][-1]) == (0, 6)
    assert rows["KV cache"][0] == pytest.approx(0.1)
    assert rows["KV cache"][-1] == pytest.approx(0.95)


def test_where_the_log_is_silent_the_course_is_not_known() -> None:
    rounds = tuple(
        Round(posix(at), {"0": {RUNNING: 3.0, WAITING: 0.0, KV_CACHE: 0.1}})
        for at in (*range(0, 200, 10), *range(2000, 2200, 10))
    )
    run = Run(rounds[0].at, rounds[-1].at, False, True, False, None, {"log": Known(True)}, rounds)
    past = examine(run)
    assert past.timeline is not None
    middle = past.timeline.rows["running"][15:40]
    assert set(middle) == {None}


# For the report


def test_the_lives_for_the_report(log: LogFolder) -> None:
    died, open_ = postmortem.seen(
        log.runs(
            [*start(0), *busy(40, 300), *death(305), *start(400, 500, 600), *busy(440, 900, who="APIServer pid=500")]
        )
    )
    assert (died.end, died.cause, died.process, died.died_at) == ("died", CUDA_OOM, "EngineCore", posix(305))
    assert (open_.end, open_.cause, open_.rounds, open_.engines) == ("open", None, 47, 1)
    assert (died.vllm, died.model, died.began, died.up) == ("0.32.0", "/models/tiny", True, True)


def test_requests_that_run_without_a_token_are_not_well(log: LogFolder) -> None:
    hung = [stats(at, 2, 0, generation=0, prompt=0, kv_cache=1.0) for at in range(100, 200, 10)]
    past = examine(log.run([*start(0), *busy(40, 90), *hung]))
    assert past.diagnosis.verdict is Verdict.WARNING
    assert past.diagnosis.headline.startswith("The engine hangs")


def test_a_request_that_has_just_begun_is_no_hang(log: LogFolder) -> None:
    begun = stats(100, 1, 0, generation=0, prompt=0, kv_cache=0.1)
    assert (
        "not one token" not in examine(log.run([*start(0), *idle(40, 90), begun, *idle(110, 150)])).diagnosis.headline
    )


# Time


def test_where_time_is_up_the_oldest_runs_are_left_out() -> None:
    runs = [lasting(1.0, running=float(n % 2)) for n in range(6)]
    asked = iter(range(3))
    past = postmortem.examine(
        runs, shipped_rules(), shipped_catalogue(), {}, is_over=lambda share: share < 0.6 and next(asked, None) is None
    )
    assert past.diagnosis.left_out > 0
    assert postmortem.examine(runs, shipped_rules(), shipped_catalogue(), {}).diagnosis.left_out == 0


# The speed of a log


H100 = {"gpu_bandwidth": 3.35e12, "gpu_flops": 0.99e15, "gpu_compute_capability": 9.0}


def spoken(*batches: float, tpot: float = 0.008) -> Run:
    """A line each ten seconds: so many run at its end, and each got a token every `tpot` seconds since the last."""
    rounds = []
    tokens = 0.0
    for place, running in enumerate(batches):
        tokens += 10 / tpot * min(running, batches[max(0, place - 1)])
        rounds.append(
            Round(posix(10.0 * place), {"0": {RUNNING: running, WAITING: 0.0, KV_CACHE: 0.1, GENERATED: tokens}})
        )
    known: dict[str, Reading] = {name: Known(value) for name, value in H100.items()}
    facts = named_model.completed(
        {**known, "log": Known(True), COMMAND: Known("vllm serve")}, ["meta-llama/Llama-3.1-8B-Instruct"], ()
    )
    return Run(rounds[0].at, rounds[-1].at, False, True, False, None, facts, tuple(rounds))


def test_the_speed_is_that_of_the_stretch_that_is_shown() -> None:
    (speed,) = examine(spoken(*[16.0] * 20)).diagnosis.speeds
    assert speed.standing.is_fine
    assert speed.stretch == (posix(-10), posix(190))


def test_of_an_uneven_load_the_speed_is_that_of_its_steadiest_time() -> None:
    (speed,) = examine(spoken(0, 2, 0, 1, 0, 8, 8, 8, 8, 0, 3, 1, 0)).diagnosis.speeds
    assert speed.standing.is_fine
    assert speed.batch == 8
    assert speed.stretch == (posix(50), posix(80))


def test_a_load_that_is_never_steady_tells_no_speed() -> None:
    diagnosis = examine(spoken(*[0.0, 2.0, 0.0, 3.0, 1.0] * 8)).diagnosis
    assert [speed.standing for speed in diagnosis.speeds] == [Standing.UNKNOWN]
    assert "too uneven" in diagnosis.headline


def test_a_steady_log_of_a_slow_server_is_a_warning() -> None:
    diagnosis = examine(spoken(*[16.0] * 20, tpot=0.08)).diagnosis
    assert diagnosis.verdict is Verdict.WARNING
    assert diagnosis.headline.startswith("Slower than expected: a request gets ")


def test_one_run_is_judged_whatever_the_time(log: LogFolder) -> None:
    past = postmortem.examine(
        [log.run([*start(0), *QUEUE])], shipped_rules(), shipped_catalogue(), {}, is_over=lambda share: True
    )
    assert past.diagnosis.states


def test_a_stop_tells_what_it_cut_off(log: LogFolder) -> None:
    def ended(*last: str) -> str:
        stop = record(
            904, "[shutdown] EngineCore: trigger received signal=SIGTERM", "EngineCore pid=200", source="core.py:1454"
        )
        return examine(log.run([*start(0), *busy(40, 890, 1), *last, stop])).diagnosis.headline

    told = "Stopped from outside (a signal: SIGTERM); 4 s before, 4 requests were unfinished."
    assert ended(stats(900, running=3, waiting=1)).startswith(told)
    assert ended(stats(900, running=0)).startswith("Stopped from outside (a signal: SIGTERM). ")


def test_a_start_that_was_stopped_is_that_and_not_slow(log: LogFolder) -> None:
    """What would make a server slow that never served is worth knowing, and no cause of anything."""
    begun = [line.replace("enforce_eager=False", "enforce_eager=True") for line in start(0)[:6]]
    past = examine(log.run([*begun, "(APIServer pid=100) KeyboardInterrupt: terminated"]))
    assert past.diagnosis.verdict is Verdict.UNKNOWN
    assert past.diagnosis.headline == (
        "Stopped from outside (SIGTERM) while it was starting (weights): it never served"
    )
    assert found(past)["enforce-eager"].severity == "info"
    assert found(past)["stopped-while-starting"].severity == "info"


def test_a_program_that_is_interrupted_once_its_engine_is_made_keeps_what_makes_it_slow(log: LogFolder) -> None:
    made = [line.replace("enforce_eager=False", "enforce_eager=True") for line in start(0)[:8]]
    past = examine(log.run([*made, "KeyboardInterrupt"]))
    assert found(past)["enforce-eager"].severity == "warning"
    assert "stopped-while-starting" not in found(past)
