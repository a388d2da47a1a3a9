"""Logs as vLLM writes them, and the runs of servers that are told from them.

What writes such logs (start, stats, death, …) is for the other tests of logs too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Value
from vllm_doctor.model.run import KV_CACHE, RUNNING, WAITING, Run, Series
from vllm_doctor.rules import log_lines, rule
from vllm_doctor.rules.log_lines import LogLines
from vllm_doctor.sources.log.source import Log

BEGIN = datetime(2025, 11, 20, 10, tzinfo=UTC)
"""Second 0 of the logs."""

GENERATED: Series = ("vllm:generation_tokens_total", ())
PREEMPTIONS: Series = ("vllm:num_preemptions_total", ())
CUDA_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB."
ENGINE_DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
    "See stack trace (above) for the root cause."
)
FAILED_WORKER = "RuntimeError: Worker failed with error 'an assertion', please check the stack trace above"


@cache
def table() -> LogLines:
    return log_lines.load(rule.shipped() / log_lines.FOLDER)


# ---- what vLLM writes ------------------------------------------------------------------------------------------------


def posix(seconds: float) -> float:
    return BEGIN.timestamp() + seconds


def record(
    at: float, message: str, who: str = "APIServer pid=100", level: str = "INFO", source: str = "loggers.py:273"
) -> str:
    """One line; `who` "" is without a prefix, as vLLM wrote until 0.10."""
    return f"{f'({who}) ' if who else ''}{level} {BEGIN + timedelta(seconds=at):%m-%d %H:%M:%S} [{source}] {message}"


def start(
    at: float, api: int = 100, core: int = 200, flags: str = "'max_num_seqs': 4", prefixed: bool = True
) -> list[str]:
    """From the banner to the first request: 30 seconds."""
    server = f"APIServer pid={api}" if prefixed else ""
    engine = f"EngineCore pid={core}" if prefixed else ""
    return [
        record(at, " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0", server, source="api_utils.py:347"),
        record(
            at,
            f"non-default args: {{'model_tag': '/models/tiny', 'port': 8000, {flags}}}",
            server,
            source="api_utils.py:286",
        ),
        record(at + 1, "Resolved architecture: LlamaForCausalLM", server, source="model.py:733"),
        record(at + 1, "Using max model len 2048", server, source="model.py:2152"),
        record(
            at + 9,
            "Initializing a V1 LLM engine (v0.32.0) with config: model='/models/tiny', speculative_config=None, "
            "dtype=torch.bfloat16, max_seq_len=2048, tensor_parallel_size=1, quantization=None, enforce_eager=False, "
            "kv_cache_dtype=auto, device_config=cuda, enable_prefix_caching=True, enable_chunked_prefill=True",
            engine,
            source="core.py:133",
        ),
        record(at + 12, "Loading weights took 2.50 seconds", engine, source="default_loader.py:501"),
        record(at + 20, "GPU KV cache size: 524,288 tokens", engine, source="kv_cache_utils.py:2327"),
        record(
            at + 29,
            "init engine (profile, create kv cache, warmup model) took 9.65 s",
            engine,
            source="core.py:402",
        ),
        record(at + 30, "Starting vLLM server on http://0.0.0.0:8000", server, source="entry.py:140"),
        f"{f'({server}) ' if server else ''}INFO:     Application startup complete.",
    ]


def stats(
    at: float,
    running: int = 4,
    waiting: int = 0,
    generation: float = 400.0,
    prompt: float = 100.0,
    kv_cache: float = 10.0,
    engine: int = 0,
    who: str = "APIServer pid=100",
) -> str:
    return record(
        at,
        f"Engine {engine:03}: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: "
        f"{generation:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
        f"GPU KV cache usage: {kv_cache:.1f}%, Prefix cache hit rate: 0.0%",
        who,
    )


def busy(first: float, last: float, running: int = 4, waiting: int = 0, who: str = "APIServer pid=100") -> list[str]:
    """A line every ten seconds."""
    return [stats(at, running, waiting, who=who) for at in range(int(first), int(last) + 1, 10)]


def idle(first: float, last: float, who: str = "APIServer pid=100") -> list[str]:
    return [
        stats(at, 0, generation=0.0, prompt=0.0, kv_cache=0.0, who=who) for at in range(int(first), int(last) + 1, 10)
    ]


def traceback(at: float, who: str, *exceptions: str, source: str = "core.py:1512") -> list[str]:
    """As vLLM logs it: a record for each line; of several exceptions each was raised while handling the one before."""
    lines = []
    for place, exception in enumerate(exceptions):
        if place:
            lines += ["", "During handling of the above exception, another exception occurred:", ""]
        lines += [
            "Traceback (most recent call last):",
            '  File "/opt/vllm/v1/engine/core.py", line 912, in run_engine_core',
            "    self._process_engine_step()",
            "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            exception,
        ]
    return [record(at, line, who, "ERROR", source) for line in lines]


def death(at: float, api: int = 100, core: int = 200, worker: int | None = None, cause: str = CUDA_OOM) -> list[str]:
    """What follows when an engine core dies, in itself or in a worker of it."""
    server, engine, of_worker = f"APIServer pid={api}", f"EngineCore pid={core}", f"Worker_TP0 pid={worker}"
    lines = []
    if worker is not None:
        lines.append(record(at, "WorkerProc hit an exception.", of_worker, "ERROR", "multiproc_executor.py:1063"))
        lines += traceback(at, of_worker, cause, source="multiproc_executor.py:1063")
        cause = FAILED_WORKER
    lines.append(record(at, "EngineCore encountered a fatal error.", engine, "ERROR", "core.py:1512"))
    lines += traceback(at, engine, cause)
    lines.append(record(at + 1, "AsyncLLM output_handler failed.", server, "ERROR", "async_llm.py:906"))
    lines += traceback(at + 1, server, ENGINE_DEAD, source="async_llm.py:906")
    lines += dead(at + 1, api)
    lines.append(f'({server}) INFO:     10.1.2.3:40312 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error')
    return lines


def dead(at: float, api: int = 100, times: int = 6) -> list[str]:
    """Each request that was under way says that the engine is dead."""
    return [
        line
        for _ in range(times)
        for line in traceback(at, f"APIServer pid={api}", ENGINE_DEAD, source="serving_completion.py:152")
    ]


def stop(at: float, api: int = 100, core: int = 200) -> list[str]:
    """An operator's SIGTERM."""
    return [
        record(at, "[shutdown] API server: shutdown triggered", f"APIServer pid={api}", source="launcher.py:254"),
        record(
            at,
            "[shutdown] EngineCore: trigger received signal=SIGTERM",
            f"EngineCore pid={core}",
            source="core.py:1454",
        ),
        f"(APIServer pid={api}) INFO:     Shutting down",
    ]


