from __future__ import annotations

import gzip
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from tests.making import shipped_catalogue, shipped_rules
from tests.paths import LOGS
from tests.sources.log.shapes import SHAPES
from tests.sources.log.test_runs import (
    GENERATED,
    LogFolder,
    busy,
    death,
    fact,
    idle,
    log,
    posix,
    record,
    running,
    start,
    stats,
    stop,
    stopped,
    table,
    traceback,
    written,
)
from vllm_doctor.model.errors import DoctorError, UsageError
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.run import Run
from vllm_doctor.rules import postmortem
from vllm_doctor.sources.log import bytes_scan, bytes_windows, source
from vllm_doctor.sources.log.bytes_stream import Held
from vllm_doctor.sources.log.bytes_windows import Window
from vllm_doctor.sources.log.source import Followed, Log, period

__all__ = ["log"]

WHOLE = [*start(0), *busy(40, 300), *death(305), *start(400, 500, 600), *busy(440, 500, who="APIServer pid=500")]


def examined(*paths: Path | None, since: str | None = None, until: str | None = None) -> Observation:
    began, ended = (period(text) if text else None for text in (since, until))
    return Log(paths, table(), began, ended).examine("the server")


def told(runs: Sequence[Run]) -> list[object]:
    """What runs are, without where their lines stand."""
    return [
        (run.first_at, run.last_at, run.began, run.up, run.stopped, run.rounds, run.death and run.death.cause)
        for run in runs
    ]


# ---- threads ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each log that a second thread reads; short ones are long enough."""
    started: list[int] = []
    prepare = bytes_windows.ahead
    monkeypatch.setattr(bytes_scan, "_AHEAD_FROM", 1000)
    monkeypatch.setattr(bytes_scan, "_WINDOW", 2000)

    def noted(windows: Generator[Window]) -> Generator[Window]:
        started.append(1)
        return prepare(windows)

    monkeypatch.setattr(bytes_windows, "ahead", noted)
    monkeypatch.setattr(source, "idle_processor", lambda _kernel: lambda: True)
    return started


LONG = [*start(0), *(line for n in range(60) for line in busy(40 + 100 * n, 130 + 100 * n))]


def test_a_second_thread_changes_no_result(tmp_path: Path, ahead: list[int]) -> None:
    path = written(tmp_path / "vllm.log", LONG)
    alone = Log([path], table(), threads=1).examine("the server")
    assert not ahead
    for threads in (None, 2):
        together = Log([path], table(), threads=threads).examine("the server")
        assert told(together.runs) == told(alone.runs)
        assert together.facts == alone.facts
    assert len(ahead) == 2


def test_a_second_thread_takes_no_processor_that_others_need(
    tmp_path: Path, ahead: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "vllm.log", LONG)
    Log([path], table(), watch=0.0).examine("its server, which runs")
    Log([path, written(tmp_path / "other.log", LONG)], table(), threads=2).examine("two logs in turns")
    monkeypatch.setattr(source, "idle_processor", lambda _kernel: lambda: False)
    Log([path], table()).examine("on a busy host")
    assert not ahead


# ---- several files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_rotated_log_is_one_log_in_any_order(order: Sequence[int], tmp_path: Path) -> None:
    cuts = [0, 14, 40, len(WHOLE)]
    parts = ["".join(f"{line}\n" for line in WHOLE[a:b]).encode() for a, b in itertools.pairwise(cuts)]
    paths = [
        written(tmp_path / "vllm.log.2.gz", gzip.compress(parts[0])),
        written(tmp_path / "vllm.log.1", parts[1]),
        written(tmp_path / "vllm.log", parts[2]),
    ]
    whole = examined(written(tmp_path / "whole", WHOLE))
    rotated = examined(*(paths[place] for place in order))
    assert told(rotated.runs) == told(whole.runs)
    assert len(rotated.runs) == 2
    assert rotated.lines is not None
    assert whole.lines is not None
    assert (rotated.lines.read, rotated.lines.recognised) == (whole.lines.read, whole.lines.recognised)


