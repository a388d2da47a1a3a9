from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.sources.log.shapes import SHAPES
from tests.sources.log.test_runs import (
    CUDA_OOM,
    ENGINE_DEAD,
    busy,
    posix,
    record,
    start,
    stats,
    table,
    traceback,
    written,
)
from vllm_doctor.model.errors import SourceError
from vllm_doctor.rules import log_lines, rule
from vllm_doctor.sources.log.bytes_scan import Scanner
from vllm_doctor.sources.log.reader import Reading, Sighting, merged

ENGINE = "EngineCore pid=200"
FATAL = record(0, "EngineCore encountered a fatal error.", ENGINE, "ERROR", "core.py:1512")


def reading(path: Path, lines: Iterable[str] | bytes, stream: int = 0) -> Reading:
    return Reading(written(path, lines), stream, table(), Scanner(table().finds, table().uncounted))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vllm.log"


def sighted(path: Path, lines: Iterable[str] | bytes) -> list[Sighting]:
    return list(reading(path, lines).sightings())


def cause(path: Path, *lines: str) -> str | None:
    [found] = [s for s in sighted(path, [FATAL, *lines]) if s.line.id == "engine-fatal"]
    return found.cause


def test_a_line_of_the_table(path: Path) -> None:
    [seen] = sighted(path, ["", record(5, "Using max model len 2048"), "nothing"])
    assert (seen.line.id, seen.values) == ("max-model-len", {"tokens": 2048.0})
    assert (seen.at, seen.process, seen.pid) == (posix(5), "APIServer", 100)


CATASTROPHE = """\
lines:
  slow-thing:
    find: "The thing is slow: "
    match: 'The thing is slow: (?P<kind>(?:a|aa)+)$'
    once: run
    example: "WARNING 11-20 10:00:00 [thing.py:12] The thing is slow: aa"
"""


def test_a_pattern_that_takes_too_long_hangs_nothing_and_is_noted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines.LogLine.values, "__defaults__", (0.01,))
    mine = path.parent / "mine" / "log-lines" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(CATASTROPHE, "utf-8")
    lines = log_lines.load(rule.shipped(), mine.parent)
    thing = record(5, f"The thing is slow: {'a' * 200}!")
    log = [record(4, "The thing is slow: aa"), thing, thing, thing, record(6, "The thing is slow: aaa"), *start(7)]
    read = Reading(written(path, log), 0, lines, Scanner(lines.finds, lines.uncounted))
    found = [sighting.line.id for sighting in read.sightings()]
    assert found.count("slow-thing") == 1
    assert len(found) > 3
    assert read.notes == [
        "the pattern of the log line slow-thing took longer than 1 s 3 times, and was not looked for after that: "
        "simplify it"
    ]


def test_what_was_read_is_told(path: Path) -> None:
    read = reading(path, [*start(0), *busy(40, 60), "nothing"])
    assert (read.is_vllm, read.recognised) == (False, 0)
    assert len(list(read.sightings())) == read.recognised
    assert read.is_vllm
    assert not read.zoned
    assert read.tally.lines_read == 14
    assert read.head[-1].startswith("Initializing a V1 LLM engine")


def test_an_exception_of_vllms_is_of_vllm(path: Path) -> None:
    read = reading(
        path, ["Traceback (most recent call last):", "vllm.v1.engine.exceptions.EngineDeadError: EngineCore"]
    )
    assert [seen.line.id for seen in read.sightings()] == ["traceback", "engine-dead"]
    assert read.is_vllm


def test_a_line_that_speaks_of_another(path: Path) -> None:
    """What the table looks for stands within a message of another kind."""
    assert sighted(path, [record(0, "I saw: Using max model len 2048"), "I saw: Using max model len 2048"]) == []


def test_a_line_without_a_time_is_of_the_time_before(path: Path) -> None:
    before, ready = sighted(path, ["INFO:     Application startup complete.", *start(3)[-2:]])[:2]
    assert (before.at, ready.at) == (None, posix(33))
    assert sighted(path, start(3)[-2:])[-1].at == posix(33)


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        list(Reading(tmp_path / "no.log", 0, table(), Scanner(table().finds, table().uncounted)).sightings())


# The cause


def test_the_exception_of_the_traceback_that_follows(path: Path) -> None:
    assert cause(path, *traceback(0, ENGINE, CUDA_OOM)) == CUDA_OOM


