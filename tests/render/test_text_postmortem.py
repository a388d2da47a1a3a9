"""The text of a post-mortem: when what held, how the server's runs ended, and what a log does not tell."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from tests.render.reports import BEGAN, HOUR, crash_loop, finding, hostile, postmortem, run, span, trend, unreachable
from tests.test_fixtures import judged
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import EngineSeen, LinesSeen, Report, SourceSeen, UnknownRule
from vllm_doctor.render import text


def capped() -> Report:
    """A server that was at its limit for a part of the time, and all the time in eager mode."""
    spans = [
        span("max-num-seqs-cap", BEGAN + 2 * HOUR, BEGAN + 8 * HOUR),
        span("enforce-eager", BEGAN, BEGAN + 10 * HOUR),
    ]
    found = [finding("max-num-seqs-cap", "Requests queue"), finding("enforce-eager", "Graphs are off")]
    return postmortem(found, spans=spans, timeline=trend(BEGAN, BEGAN + 10 * HOUR))


def two_runs() -> Report:
    """The first one died, of several engines."""
    runs = [
        run(BEGAN, BEGAN + 4 * HOUR, BEGAN + 4 * HOUR - 9),
        run(BEGAN + 5 * HOUR, BEGAN + 10 * HOUR, engines=4, began=False),
    ]
    died = finding("engine-died", "The engine crashed", "critical")
    report = postmortem([died], runs, [span("engine-died", BEGAN, BEGAN + 4 * HOUR)], timeline=trend(BEGAN, BEGAN + 1))
    engines = tuple(EngineSeen({"engine": f"{engine}", "model_name": "m"}, ()) for engine in range(4))
    caps = [replace(finding("cap"), subject=engine.subject) for engine in engines[1:]]
    return replace(report, engines=engines, findings=(died, *caps))


def flat(shown: str) -> str:
    return " ".join(shown.split())


REPORTS = {
    "capped": capped,
    "two runs": two_runs,
    "crash loop": crash_loop,
    "hostile": hostile,
    "nothing found": postmortem,
    "no times": lambda: postmortem([finding("cap")], [run(None, None, up=False)]),
    "no runs": lambda: postmortem([finding("cap")], []),
    "unreachable": unreachable,
}


@pytest.mark.parametrize("name", REPORTS)
def test_lines_fit(name: str) -> None:
    lines = text.render(REPORTS[name]()).splitlines()
    # A word of a command is not cut: it could not be pasted.
    assert all(len(line) <= text.WIDTH or len(shlex.split(line.removesuffix(" \\"))) == 1 for line in lines)
    assert all(line == line.rstrip() and line.isprintable() for line in lines)


def test_what_comes_first() -> None:
    shown = text.render(capped())
    parts = (
        "WARNING  Requests queue",
        "/var/log/vllm.log",
        "org/model-8B",
        "vllm serve",
        "running",
        "  1  max-num-seqs-cap",
        "  When",
        "  Why",
        "  Evidence",
        "  Fix",
        "WARNING  Graphs are off",
        "Not checked",
        "rules:",
    )
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)


def test_the_log_and_how_much_of_it_said_something() -> None:
    lines = [line.strip() for line in text.render(capped()).splitlines()]
    place = lines.index("/var/log/vllm.log")
    assert lines[place + 1 : place + 3] == [
        "13 Nov 08:12 – 18:12 (10 h)",
        "11,740,112 lines, 10,214 recognised, read in 1.9 s",
    ]
    thinned = replace(capped(), lines=LinesSeen(64, 51, True, 0.1, 16))
    shown = flat(text.render(thinned))
    assert "13 Nov 08:12 – 18:12 UTC (10 h) 64 lines, 51 recognised, 1 of 16 statistics lines read" in shown


def test_a_short_log_takes_one_line() -> None:
    short = replace(capped(), lines=LinesSeen(64, 51, False, 0.1))
    assert "  13 Nov 08:12 – 18:12 (10 h) · 64 lines, 51 recognised\n" in text.render(short)


def test_the_model_its_gpus_and_the_lives_are_one_line() -> None:
    assert "  org/model-8B · vLLM 0.22.1 · 1 engine · 1 GPU · 2 server runs\n" in text.render(two_runs())
    unknown = replace(capped(), patient=replace(capped().patient, vllm=None, model=None, gpus=0))
    assert "  vLLM (version not in the log) · 1 engine · no GPU\n" in text.render(unknown)
    named = replace(capped(), patient=replace(capped().patient, gpus=8, gpu="NVIDIA H100"))
    assert "8 × NVIDIA H100\n" in text.render(named)


def test_a_silent_or_stat_less_log_has_no_vital_signs_and_no_line_of_time() -> None:
    shown = text.render(postmortem([finding("cap")]))
    assert "running  " not in shown
    assert "tokens/s" not in shown


# ---- the line of time


def test_bars_their_most_and_the_marks_are_aligned() -> None:
    lines = text.render(capped()).splitlines()
    running, waiting, cache = (
        next(line for line in lines if line.startswith(f"  {n}")) for n in ("running", "waiting", "KV")
    )
    assert running.index("max 55") == waiting.index("max 0.2") == cache.index("max 33 %") == 11 + 56 + 2
    axis = lines[lines.index(running) - 1]
    assert axis.index("13 Nov 08:12") == 11
    assert len(axis) == 11 + 56
    marked = next(line for line in lines if "└" in line and "max-num-seqs-cap" in line)
    assert (marked.index("└"), marked.index("┘")) == (11 + 11, 11 + 44)
    whole = next(line for line in lines if "└" in line and "enforce-eager" in line)
    assert (whole.index("└"), whole.index("┘")) == (11, 11 + 55)


# ---- several findings


def test_several_findings_are_summed_up_with_how_long_they_held() -> None:
    lines = text.render(capped()).splitlines()
    assert "  1  max-num-seqs-cap  6 h of 10 h" in lines
    assert "  2  enforce-eager     all the time (10 h)" in lines


def test_one_finding_is_not_summed_up() -> None:
    report = capped()
    assert "  1  max-num" not in text.render(replace(report, findings=report.findings[:1]))


def test_one_rule_on_several_engines_is_one_line_of_the_summary() -> None:
    lines = text.render(two_runs()).splitlines()
    assert [line.split()[1] for line in lines if line[:4] in ("  1 ", "  2 ", "  3 ")] == ["engine-died", "cap"]
    assert "on 3 of 4 engines: engine 1; engine 2; engine 3" in flat("\n".join(lines))


def test_a_finding_says_when_it_held_and_a_note_only_for_how_long() -> None:
    note = finding("client-limited", "It waits", "info", "not-server")
    report = capped()
    spans = (*report.spans, span("client-limited", BEGAN, BEGAN + HOUR))
    shown = text.render(replace(report, findings=(*report.findings, note), spans=spans))
    assert "  When        6 h of 10 h: 13 Nov 10:12:00 – 16:12:00\n" in shown
    assert "It waits [client-limited]: 64 run, 44 wait. (60 min of 10 h)" in flat(shown)


def test_long_names_of_evidence_are_wrapped_within_their_column() -> None:
    report = capped()
    found = report.findings[0]
    long = replace(
        found.evidence[0],
        signal="cap_reached",
        says="the batch (p50) as a share of --max-num-seqs (0 where that is not known)",
    )
    shown = text.render(replace(report, findings=(replace(found, evidence=(found.evidence[0], long)),)))
    rows = [line for line in shown.splitlines() if line.endswith("from log")]
    assert len(rows) == 2
    assert len({row.index("0.772") for row in rows}) == 1
    assert "not known)" in shown


def test_what_a_value_needs_is_said_once() -> None:
    shown = flat(text.render(capped()))
    assert (
        "the value needs kv_room and kv_blocks, which are unknown here (a log does not carry it: ask /metrics)" in shown
    )


# ---- runs


def test_lives_and_how_they_ended() -> None:
    shown = flat(text.render(two_runs()))
    assert (
        "run 1 13 Nov 08:12:00 – 12:12:00; crashed 13 Nov 12:11:51 in Worker_TP2: CUDA error: out of memory"
        " (line 9,882)" in shown
    )
    assert "run 2 13 Nov 13:12:00 – 18:12:00, log starts mid-run; the log ends" in shown
    assert "✖ crashed" in shown


def test_a_single_life_that_goes_on_is_not_told() -> None:
    assert "run 1" not in text.render(postmortem())


def test_a_single_death() -> None:
    runs = [run(BEGAN, BEGAN + 90, BEGAN + 60, up=False)]
    shown = text.render(postmortem([finding("engine-died", "The engine crashed", "critical")], runs))
    said = "crashed during startup 13 Nov 08:13:00 in Worker_TP2: CUDA error: out of memory (line 9,882)"
    assert said in flat(shown)
    assert "  When        13 Nov 08:13:00, 60 s after its start\n" in shown
    assert "run 1" not in shown


def test_of_a_life_whose_start_is_missing_it_is_not_said_that_it_never_served() -> None:
    runs = [replace(run(BEGAN, BEGAN + 90, BEGAN + 60, up=False), began=False)]
    shown = flat(text.render(postmortem([finding("engine-died", "The engine crashed", "critical")], runs)))
    assert "log starts mid-run: CUDA" in shown
    assert "during startup" not in shown


def test_a_death_of_which_little_is_known() -> None:
    runs = [run(1e9, 1e9, end="died"), run(None, None, end="stopped"), run(None, None, end="open")]
    shown = flat(text.render(postmortem(runs=runs)))
    assert "run 1 9 Sep 01:46:40; crashed: the log shows no exception" in shown
    assert "run 2 no times; was stopped" in shown
    assert "run 3 no times; the log ends" in shown
    goes_on = text.render(postmortem(runs=[run(None, None), run(None, None, end="stopped")]))
    assert "run 1  no times; the next run follows" in goes_on


def test_a_crash_loop_is_short() -> None:
    shown = text.render(crash_loop(500))
    assert "runs 1–500  13 Nov 08:12:00 – 14 Nov 00:51:00; each crashed during startup in" in shown
    assert "(line 50 … 49,950)" in flat(shown)
    assert "  When        500 times, 13 Nov 08:12:55 – 14 Nov 00:50:55\n" in shown
    assert len(shown.splitlines()) < 50


def test_lives_that_differ_are_told_from_both_ends() -> None:
    report = crash_loop(500)
    runs = tuple(replace(lived, cause=f"error {place % 7}") for place, lived in enumerate(report.runs, 1))
    shown = text.render(replace(report, runs=runs))
    assert [line.split("  ")[1] for line in shown.splitlines() if line.startswith("  run ")] == [
        "run 1",
        "run 2",
        "run 3",
        "run 498",
        "run 499",
        "run 500",
    ]
    assert "  … 494 runs between them, 494 of them crashed …\n" in shown
    assert shown.index("run 3 ") < shown.index("494 runs") < shown.index("run 498 ")


# ---- what was not seen


def test_what_the_log_lacks_then_the_rest_then_the_host_each_rule_once() -> None:
    shown = flat(text.render(capped()))
    missing = shown[shown.index("Not checked") : shown.index("rules:")]
    assert missing.startswith("Not checked not in this log, but needed by preemption, flashinfer-missing. Ask /metrics")
    assert "latency: no target was given: --slo" in missing
    assert missing.endswith("CPU and GPUs (for cpu-throttled): run vllm-doctor on its host. ")
    assert all(missing.count(rule) == 1 for rule in ("preemption", "flashinfer-missing", "latency", "cpu-throttled"))


def test_how_many_more_is_said() -> None:
    unknown = tuple(UnknownRule(f"rule-{place:02}", {"x": Reason.NOT_IN_LOG}) for place in range(20))
    shown = flat(text.render(replace(capped(), unknown=unknown)))
    assert "needed by rule-00, rule-01, rule-02, rule-03, rule-04, rule-05 and 14 more." in shown
    assert "CPU and GPUs: run vllm-doctor on its host." in shown


def test_a_blind_report_lists_no_rules() -> None:
    blind = finding("stats-disabled", "Statistics are off", role="blind")
    shown = flat(text.render(postmortem([blind])))
    assert "preemption" not in shown
    assert "CPU and GPUs: run vllm-doctor on its host." in shown


# ---- a server and its log


def test_a_server_and_its_log() -> None:
    live = judged("preemption", slice(0, 4))
    log = SourceSeen(SourceKind.LOG, "/var/log/vllm.log", 0.0, 0, None)
    runs = (run(BEGAN, BEGAN + 9, BEGAN + 8), run(BEGAN + 10, BEGAN + 99))
    lacks = UnknownRule("flashinfer-missing", {"flashinfer": Reason.NOT_IN_LOG})
    report = replace(
        live,
        sources=(*live.sources, log),
        runs=runs,
        lines=LinesSeen(9, 9, False),
        unknown=(*live.unknown, lacks),
    )
    shown = text.render(report)
    assert max(map(len, shown.splitlines())) <= text.WIDTH
    assert " running · " in shown
    assert "run 1  13 Nov" in shown
    assert "2 scrapes" in shown or "4 scrapes" in shown
    assert "flashinfer-missing: the log does not hold it: does it begin at the server's start?" in flat(shown)
    assert "the log: add its file" not in shown


def test_a_server_without_its_log_says_how_many_rules_need_it() -> None:
    live = judged("preemption", slice(0, 4))
    need = tuple(UnknownRule(f"rule-{place}", {"x": Reason.NO_LOG}) for place in range(5))
    said = "Not checked  5 rules need the log: add its file as another argument.\n"
    assert said in text.render(replace(live, unknown=need))
    assert "  1 rule needs the log: add its file" in text.render(replace(live, unknown=need[:1]))
    assert "Not checked  the log: add its file" in text.render(replace(live, unknown=()))
