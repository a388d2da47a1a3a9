from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence

import pytest

from tests.sources.log.shapes import SHAPES
from vllm_doctor.sources.log.entry import MAX_PIECES, Record, records
from vllm_doctor.sources.log.entry_clock import Stamp

STATS = (
    "Engine 000: Avg prompt throughput: 102.4 tokens/s, Avg generation throughput: 7.5 tokens/s, Running: 3 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 1.5%, Prefix cache hit rate: 0.0%"
)
LOG = [
    "INFO 11-20 10:14:31 [__init__.py:216] Automatically detected platform cuda.",
    "(APIServer pid=41) INFO 11-20 10:14:40 [api_server.py:1839] vLLM API server version 0.11.0",
    "(EngineCore_DP0 pid=272) WARNING 11-20 10:14:59 [v1/worker/gpu_model_runner.py:2602] Näheres: größer",
    "(APIServer pid=41) INFO:     10.1.2.3:57554 - \"POST /v1/completions HTTP/1.1\" 200 OK",
    f"(APIServer pid=41) INFO 11-20 10:15:09 [loggers.py:127] {STATS}",
    "(VllmWorker rank=1 pid=301) ERROR 11-20 10:15:10 [multiproc_executor.py:522] Traceback (most recent call last):",
    '  File "/srv/vllm/v1/engine/core.py", line 508, in run_engine_core',
    "torch.OutOfMemoryError: CUDA out of memory.",
    f"INFO 11-20 10:15:14 metrics.py:345] {STATS}",
]  # fmt: skip
MAY = Stamp(5, 1, 10, 0, 0.0)


def only(line: str) -> Record:
    [record] = records(line.encode())
    return record


def said(line: str | bytes) -> list[tuple[str, str]]:
    raw = line if isinstance(line, bytes) else line.encode()
    return [(record.level, record.message) for record in records(raw)]


def log(shape: str, lines: Sequence[str] = LOG) -> list[Record]:
    return [record for raw in SHAPES[shape](lines).split(b"\n") for record in records(raw)]


# --- what vLLM writes -------------------------------------------------------------------------------------------------


def test_a_line_of_vllm() -> None:
    assert only("(EngineCore_DP0 pid=272) INFO 05-01 10:00:00 [loggers.py:236] Engine 000: ok") == Record(
        MAY, "EngineCore_DP0", 272, "", "INFO", "loggers.py:236", "Engine 000: ok"
    )


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ("INFO 05-01 10:00:00 metrics.py:345] hello", "metrics.py:345"),
        ("INFO 05-01 10:00:00 [v1/metrics/loggers.py:236] hello", "loggers.py:236"),
        ("INFO 05-01 10:00:00 [/opt/my-venv/lib/vllm/core.py:7] hello", "core.py:7"),
        ("INFO 05-01 10:00:00 [<stdin>:1] hello", "<stdin>:1"),
        ("INFO 05-01 10:00:00 hello", ""),
    ],
)
def test_the_source_of_every_age(line: str, source: str) -> None:
    assert only(line) == Record(MAY, "", None, "", "INFO", source, "hello")


@pytest.mark.parametrize(
    ("prefix", "process", "pid", "origin"),
    [
        ("(APIServer pid=41) ", "APIServer", 41, ""),
        ("(Worker_DP0_PP1_TP3_EP5 pid=9) ", "Worker_DP0_PP1_TP3_EP5", 9, ""),
        ("(VllmWorker rank=0 pid=5) ", "VllmWorker-0", 5, ""),
        ("(VllmWorker-0 pid=5) ", "VllmWorker-0", 5, ""),
        ("(VllmWorker TP0 pid=5) ", "VllmWorker_TP0", 5, ""),
        ("(RayWorkerWrapper pid=593, ip=10.0.0.3) ", "RayWorkerWrapper", 593, "10.0.0.3"),
        ("(ServeReplica:llm:VLLM pid=3, ip=fd00::2) ", "ServeReplica:llm:VLLM", 3, "fd00::2"),
        ("(RayWorkerWrapper pid=593, ip=10.0.0.3) (Worker_TP0 pid=594) ", "Worker_TP0", 594, "10.0.0.3"),
        ("vllm-1  | (RayWorkerWrapper pid=593, ip=10.0.0.3) ", "RayWorkerWrapper", 593, "10.0.0.3"),
        ("(RayTrainWorker(rank=0) pid=7) ", "RayTrainWorker(rank=0)", 7, ""),
        ("(pid=542) ", "", 542, ""),
        ("(raylet, ip=10.0.0.4) ", "raylet", None, "10.0.0.4"),
    ],
)
def test_the_process(prefix: str, process: str, pid: int | None, origin: str) -> None:
    assert only(f"{prefix}INFO 05-01 10:00:00 [a.py:1] hello") == Record(
        MAY, process, pid, origin, "INFO", "a.py:1", "hello"
    )
    assert only(f"{prefix}  File x") == Record(None, process, pid, origin, "", "", "  File x")