def stopped(api: int = 100) -> list[str]:
    return [
        f"(APIServer pid={api}) INFO:     Application shutdown complete.",
        f"(APIServer pid={api}) INFO:     Finished server process [{api}]",
    ]


# ---- what is told from it --------------------------------------------------------------------------------------------


def written(path: Path, lines: Iterable[str] | bytes) -> Path:
    """The log, last written ten days later: it holds no year."""
    path.write_bytes(lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode())
    os.utime(path, (posix(864000), posix(864000)))
    return path


@pytest.fixture
def log(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path)


class LogFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def seen(self, *logs: Iterable[str] | bytes) -> Observation:
        """What is observed in these logs, each in a file of its own."""
        paths = [written(self.folder / f"server-{place}.log", lines) for place, lines in enumerate(logs)]
        return Log(paths, table()).examine("the server")

    def runs(self, *logs: Iterable[str] | bytes) -> Sequence[Run]:
        observation = self.seen(*logs)
        assert observation.error is None
        return observation.runs

    def run(self, *logs: Iterable[str] | bytes) -> Run:
        [run] = self.runs(*logs)
        return run


def fact(run: Run, name: str) -> Value | None:
    reading = run.facts.get(name)
    return reading.value if isinstance(reading, Known) else None


def running(run: Run) -> list[tuple[float, float]]:
    """The rounds: at which second of the log how many requests ran."""
    return [(round(each.at - posix(0)), each.total(RUNNING)) for each in run.rounds]


# ---- one run --------------------------------------------------------------------------------------------------------


def test_a_server_that_was_started_and_stopped(log: LogFolder) -> None:
    run = log.run([*start(0), *busy(40, 90), *stop(95), *stopped()])
    assert (run.began, run.up, run.stopped, run.death) == (True, True, True, None)
    assert (run.first_at, run.last_at) == (posix(0), posix(95))
    assert run.model == "/models/tiny"
    assert fact(run, "vllm_version") == "0.32.0"
    assert fact(run, "--max-num-seqs") == 4
    assert run.command == ("vllm", "serve", "/models/tiny", "--port", "8000", "--max-num-seqs", "4")
    assert running(run) == [(at, 4) for at in range(40, 91, 10)]
    assert fact(run, "log_ends_abruptly") is False


def test_a_log_without_its_version_is_dated_by_its_lines(log: LogFolder) -> None:
    truncating = "Truncating max_cudagraph_capture_size to 40"
    assert fact(log.run([*start(0), record(20, truncating)]), "flags_window_says") is None
    lines = [record(0, truncating), *busy(40, 90)]
    assert fact(log.run(lines), "flags_window_says") == '0.11.1 or later, by "Truncating max_cudagraph_capture_size to"'
    assert fact(log.run(busy(40, 90)), "flags_window_says") is None


def test_a_log_without_its_version_is_dated_by_its_flags_and_its_engine(log: LogFolder) -> None:
    given = record(0, "non-default args: {'model': 'm', 'swap_space': 8.0, 'cuda_graph_sizes': [8]}")
    assert fact(log.run([given]), "flags_window_says") == "0.9.0 to 0.12.0, by --cuda-graph-sizes"
    v0 = (
        "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 1 reqs,"
        " Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.3%, CPU KV cache usage: 0.0%."
    )
    assert fact(log.run([record(9, v0)]), "flags_window_says") == 'up to 0.10.2, by "Swapped:" of the V0 engine'


def test_a_log_that_just_stops_while_the_server_works(log: LogFolder) -> None:
    run = log.run([*start(0), *busy(40, 90)])
    assert (run.stopped, run.death) == (False, None)
    assert fact(run, "engine_dead") is False
    assert fact(run, "log_ends_abruptly") is False


def test_a_log_that_just_stops_while_the_server_starts(log: LogFolder) -> None:
    run = log.run(start(0)[:6])
    assert (run.began, run.up, run.death) == (True, False, None)
    assert fact(run, "log_ends_abruptly") is True