def test_logs_that_are_rotated_by_the_day(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / "vllm.log", WHOLE[40:]),
        written(tmp_path / "vllm.log-20251120.gz", gzip.compress("".join(f"{x}\n" for x in WHOLE[14:40]).encode())),
        written(tmp_path / "vllm.log-20251119", WHOLE[:14]),
    ]
    assert told(examined(*paths).runs) == told(examined(written(tmp_path / "whole", WHOLE)).runs)


def test_logs_that_the_kubelet_rotated(tmp_path: Path) -> None:
    shaped = SHAPES["cri"](WHOLE).splitlines(keepends=True)
    folder = tmp_path / "pod"
    folder.mkdir()
    paths = [
        written(folder / "0.log", b"".join(shaped[30:])),
        written(folder / "0.log.20251120-100200.gz", gzip.compress(b"".join(shaped[:30]))),
    ]
    assert told(examined(*paths).runs) == told(examined(written(tmp_path / "whole", b"".join(shaped))).runs)


def test_names_that_end_in_a_number_are_no_rotation(tmp_path: Path) -> None:
    """kubectl logs vllm-0 > vllm-0: two replicas."""
    paths = [written(tmp_path / f"vllm-{n}", busy(0, 90, n + 1)) for n in (0, 1)]
    assert [{value for _, value in running(run)} for run in examined(*paths).runs] == [{1}, {2}]


def test_the_newest_log_of_a_rotation_may_still_be_empty(tmp_path: Path) -> None:
    paths = [written(tmp_path / "vllm.log", b""), written(tmp_path / "vllm.log.1", WHOLE)]
    seen = examined(*paths)
    assert seen.error is None
    assert len(seen.runs) == 2
    assert any("vllm.log is empty" in note for note in seen.notes)


OOM = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 95.00 GiB of which 1.91 GiB is free."
)


@pytest.mark.parametrize("names", [("server.out", "server.err"), ("job_7_stdout.log", "job_7_stderr.log")])
@pytest.mark.parametrize("order", [1, -1])
def test_standard_output_and_error_are_of_one_server(order: int, names: tuple[str, str], tmp_path: Path) -> None:
    """What C++ writes goes to the latter, as do progress bars and the HTTP server's words."""
    lines = [*start(0), *busy(40, 90), *death(95, worker=300, cause="RuntimeError: API call failed")]
    own = [line for line in lines if "INFO:     " not in line]
    other = [
        "(Worker_TP0 pid=300) Loading safetensors checkpoint shards: 100% Completed | 8/8 [10:39<00:00, 79.90s/it]",
        *(line for line in lines if "INFO:     " in line),
        f"[rank3]:[E1120 10:01:35.324588983 shim_common.cpp:523] Exception in aoti_torch: {OOM}",
        *stopped(),
    ]
    paths = [written(tmp_path / name, held) for name, held in zip(names, (own, other), strict=True)]
    [run] = examined(*paths[::order]).runs
    assert (run.began, run.up, run.first_at) == (True, True, posix(0))
    assert run.death is not None
    assert run.death.cause == OOM


def test_a_standard_error_without_any_time_comes_last(tmp_path: Path) -> None:
    bars = ["Loading safetensors checkpoint shards: 100% Completed | 8/8 [10:39<00:00, 79.90s/it]", *stopped()]
    paths = [
        written(tmp_path / "vllm.out", [*start(0), *busy(40, 90), *stop(95)]),
        written(tmp_path / "vllm.err", bars),
    ]
    [run] = examined(*paths).runs
    assert (run.began, run.up, run.stopped, run.death) == (True, True, True, None)


def test_outputs_of_different_names_are_of_different_servers(tmp_path: Path) -> None:
    paths = [written(tmp_path / name, [*start(0), *busy(40, 90)]) for name in ("a.out", "b.out", "router.out")]
    assert len(examined(*paths).runs) == 3


def test_of_two_files_one_is_not_there(tmp_path: Path) -> None:
    seen = examined(written(tmp_path / "vllm.log", WHOLE), tmp_path / "other.log")
    assert seen.error is not None
    assert seen.error.kind == "not-found"
    assert "other.log does not exist" in seen.error.message