@pytest.mark.parametrize(
    ("prefix", "origin"),
    [
        ("мая 01 12:00:00 node-1 vllm[812]: ", "node-1/vllm"),
        ("Mai 01 12:00:00 node-1 vllm[812]: ", "node-1/vllm"),
        ("févr. 01 12:00:00 node-1 vllm[812]: ", "node-1/vllm"),
        ("5月  1 12:00:00 node-1 vllm[812]: ", "node-1/vllm"),
        ("2025-05-01 10:00:00  >> ", ""),
    ],
)
def test_a_prefix_of_another_land_or_of_somebodys_own(prefix: str, origin: str) -> None:
    found = only(f"{prefix}ERROR 05-01 10:00:00 [a.py:1] hello")
    assert (found.origin, found.level, found.message) == (origin, "ERROR", "hello")
    assert found.stamp is not None
    assert (found.stamp.month, found.stamp.day) == (5, 1)


def test_a_source_that_a_chat_made_a_link_of() -> None:
    line = "(APIServer pid=1) INFO 05-01 10:00:00 [[loggers.py:236](http://loggers.py:236/)] hello"
    assert only(line) == Record(MAY, "APIServer", 1, "", "INFO", "loggers.py:236", "hello")


def test_torchs_rank_is_no_part_of_an_exception() -> None:
    assert said('[rank0]:   File "a.py", line 1, in f') == [("", '  File "a.py", line 1, in f')]
    assert said("[rank12]: RuntimeError: b") == [("", "RuntimeError: b")]


@pytest.mark.parametrize(
    ("line", "stamp"),
    [
        ("[rank3]:[E716 19:47:26.324588983 shim_common.cpp:523] Exception", Stamp(7, 16, 19, 47, 26.0)),
        ("[W1120 10:15:00.052330986 socket.cpp:764] [c10d] The client socket", Stamp(11, 20, 10, 15, 0.0)),
        ("[E999 19:47:26.324588983 a.cpp:1] no month", None),
    ],
)
def test_the_time_of_pytorchs_own(line: str, stamp: Stamp | None) -> None:
    [record] = records(line.encode())
    assert record.stamp == stamp
    assert record.level == ""


@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
def test_the_level(level: str) -> None:
    assert only(f"{level} 05-01 10:00:00 [a.py:1] hello").level == level


@pytest.mark.parametrize(
    "line",
    [
        'INFO:     10.1.2.3:57554 - "POST /v1/completions HTTP/1.1" 200 OK',
        "Traceback (most recent call last):",
        "    raise ValueError(",
        "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01,  1.60it/s]",
        "[rank0]:W1120 10:07:42.343000 5743 torch/utils.py:3] hello",
        "INFO 2025-06-01 10:00:00,123 serve 77 -- hello",
        "  | Traceback (most recent call last):",  # of an exception group: it only looks like Compose's
        "<frozen importlib._bootstrap>:1: Warning",
        '{"a": 1}',
        "{'role': 'user'}",
        "rate(x[5m]) took [30m 5s]",
        "a | b",
        "INFO 05-01 10:0",
    ],
)
def test_foreign_text_stands_as_it_was(line: str) -> None:
    assert only(line) == Record(None, "", None, "", "", "", line)


