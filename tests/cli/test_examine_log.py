"""The command on logs, end to end."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_main import Doctor, Ran, doctor, one_line
from tests.serving import pages, serving, vllm
from tests.sources.log.shapes import SHAPES
from tests.sources.log.test_runs import CUDA_OOM, busy, death, idle, record, start, stats, stop, stopped, written
from vllm_doctor.cli.options import FORMATS

__all__ = ["doctor"]

QUEUED = [
    *start(0),
    *idle(40, 90),
    *(stats(at, 4, 12, kv_cache=8.0) for at in range(100, 700, 10)),
    *idle(700, 730),
    *stop(735),
    *stopped(),
]
"""An hour's work in ten minutes: more requests than --max-num-seqs 4 admits, and a KV cache that is nearly empty."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vllm.log"


def verdict(report: dict[str, Any]) -> dict[str, Any]:
    """What a report says, without when it was written, from what and how fast; times to the second."""

    def to_second(text: str | None) -> str | None:
        return text[:19] if text else text

    return {
        "verdict": report["verdict"],
        "headline": report["headline"],
        "findings": [(f["rule"], f["severity"], f["role"], f["subject"]) for f in report["findings"]],
        "rules": report["rules"],
        "patient": report["patient"],
        "command": report["command"],
        "lives": [{**run, "from": to_second(run["from"]), "to": to_second(run["to"])} for run in report["lives"]],
        "spans": [{**span, "from": to_second(span["from"]), "to": to_second(span["to"])} for span in report["spans"]],
    }


def rules(report: dict[str, Any]) -> dict[str, str]:
    return {finding["rule"]: finding["severity"] for finding in report["findings"]}


def test_a_queue_behind_max_num_seqs(path: Path, doctor: Doctor) -> None:
    ran = doctor(written(path, QUEUED), "--json")
    report = ran.report
    assert (ran.code, ran.err, report["verdict"], report["error"]) == (1, "", "warning", None)
    assert rules(report)["max-num-seqs-cap"] == "warning"
    [finding] = [f for f in report["findings"] if f["rule"] == "max-num-seqs-cap"]
    assert {e["from"] for e in finding["evidence"]} <= {"log", "cmdline", "computed"}
    assert any("--max-num-seqs" in remedy["set"] for remedy in finding["remedies"])
    assert report["patient"]["vllm"] == "0.32.0"
    assert report["patient"]["model"] == "/models/tiny"
    assert report["command"]["was"][:3] == ["vllm", "serve", "/models/tiny"]
    [run] = report["lives"]
    assert (run["start_seen"], run["served"], run["end"]) == (True, True, "stopped")
    assert report["lines"]["read"] == len(QUEUED)


def test_when_it_was_so(path: Path, doctor: Doctor) -> None:
    report = doctor(written(path, QUEUED), "--json").report
    [span] = [span for span in report["spans"] if span["rule"] == "max-num-seqs-cap"]
    assert (span["from"], span["to"]) == ("2025-11-20T10:01:30", "2025-11-20T10:11:30")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_verdict_is_the_same_however_the_log_is_wrapped(shape: str, path: Path, doctor: Doctor) -> None:
    plain = verdict(doctor(written(path, QUEUED), "--json").report)
    assert verdict(doctor(written(path, SHAPES[shape](QUEUED)), "--json").report) == plain


@pytest.mark.parametrize("form", FORMATS)
def test_each_output_format(form: str, path: Path, doctor: Doctor) -> None:
    ran = doctor(written(path, QUEUED), "--format", form)
    assert ran.code == 1
    assert "max-num-seqs" in ran.out
    assert not set(ran.out) & {"\x1b", "\x07", "\r"}


def test_the_text_says_when_and_is_80_wide(path: Path, doctor: Doctor) -> None:
    ran = doctor(written(path, QUEUED))
    assert ran.out.startswith("WARNING  ")
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize(("fail_on", "code"), [("warning", 1), ("critical", 0), ("never", 0)])
def test_the_exit_code(fail_on: str, code: int, path: Path, doctor: Doctor) -> None:
    assert doctor(written(path, QUEUED), "--fail-on", fail_on).code == code


# Several files, and pipes