def test_a_log_that_holds_only_statistics(log: LogFolder) -> None:
    """It does not say what its start would have: such a fact is not known, and not false either."""
    run = log.run(busy(0, 60))
    assert (run.began, run.up, run.model, run.command) == (False, True, None, ())
    assert fact(run, "log:architecture") is None
    assert "--max-num-seqs" not in run.facts
    assert fact(run, "log:engine-dead") == 0


def test_what_a_whole_start_does_not_hold_is_known_not_to_be(log: LogFolder) -> None:
    whole, cut = log.run([*start(0), *busy(40, 60)]), log.run(start(0)[:6])
    assert fact(whole, "log:api-servers") == 0
    assert fact(cut, "log:api-servers") is None


@pytest.mark.parametrize("prefixed", [True, False])
def test_several_processes_of_one_start_are_one_run(prefixed: bool, log: LogFolder) -> None:
    assert log.run([*start(0, prefixed=prefixed), *busy(40, 90)]).began


def test_several_api_servers_and_engines_are_one_run(log: LogFolder) -> None:
    server = start(0)
    first = [
        *server[:4],
        record(1, "Started 2 API server processes", "", source="utils.py:261"),
        *(
            line.replace("EngineCore pid=200", f"EngineCore_DP{rank} pid={200 + rank}")
            for rank in (0, 1)
            for line in server[4:8]
        ),
        *(
            line.replace("APIServer pid=100", f"ApiServer_{rank} pid={110 + rank}")
            for rank in (0, 1)
            for line in server[8:]
        ),
    ]
    run = log.run([
        *first,
        *(stats(at, engine=e, who=f"ApiServer_{e} pid={110 + e}") for at in range(40, 99, 10) for e in (0, 1)),
    ])  # fmt: skip
    assert run.up
    assert {engine for each in run.rounds for engine in each.engines} == {"0", "1"}


@pytest.mark.parametrize("between", [1, 4])
def test_api_servers_that_each_print_the_banner_are_one_run(between: int, log: LogFolder) -> None:
    """Each of them reads the arguments for itself, some seconds apart."""
    banners = [
        record(
            between * rank,
            " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
            f"APIServer_{rank} pid={100 + rank}",
            source="api_utils.py:347",
        )
        for rank in range(4)
    ]
    assert log.run([*banners, *start(20, core=300)[4:], *busy(60, 90)]).up


# ---- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("again", "prefixed"),
    [((500, 600), True), ((100, 200), True), ((100, 200), False)],
    ids=["other-pids", "same-pids", "no-pids"],
)
def test_a_restart_is_a_life_of_its_own(again: tuple[int, int], prefixed: bool, log: LogFolder) -> None:
    api, core = again
    who = f"APIServer pid={api}" if prefixed else ""
    first, second = log.runs(
        [
            *start(0, prefixed=prefixed),
            *busy(40, 90, who="APIServer pid=100" if prefixed else ""),
            *start(200, api, core, "'max_num_seqs': 8", prefixed),
            *busy(240, 290, who=who),
        ]
    )
    assert [fact(run, "--max-num-seqs") for run in (first, second)] == [4, 8]
    assert [run.first_at for run in (first, second)] == [posix(0), posix(200)]
    assert running(first)[-1][0] == 90
    assert running(second)[0][0] == 240


def test_restarts_that_nobody_asked_for_are_counted(log: LogFolder) -> None:
    """Killed in mid-start, as a liveness probe does it, and killed while it serves, without a word."""
    of_probe = [line for n in range(3) for line in (*start(120 * n)[:4], *stop(120 * n + 110))]
    killed = [line for n in range(2) for line in (*start(400 + 200 * n), *busy(440 + 200 * n, 580 + 200 * n))]
    runs = log.runs([*of_probe, *killed])
    assert [fact(run, "restarts") for run in runs] == [0, 1, 2, 0, 1]  # the fourth serves: the starts are put right
    assert fact(runs[2], "restart_interval") == 120
    assert fact(runs[1], "lived_before_restart") == 120


def test_two_servers_that_start_into_one_log_do_not_replace_each_other(log: LogFolder) -> None:
    first, second = start(0, 100, 200), start(20, 300, 400)
    runs = log.runs([*first[:4], *second[:4], *first[4:], *second[4:]])
    assert [fact(run, "restarts") for run in runs] == [0, 0]


def test_an_operators_restarts_are_no_crash_loop(log: LogFolder) -> None:
    """Told to stop once it served; or with other flags, though it failed."""
    calm = [
        line for n in range(3) for line in (*start(100 * n), *busy(100 * n + 40, 100 * n + 80), *stop(100 * n + 90))
    ]
    tuned = [line for n in range(3) for line in (*start(100 * n, flags=f"'max_num_seqs': {n + 1}")[:4],)]
    assert {fact(run, "restarts") for run in (*log.runs(calm), *log.runs(tuned))} == {0}


def test_an_engine_with_other_settings_is_no_restart(log: LogFolder) -> None:
    """Where no command is logged, what the engines were made with tells whether one replaces the other."""
    first = start(0)[4:6]
    again = [line.replace("pid=200", "pid=300") for line in start(200)[4:6]]
    other = [line.replace("enable_prefix_caching=True", "enable_prefix_caching=False") for line in again]
    assert [fact(run, "restarts") for run in log.runs([*first, *again])] == [0, 1]
    assert [fact(run, "restarts") for run in log.runs([*first, *other])] == [0, 0]