@pytest.mark.parametrize("line", [b"", b"\n", b"\r\n", b"   \r\n", b"\x1b[0m\n", b"(EngineCore_DP0 pid=5) \n", b"\0\0"])
def test_an_empty_line_holds_nothing(line: bytes) -> None:
    assert records(line) == []


def test_a_record_may_be_empty() -> None:
    assert said("INFO 05-01 10:00:00 [utils.py:293] \n") == [("INFO", "")]


def test_a_message_is_not_trimmed() -> None:
    assert said("INFO 05-01 10:00:00 [a.py:1]   two  \r\n") == [("INFO", "  two  ")]  # a terminal may have broken it
    assert said("Running: 3 \n") == [("", "Running: 3 ")]


def test_times_that_are_none() -> None:
    assert only("INFO 13-45 99:99:99 [a.py:1] x") == Record(None, "", None, "", "INFO", "a.py:1", "x")
    assert only("2025-13-01T10:00:00Z x").message == "2025-13-01T10:00:00Z x"


def test_a_line_that_was_cut() -> None:
    assert said("INFO 05-01 10:00:00 [logg") == [("INFO", "[logg")]
    assert said('{"log":"INFO 05-01 10:00:00 [a.py:1] says \\"hel') == [("INFO", 'says "hel')]
    assert said('{"log":"INFO 05-01 10:00:00 [a.py:1] gr\\u00') == [("INFO", "gr\\u00")]


def test_bytes_that_are_no_text() -> None:
    assert said(b"INFO 05-01 10:00:00 [a.py:1] \xff\xfe ok") == [("INFO", "\ufffd\ufffd ok")]
    assert said(b"\0\0\0\0INFO 05-01 10:00:00 [a.py:1] ok") == [("INFO", "ok")]


@pytest.mark.parametrize(
    "tail", ["", " (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0, or see https://x.y/z.)"]
)
def test_what_ray_counts(tail: str) -> None:
    record = only(
        f"\x1b[36m(W pid=5)\x1b[0m INFO 05-01 10:00:00 [a.py:1] ok\x1b[32m [repeated 30x across cluster]{tail}\x1b[0m",
    )
    assert (record.message, record.repeated) == ("ok", 30)
    assert only("[repeated 3x across cluster] is what Ray writes").repeated == 1


# --- wrappers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_says_the_same(shape: str) -> None:
    def essence(of: str) -> list[tuple[str, str, int | None, str, str]]:
        return [(r.level, r.process, r.pid, r.source, r.message) for r in log(of)]

    if shape == "utf16":  # of which the ASCII part is what counts
        assert [r[:4] for r in essence(shape)] == [r[:4] for r in essence("plain")]
    else:
        assert essence(shape) == essence("plain")
    assert len(essence("plain")) == len(LOG)


ABSOLUTE = {"docker_json", "docker_timestamps", "cri", "docker_json_in_cri", "kubectl", "journald_iso", "journald_json",
            "cloud_logging"}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_the_time_of_every_shape(shape: str) -> None:
    stamp = log(shape)[4].stamp
    assert stamp is not None
    assert (stamp.month, stamp.day, stamp.hour, stamp.minute, int(stamp.second)) == (11, 20, 10, 15, 9)
    assert (stamp.year, stamp.offset) == ((2025, 0) if shape in ABSOLUTE else (None, None))
    assert (stamp.second > 9) == (shape in ABSOLUTE)


@pytest.mark.parametrize(
    ("shape", "origin"),
    [
        ("plain", ""), ("docker_json", ""), ("cri", ""),
        ("kubectl", "vllm-0/server"), ("cloud_logging", "vllm-0/server"), ("stern", "vllm-7d4b9c6f58-x2x9z/server"),
        ("compose", "vllm-1"), ("compose_coloured", "vllm-1"),
        ("journald", "gpu-1/vllm"), ("journald_iso", "gpu-1/vllm"), ("journald_json", "gpu-1/vllm"),
    ],
)  # fmt: skip
def test_the_origin_of_every_shape(shape: str, origin: str) -> None:
    assert {record.origin for record in log(shape)} == {origin}