def test_of_two_files_one_is_no_vllms(tmp_path: Path) -> None:
    other = written(tmp_path / "nginx.log", ['10.1.2.3 - - [20/Nov/2025:10:00:00 +0000] "GET / HTTP/1.1" 200 5'] * 7)
    seen = examined(written(tmp_path / "vllm.log", WHOLE), other)
    assert seen.error is None
    assert len(seen.runs) == 2
    assert [note for note in seen.notes if "nginx.log: none of its 7 lines is vLLM's" in note]


def test_the_same_file_twice_is_one_log(tmp_path: Path) -> None:
    path = written(tmp_path / "vllm.log", WHOLE)
    assert told(examined(path, path).runs) == told(examined(path).runs)


# ---- what cannot be read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "kind"), [(b"", "empty"), (bytes(range(256)) * 40, "not-a-log"), (b"PK\x03\x04", "not-a-log")]
)
def test_what_is_no_log(content: bytes, kind: str, tmp_path: Path) -> None:
    seen = examined(written(tmp_path / "vllm.log", content))
    assert seen.error is not None
    assert seen.error.kind == kind
    assert seen.runs == ()


def test_a_folder(tmp_path: Path) -> None:
    seen = examined(tmp_path)
    assert seen.error is not None
    assert "is a folder" in seen.error.message


def test_the_log_of_another_program(tmp_path: Path) -> None:
    lines = [
        f"2025-11-20 10:00:{n:02} nginx[7]: \x1b[31mupstream\x1b[0m prematurely closed <b>{n}</b>" for n in range(9)
    ]
    seen = examined(written(tmp_path / "nginx.log", lines))
    assert seen.error is not None
    assert seen.error.kind == "not-vllm"
    assert "nginx.log: 0 of 9 lines recognised" in seen.error.message
    assert "it is text (" in seen.error.message
    assert "prematurely" not in seen.error.message
    assert "\x1b" not in seen.error.message


def test_lines_of_metrics_that_are_no_page_are_told_how_to_be_one(tmp_path: Path) -> None:
    """As a watch writes them, with a time before each."""
    seen = examined(written(tmp_path / "kept.txt", ['10:00:05 vllm:num_requests_running{engine="0"} 3.0'] * 3))
    assert seen.error is not None
    assert "0 of 3 lines recognised; a page of /metrics is read from a file" in seen.error.message


def test_a_program_that_speaks_of_vllm_is_not_vllm(tmp_path: Path) -> None:
    """Its own lines hold what a client was told: no record of vLLM's is in it."""
    lines = [
        f"client: vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue {n}" for n in range(9)
    ]
    seen = examined(written(tmp_path / "client.log", lines))
    assert seen.error is not None
    assert seen.error.kind == "not-vllm"