def test_the_engines_of_a_program_follow_each_other(log: LogFolder) -> None:
    """An offline script makes one engine after another: nobody restarts it."""
    first = start(0)[4:8]
    again = [line.replace("pid=200", "pid=300") for line in start(200)[4:8]]
    assert [fact(run, "restarts") for run in log.runs([*first, *again])] == [0, 0]


def test_a_program_that_imported_vllm_before_is_not_its_start(log: LogFolder) -> None:
    """collect_env says the same, minutes or hours before."""
    imported = record(0, "Automatically detected platform cuda.", "", source="__init__.py:239")
    assert log.run([imported, *start(3600), *busy(3640, 3660)]).first_at == posix(3600)
    assert log.run([imported, *start(5), *busy(45, 65)]).first_at == posix(0)


def test_what_collect_env_prints_is_of_no_run(log: LogFolder) -> None:
    imported = record(7200, "Automatically detected platform cuda.", "", source="__init__.py:239")
    printed = [imported, "Collecting environment information...", "PyTorch version: 2.6.0+cu124"]
    for lines in ([*printed, *start(0), *busy(40, 60)], [*start(0), *busy(40, 60), *printed]):
        run = log.run(lines)
        assert (run.first_at, run.last_at) == (posix(0), posix(60))


def test_where_a_quoted_log_ends_somebody_has_chosen(log: LogFolder) -> None:
    for around in (["```text"], ["<details>"], ["> ~~~"]):
        run = log.run([*around, *start(0)[:6], "```"])
        assert (run.death, fact(run, "log_ends_abruptly")) == (None, False)
    assert fact(log.run(start(0)[:6]), "log_ends_abruptly") is True


def test_a_log_says_where_it_is_quoted(log: LogFolder) -> None:
    assert fact(log.run(["```text", *start(0), "```"]), "log_quoted") == 1
    assert fact(log.run(start(0)), "log_quoted") is None


def test_when_the_lines_of_a_start_were_printed(log: LogFolder) -> None:
    run = log.run(start(7))
    assert fact(run, "log:banner-version@at") == 0
    assert fact(run, "log:server-ready@at") == 30
    assert fact(log.run(start(7)[5:]), "log:server-ready@at") is None  # the log begins in its middle


def test_a_start_that_has_another_compile_cache_than_the_one_before(log: LogFolder) -> None:
    def told(first: str, second: str, flags: str = "'max_num_seqs': 4") -> Value | None:
        runs = log.runs([*kept(0, first), *busy(40, 60), *kept(200, second, flags)])
        return fact(runs[-1], "compile_key_before")

    def kept(at: float, key: str, flags: str = "'max_num_seqs': 4") -> list[str]:
        api = int(at) + 100
        text = f"Using cache directory: /root/.cache/vllm/{key}/rank_0_0/backbone for vLLM's torch.compile"
        lines = start(at, api, api + 100, flags)
        return [*lines[:-1], record(at + 29, text, f"EngineCore pid={api + 100}", source="backends.py:1104"), lines[-1]]

    before, now = "torch_compile_cache/3fbdd5227b", "torch_compile_cache/978868eca3"
    assert told(before, now) == before
    assert told(before, before) is None
    assert told(before, now, "'max_num_seqs': 8") is None  # another command


def test_an_earlier_start_that_neither_came_up_nor_says_how_it_ended(log: LogFolder) -> None:
    names = ("starts_unfinished", "unfinished_stage", "unfinished_silence")

    def told(lines: list[str]) -> list[Value | None]:
        return [fact(log.runs(lines)[-1], name) for name in names]

    again = start(200, 300, 400)
    assert told([*start(0)[:6], *again]) == [1, "weights", 188]
    assert told([*start(0), *busy(40, 60), *again]) == [0, None, None]  # it served
    assert told([*start(0)[:6], *death(25), *again]) == [0, None, None]
    assert told([*start(0)[:6], "KeyboardInterrupt: terminated", *again]) == [0, None, None]
    assert told(start(0)[:6]) == [0, None, None]  # the log ends there


def test_how_long_the_weights_took_by_the_clock(log: LogFolder) -> None:
    """Until 0.6 no line says it."""
    begun = record(5, "Starting to load model /models/tiny...", "", source="model_runner.py:1072")
    there = record(792, "Loading model weights took 16.4605 GB", "", source="model_runner.py:1077")
    assert fact(log.run([*start(0)[:5], begun, there]), "weights_load_seconds") == 787
    assert fact(log.run([*start(0)[:5], begun]), "weights_load_seconds") is None


def test_restarts_of_hours_ago_say_nothing_of_a_server_that_serves(log: LogFolder) -> None:
    loop = [line for n in range(5) for line in start(60 * n)[:4]]
    last = log.runs([*loop, *start(300), *busy(340, 9000)])[-1]
    assert fact(last, "restarts") == 0