NOON = Stamp(6, 1, 12, 0, 0.0, 2025)
NOON_UTC = Stamp(6, 1, 12, 0, 0.0, 2025, 0)
RECORD = "INFO 05-01 10:00:00 [a.py:1] hello"


@pytest.mark.parametrize(
    ("line", "stamp", "origin"),
    [
        (f"[2025-06-01T12:00:00Z] {RECORD}", NOON_UTC, ""),
        (f"[2025-06-01 12:00:00] {RECORD}", NOON, ""),
        (f"2025-06-01T12:00:00.0000000Z {RECORD}", NOON_UTC, ""),
        (f"\ufeff2025-06-01T12:00:00.0000000Z {RECORD}", NOON_UTC, ""),
        (f"test\tRun it\t2025-06-01T12:00:00.0000000Z {RECORD}", NOON_UTC, ""),
        (f"2025-06-01T14:00:00+02:00 stdout P {RECORD}", Stamp(6, 1, 14, 0, 0.0, 2025, 7200), ""),
        (f"2025-06-01T14:00:00-0730 stdout F {RECORD}", Stamp(6, 1, 14, 0, 0.0, 2025, -27000), ""),
        (f"Sun 2025-06-01 12:00:00 UTC gpu-1 vllm[812]: {RECORD}", NOON_UTC, "gpu-1/vllm"),
        (f"Jun  1 12:00:00 gpu-1 vllm.service[812]: {RECORD}", Stamp(6, 1, 12, 0, 0.0), "gpu-1/vllm.service"),
        (f"Jun  1 12:00:00 {RECORD}", Stamp(6, 1, 12, 0, 0.0), ""),
        (f"1748779200.000000 gpu-1 vllm[812]: {RECORD}", NOON_UTC, "gpu-1/vllm"),
        (f"<30>1 2025-06-01T12:00:00Z gpu-1 vllm 812 - - {RECORD}", NOON_UTC, "gpu-1/vllm"),
        (f"[12:00:00] {RECORD}", MAY, ""),  # a date is worth more
        (f"vllm_1 | {RECORD}", MAY, "vllm_1"),
        (f"vllm_vllm.1.a1b2c3@node-1    | {RECORD}", MAY, "vllm_vllm.1.a1b2c3@node-1"),
        (f"0|vllm     | {RECORD}", MAY, "vllm"),
        (f"      | {RECORD}", MAY, ""),
        (f"[replica-1] {RECORD}", MAY, "replica-1"),
        (f"vllm-0 server {RECORD}", MAY, "vllm-0"),
        (f"2025-06-01T12:00:00.000000+00:00 ecs/vllm/0a1b {RECORD}", NOON_UTC, "ecs/vllm/0a1b"),
        (f"vllm.log:12:{RECORD}", MAY, "vllm.log"),
        (f"12: {RECORD}", MAY, ""),
        (f"run 10:00:00 {RECORD}", MAY, ""),
        (json.dumps({"log": RECORD, "time": "never"}), MAY, ""),
        (json.dumps({"log": RECORD, "time": 1748779200000}), NOON_UTC, ""),
        (json.dumps({"line": RECORD, "labels": {"pod": "vllm-0"}, "ts": "2025-06-01T12:00:00Z"}), NOON_UTC, "vllm-0"),
        (json.dumps({"log": RECORD, "kubernetes": {"pod_name": "vllm-0", "container_name": "c"}}), MAY, "vllm-0/c"),
        (json.dumps({"MESSAGE": RECORD, "CONTAINER_NAME": "vllm", "_HOSTNAME": "gpu-1"}), MAY, "gpu-1/vllm"),
        (json.dumps({"log": f"2025-06-01T12:00:00Z stderr F {RECORD}\n"}), NOON_UTC, ""),
    ],
)  # fmt: skip
def test_other_wrappers(line: str, stamp: Stamp, origin: str) -> None:
    assert only(line) == Record(stamp, "", None, origin, "INFO", "a.py:1", "hello")


