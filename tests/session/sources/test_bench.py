"""Benchmark results on the command line: which words name them, and what stands beside them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import FIXTURES
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.session import attach as attaching
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.sources import bench
from vllm_doctor.sources.server.access import Access

BENCH = FIXTURES / "bench"
LINE = (
    "INFO 09-03 02:23:{:02} [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
    "throughput: 100.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n"
)


@pytest.fixture
def opened() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def observed(
    words: list[str], signals: Catalogue, opened: contextlib.ExitStack, command: str | None = None
) -> list[Observation]:
    how = Attachment(signals.metrics, Access(), 0.0, time.monotonic() + 1000, command=command)
    return [source.look() for source in attaching.attach(words, how, opened)]


def kinds(seen: list[Observation]) -> list[str]:
    return [one.kind.value for one in seen]


@pytest.mark.parametrize("name", ["sound.json", "sound.txt", "throughput.txt", "latency.json"])
def test_a_result_is_named_by_its_file(name: str) -> None:
    assert bench.is_named_by(str(BENCH / name))


def test_what_is_none_is_not(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(LINE.format(1) + "the request_throughput is low\n")
    for word in (
        "-",
        "",
        "8000",
        "http://h:8000",
        str(tmp_path / "no"),
        str(log),
        str(tmp_path),
        str(FIXTURES / "idle"),
    ):
        assert not bench.is_named_by(word), word


def test_a_folder_of_a_sweep_is_its_runs(tmp_path: Path, signals: Catalogue, opened: contextlib.ExitStack) -> None:
    folder = tmp_path / "BENCH--max_concurrency=8"
    folder.mkdir()
    whole = (BENCH / "sound.json").read_text()
    (folder / "run=0.json").write_text(whole)
    (folder / "run=1.json").write_text(whole)
    (folder / "summary.json").write_text(f"[{whole}, {whole}]")
    (folder / "warmup.json").write_text(whole)
    seen = observed([str(tmp_path)], signals, opened)
    assert [Path(one.target).name for one in seen] == ["run=0.json", "run=1.json"]
    assert len({one.patient for one in seen}) == 2


def test_a_server_command_in_the_same_text_is_the_server_s(
    tmp_path: Path, signals: Catalogue, opened: contextlib.ExitStack
) -> None:
    issue = tmp_path / "issue.md"
    table = (BENCH / "sound.txt").read_text()
    issue.write_text(f"I start it so:\n```\nvllm serve m --enforce-eager\n```\nand get\n```\n{table}```\n")
    seen = observed([str(issue)], signals, opened)
    assert kinds(seen) == ["bench", "command"]
    assert seen[0].patient == seen[1].patient
    assert seen[1].facts["--enforce-eager"] == Known(True)


def test_a_command_of_the_server_is_of_every_result(signals: Catalogue, opened: contextlib.ExitStack) -> None:
    words = [str(BENCH / "cold.json"), str(BENCH / "warm.json")]
    seen = observed(words, signals, opened, command="vllm serve m")
    assert kinds(seen) == ["bench", "bench", "command", "command"]


def test_a_command_of_the_benchmark_tells_how_it_was_made(signals: Catalogue, opened: contextlib.ExitStack) -> None:
    made = "vllm bench serve --model tiny --dataset-name random --random-output-len 512 --seed 22"
    (seen,) = observed([str(BENCH / "early-end.json")], signals, opened, command=made)
    assert seen.facts["bench_output_len_asked"] == Known(512.0)
    assert seen.facts["bench_ignore_eos"] == Known(0.0)


def test_within_a_log_it_is_of_the_log_s_server(
    tmp_path: Path, signals: Catalogue, opened: contextlib.ExitStack
) -> None:
    log = tmp_path / "vllm.log"
    table = (BENCH / "open-loop.txt").read_text()
    log.write_text("".join(map(LINE.format, range(5))) + table + "".join(map(LINE.format, range(5, 9))))
    seen = observed([str(log)], signals, opened)
    assert kinds(seen) == ["log", "bench"]
    assert seen[0].patient == seen[1].patient


def test_beside_other_things_the_fastest_of_several_is_judged(
    tmp_path: Path, signals: Catalogue, opened: contextlib.ExitStack
) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(LINE.format(1) * 3)
    words = [str(BENCH / "cold.json"), str(log), str(BENCH / "warm.json")]
    seen = observed(words, signals, opened)
    assert kinds(seen) == ["log", "bench"]
    assert seen[1].target.endswith("warm.json")
    assert seen[1].facts["bench_again_faster"].value == pytest.approx(2.42, abs=0.01)  # type: ignore[union-attr]
    assert "of 2 benchmark results the fastest is judged" in seen[1].notes[0]


def test_text_from_standard_input_gives_its_results() -> None:
    failed = Observation(SourceKind.LOG, "-")
    assert bench.with_results(failed, b"nothing") is failed
    found = bench.with_results(failed, (BENCH / "sound.txt").read_bytes())
    assert found.bench is not None
    assert found.facts["bench_requests"] == Known(1000.0)


def test_a_broken_result_is_an_error(tmp_path: Path, signals: Catalogue, opened: contextlib.ExitStack) -> None:
    broken = tmp_path / "bench.json"
    broken.write_text((BENCH / "sound.json").read_text().replace('"duration": 41', '"duration": "x41", "y": 41', 1))
    with pytest.raises((SourceError, UsageError), match="duration"):
        observed([str(broken)], signals, opened)
