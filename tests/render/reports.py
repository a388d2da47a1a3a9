"""Reports to render: of nobody, and post-mortems of logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from vllm_doctor.model.kinds import Confidence, Role, Severity, SourceKind, Stage, State
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import (
    EngineSeen,
    Evidence,
    Finding,
    LinesSeen,
    Patient,
    Problem,
    Remedy,
    Report,
    RunSeen,
    SourceSeen,
    Span,
    Timeline,
    UnknownRule,
    Verdict,
    Vital,
)

AT = datetime(2026, 11, 20, 10, 15, tzinfo=UTC)
BEGAN = datetime(2025, 11, 13, 8, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0
COLUMNS = 56


def unreachable() -> Report:
    """Nobody answered."""
    problem = Problem("unreachable", "http://127.0.0.1:1 refuses connections: is the server up, and is this its port?")
    source = SourceSeen(SourceKind.SERVER, "http://127.0.0.1:1", 0.0, 0, problem)
    nobody = Patient(None, None, None)
    return Report(AT, Verdict.UNKNOWN, problem.message, nobody, (source,), (), (), (), (), (), {}, problem)


def finding(rule: str, title: str = "Something limits it", severity: str = "warning", role: str = "root") -> Finding:
    """One with an evidence from a log, and a remedy that changes, adds and drops flags."""
    evidence = Evidence(
        "queue_per_running", "requests waiting per running one", Known(0.772), ">", 0.1, None, "", "log"
    )
    remedy = Remedy(
        do="Admit what fits",
        set={"--max-num-seqs": 128.0, "--async-scheduling": True},
        was={"--max-num-seqs": 64.0, "--num-gpu-blocks-override": 80.0},
        unset=("--num-gpu-blocks-override",),
        env={"VLLM_X": 1.0},
        run=("ulimit -n 65536",),
        by="administrator",
        computed="64 × 2 = 128",
        needs={"kv_room": Reason.NOT_IN_LOG, "kv_blocks": Reason.NOT_IN_LOG},
        validated_for="0.22.1",
        cost="restart",
        risk="inter-token latency rises",
        expect="waiting falls to 0",
        gain=None,
    )
    return Finding(
        rule, Severity(severity), Role(role), None, Confidence.HIGH, {}, title, "64 run, 44 wait.", "That is so.",
        "heuristic", (evidence,), (remedy,), (), Stage.LIMIT,
    )  # fmt: skip


def run(first: float | None, last: float | None, died_at: float | None = None, **changes: object) -> RunSeen:
    """A run from `first` to `last`; `died_at`: it died then."""
    lived = RunSeen(first, last, "0.22.1", "org/model-8B", 1, True, True, "open", rounds=10)
    if died_at is not None:
        lived = replace(
            lived, end="died", died_at=died_at, cause="CUDA error: out of memory", cause_line=9882, process="Worker_TP2"
        )
    return replace(lived, **changes)  # type: ignore[arg-type]


def trend(first: float, last: float) -> Timeline:
    """Running requests fill up, with a silence in the middle; few wait; the KV cache is a third full."""
    running = tuple(None if 20 <= place < 24 else float(place) for place in range(COLUMNS))
    waiting = tuple(None if value is None else 0.25 * (value > 40) for value in running)
    return Timeline(
        first, last, {"running": running, "waiting": waiting, "KV cache": tuple(v and 0.33 for v in running)}
    )


def span(rule: str, first: float, last: float, lived: int = 0, **subject: str) -> Span:
    return Span(rule, Severity.WARNING, lived, subject, first, last)


def postmortem(
    findings: Iterable[Finding] = (),
    runs: Iterable[RunSeen] = (run(BEGAN, BEGAN + 10 * HOUR),),
    spans: Iterable[Span] = (),
    zoned: bool = False,
    timeline: Timeline | None = None,
    headline: str | None = None,
) -> Report:
    """Of a log alone."""
    found = tuple(findings)
    vitals = (Vital("requests_running", "requests running", "requests", Reason.NOT_IN_LOG),)
    states = {finding.rule: State(finding.severity) for finding in found}
    states |= {"cpu-throttled": State.UNKNOWN, "quiet": State.OK}
    return Report(
        at=AT,
        verdict=Verdict.WARNING if found else Verdict.OK,
        headline=headline or (found[0].title if found else "No limit found in what could be seen"),
        patient=Patient("0.22.1", "org/model-8B", 1, 1),
        sources=(SourceSeen(SourceKind.LOG, "/var/log/vllm.log", 0.0, 0, None),),
        findings=found,
        unknown=(
            UnknownRule("preemption", {"preemptions": Reason.NOT_IN_LOG, "kv_room": Reason.NOT_IN_LOG}),
            UnknownRule("flashinfer-missing", {"flashinfer": Reason.NOT_IN_LOG, "gpus": Reason.NOT_LOCAL}),
            UnknownRule("cpu-throttled", {"cpu_throttled_share": Reason.NOT_LOCAL}),
            UnknownRule("latency", {"slo_itl": Reason.NOT_GIVEN}),
        ),
        vitals=vitals,
        engines=(EngineSeen({}, vitals),),
        targets=(),
        states=states,
        command=("vllm", "serve", "org/model-8B", "--chat-template", "a file; with blanks"),
        runs=tuple(runs),
        spans=tuple(spans),
        lines=LinesSeen(11_740_112, 10_214, zoned, 1.94),
        timeline=timeline,
    )


def crash_loop(count: int = 500) -> Report:
    """A server that dies a minute after each of its starts, always of the same."""
    runs = [
        run(
            BEGAN + 120.0 * place,
            BEGAN + 120.0 * place + 60,
            BEGAN + 120.0 * place + 55,
            up=False,
            cause_line=100 * place + 50,
        )
        for place in range(count)
    ]
    died = finding("engine-died", "The engine crashed", "critical")
    return postmortem([died], runs, [span("engine-died", BEGAN, BEGAN + 60)])


HOSTILE = (
    "![x](http://evil.example/p.png) <img src=x onerror=alert(1)> @octocat #1 a|b `tick` ``` *bold* __init__"
    " </details> https://evil.example www.evil.example a@evil.example octo/cat#7 GH-12 :tada: $x$ &#64;all ~~gone~~"
)
"""What an issue tracker would act on."""


def hostile() -> Report:
    """Every text that came from outside tries to take effect."""
    found = finding("engine-died", f"# {HOSTILE}", "critical")
    found = replace(
        found,
        here=HOSTILE,
        why=f"1. {HOSTILE}",
        evidence=(replace(found.evidence[0], says=HOSTILE, seen=Known(HOSTILE), than=HOSTILE),),
        remedies=(replace(found.remedies[0], do=HOSTILE, risk=HOSTILE, expect=HOSTILE, computed=f"- {HOSTILE}"),),
    )
    aside = replace(finding("slow", HOSTILE, "info", "opportunity"), here=HOSTILE)
    report = postmortem([found, aside], [run(BEGAN, BEGAN + 9, BEGAN + 8, cause=HOSTILE, process=HOSTILE)])
    notes = SourceSeen(SourceKind.LOG, HOSTILE, 0.0, 0, Problem("unreadable", f"> {HOSTILE}"), (HOSTILE,))
    patient = Patient(HOSTILE, HOSTILE, 1, 1, HOSTILE)
    return replace(report, sources=(notes,), patient=patient, command=("vllm", HOSTILE, "````"))