def test_a_rotated_set_is_one_log(path: Path, tmp_path: Path, doctor: Doctor) -> None:
    whole = verdict(doctor(written(path, QUEUED), "--json").report)
    parts = [
        written(tmp_path / "s.log", QUEUED[50:]),
        written(tmp_path / "s.log.2.gz", gzip.compress("".join(f"{line}\n" for line in QUEUED[:12]).encode())),
        written(tmp_path / "s.log.1", QUEUED[12:50]),
    ]
    assert verdict(doctor(*parts, "--json").report) == whole


def test_standard_input(path: Path) -> None:
    written(path, QUEUED)
    with path.open("rb") as file:
        ran = subprocess.run(
            [sys.executable, "-m", "vllm_doctor", "-", "--json"],
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
        )
    report = Ran(ran.returncode, ran.stdout, ran.stderr).report
    assert (ran.returncode, ran.stderr) == (1, "")
    assert rules(report)["max-num-seqs-cap"] == "warning"
    assert report["sources"][0]["target"] == "-"


def test_no_input() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "vllm_doctor", "-"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "standard input gave nothing" in one_line(Ran(ran.returncode, ran.stdout, ran.stderr))


def test_two_servers_in_two_files(tmp_path: Path, doctor: Doctor) -> None:
    report = doctor(
        written(tmp_path / "a.log", QUEUED), written(tmp_path / "b.log", [*start(100), *busy(140, 400, 1)]), "--json"
    ).report
    assert len(report["lives"]) == 2
    assert rules(report)["max-num-seqs-cap"] == "warning"


# What cannot be read


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (bytes(range(256)) * 40, "is binary"),
        (b"Nov 20 10:00:00 web nginx[7]: \x1b[31mupstream\x1b[0m\x07 timed out\n" * 9, "0 of 9 lines recognised"),
        (gzip.compress(b"", mtime=0), "is empty"),
    ],
)
def test_what_is_no_log_is_one_line(content: bytes, says: str, path: Path, doctor: Doctor) -> None:
    written(path, content)
    assert says in one_line(doctor(path))
    ran = doctor(path, "--json")
    assert ran.report["verdict"] == "unknown"
    assert says in ran.report["error"]["message"]
    assert doctor(path).out == ""


def test_what_is_no_vllms_is_described_and_not_shown(path: Path, doctor: Doctor) -> None:
    written(path, [f"10:00:0{n} \x1b]0;title\x07\x1b[2Jupstream <b>timed</b> out {n}" for n in range(9)])
    line = one_line(doctor(path))
    assert "it is text (" in line
    assert "upstream" not in line
    assert "\x1b" not in line


def test_a_folder_and_a_file_that_is_not_there(tmp_path: Path, doctor: Doctor) -> None:
    assert "is a folder" in one_line(doctor(tmp_path))
    assert "nor a URL" in one_line(doctor(tmp_path / "no.log"))


def test_of_two_files_one_is_bad(path: Path, tmp_path: Path, doctor: Doctor) -> None:
    ran = doctor(written(path, QUEUED), written(tmp_path / "bad.log", bytes(range(256)) * 40), "--json")
    assert ran.code == 1
    [problem] = [source["error"] for source in ran.report["sources"] if source["error"]]
    assert "bad.log is binary" in problem["message"]


