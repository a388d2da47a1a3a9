"""The text: what a hurried reader sees, within 80 columns, and nothing that a terminal would obey."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.render.reports import finding, postmortem, unreachable
from tests.test_fixtures import NAMES, judged
from vllm_doctor.model.kinds import Role, Severity, SourceKind, Stage
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Change, Correction, Gain, LeftOut, Remedy, Report, SourceSeen
from vllm_doctor.render import text

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", NAMES)
def test_lines_fit_and_carry_no_escapes(name: str) -> None:
    lines = text.render(judged(name, slice(0, 4))).splitlines()
    assert max(map(len, lines)) <= text.WIDTH
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_colour_repeats_what_the_words_say(name: str) -> None:
    report = judged(name, slice(0, 4))
    coloured = text.render(report, colour=True)
    assert ANSI.search(coloured)
    assert ANSI.sub("", coloured) == text.render(report)


def test_verdict_and_cause_come_first_then_evidence_then_cure_then_what_was_not_seen() -> None:
    shown = text.render(judged("preemption", slice(0, 4)))
    assert shown.startswith("CRITICAL  The KV cache is too small for the running batch")
    places = [
        shown.index(part)
        for part in ("[preemption]", "Why", "Evidence", "explains", "Fix", "--max-num-seqs 10", "Not checked", "rules:")
    ]
    assert places == sorted(places)
    assert "10,240 tokens / 956" in shown
    assert "rule of thumb" in shown


def test_a_server_whose_speed_is_not_known_is_not_said_to_wait_for_its_clients() -> None:
    headline = " ".join(text.render(judged("client-limited", slice(0, 10))).split("\n\n")[0].split())
    assert headline.startswith("OK Nothing wrong found; speed not judged: GPU unknown")
    assert "clients" not in headline


def test_a_healthy_server_is_short() -> None:
    assert len(text.render(judged("healthy-busy", slice(0, 4))).splitlines()) <= 16


def test_a_first_scrape_says_what_it_lacks() -> None:
    shown = text.render(judged("healthy-busy", slice(0, 1)))
    assert shown.startswith("UNKNOWN")
    assert "a rate needs two scrapes" in flat(shown)
    assert "--window 3" in shown


def test_a_report_on_nobody_says_why() -> None:
    assert "refuses connections" in text.render(unreachable())


# ---- the host


def on_its_host() -> Report:
    """The recorded server, with what its host and its GPUs would tell."""
    report = judged("preemption", slice(0, 4))
    patient = replace(
        report.patient,
        gpus=2,
        gpu="NVIDIA H100 80GB HBM3",
        processes=(("api-server", 4099), ("engine-core", 4100), ("worker", 4101), ("worker", 4102)),
        cores_wanted=4.0,
        cores_usable=1.5,
        cores_terms="1 API server + 1 engine core + 2 workers",
    )
    host = SourceSeen(SourceKind.HOST, "pid 4099", 0.0, 0, None, ("2 of its processes have no title",))
    gpu = SourceSeen(SourceKind.GPU, "NVIDIA driver", 0.0, 0, None, ("GPU 3 fell off the bus",))
    command = ("vllm", "serve", "tiny", "--port", "8000", "--chat-template", "a file; with blanks")
    return replace(report, patient=patient, sources=(*report.sources, host, gpu), command=command)


def flat(shown: str) -> str:
    return " ".join(shown.split())


def test_what_the_server_has_of_its_host() -> None:
    shown = text.render(on_its_host())
    assert max(map(len, shown.splitlines())) <= text.WIDTH
    assert "· pids: api-server 4099 engine-core 4100 worker 4101 worker 4102" in flat(shown)
    assert "cores: 1.5 usable, 4 wanted (1 API server + 1 engine core + 2 workers) · 2 × NVIDIA H100 80GB" in flat(
        shown
    )
    assert "vllm serve tiny --port 8000 --chat-template 'a file; with blanks'" in flat(shown)
    assert "pid 4099: 2 of its processes have no title" in flat(shown)
    assert "GPU 3 fell off the bus" in flat(shown)
    assert "run vllm-doctor on its host" not in flat(shown)
    assert shown.index("cores: ") < shown.index("  Evidence") < shown.index("fell off")


def test_a_server_of_which_only_the_address_is_known() -> None:
    shown = flat(text.render(judged("preemption", slice(0, 4))))
    assert "pids:" not in shown
    assert "cores:" not in shown
    assert "CPU, GPUs and flags: run vllm-doctor on its host" in shown


@pytest.mark.parametrize(("gpus", "gpu", "said"), [(0, None, "no GPU"), (3, None, "3 GPUs"), (1, "A10G", "1 × A10G")])
def test_how_many_gpus(gpus: int, gpu: str | None, said: str) -> None:
    report = on_its_host()
    shown = flat(text.render(replace(report, patient=replace(report.patient, gpus=gpus, gpu=gpu))))
    assert f"workers) · {said} " in shown


def test_more_processes_than_one_wants_to_read() -> None:
    report = on_its_host()
    processes = tuple(("worker", pid) for pid in range(5000, 5009))
    shown = flat(text.render(replace(report, patient=replace(report.patient, processes=processes))))
    assert "worker 5005 and 3 more" in shown
    assert "5006" not in shown


def test_commands_and_who_can_run_them() -> None:
    report = on_its_host()
    finding = report.findings[0]
    remedy = replace(
        finding.remedies[0], run=("nvidia-smi -pl 700", "cpupower frequency-set -g performance"), by="administrator"
    )
    own = replace(finding.remedies[0], run=("ulimit -n 65536",), by="you")
    shown = text.render(replace(report, findings=(replace(finding, remedies=(remedy, own)),)))
    lines = [line.strip() for line in shown.splitlines()]
    assert "$  nvidia-smi -pl 700  # as an administrator" in lines
    assert "$  ulimit -n 65536" in lines
    assert max(map(len, shown.splitlines())) <= text.WIDTH


def corrected() -> Report:
    changes = (Change("--max-num-seqs", 64.0, 128.0, "cap"), Change("OMP_NUM_THREADS", None, 1.0, "threads"))
    correction = Correction(("vllm", "serve", "tiny", "--chat-template", "a file; with blanks"), changes)
    return replace(on_its_host(), correction=correction)


def test_a_switch_that_was_switched_off_is_dropped_as_it_was_given() -> None:
    report = on_its_host()
    remedy = replace(report.findings[0].remedies[0], set={}, unset=("--no-x", "--x"), was={"--x": False}, env={})
    found = replace(report.findings[0], remedies=(remedy,))
    lines = text.render(replace(report, findings=(found,), correction=None)).splitlines()
    assert [line.strip() for line in lines if line.strip().startswith("-  ")] == ["-  --no-x"]


def test_the_corrected_command_stands_after_the_findings() -> None:
    shown = text.render(corrected())
    lines = shown.splitlines()
    at = lines.index("  Restart     with this command, to fix cap, threads:")
    assert [line.strip() for line in lines[at + 1 : at + 5]] == [
        "-  --max-num-seqs 64",
        "+  --max-num-seqs 128",
        "+  OMP_NUM_THREADS=1  (environment)",
        "vllm serve tiny --chat-template 'a file; with blanks'",
    ]
    assert "Not checked" in shown[shown.index("Restart") :]


def test_the_changes_of_a_single_finding_stand_only_with_it() -> None:
    report = corrected()
    assert report.correction is not None
    alone = replace(report, correction=replace(report.correction, changes=report.correction.changes[:1]))
    lines = text.render(alone).splitlines()
    assert lines[lines.index("  Restart     with this command, to fix cap:") + 1].startswith(
        "              vllm serve tiny"
    )


def test_without_a_correction_there_is_none() -> None:
    assert "Restart" not in text.render(on_its_host())


def priced(gain: Gain | None, *remedies: Remedy, **changes: Any) -> Report:
    return postmortem([replace(finding("cap"), gain=gain, stage=Stage.LIMIT, remedies=remedies, **changes)])


def test_what_the_cause_costs_stands_before_the_cure() -> None:
    [cure] = finding("cap").remedies
    own = replace(cure, gain=Gain(1.201, "half of it"))
    lines = text.render(priced(Gain(2.148, "slots"), replace(cure, gain=Gain(2.148, "slots")), own)).splitlines()
    at = lines.index("  Gain        at most × 2.15 (slots)")  # rounded up: it is a bound
    assert at < lines.index("  Fix         Admit what fits")


def test_a_finding_has_one_gain_the_most_that_any_fix_brings() -> None:
    [cure] = finding("cap").remedies
    larger = replace(cure, gain=Gain(3.5, "a larger pool"))
    lines = text.render(priced(Gain(2.148, "slots"), cure, larger)).splitlines()
    assert [line.strip() for line in lines if "at most ×" in line] == ["Gain        at most × 3.5 (a larger pool)"]


def test_a_cost_that_is_not_known_is_said_to_be() -> None:
    assert "  Gain        unknown" in text.render(priced(None)).splitlines()
    assert "Gain" not in text.render(postmortem([replace(finding("died"), stage=Stage.BROKEN)]))
    assert "Gain" not in text.render(priced(None, role=Role.INFO))


def test_a_note_tells_why_it_is_no_more() -> None:
    shown = text.render(replace(priced(Gain(1.004, "stopped"), severity=Severity.INFO), headline="No limit found"))
    assert "Gain: at most × 1.01 (stopped)." in " ".join(shown.split())


def test_what_will_be_after_the_restart() -> None:
    [cure] = finding("cap").remedies
    told = replace(cure, then=("The pool holds 11.",), starts_unknown={"gpu_memory_at_start": Reason.DENIED})
    lines = [line.strip() for line in text.render(priced(None, told)).splitlines()]
    assert "then: The pool holds 11." in lines
    assert any(line.startswith("not known whether vLLM starts with it: gpu_memory_at_start") for line in lines)


def test_what_the_corrected_command_leaves_out() -> None:
    report = corrected()
    assert report.correction is not None
    left = (LeftOut("other", "Admit less", "--max-num-seqs 128 cures cap"),)
    shown = text.render(replace(report, correction=replace(report.correction, left_out=left)))
    assert "does not fix other (Admit less): --max-num-seqs 128 cures cap" in " ".join(shown.split())


def test_of_many_comparisons_the_first_are_shown_and_of_two_bounds_the_stricter() -> None:
    found = finding("cap")
    [one] = found.evidence
    bounds = [replace(one, than=0.1), replace(one, than=0.5), replace(one, than=0.2)]
    others = [replace(one, signal=f"signal_{n}", says=f"number {n}") for n in range(8)]
    shown = text.render(postmortem([replace(found, evidence=(*bounds, *others))]))
    rows = [line for line in shown.splitlines() if line.endswith("from log")]
    assert len(rows) == 6
    assert "> 0.5" in rows[0]
    assert "and 3 more comparisons: --json" in shown