def test_a_log_that_is_packed_and_torn_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    lines = [*start(0), *busy(40, 20000)]
    packed = gzip.compress("".join(f"{line}\n" for line in lines).encode())
    seen = examined(written(tmp_path / "vllm.log.gz", packed[: len(packed) // 2]))
    assert seen.error is None
    assert [note for note in seen.notes if "truncated gzip" in note]
    assert 100 < len(seen.runs[0].rounds) < 1998


def test_standard_input(tmp_path: Path) -> None:
    path = written(tmp_path / "vllm.log", WHOLE)
    script = (
        "from vllm_doctor.rules import log_lines as l, rule as r; from vllm_doctor.sources.log.source import Log;"
        "seen = Log([None], l.load(r.shipped() / l.FOLDER)).examine('x');"
        "print(seen.target, seen.error, [len(run.rounds) for run in seen.runs])"
    )
    with path.open("rb") as file:
        ran = subprocess.run([sys.executable, "-c", script], stdin=file, capture_output=True, text=True, check=True)
    assert ran.stdout == f"- None {[len(run.rounds) for run in examined(path).runs]}\n"


# ---- how it is wrapped -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_the_lives_are_the_same_however_the_log_is_wrapped(shape: str, log: LogFolder) -> None:
    """The wrappers' times are by a part of a second later."""
    plain, wrapped = log.runs(WHOLE), log.runs(SHAPES[shape](WHOLE))
    assert len(wrapped) == len(plain) == 2
    for one, other in zip(plain, wrapped, strict=True):
        assert [r.engines for r in other.rounds] == [r.engines for r in one.rounds]
        assert [r.at for r in other.rounds] == pytest.approx([r.at for r in one.rounds], abs=1)
        assert (other.began, other.up, other.stopped) == (one.began, one.up, one.stopped)
        assert (other.model, other.command, other.interval) == (one.model, one.command, one.interval)
        assert {k: v for k, v in other.facts.items() if v != one.facts.get(k)} == {}
        assert (other.death and other.death.cause) == (one.death and one.death.cause)
        assert (other.death and other.death.process) == (one.death and one.death.process)


def test_whether_times_are_absolute(log: LogFolder) -> None:
    zoned = [log.seen(SHAPES[shape](WHOLE)).lines for shape in ("plain", "journald", "docker_json", "cri")]
    assert [lines.zoned if lines else None for lines in zoned] == [False, False, True, True]


@pytest.mark.parametrize(
    "width",
    [
        *(width for width in (80, 90)),
        *(100, 120, 200),
    ],
)
def test_statistics_that_a_terminal_broke(width: int, log: LogFolder) -> None:
    lines = [*start(0), *busy(40, 90, 3, 2)]
    broken = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
    assert [(each.at, each.engines) for each in log.run(broken).rounds] == [
        (each.at, each.engines) for each in log.run(lines).rounds
    ]


def test_lines_that_cri_broke(log: LogFolder) -> None:
    """containerd cuts lines at 16 KiB; here a little earlier. P is a part, F the last one."""
    lines = [*start(0), *busy(40, 90, 3, 2)]
    parts = []
    for line in SHAPES["cri"](lines).decode().splitlines():
        time_, stream, _, text = line.split(" ", 3)
        pieces = [text[at : at + 150] for at in range(0, len(text), 150)]
        parts += [f"{time_} {stream} {'F' if piece is pieces[-1] else 'P'} {piece}" for piece in pieces]
    whole, broken = log.run(lines), log.run(parts)
    assert [each.engines for each in broken.rounds] == [each.engines for each in whole.rounds]
    assert [each.at for each in broken.rounds] == pytest.approx([each.at for each in whole.rounds], abs=1)


# ---- what users write ------------------------------------------------------------------------------------------------

SPOOFS = [
    "Traceback (most recent call last):",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB.",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    "EngineDeadError",
    "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
    stats(50, 250, 900, kv_cache=99.9).partition("] ")[2],
    "EngineCore encountered a fatal error.",
    "[shutdown] API server: shutdown triggered",
    "non-default args: {'max_num_seqs': 1}",
    "Fatal Python error: Segmentation fault",
    "Killed                  vllm serve",
]


def requested(prompt: str, way: str = "quoted", source: str = "request_logger.py:65") -> list[str]:
    """The request logger, with the prompt quoted on its one line, or as it is: with vLLM's prefix repeated, or raw."""
    shown = repr(prompt) if way == "quoted" else f"'{prompt}'"
    message = f"Received request cmpl-7f: prompt: {shown}, params: SamplingParams(n=1), lora_request: None."
    first, *more = message.split("\n")
    return [
        record(95, first, source=source),
        *(more if way == "raw" else [record(95, line, source=source) for line in more]),
    ]


@pytest.mark.parametrize("spoof", SPOOFS)
@pytest.mark.parametrize(
    ("way", "source"),
    [
        ("quoted", "request_logger.py:65"),
        ("prefixed", "request_logger.py:65"),
        ("raw", "request_logger.py:65"),
        ("prefixed", "logger.py:40"),
    ],
)
def test_what_a_prompt_says_is_no_event(way: str, source: str, spoof: str, log: LogFolder) -> None:
    """Neither while the server goes on, nor at the log's end."""
    first, more = [*start(0), *busy(40, 90)], busy(100, 150)
    said = requested(f"What does this mean?\n{spoof}\n{spoof}", way, source)
    for honest, spoofed in (([*first, *more], [*first, *said, *more]), (first, [*first, *said])):
        plain, heard = log.run(honest), log.run(spoofed)
        assert (heard.rounds, heard.death, heard.stopped) == (plain.rounds, plain.death, plain.stopped)
        assert {name for name, value in heard.facts.items() if value != plain.facts.get(name)} <= REQUEST_LOGGED


REQUEST_LOGGED = {"log:request-logged", "log:request-logged@serving"}


# ---- the period ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 3570), ("5m", 3300), ("5min", 3300), ("0.5h", 1800), ("1 h", 0), ("10:30", 1800), ("10:30:15", 1815),
        ("2025-11-20T10:30:00", 1800), ("2025-11-20 10:30:00Z", 1800), ("2025-11-20T12:30:00+02:00", 1800),
        ("2025-11-20", -36000), ("1d", -82800),
    ],
)  # fmt: skip
def test_a_period(text: str, seconds: float) -> None:
    """On the clock of a log that ends at 11:00."""
    assert period(text).seconds(posix(3600)) == posix(seconds)


@pytest.mark.parametrize("text", ["", "yesterday", "25:00", "10:61", "-5m", "2025-13-01", "5 weeks", "1e9h"])
def test_what_is_no_period(text: str) -> None:
    with pytest.raises(UsageError, match="is no time"):
        period(text)


def test_a_time_of_day_before_midnight(tmp_path: Path) -> None:
    """The log ends at half past midnight."""
    midnight = 14 * 3600
    path = written(tmp_path / "vllm.log", [stats(at) for at in range(midnight - 1800, midnight + 1800, 10)])
    [run] = examined(path, since="23:50").runs
    assert run.first_at == posix(midnight - 600)


def test_only_what_was_measured_in_the_period(tmp_path: Path) -> None:
    path = written(tmp_path / "vllm.log", [*start(0), *busy(40, 600)])
    [run] = examined(path, since="10:02:00", until="10:04:00").runs
    assert [at for at, _ in running(run)] == list(range(120, 241, 10))
    assert (run.first_at, run.last_at) == (posix(120), posix(240))
    assert fact(run, "--max-num-seqs") == 4  # what the start told holds on


def test_lives_outside_of_the_period_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "vllm.log", WHOLE)
    assert len(examined(path).runs) == 2
    assert [run.began and run.death for run in examined(path, since="2m").runs] == [None]