def test_a_torn_gzip_is_read_as_far_as_it_goes_and_says_so(path: Path, doctor: Doctor) -> None:
    packed = gzip.compress("".join(f"{line}\n" for line in [*QUEUED[:-20], *busy(800, 20000)]).encode())
    written(path, packed[: len(packed) // 2])
    ran = doctor(path)
    assert ran.code in (0, 1)
    assert "truncated gzip" in " ".join(ran.out.split())
    assert any("truncated gzip" in note for note in doctor(path, "--json").report["sources"][0]["notes"])


# What cannot be told


def test_statistics_alone_judge_what_can_be_judged(path: Path, doctor: Doctor) -> None:
    """What the start would have told is not known, and never ok."""
    report = doctor(written(path, [line for line in QUEUED[10:-4] if "Engine 000" in line]), "--json").report
    assert report["patient"]["vllm"] is None
    assert report["rules"]["client-limited"] != "unknown"
    for rule in ("enforce-eager", "compile-off", "attention-backend-fallback", "fd-limit"):
        assert report["rules"][rule] in ("unknown", "not-applicable"), rule
    reasons = {reason for unknown in report["unknown"] for reason in unknown["because"].values()}
    assert "not-in-log" in reasons
    assert report["lives"][0]["start_seen"] is False


def test_a_start_without_statistics_tells_nothing_of_what_it_did(path: Path, doctor: Doctor) -> None:
    ran = doctor(written(path, start(0)), "--json")
    assert ran.code == 3
    assert ran.report["verdict"] == "unknown"
    assert "no statistics" in ran.report["headline"]


def test_a_start_that_fails_is_critical(path: Path, doctor: Doctor) -> None:
    lines = [
        *start(0)[:6],
        *death(
            20, cause="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
        ),
    ]
    ran = doctor(written(path, lines), "--json")
    assert ran.code == 2
    assert rules(ran.report)["engine-died"] == "critical"
    assert ran.report["lives"][0]["end"] == "died"
    assert ran.report["lives"][0]["death"]["cause"].startswith("ValueError: No available memory")


def test_a_death(path: Path, doctor: Doctor) -> None:
    lines = [*start(0), *busy(40, 300), *death(305), *idle(310, 900)]
    ran = doctor(written(path, lines), "--json")
    [run] = ran.report["lives"]
    assert ran.code == 2
    assert (run["end"], run["death"]["cause"], run["death"]["process"]) == ("died", CUDA_OOM, "EngineCore")
    assert "encountered a fatal error" in lines[run["death"]["line"] - 1]
    assert CUDA_OOM in " ".join(doctor(path).out.split())


def test_a_stop_is_no_death(path: Path, doctor: Doctor) -> None:
    lines = [*start(0), *busy(40, 300), *stop(305), *death(306, cause="KeyboardInterrupt: terminated"), *stopped()]
    report = doctor(written(path, lines), "--json").report
    assert "engine-died" not in rules(report)
    assert report["rules"]["engine-died"] == "ok"


# The period


def test_since_and_until(path: Path, doctor: Doctor) -> None:
    written(path, QUEUED)
    assert "max-num-seqs-cap" not in rules(doctor(path, "--json", "--until", "10:01:30").report)
    assert "max-num-seqs-cap" in rules(doctor(path, "--json", "--since", "10:02", "--until", "10:10").report)
    assert "max-num-seqs-cap" not in rules(doctor(path, "--json", "--last", "25s").report)
    assert "max-num-seqs-cap" in rules(doctor(path, "--json", "--last", "5m").report)
    assert "max-num-seqs-cap" in rules(doctor(path, "--json", "--since", "2025-11-20T10:02:00").report)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--since", "yesterday"), "'yesterday' is no time"),
        (("--until", "25:00"), "'25:00' is no time"),
        (("--last", "1h", "--since", "2h"), "give one of them"),
    ],
)
def test_a_wrong_period(arguments: Sequence[str], says: str, path: Path, doctor: Doctor) -> None:
    assert says in one_line(doctor(written(path, QUEUED), *arguments))


def test_one_thread_or_two_is_asked_for_and_no_more(path: Path, doctor: Doctor) -> None:
    written(path, QUEUED)
    reports = [doctor(path, "--json", "--threads", threads).report for threads in ("1", "2")]
    assert rules(reports[0]) == rules(reports[1])
    assert "--threads" in one_line(doctor(path, "--threads", "3"))


def test_a_period_without_anything_says_so(path: Path, doctor: Doctor) -> None:
    line = one_line(doctor(written(path, QUEUED), "--since", "2025-11-21"))
    assert f"nothing in {path} is between --since and --until" in line
    assert "2025-11-20T10:00:00" in line
    assert doctor(path, "--since", "2025-11-21", "--json").report["error"]["kind"] == "empty"


# A server and its log