@pytest.mark.parametrize(
    ("line", "level", "source"),
    [
        ("2025-06-01 12:00:00,000 - vllm.engine.metrics - INFO - hello", "INFO", ""),
        ("2025-06-01 12:00:00,000 WARNING vllm.engine.metrics: hello", "WARNING", ""),
        ("2025-06-01 12:00:00 [ERROR] [vllm.engine.metrics] hello", "ERROR", ""),
        ("2025-06-01 12:00:00.000 | INFO     | vllm.v1.metrics.loggers:log:236 - hello", "INFO", "loggers.py:236"),
        ("[2025-06-01T12:00:00] INFO [v1/loggers.py:236] hello", "INFO", "loggers.py:236"),
        ("INFO 2025-06-01 12:00:00,000 [loggers.py:236] hello", "INFO", "loggers.py:236"),
        (
            json.dumps({"asctime": "2025-06-01 12:00:00,000", "levelname": "INFO", "pathname": "/v/loggers.py",
                        "lineno": 236, "message": "hello"}),
            "INFO", "loggers.py:236",
        ),
        (json.dumps({"timestamp": "2025-06-01 12:00:00", "level": "info", "message": "hello"}), "", ""),
        ("2025-06-01 12:00:00,000 - INFO - autotuner.py:256 - hello", "", ""),
    ],
)  # fmt: skip
def test_formats_of_somebodys_own(line: str, level: str, source: str) -> None:
    record = only(line)
    assert (record.stamp, record.level, record.source) == (NOON, level, source)
    assert record.message.endswith("hello")
    assert (record.message == "hello") == (not line.endswith("256 - hello"))


def test_json_of_vllm_behind_its_own_prefix() -> None:
    line = json.dumps({"levelname": "ERROR", "message": "boom", "exc_info": "Traceback:\n  File x\nValueError: y"})
    assert said(f"(APIServer pid=5) {line}") == [
        ("ERROR", "boom"),
        ("", "Traceback:"),
        ("", "  File x"),
        ("", "ValueError: y"),
    ]
    assert {record.process for record in records(f"(APIServer pid=5) {line}".encode())} == {"APIServer"}


def test_the_outer_of_two_clocks() -> None:
    line = "Jun  1 12:00:00 gpu-1 vllm[8]: 2025-06-01T10:00:00Z INFO 06-01 03:00:00 [a.py:1] x"
    assert only(line).stamp == Stamp(6, 1, 12, 0, 0.0)


@pytest.mark.parametrize("escape", ["\x1b", "", "^[", "␛", "#033", "\\x1b", "\\033", "\ufffd"])
def test_colours_and_what_is_left_of_them(escape: str) -> None:
    red, off = f"{escape}[0;36m", f"{escape}[0;0m"
    assert only(
        f"{red}(APIServer pid=5){off} {red}INFO{off} 05-01 10:00:00 {red}[a.py:1]{off} say {red}hello{off}"
    ) == Record(MAY, "APIServer", 5, "", "INFO", "a.py:1", "say hello")


def test_layers_are_bounded() -> None:
    line = RECORD
    for _ in range(5):
        line = json.dumps({"log": f"{line}\n", "stream": "stderr"})
    assert said(line) == [("INFO", "hello")]
    deep = "[10:00:00] " * 1000 + RECORD
    assert only(deep).message.startswith("[10:00:00] ")


# --- several in one line ----------------------------------------------------------------------------------------------


def test_progress_bars_drawn_over_each_other() -> None:
    bars = (
        "(EngineCore pid=5) \rCapturing:   0%|  | 0/51 [00:00<?, ?it/s]\rCapturing:   2%|  | 1/51 [00:01<00:50,  1it/s]"
    )
    assert said(f"{bars}\rINFO 05-01 10:00:00 [a.py:1] hello\r\n") == [
        ("", "Capturing:   0%|  | 0/51 [00:00<?, ?it/s]"),
        ("", "Capturing:   2%|  | 1/51 [00:01<00:50,  1it/s]"),
        ("INFO", "hello"),
    ]
    assert {record.process for record in records(bars.encode())} == {"EngineCore"}


def test_a_record_behind_a_progress_bar() -> None:
    bar, record = records(
        b"\rCapturing:  34%|3 | 12/35 [00:19<00:02,  9.93it/s](EngineCore pid=8338) " + RECORD.encode()
    )
    assert (bar.level, bar.process, bar.message) == ("", "", "Capturing:  34%|3 | 12/35 [00:19<00:02,  9.93it/s]")
    assert record == Record(MAY, "EngineCore", 8338, "", "INFO", "a.py:1", "hello")