def test_of_a_chain_the_exception_it_began_with(path: Path) -> None:
    assert cause(path, *traceback(0, ENGINE, "KeyError: 'a'", "RuntimeError: b", ENGINE_DEAD)) == "KeyError: 'a'"


def test_an_exception_that_only_says_that_it_is_dead_is_the_last_resort(path: Path) -> None:
    assert cause(path, *traceback(0, ENGINE, ENGINE_DEAD, CUDA_OOM)) == CUDA_OOM
    assert cause(path, *traceback(0, ENGINE, ENGINE_DEAD)) == ENGINE_DEAD


def test_another_processs_traceback_in_between_is_not_its_own(path: Path) -> None:
    own, other = traceback(0, ENGINE, CUDA_OOM), traceback(0, "Worker_TP0 pid=301", "ValueError: of another")
    assert cause(path, *(line for pair in zip(other, own, strict=True) for line in pair)) == CUDA_OOM


def test_a_traceback_without_prefixes(path: Path) -> None:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    f()", CUDA_OOM]
    assert cause(path, *lines) == CUDA_OOM
    assert cause(path, *(f"({ENGINE}) {line}" for line in lines)) == CUDA_OOM


def test_an_exception_without_a_traceback_is_not_of_it(path: Path) -> None:
    assert cause(path, record(1, "ValueError: a message", ENGINE)) is None
    assert cause(path) is None


def test_a_cause_is_short(path: Path) -> None:
    found = cause(path, *traceback(0, ENGINE, f"ValueError: {'x' * 5000}"))
    assert found is not None
    assert found.startswith("ValueError: xxx")
    assert found.endswith("x…")
    assert len(found) <= 300


def test_the_exception_in_the_line_itself(path: Path) -> None:
    said = "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor."
    [seen] = sighted(path, [record(0, said, ENGINE, "ERROR")])
    assert seen.cause == "Worker proc VllmWorker-0 died unexpectedly (exit code: -9)"
    assert seen.values["signal"] == 9


# Arguments


def test_arguments(path: Path) -> None:
    [_, seen, *_] = sighted(path, start(0, flags="'api_key': ['S3CRET-0123'], 'max_num_seqs': 4"))
    assert seen.arguments is not None
    assert seen.arguments.flags["--max-num-seqs"] == 4
    assert "S3CRET" not in repr(seen)


def test_a_namespace_of_old(path: Path) -> None:
    line = record(0, "args: Namespace(model='/models/tiny', enforce_eager=False, max_num_seqs=256)", "")
    [seen] = sighted(path, [line])
    assert seen.arguments is not None
    assert dict(seen.arguments.flags) == {"--model": "/models/tiny", "--max-num-seqs": 256}


@pytest.mark.parametrize("between", ["", "\x00", "P", "\u00a0", "  "])
def test_arguments_of_which_a_byte_was_damaged(between: str, path: Path) -> None:
    damaged = [record(0, f"non-default args:{between}{{'max_num_seqs': 4}}"), record(1, "Using max model len 2048")]
    assert sighted(path, damaged)[-1].line.id == "max-model-len"


# Lines that were broken


def test_arguments_that_a_terminal_broke(path: Path) -> None:
    line = record(0, "non-default args: {'model': 'Qwen2-7B-Instruct', 'max_model_len': 16384, 'max_num_seqs': 4}")
    [seen, *_] = sighted(path, [line[:-40], line[-40:], record(1, "Using max model len 16384")])
    assert seen.arguments is not None
    assert seen.arguments.model == "Qwen2-7B-Instruct"
    assert dict(seen.arguments.flags)["--max-num-seqs"] == 4


def test_arguments_that_were_cut_take_nothing_of_what_follows(path: Path) -> None:
    cut = record(0, "non-default args: {'max_num_seqs': 4, 'max_model_")
    [seen, *_] = sighted(path, [cut, "loading", "{'max_num_seqs': 8}", record(1, "Using max model len 16384")])
    assert seen.arguments is not None
    assert dict(seen.arguments.flags) == {"--max-num-seqs": 4}