def test_a_server_and_its_log(path: Path, doctor: Doctor, hurried: None) -> None:
    """/metrics tells what it does, its log what it was started with."""
    eager = [
        *(
            line.replace("enforce_eager=False", "enforce_eager=True")
            for line in start(0, flags="'enforce_eager': True")
        ),
        record(
            2,
            "Enforce eager set, disabling torch.compile and CUDAGraphs. This is equivalent to setting -cc.mode=none",
            level="WARNING",
            source="vllm.py:1033",
        ),
        *busy(40, 90),
    ]
    written(path, eager)
    with serving(vllm(pages("healthy-busy"))) as server:
        alone = doctor(server.url, "--json", "--window", "2").report
    with serving(vllm(pages("healthy-busy"))) as server:
        report = doctor(server.url, path, "--json", "--window", "2").report
    assert alone["rules"]["enforce-eager"] == "unknown"
    assert "enforce-eager" in rules(report)
    assert sorted(source["kind"] for source in report["sources"] if source["kind"] in ("server", "log")) == [
        "log",
        "server",
    ]
    assert report["rules"]["preemption"] == alone["rules"]["preemption"]
    assert len(report["lives"]) == 1
    assert report["patient"]["vllm"] == "0.32.0"


# What a log may do to the reader


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_terminal_would_obey_never_leaves(form: str, path: Path, doctor: Doctor) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202e<script>alert(1)</script>\x9b31m"
    lines = [
        *start(0, flags=f"'served_model_name': ['{evil}'], 'max_num_seqs': 4"),
        record(33, f"Found ulimit of 20{evil}"),
        *busy(40, 300),
        *death(305, cause=f"ValueError: {evil} was asked for"),
    ]
    ran = doctor(written(path, lines), "--format", form)
    assert ran.out or form == "patch"  # a log of a server that died of something else has nothing to change
    assert not set(ran.out + ran.err) & set("\x1b\x07\u202e\x9b")


@pytest.mark.parametrize("form", FORMATS)
def test_no_secret_leaves(form: str, path: Path, doctor: Doctor) -> None:
    secrets = [f"S3CRET-{n}-0123456789abcdef" for n in range(3)]
    flags = f"'api_key': ['{secrets[0]}', '{secrets[1]}'], 'hf_token': '{secrets[2]}', 'max_num_seqs': 4"
    lines = [*start(0, flags=flags), *QUEUED[10:]]
    ran = doctor(written(path, lines), "--format", form)
    assert ran.code == 1
    assert not [secret for secret in secrets if secret in ran.out + ran.err]
    if form == "json":
        assert "--api-key" in ran.report["command"]["was"]


@pytest.mark.parametrize(
    "year",
    [
        "0000",
        "0001",
        "1969",
        "9999",
    ],
)
def test_a_log_of_a_strange_year(year: str, path: Path, doctor: Doctor) -> None:
    """A wrapper's clock was wrong; lines without it run on into the next year."""
    wrapped = [f"{year}-12-31T23:59:{at:02}Z {stats(at)}" for at in range(0, 60, 10)]
    ran = doctor(written(path, [*wrapped, *busy(60, 200)]), "--json")
    assert "internal error" not in ran.err
    assert ran.report["lives"]


FP8_WITHOUT = (
    "WARNING 11-08 09:00:00 [marlin_utils_fp8.py:50] Your GPU does not have native support for FP8 computation but FP8"
    " quantization is being used. Weight-only FP8 compression will be used leveraging the Marlin kernel. This may"
    " degrade performance for compute-heavy workloads.\n"
)


@pytest.mark.parametrize(
    ("listed", "capability", "remedy"),
    [
        ("GPU 0: NVIDIA H100 80GB HBM3\n  MIG 1g.20gb     Device  0:\n", "9", "Upgrade vLLM, which does not recognise"),
        ("GPU 0: NVIDIA A10\nGPU 1: NVIDIA A10\n", "8.6", "If prompts dominate, use an INT8"),
    ],
)
def test_what_nvidia_smi_printed_tells_a_logs_gpus(
    path: Path, tmp_path: Path, doctor: Doctor, listed: str, capability: str, remedy: str
) -> None:
    path.write_text(FP8_WITHOUT, "utf-8")
    smi = tmp_path / "smi.txt"
    smi.write_text(listed, "utf-8")
    found = doctor(str(path), "--nvidia-smi", str(smi), "--json").report["findings"]
    fp8 = next(finding for finding in found if finding["rule"] == "fp8-no-native")
    assert fp8["here"].startswith(f"The GPU has compute capability {capability}.")
    (only,) = fp8["remedies"]
    assert only["do"].startswith(remedy)