@pytest.mark.parametrize("old", ["[", ""])
def test_two_records_without_a_line_end_between(old: str) -> None:
    def line(second: int, tokens: str) -> str:
        return f"INFO 05-01 10:00:{second:02} {old}metrics.py:345] Avg prompt throughput: {tokens} tokens/s"

    first, second, third = records((line(0, "1.0") + line(5, "2.0") + " " + line(10, "3.0")).encode())
    assert first.message == "Avg prompt throughput: 1.0 tokens/s"
    assert (second.message, second.stamp) == ("Avg prompt throughput: 2.0 tokens/s", Stamp(5, 1, 10, 0, 5.0))
    assert (third.message, third.source) == ("Avg prompt throughput: 3.0 tokens/s", "metrics.py:345")


def test_a_glued_record_has_its_own_process_or_that_of_the_line() -> None:
    found = records(f"(A pid=1) {RECORD}(W pid=2, ip=10.0.0.3) (B pid=3) {RECORD}.{RECORD}".encode())
    assert [(r.process, r.pid, r.origin, r.message) for r in found] == [
        ("A", 1, "", "hello"),
        ("B", 3, "10.0.0.3", "hello."),
        ("A", 1, "", "hello"),
    ]


def test_after_what_users_wrote_nothing_is_a_record() -> None:
    asked = f"INFO 05-01 10:00:01 [logger.py:36] Received request cmpl-1: prompt: x{RECORD}"
    assert said(f"{RECORD}{asked}") == [("INFO", "hello"), ("INFO", f"Received request cmpl-1: prompt: x{RECORD}")]


def test_the_level_of_json_is_that_of_its_first_line() -> None:
    access = 'INFO:     10.1.2.3:5 - "GET / HTTP/1.1" 200 OK'
    line = json.dumps({"levelname": "ERROR", "message": f"boom.{access}", "processName": "EngineCore_DP0"})
    assert said(line) == [("ERROR", "boom."), ("", access)]
    assert {record.process for record in records(line.encode())} == {"EngineCore_DP0"}
    assert only(json.dumps({"levelname": "ERROR", "message": "x", "processName": "MainProcess"})).process == ""


def test_an_access_line_behind_a_record() -> None:
    assert said(f'{RECORD}INFO:     10.1.2.3:5 - "GET / HTTP/1.1" 200 OK') == [
        ("INFO", "hello"),
        ("", 'INFO:     10.1.2.3:5 - "GET / HTTP/1.1" 200 OK'),
    ]


def test_text_before_a_record_is_kept_unless_it_is_a_prefix() -> None:
    assert said(f"torch.OutOfMemoryError: CUDA out of memory.{RECORD}") == [
        ("", "torch.OutOfMemoryError: CUDA out of memory."),
        ("INFO", "hello"),
    ]
    assert said(f"(A pid=1) my prefix {RECORD}") == [("INFO", "hello")]
    assert only(f"Loading... {RECORD}").origin == ""


@pytest.mark.parametrize(
    "message",
    [
        f"Received request cmpl-1: prompt: {RECORD}, params: x{RECORD}",
        f"Generated response cmpl-1: output: x{RECORD}",
        f"Bad template 'x{RECORD}'",
        f'Bad template "say \\"x{RECORD}" of a user',
        f"Bad template `x{RECORD}",
        f"The model said\\n{RECORD}",
        f"The model said {RECORD}",
        RECORD,
        'Received request cmpl-1: prompt: \'{"log": "x"}\', [pod/a/b] vllm-1  | Traceback (most recent call last):',
    ],
)  # fmt: skip
def test_what_a_message_holds_is_no_record(message: str) -> None:
    assert said(f"INFO 05-01 10:00:00 [logger.py:36] {message}") == [("INFO", message)]