def test_a_line_that_a_terminal_broke(path: Path) -> None:
    line = stats(0, 3, 2, kv_cache=55.5)
    [seen] = sighted(path, [*(line[at : at + 110] for at in range(0, len(line), 110)), stats(10)])[:1]
    assert (seen.values["running"], seen.values["waiting"]) == (3, 2)
    assert seen.values["kv_cache"] == pytest.approx(0.555)


def test_a_line_that_was_cut_takes_nothing_of_the_next_record(path: Path) -> None:
    cut = stats(0, 3, 2).partition("Running")[0]
    assert [s.values["running"] for s in sighted(path, [cut, stats(10, 7, 8)]) if "running" in s.values] == [7]


# Merging


def test_logs_are_merged_by_time_and_each_keeps_its_order(tmp_path: Path) -> None:
    """In the first a line is late: it came from another process."""
    first = reading(tmp_path / "a", [stats(0), stats(20), stats(10), stats(40)], 0)
    second = reading(tmp_path / "b", [stats(5), stats(30)], 1)
    seen = [(s.stream, s.at) for s in merged([[first], [second]])]
    assert seen == [(0, posix(0)), (1, posix(5)), (0, posix(20)), (0, posix(10)), (1, posix(30)), (0, posix(40))]


def test_logs_of_one_group_follow_each_other(tmp_path: Path) -> None:
    parts = [reading(tmp_path / str(n), [stats(10 * n)], 0) for n in range(3)]
    assert [s.at for s in merged([parts])] == [posix(0), posix(10), posix(20)]


# journald


def test_messages_that_journald_writes_as_bytes(path: Path) -> None:
    """What holds colours. All lines, and however they are cut into blocks."""
    lines = [*start(0), *(stats(at) for at in range(40, 40 + 10 * 1900, 10))]
    plain = sighted(path, lines)
    array = [
        json.dumps({"__REALTIME_TIMESTAMP": f"{posix(0) * 1e6:.0f}", "MESSAGE": list(f"\x1b[32m{line}".encode())})
        for line in lines
    ]
    found = sighted(path, array)
    assert [(s.line.id, s.values) for s in found] == [(s.line.id, s.values) for s in plain]
    assert len(plain) > 1900
    compact = [line.replace(": [", ":[").replace(", ", ",") for line in array[:20]]
    assert [s.line.id for s in sighted(path, compact)] == [s.line.id for s in sighted(path, lines[:20])]


@pytest.mark.parametrize("message", ["[1, 2, 300]", "[]", "[1,, 2]", "[" + "7, " * 2_000_000 + "7]", "[7"])
def test_arrays_that_are_no_message(message: str, path: Path) -> None:
    lines = [f'{{"__REALTIME_TIMESTAMP": "1763632800000000", "MESSAGE": {message}}}']
    journal = SHAPES["journald_json"](busy(0, 30)).decode().splitlines()
    assert [s.line.id for s in sighted(path, [*lines, *journal])] == ["stats"] * 4


# What a prompt says


def test_a_prompt_on_further_lines_ends_with_the_next_record(path: Path) -> None:
    lines = [
        record(0, "Received request cmpl-7: prompt: 'see", source="request_logger.py:65"),
        "torch.OutOfMemoryError: CUDA out of memory. ",
        "', params: SamplingParams(n=1)",
        stats(10),
        "torch.OutOfMemoryError: CUDA out of memory. ",
    ]
    assert [(s.line.id, s.number) for s in sighted(path, lines)] == [
        ("request-logged", None), ("stats", None), ("cuda-oom", 5),
    ]  # fmt: skip


def test_a_request_that_ends_on_its_line_hides_nothing(path: Path) -> None:
    lines = [
        record(0, "Received request cmpl-7: prompt: 'see', params: SamplingParams(n=1)", source="request_logger.py:65"),
        "torch.OutOfMemoryError: CUDA out of memory. ",
    ]
    assert [s.line.id for s in sighted(path, lines)] == ["request-logged", "cuda-oom"]


def test_of_a_frequent_line_some_are_read_and_all_are_counted(path: Path) -> None:
    bad = 'INFO:     10.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 400 Bad Request'
    log = reading(path, [record(0, "Using max model len 2048"), *[bad] * 20_000])
    seen = [s for s in log.sightings() if s.line.id == "bad-request"]
    assert len(seen) < 3000
    assert 19_000 < sum(s.repeated for s in seen) <= 20_000
    assert 19_000 < log.recognised <= 20_001