def test_how_many_gpus_a_log_has_is_said_by_its_command(path: Path, tmp_path: Path, doctor: Doctor) -> None:
    path.write_text(FP8_WITHOUT, "utf-8")
    smi = tmp_path / "smi.txt"
    smi.write_text("".join(f"GPU {index}: NVIDIA A10\n" for index in range(4)), "utf-8")
    arguments = (str(path), "--nvidia-smi", str(smi), "--json")
    assert doctor(*arguments).report["patient"]["gpus"] is None
    assert doctor(*arguments, "--command", "vllm serve m -tp 2").report["patient"]["gpus"] == 2


def test_a_file_beside_a_log_that_tells_of_no_gpu_stops_nothing(path: Path, tmp_path: Path, doctor: Doctor) -> None:
    path.write_text(FP8_WITHOUT, "utf-8")
    smi = tmp_path / "smi.txt"
    smi.write_text("nothing of the kind\n", "utf-8")
    ran = doctor(str(path), "--nvidia-smi", str(smi), "--json")
    [problem] = [source["error"] for source in ran.report["sources"] if source["error"]]
    assert "is not the output of nvidia-smi" in problem["message"]


# How it ended


def test_a_job_that_slurm_ended_is_told_so(path: Path, doctor: Doctor) -> None:
    cancelled = "slurmstepd: error: *** JOB 4711 ON n7 CANCELLED AT 2025-11-20T10:01:35 DUE TO TIME LIMIT ***"
    name = str(written(path, [*start(0), *busy(40, 90), cancelled]))
    report = doctor(name, "--json").report
    assert [(run["end"], run["ended_by"]) for run in report["lives"]] == [
        ("stopped", "SLURM cancelled the job: TIME LIMIT")
    ]
    assert "engine-died" not in rules(report)
    assert "was stopped: SLURM cancelled the job: TIME LIMIT" in " ".join(doctor(name, "--text").out.split())


def test_a_start_that_was_stopped_is_told_with_the_part_of_it(path: Path, doctor: Doctor) -> None:
    name = str(written(path, [*start(0)[:6], "(APIServer pid=100) KeyboardInterrupt: terminated"]))
    report = doctor(name, "--json").report
    assert [(run["end"], run["ended_by"], run["stopped_in"]) for run in report["lives"]] == [
        ("stopped", "SIGTERM", "weights")
    ]
    assert rules(report)["stopped-while-starting"] == "info"
    text = " ".join(doctor(name, "--text").out.split())
    assert "was stopped during startup (weights): SIGTERM" in text
    assert "To decide" not in text  # there is nothing to measure


def test_a_hang_is_told_with_how_long_it_lasted(path: Path, doctor: Doctor) -> None:
    still = [stats(at, 4, 0, 0.0, 0.0, 10.0) for at in range(100, 500, 10)]
    name = str(written(path, [*start(0), *busy(40, 90), *still]))
    report = doctor(name, "--json").report
    assert [run["end"] for run in report["lives"]] == ["hung"]
    assert rules(report)["engine-hung"] == "critical"
    assert "hangs: requests run, and no tokens are generated for" in " ".join(doctor(name, "--text").out.split())


OOM_STAGES = {
    "weights": ("load_model", "--gpu-memory-utilization does not help"),
    "memory profile": ("profile_run", "Make the largest step smaller"),
    "graph capture": ("capture_model", "Capture fewer CUDA graphs"),
    "KV cache": ("initialize_kv_cache", "Give the KV cache less"),
}


@pytest.mark.parametrize("stage", OOM_STAGES)
def test_the_fix_of_a_failed_start_helps_where_it_failed(stage: str, path: Path, doctor: Doctor) -> None:
    function, does = OOM_STAGES[stage]
    engine = "EngineCore pid=200"
    traced = [
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        f'  File "/opt/vllm/v1/worker/gpu_worker.py", line 342, in {function}',
        CUDA_OOM,
    ]
    lines = [*start(0)[:5], *(record(12, line, engine, "ERROR", "core.py:1510") for line in traced)]
    report = doctor(str(written(path, lines)), "--json").report
    assert report["lives"][0]["death"]["stage"] == stage
    [died] = [finding for finding in report["findings"] if finding["rule"] == "engine-died"]
    assert f"({stage})" in died["here"]
    assert does in died["remedies"][0]["do"]
    assert not any("--gpu-memory-utilization" in remedy["set"] for remedy in died["remedies"])