@pytest.mark.parametrize(
    ("step", "prefixed"), [(7, True), (0, True), (0, False)], ids=["other-pids", "same-pids", "no-pids"]
)
def test_a_crash_loop(step: int, prefixed: bool, log: LogFolder) -> None:
    """Five starts, each of which fails after twenty seconds."""
    lines: list[str] = []
    for n in range(5):
        api, core = 100 + step * n, 200 + step * n
        lines += start(60 * n, api, core, prefixed=prefixed)[:6]
        engine = f"EngineCore pid={core}" if prefixed else ""
        lines.append(record(60 * n + 20, "EngineCore failed to start.", engine, "ERROR", "core.py:1510"))
        lines += traceback(60 * n + 20, engine, CUDA_OOM)
        server = f"(APIServer pid={api}) " if prefixed else ""
        lines += [
            f"{server}Traceback (most recent call last):",
            f'{server}  File "/opt/bin/vllm", line 8, in <module>',
            f"{server}    sys.exit(main())",
            f"{server}RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}",
        ]
    runs = log.runs(lines)
    assert len(runs) == 5
    assert [run.death.cause if run.death else None for run in runs] == [CUDA_OOM] * 5
    assert not any(run.up for run in runs)
    assert fact(runs[-1], "engine_deaths") == 5
    assert fact(runs[-1], "engine_dead") is True
    assert fact(runs[-1], "death_phase") == "start"


@pytest.mark.parametrize(
    "later",
    [
        2,
        60,
    ],
)
def test_two_servers_interleaved_in_one_file_are_two_runs(later: int, log: LogFolder) -> None:
    first = [*start(0, 100, 200), *busy(40, 190, 1)]
    second = [*start(later, 500, 600, "'max_num_seqs': 8"), *busy(later + 40, later + 190, 7, who="APIServer pid=500")]
    runs = log.runs(line for _, line in sorted([*by_time(first), *by_time(second)], key=lambda pair: pair[0]))
    assert [fact(run, "--max-num-seqs") for run in runs] == [4, 8]
    assert [{value for _, value in running(run)} for run in runs] == [{1}, {7}]