def test_a_period_in_which_there_is_nothing(tmp_path: Path) -> None:
    seen = examined(written(tmp_path / "vllm.log", WHOLE), since="2025-11-21")
    assert seen.runs == ()
    assert seen.error is not None
    assert "is between --since and --until: it goes from 2025-11-20T10:00:00" in seen.error.message


def test_a_death_outside_of_the_period_did_not_happen(tmp_path: Path) -> None:
    [run] = examined(written(tmp_path / "vllm.log", [*start(0), *busy(40, 300), *death(305)]), until="10:04").runs
    assert run.death is None
    assert fact(run, "engine_deaths") == 0
    assert fact(run, "engine_dead") is False


def test_a_period_that_ends_before_it_begins(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--until 10:01 is before --since 10:05"):
        examined(written(tmp_path / "vllm.log", WHOLE), since="10:05", until="10:01")


# ---- what is said of it ----------------------------------------------------------------------------------------------


def test_what_was_read(tmp_path: Path) -> None:
    lines = [*start(0), *busy(40, 90), "GET /health", ""]
    path = written(tmp_path / "vllm.log", lines)
    log = Log([path], table())
    seen = log.examine("the server")
    assert seen.lines is not None
    assert seen.lines.read == len(lines)
    assert 0 < seen.lines.recognised <= len(lines) - 2
    assert log.bytes_read == path.stat().st_size


def test_a_lone_line_without_a_time_has_none(tmp_path: Path) -> None:
    """Not "+0:00:10": that clock runs by the log's statistics, and there are none."""
    lone = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    (run,) = Log([written(tmp_path / "vllm.log", [lone])], table()).examine("the server").runs
    assert run.death is not None
    assert (run.death.at, run.first_at, run.last_at) == (None, None, None)


@pytest.mark.parametrize("name", ["vllm.log", "vllm.log.gz"])
def test_which_share_of_its_file_was_read(tmp_path: Path, name: str) -> None:
    """Of a packed one the share of the packed bytes."""
    text = "\n".join([*start(0), *busy(40, 9000), ""]).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    log = Log([path], table())
    assert log.share_read == 0.0
    log.examine("the server")
    assert log.share_read == 1.0


def test_nobody_knows_which_share_of_a_pipe_was_read_or_of_a_log_that_grows(tmp_path: Path) -> None:
    path = written(tmp_path / "vllm.log", start(0))
    assert Log([path, None], table()).share_read is None
    assert Log([path], table(), watch=3.0).share_read is None


def test_of_many_files_only_some_are_named() -> None:
    assert Log([Path(f"{n}.log") for n in range(9)], table()).target == "0.log, 1.log, 2.log and 6 more"
    assert Log([None], table()).target == "-"


def test_of_a_million_lines_some_are_counted_only(tmp_path: Path) -> None:
    lines = [stats(at) for at in range(0, 10 * 21000, 10)]
    seen = examined(written(tmp_path / "vllm.log", lines))
    assert seen.lines is not None
    assert seen.lines.one_in > 1
    [run] = seen.runs
    assert run.rounds[-1].at - run.rounds[0].at > 0.99 * 10 * 21000


def test_a_key_is_nowhere_in_what_is_observed(tmp_path: Path) -> None:
    lines = [*start(0, flags="'api_key': ['S3CRET-0123456789'], 'max_num_seqs': 4"), *busy(40, 90)]
    seen = examined(written(tmp_path / "vllm.log", lines))
    assert "--api-key" in seen.command
    assert "S3CRET" not in repr(seen)


# ---- anything at all -------------------------------------------------------------------------------------------------


def realistic() -> list[list[str]]:
    worker = "Worker_TP0 pid=301"
    return [
        WHOLE,
        [*start(0), *busy(40, 90, 4, 30), *idle(100, 200), *busy(400, 500), *stop(505), *stopped()],
        [
            *start(0)[:6],
            record(15, "WorkerProc failed to start.", worker, "ERROR"),
            *traceback(15, worker, "RuntimeError: NCCL error: unhandled system error", "ValueError: then this"),
        ],
        [f"[pod/vllm-{n % 2}/server] {line}" for n, line in enumerate([*start(0), *busy(40, 300)])],
        [line.example for line in table().lines.values()],
        [
            *(stats(at, engine=e) for at in range(0, 300, 10) for e in range(3)),
            *requested(f"{SPOOFS[0]}\n{SPOOFS[5]}", "raw"),
        ],
    ]


def mutated(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        lines = data.split(b"\n")
        a, b = sorted(chance.randrange(len(lines) + 1) for _ in range(2))
        match chance.randrange(8):
            case 0:
                flipped = bytearray(data)
                for _ in range(chance.randint(1, 60)):
                    if flipped:
                        flipped[chance.randrange(len(flipped))] = chance.randrange(256)
                data = bytes(flipped)
            case 1:
                middle = lines[a:b]
                chance.shuffle(middle)
                data = b"\n".join([*lines[:a], *middle, *lines[b:]])
            case 2:
                data = b"\n".join([*lines[:b], *lines[a:]])
            case 3:
                data = data[: chance.randrange(len(data) + 1)]
            case 4:
                data = data[chance.randrange(len(data) + 1) :]
            case 5:
                other = chance.choice(others).split(b"\n")
                data = b"\n".join([*lines[:a], *other[chance.randrange(len(other)) :], *lines[a:]])
            case 6:
                number = str(chance.choice([0, 1, 99, 10 ** chance.randint(1, 30)])).encode()
                data = b"\n".join([*lines[:a], *(x.replace(b"10", number) for x in lines[a:b]), *lines[b:]])
            case _:
                data = b"".join(x + (b"\n" if chance.random() > 0.05 else b"") for x in lines)
    return data[:300_000]


@pytest.mark.parametrize("seed", range(4))
def test_no_log_is_too_strange(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    seeds = ["".join(f"{line}\n" for line in lines).encode() for lines in realistic()]
    shapes = list(SHAPES.values())
    for n in range(12):
        data = chance.choice(seeds)
        if chance.random() < 0.3:
            data = chance.choice(shapes)(data.decode().splitlines())
        path = written(tmp_path / f"{n}.log", mutated(data, seeds, chance))
        began = time.monotonic()
        try:
            seen = examined(path)
            if seen.runs:
                past = postmortem.examine(seen.runs, shipped_rules(), shipped_catalogue(), {})
                assert all(span.first_at <= span.last_at for span in past.spans)
                assert all(0 <= span.run < len(seen.runs) for span in past.spans)
            for run in seen.runs:
                assert run.first_at is None or run.last_at is None or run.first_at <= run.last_at
        except DoctorError:
            pass
        assert time.monotonic() - began < 20, f"input {n}"


def test_lines_in_which_many_patterns_could_try_long(tmp_path: Path) -> None:
    """What follows a text that is looked for is long, and nearly what the pattern wants."""
    examples = [line.example for line in table().lines.values()]
    lines = [
        f"{example[: len(example) // 2]}{filler * 3000}" for example in examples for filler in ("a", " ", "1,", "((")
    ]
    began = time.monotonic()
    examined(written(tmp_path / "vllm.log", lines))
    assert time.monotonic() - began < 20


def test_a_log_that_is_followed_is_read_again_only_when_it_was_written_to(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    data = gzip.decompress((LOGS / "max-num-seqs-cap.log.gz").read_bytes())
    path.write_bytes(data[: len(data) // 2])
    followed = Followed([path], table(), "http://h:1")
    first = followed.look(30.0)
    assert first.patient == "http://h:1"
    assert followed.look(30.0) is first
    with path.open("ab") as file:
        file.write(data[len(data) // 2 :])
    second = followed.look(30.0)
    assert second.lines is not None
    assert first.lines is not None
    assert second.lines.read > first.lines.read
    path.unlink()
    assert followed.look(30.0).error is not None


@pytest.mark.parametrize("name", ["a\nb.log", "\n", "x.log\n.1", "a.log\n"])
def test_a_line_end_in_a_files_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    written(path, WHOLE)
    assert examined(path).error is None


@pytest.mark.parametrize("at", [1e300, -1e300, 1e12])
def test_a_log_that_is_dated_beyond_the_calendar_is_read_and_that_is_said(at: float, tmp_path: Path) -> None:
    text = written(tmp_path / "v.log", WHOLE).read_bytes()
    found = Log([Held("v.log", text, at)], table()).examine("p")
    assert found.error is None
    assert "outside of the years 1 to 9999" in found.notes[0]


def test_a_progress_bar_that_only_vllm_draws_is_enough_to_be_its_log(tmp_path: Path) -> None:
    path = tmp_path / "bar.log"
    path.write_text("Capturing CUDA graphs (decode, FULL): 100%|██████████| 3/3 [00:01<00:00,  2.4it/s]\n", "utf-8")
    assert examined(path).error is None
    path.write_text("Capturing frames (decode, FULL): 100%|██████████| 3/3 [00:01<00:00,  2.4it/s]\n", "utf-8")
    assert examined(path).error is not None


def test_a_rate_is_the_same_in_the_part_of_a_long_log_that_is_only_sampled(tmp_path: Path) -> None:
    hours = 10.0 * 3 * bytes_scan.FULL
    found = examined(written(tmp_path / "v.log", [*start(0), *busy(40, 40 + hours)]))
    assert found.lines is not None
    assert found.lines.one_in > 1
    rounds = found.runs[0].rounds
    middle = next(round for round in rounds if round.at - rounds[0].at > hours / 3)
    first, second = (
        (after.total(GENERATED) - before.total(GENERATED)) / (after.at - before.at)
        for before, after in ((rounds[0], middle), (middle, rounds[-1]))
    )
    assert second == pytest.approx(first, rel=0.05)