LONE = {
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing"
    " the engine.": "Use less memory outside of the KV cache",
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed,"
    " which is larger than the available KV cache memory (9.10 GiB).": "Lower the context limit",
    "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has"
    " compute capability 7.5.": "Compute in float16",
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.": "Warm up with fewer",
}
"""What only vLLM says, pasted without the rest of its log -> how its fix begins."""


@pytest.mark.parametrize("line", LONE)
def test_one_line_that_only_vllm_says_is_enough(line: str, path: Path, doctor: Doctor) -> None:
    path.write_text(f"{line}\n")
    report = doctor(str(path), "--json").report
    assert report["findings"][0]["rule"] == "engine-died"
    assert report["findings"][0]["remedies"][0]["do"].startswith(LONE[line])


def test_a_line_that_others_say_as_well_is_not(path: Path, doctor: Doctor) -> None:
    path.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    run = doctor(str(path), "--json")
    assert run.code == 3


def test_a_v0_engine_that_was_gone_was_not_stopped(path: Path, doctor: Doctor) -> None:
    path.write_text(
        "ERROR 12-01 13:05:02 client.py:282] RuntimeError('Engine process (pid 76) died.')\n"
        "ERROR 12-01 13:05:02 client.py:282] NoneType: None\n"
        "CRITICAL 12-01 13:05:02 launcher.py:99] MQLLMEngine is already dead, terminating server process\n"
        'INFO:     10.42.0.118:60606 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
        "INFO:     Shutting down\n"
    )
    report = doctor(str(path), "--json").report
    assert report["lives"][0]["end"] == "died"
    assert "the log shows no exception" in report["findings"][0]["here"]


SLOW = "vllm serve deepseek-ai/DeepSeek-V3 --trust-remote-code --tensor-parallel-size 8 --pipeline-parallel-size 2"
OF_V0 = (
    "INFO 01-02 16:{} metrics.py:467] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {} tokens/s, "
    "Running: 1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.1%, CPU KV cache usage: 0.0%.\n"
)


@pytest.mark.parametrize(
    ("rate", "given", "expected", "says"),
    [
        (2.9, ("--gpu", "16xH100"), "warning", "345 ms, where 23.7 ms would be slow for this model and these GPUs"),
        (2.9, (), "unknown", "345 ms, slower than GPUs are that hold their model: name the GPUs"),
        (90.0, ("--gpu", "16xH100"), "ok", "The server is waiting for its clients"),
    ],
)
def test_a_short_log_of_a_crawling_server(
    rate: float, given: tuple[str, ...], expected: str, says: str, path: Path, doctor: Doctor
) -> None:
    path.write_text(
        "".join(OF_V0.format(at, tokens) for at, tokens in (("16:56", 0.1), ("17:02", rate), ("17:07", rate)))
    )
    report = doctor(str(path), "--command", SLOW, *given, "--json").report
    assert (report["verdict"], says in report["headline"]) == (expected, True)


SHM_WAIT = (
    "(EngineCore pid=141) INFO 06-10 08:00:25 [shm_broadcast.py:681] No available shared memory broadcast block found "
    "in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. "
    "compilation, weight/kv cache quantization).\n"
)
OF_V1 = (
    "(APIServer pid=109) INFO 06-10 08:{:02}:{}3 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
    "Avg generation throughput: 45.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.7%, "
    "Prefix cache hit rate: 0.0%\n"
)


@pytest.mark.parametrize(("rounds", "expected"), [(6, "unknown"), (40, "ok")])
def test_minutes_in_which_no_worker_answered_are_a_share_of_the_time(
    rounds: int, expected: str, path: Path, doctor: Doctor
) -> None:
    served = "".join(OF_V1.format(*divmod(place, 6)) for place in range(3, 3 + rounds))
    path.write_text(f"(APIServer pid=109) INFO:     Application startup complete.\n{SHM_WAIT}{served}")
    report = doctor(str(path), "--json").report
    assert report["verdict"] == expected
    assert ("waited for its workers for 50 % of the time" in report["headline"]) == (expected == "unknown")