def by_time(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Each line with its time, or that of the line before."""
    at, timed = "", []
    for line in lines:
        found = re.search(r"11-20 [\d:]{8}", line)
        at = found[0] if found else at
        timed.append((at, line))
    return timed


def test_pods_of_one_stream_are_lives_of_their_own(log: LogFolder) -> None:
    """kubectl logs --prefix -l app=vllm: in containers the pids are the same."""
    pods = [[f"[pod/vllm-{n}/server] {line}" for line in [*start(0), *busy(40, 90, n + 1)]] for n in (0, 1)]
    runs = log.runs([line for pair in zip(*pods, strict=True) for line in pair])
    assert [{value for _, value in running(run)} for run in runs] == [{1}, {2}]


def test_logs_of_two_servers_are_merged_by_time(log: LogFolder) -> None:
    runs = log.runs([*start(100), *busy(140, 190, 1)], [*start(0), *busy(40, 90, 2)])
    assert [run.first_at for run in runs] == [posix(0), posix(100)]
    assert [{value for _, value in running(run)} for run in runs] == [{2}, {1}]


def test_the_log_of_a_worker_on_another_node_belongs_to_the_server(log: LogFolder) -> None:
    worker = [
        record(50, "WorkerProc hit an exception.", "Worker_TP8 pid=77", "ERROR", "multiproc_executor.py:1063"),
        *traceback(50, "Worker_TP8 pid=77", CUDA_OOM),
    ]
    run = log.run([*start(0), *busy(40, 50), *death(51, cause=FAILED_WORKER)], worker)
    assert run.death is not None
    assert (run.death.process, run.death.cause) == ("Worker_TP8", CUDA_OOM)


# ---- deaths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker", [None, 301])
def test_the_first_cause_and_not_the_last_traceback(worker: int | None, log: LogFolder) -> None:
    run = log.run([*start(0), *busy(40, 90), *death(95, worker=worker), *stopped()])
    assert run.death is not None
    assert run.death.cause == CUDA_OOM
    assert run.death.process == ("Worker_TP0" if worker else "EngineCore")
    assert run.death.at == posix(95)
    assert run.death.serving
    assert not run.stopped
    assert fact(run, "engine_deaths") == 1


def test_the_line_of_the_cause(log: LogFolder) -> None:
    lines = [*start(0), *busy(40, 90), *death(95)]
    run = log.run(lines)
    assert run.death is not None
    assert "encountered a fatal error" in lines[run.death.line - 1]


def test_of_chained_exceptions_the_first(log: LogFolder) -> None:
    engine = "EngineCore pid=200"
    run = log.run([
        *start(0),
        *busy(40, 90),
        record(95, "EngineCore encountered a fatal error.", engine, "ERROR", "core.py:1512"),
        *traceback(95, engine, "KeyError: 'layer-7'", "RuntimeError: the step failed", "ValueError: cannot clean up"),
        *dead(96),
    ])  # fmt: skip
    assert run.death is not None
    assert run.death.cause == "KeyError: 'layer-7'"


def test_of_two_processes_whose_tracebacks_are_interleaved_the_first(log: LogFolder) -> None:
    tracebacks = [
        [
            record(95, "WorkerProc hit an exception.", f"Worker_TP{rank} pid={300 + rank}", "ERROR", "m.py:1"),
            *traceback(95, f"Worker_TP{rank} pid={300 + rank}", cause),
        ]
        for rank, cause in enumerate((CUDA_OOM, "TimeoutError: RPC call to execute_model timed out."))
    ]
    run = log.run([
        *start(0),
        *busy(40, 90),
        *(line for pair in zip(*tracebacks, strict=True) for line in pair),
        *death(96, cause=FAILED_WORKER),
    ])  # fmt: skip
    assert run.death is not None
    assert (run.death.process, run.death.cause) == ("Worker_TP0", CUDA_OOM)


def test_an_engine_that_is_dead_while_zeros_go_on(log: LogFolder) -> None:
    """The API server still prints statistics, and /health may still say 200."""
    run = log.run([*start(0), *busy(40, 90), *death(95), *idle(100, 300)])
    assert run.death is not None
    assert fact(run, "engine_dead") is True
    assert running(run)[-1] == (300, 0)


def test_a_death_without_an_exception(log: LogFolder) -> None:
    gone = record(
        95,
        "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
        level="WARNING",
        source="core_client.py:817",
    )
    run = log.run([*start(0), *busy(40, 90), gone])
    assert run.death is not None
    assert run.death.cause is None
    assert fact(run, "death_cause") == "the log shows no exception"


def test_a_death_that_the_kernel_tells(log: LogFolder) -> None:
    line = "[1234567.890123] Memory cgroup out of memory: Killed process 200 (VLLM::EngineCor) total-vm:98213412kB"
    run = log.run([*start(0), *busy(40, 90), line])
    assert run.death is not None
    assert run.death.cause is not None
    assert run.death.cause.startswith("Memory cgroup out of memory")


def test_a_server_that_was_told_to_stop_has_not_died(log: LogFolder) -> None:
    run = log.run([*start(0), *busy(40, 90), *stop(95), *death(96, cause="KeyboardInterrupt: terminated"), *stopped()])
    assert (run.stopped, run.death) == (True, None)
    assert fact(run, "engine_deaths") == 0


def test_requests_that_fail_while_it_stops_are_no_death(log: LogFolder) -> None:
    """Their lines may even come first: the processes write into one file."""
    run = log.run([*start(0), *busy(40, 90), *dead(95), *stop(95), *stopped()])
    assert (run.stopped, run.death) == (True, None)


def test_a_server_that_stopped_long_ago_can_die_of_something_else(log: LogFolder) -> None:
    """It did not stop: it went on to serve."""
    run = log.run([*start(0), *busy(40, 90), *stop(95)[:1], *busy(100, 400), *death(405)])
    assert run.death is not None
    assert run.death.cause == CUDA_OOM


def test_an_exception_that_it_survives_is_no_death(log: LogFolder) -> None:
    worker = "Worker_TP0 pid=301"
    run = log.run([
        *start(0),
        *busy(40, 90),
        record(95, "WorkerProc hit an exception.", worker, "ERROR", "multiproc_executor.py:1063"),
        *traceback(95, worker, "ValueError: adapter not found"),
        *busy(100, 300),
    ])  # fmt: skip
    assert run.death is None


def test_an_old_exception_is_not_what_it_died_of(log: LogFolder) -> None:
    worker = "Worker_TP0 pid=301"
    run = log.run([
        *start(0),
        record(50, "WorkerProc hit an exception.", worker, "ERROR", "multiproc_executor.py:1063"),
        *traceback(50, worker, "ValueError: adapter not found"),
        *busy(60, 1200),
        *death(1205),
    ])  # fmt: skip
    assert run.death is not None
    assert run.death.cause == CUDA_OOM


def test_a_start_that_fails_in_a_worker(log: LogFolder) -> None:
    worker = "Worker pid=301"
    run = log.run([
        *start(0)[:5],
        record(15, "WorkerProc failed to start.", worker, "ERROR", "multiproc_executor.py:953"),
        *traceback(15, worker, "ValueError: Free memory on device cuda:0 (4.3/79.2 GiB) on startup is less than "
        "desired GPU memory utilization (0.92, 72.84 GiB). Decrease GPU memory utilization."),
        record(16, "EngineCore failed to start.", "EngineCore pid=200", "ERROR", "core.py:1510"),
        *traceback(16, "EngineCore pid=200", "Exception: WorkerProc initialization failed due to an exception"),
        "(APIServer pid=100) Traceback (most recent call last):",
        "(APIServer pid=100) RuntimeError: Engine core initialization failed. See root cause above.",
    ])  # fmt: skip
    assert run.death is not None
    assert run.death.process == "Worker"
    assert str(run.death.cause).startswith("ValueError: Free memory on device cuda:0")
    assert not run.death.serving
    assert fact(run, "log:gpu-memory-taken.free") == 4.3


SERVE = '  File "/usr/lib/python3.12/site-packages/vllm/entrypoints/cli/serve.py", line 60, in cmd'


def test_what_comes_up_to_the_servers_main_has_ended_it(log: LogFolder) -> None:
    invalid = [
        "Traceback (most recent call last):",
        SERVE,
        "    uvloop.run(run_server(args))",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "  Value error, 4096 is too much. [type=value_error, input_value=ArgsKwargs((), {'hf_token': 'S3CRET'})]",
    ]
    runs = log.runs([*start(0)[:3], *invalid, *start(20, 500)[:3], *invalid])
    assert [str(run.death and run.death.cause) for run in runs] == [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig: "
        "Value error, 4096 is too much."
    ] * 2
    assert fact(runs[-1], "death_phase") == "start"


def test_an_operators_ctrl_c_that_comes_up_to_main_is_no_death(log: LogFolder) -> None:
    traced = ["Traceback (most recent call last):", SERVE, "    uvloop.run(run_server(args))", "KeyboardInterrupt"]
    run = log.run([*start(0)[:5], *traced])
    assert run.death is None
    assert run.stopped


def test_an_abort_is_not_what_it_died_of(log: LogFolder) -> None:
    waited = (
        "[rank0]:[E1113 08:13:00.118230411 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600031 milliseconds."
    )
    aborted = record(95, "Worker VllmWorkerProcess pid 301 died, exit code: -6", "", "ERROR", "multiproc.py:120")
    run = log.run([*start(0), *busy(40, 90), aborted, waited])
    assert run.death is not None
    assert str(run.death.cause).startswith("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, ")
    killed = aborted.replace("-6", "-9")
    assert "exit code: -9" in str(getattr(log.run([*start(0), *busy(40, 90), killed, waited]).death, "cause", ""))


def test_of_a_part_of_a_log_nobody_knows_whether_it_served(log: LogFolder) -> None:
    run = log.run([record(5, "EngineCore encountered a fatal error.", "EngineCore pid=200", "ERROR", "core.py:1512")])
    assert fact(run, "death_phase") == "serving"  # else it says "failed to start"
    broken = log.run([record(5, "WorkerProc hit an exception.", "Worker_TP0 pid=3", "ERROR", "m.py:1")])
    assert fact(broken, "death_phase") == "start or serving"
    failed = record(5, "EngineCore failed to start.", "EngineCore pid=200", "ERROR", "core.py:1510")
    assert fact(log.run([failed]), "death_phase") == "start"


def test_v0_repeats_what_it_died_of(log: LogFolder) -> None:
    said = (
        "MQEngineDeadError: Engine loop is not running. Inspect the stacktrace to find the original error: KeyError(7)."
    )
    run = log.run([*start(0), *busy(40, 90), f"vllm.engine.multiprocessing.{said}"])
    assert run.death is not None
    assert run.death.cause == "KeyError(7)."
    assert fact(run, "death_cause") == "KeyError(7)"


def test_a_port_that_is_taken(log: LogFolder) -> None:
    taken = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
    run = log.run([*start(0), f"(APIServer pid=100) {taken}", *stopped()])
    assert run.death is not None
    assert "address already in use" in str(run.death.cause)
    assert not run.stopped


def test_a_death_of_which_another_life_recovered(log: LogFolder) -> None:
    runs = log.runs([*start(0), *busy(40, 90), *death(95), *start(200, 500, 600), *busy(240, 300)])
    assert [run.death is not None for run in runs] == [True, False]
    assert [fact(run, "engine_dead") for run in runs] == [False, False]


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_silence_after_zeros_is_more_zeros(log: LogFolder) -> None:
    run = log.run([*start(0), *busy(40, 60), *idle(70, 70), *busy(600, 620)])
    rounds = running(run)
    assert [value for at, value in rounds if 60 < at < 600] == [0] * len([at for at, _ in rounds if 60 < at < 600])
    assert max(at for at, value in rounds if value == 0) == 590


def test_silence_while_requests_run_is_not_filled_in(log: LogFolder) -> None:
    rounds = running(log.run([*start(0), *busy(40, 60), *busy(600, 620)]))
    assert [at for at, _ in rounds] == [40, 50, 60, 600, 610, 620]


def test_rates_become_counters_that_give_the_rates_back(log: LogFolder) -> None:
    run = log.run([stats(at, generation=100.0 + at) for at in range(0, 100, 10)])
    counters = [each.engines["0"][GENERATED] for each in run.rounds]
    grown = [after - before for before, after in pairwise(counters)]
    assert grown == pytest.approx([10 * (100.0 + at) for at in range(10, 100, 10)])


def test_a_line_after_a_pause_tells_of_its_own_interval_only(log: LogFolder) -> None:
    """It was idle for nine minutes; the rate of the next line is of ten seconds."""
    run = log.run([*busy(0, 30), *idle(40, 40), stats(600, generation=400.0)])
    assert run.rounds[-1].engines["0"][GENERATED] - run.rounds[-2].engines["0"][GENERATED] == pytest.approx(4000)


@pytest.mark.parametrize("interval", [1, 2, 5, 30, 60])
def test_the_interval_is_what_the_log_shows(interval: int, log: LogFolder) -> None:
    run = log.run([stats(at) for at in range(0, 10 * interval, interval)])
    assert run.interval == interval
    grown = run.rounds[-1].engines["0"][GENERATED] - run.rounds[0].engines["0"][GENERATED]
    assert grown == pytest.approx(400.0 * 9 * interval)


def test_the_preemptions_of_v0_are_a_counter(log: LogFolder) -> None:
    preempted = (
        "Sequence group cmpl-{0} is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache "
        "space. This can affect the end-to-end performance. total_num_cumulative_preemption={0}"
    )
    run = log.run([
        line
        for n, at in enumerate(range(0, 100, 10))
        for line in (record(at, preempted.format(1 + 50 * n), "", "WARNING", "scheduler.py:1754"), stats(at, who=""))
    ])  # fmt: skip
    counted = [each.engines["0"].get(PREEMPTIONS) for each in run.rounds]
    assert counted == [1 + 50 * n for n in range(10)]


def test_engines_that_print_at_nearly_the_same_second_are_one_round(log: LogFolder) -> None:
    run = log.run([stats(at + (e == 1), 3 + e, engine=e) for at in range(0, 60, 10) for e in (0, 1)])
    assert [value for _, value in running(run)] == [7] * 6


def test_an_idle_engine_prints_nothing_while_another_goes_on(log: LogFolder) -> None:
    run = log.run([
        *(stats(at, 2, engine=e) for at in range(0, 30, 10) for e in (0, 1)),
        stats(30, 2, engine=0),
        stats(30, 0, engine=1, generation=0, prompt=0, kv_cache=0),
        *(stats(at, 2, engine=0) for at in range(40, 90, 10)),
    ])  # fmt: skip
    assert [value for _, value in running(run)] == [4, 4, 4, 2, 2, 2, 2, 2, 2]
    assert all(set(each.engines) == {"0", "1"} for each in run.rounds)
    assert run.rounds[-1].engines["1"][GENERATED] == run.rounds[3].engines["1"][GENERATED]


def test_rounds_of_several_engines_in_one_second_keep_their_order(log: LogFolder) -> None:
    """A log that two lines a second are written to; a window needs times that rise."""
    run = log.run([stats(at // 3, engine=e) for at in range(30) for e in (0, 1)])
    times = [each.at for each in run.rounds]
    assert all(before < after for before, after in pairwise(times))


def test_the_values_of_a_line(log: LogFolder) -> None:
    run = log.run([stats(at, 12, 34, kv_cache=97.5) for at in range(0, 30, 10)])
    last = run.rounds[-1]
    assert (last.total(RUNNING), last.total(WAITING)) == (12, 34)
    assert last.most(KV_CACHE) == pytest.approx(0.975)


def test_a_line_with_a_number_beyond_all_bounds_is_no_infinity(log: LogFolder) -> None:
    import math

    run = log.run([*busy(0, 30), stats(40, int("9" * 400)), *busy(50, 90)])
    assert all(math.isfinite(v) for each in run.rounds for values in each.engines.values() for v in values.values())


# ---- time ------------------------------------------------------------------------------------------------------------


def test_midnight_and_new_year(log: LogFolder) -> None:
    """The file was last written on 30 November: the log began in the year before."""
    at = (datetime(2025, 12, 31, 23, 59, tzinfo=UTC) - BEGIN).total_seconds()
    run = log.run([*start(at), *(stats(at + 40 + 10 * n) for n in range(10))])
    times = [each.at for each in run.rounds]
    assert [after - before for before, after in pairwise(times)] == [10] * 9
    assert run.first_at is not None
    assert datetime.fromtimestamp(run.first_at, UTC).strftime("%Y-%m-%d %H:%M") == "2024-12-31 23:59"


def test_records_without_any_time(log: LogFolder) -> None:
    lines = [
        line.replace(f"INFO {BEGIN + timedelta(seconds=at):%m-%d %H:%M:%S} ", "INFO vllm.engine: ")
        for at in range(0, 60, 10)
        for line in (stats(at),)
    ]
    observation = log.seen([f"INFO vllm.engine.metrics: {line.partition('] ')[2]}" for line in lines])
    assert observation.error is None
    [run] = observation.runs
    assert [round.at for round in run.rounds] == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]  # by its statistics
    assert fact(run, "log:stats") == 6


def test_the_gpu_that_a_log_names_is_that_of_later_starts_too(log: LogFolder) -> None:
    listed = ["GPU models and configuration: ", "GPU 0: NVIDIA H20", "GPU 1: NVIDIA H20"]
    first, second = log.runs([*listed, *start(0), *busy(40, 60), *death(70), *start(100, 101, 201), *busy(140, 160)])
    assert first.facts["gpu_written"] == second.facts["gpu_written"] == Known("NVIDIA H20", origin="log")


def test_two_servers_without_their_starts_are_told_apart_by_their_pids(log: LogFolder) -> None:
    pairs = [
        (stats(at, who="APIServer pid=100", generation=100.0), stats(at, who="APIServer pid=300", generation=900.0))
        for at in range(0, 60, 10)
    ]
    seen = log.runs([line for pair in pairs for line in pair])
    assert [len(run.rounds) for run in seen] == [6, 6]


def test_the_engines_of_one_server_are_not_told_apart(log: LogFolder) -> None:
    """Each API server, and each engine, prints its own."""
    lines = [
        record(at, message, who=f"ApiServer_{n} pid={100 + n}")
        for at in range(0, 30, 10)
        for n in range(2)
        for message in (stats(at).partition("] ")[2].replace("Engine 000", f"Engine 00{n}"),)
    ]
    assert len(log.runs(lines)) == 1


def test_a_log_without_times_is_timed_by_its_statistics(log: LogFolder) -> None:
    lines = [re.sub(r"[0-9]{2}-[0-9]{2} [0-9:]{8} ", "", stats(at)) for at in range(0, 60, 10)]
    [run] = log.runs(lines)
    assert [round.at for round in run.rounds] == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    [run] = log.runs([f"- {line.partition('] ')[2]}" for line in lines])  # nor what stands before the message
    assert len(run.rounds) == 6


def test_one_line_is_a_log(log: LogFolder) -> None:
    [run] = log.runs([stats(0)])
    assert len(run.rounds) == 1


def test_statistics_that_were_padded(log: LogFolder) -> None:
    [run] = log.runs([stats(0).replace("Waiting: 0 reqs", "Waiting: 0    reqs") + "      "])
    assert len(run.rounds) == 1