@pytest.mark.parametrize(
    "text",
    [
        f"A user asks what it means that {RECORD}",
        f'{{"messages": [{{"content": "x{RECORD}',
        f"request 3, prompt: x{RECORD}",
    ],
)  # fmt: skip
def test_what_foreign_text_holds_is_no_record(text: str) -> None:
    assert said(text) == [("", text)]


def test_an_apostrophe_opens_no_quotation() -> None:
    assert said(f"INFO 05-01 10:00:00 [b.py:2] Can't say.{RECORD}") == [("INFO", "Can't say."), ("INFO", "hello")]
    assert said(f"INFO 05-01 10:00:00 [b.py:2] dtype='auto'{RECORD}") == [("INFO", "dtype='auto'"), ("INFO", "hello")]


# --- hostile lines ----------------------------------------------------------------------------------------------------

PARTS = [
    "INFO 05-01 10:00:00 [a.py:3] ", "(EngineCore pid=4) ", "(", "[", '"', "'", "`", "\\", "\r", "{\r", "\x1b[0m",
    "[0m", "\x1b]", '{"log":"', '{"log":', "[pod/a/b] ", "2025-11-20T10:15:00Z ", "vllm-1  | ", "| ",
    "Nov 20 10:15:00 ", "<13>", ".py:", ".py:3] ", 'INFO:     1.2.3.4:5 - "', " ", "pid=", "a ", "a/", ":", "INFO ",
    "vllm.", "INFO - vllm", "9", "[repeated 3x across cluster] ", "A\t", "'INFO 05-01 10:00:00 [a.py:3] x ",
    "\\nINFO 05-01 10:00:00 [a.py:3] x",
]  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_a_long_line_takes_no_longer_than_its_length(part: str) -> None:
    raw = (f"{RECORD}.py:" + part * 65536)[:65536].encode()
    for line in (raw, raw[len(RECORD) :]):
        start = time.process_time()
        assert len(records(line)) <= MAX_PIECES * 3
        assert time.process_time() - start < 0.5  # 0.1 at most here; a square would be minutes


def test_json_too_deep_to_read() -> None:
    line = '{"log":' * 9000
    assert said(line) == [("", line)]


def test_no_line_is_refused() -> None:
    chance = random.Random(7)
    shaped = [line for shape in SHAPES.values() for line in shape(LOG).split(b"\n")]
    for _ in range(3000):
        line = bytearray(chance.choice(shaped))
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(line) + 1)
            line[at : at + chance.randrange(3)] = (
                chance.choice(PARTS).encode() if chance.random() < 0.7 else bytes([chance.randrange(256)])
            )
        for record in records(bytes(line)):
            assert record.repeated >= 0
            assert "\r" not in record.message
            assert "\x1b" not in record.message


# --- as people paste it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quote", ["> ", ">> ", "&gt; ", "`", "    ", "- "])
def test_a_line_that_is_quoted(quote: str) -> None:
    assert said(f"{quote}INFO 05-01 10:00:00 [loggers.py:236] {STATS}") == [("INFO", STATS)]


def test_the_source_of_a_page() -> None:
    given = "non-default args: {&#39;model&#39;: &quot;a&quot;, &apos;b&apos;: 1}"
    assert said(f"INFO 05-01 10:00:00 [utils.py:233] {given}") == [
        ("INFO", "non-default args: {'model': \"a\", 'b': 1}")
    ]


def test_a_record_without_a_time() -> None:
    assert said(f"(APIServer pid=5) INFO [loggers.py:236] {STATS}") == [("INFO", STATS)]


def test_colours_as_an_editor_spells_them() -> None:
    assert said("ESC[0;36m(APIServer pid=5)ESC[0;0m INFO 05-01 10:00:00 [a.py:1] x") == [("INFO", "x")]


def test_the_labels_of_logcli() -> None:
    line = only('2025-05-01T10:00:00Z {container="server", pod="chat-0"} INFO 05-01 10:00:00 [a.py:1] x')
    assert (line.origin, line.level, line.message) == ("chat-0/server", "INFO", "x")


def test_lines_in_a_text_of_json() -> None:
    assert said('"INFO 05-01 10:00:00 [a.py:1] x\\nINFO 05-01 10:00:01 [a.py:1] y",') == [("INFO", "x"), ("INFO", "y")]
