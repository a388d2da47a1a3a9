"""`record --bench`: a small script plays `vllm`, a recorded server the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_main import Doctor, doctor, one_line
from tests.compare.test_bench_run import is_alive, script
from tests.compare.test_vllm_bench import run as result
from tests.planted import ANSWER, API_KEY, HF, PROMPT, found_in
from tests.real_prometheus import until
from tests.serving import Served, pages, serving, vllm
from tests.zstandard import zstd
from vllm_doctor.recording import archive, bundle

__all__ = ["doctor"]

pytestmark = pytest.mark.xdist_group("host")

LONG = 'echo $$ >"$folder/pid"; exec sleep 1000'


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(vllm(pages("preemption"))) as server:
        yield server


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a `vllm` on the PATH; gives its folder."""

    def played(body: str = "sleep 1", saved: dict[str, Any] | None = None, **changed: Any) -> Path:
        folder = tmp_path / "bin"
        script(folder, body, result(**changed) if saved is None else saved)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return folder

    return played


def test_it_runs_while_it_is_recorded_and_its_result_is_kept(
    tmp_path: Path, doctor: Doctor, served: Served, played: Callable[..., Path]
) -> None:
    folder, path = played(), tmp_path / "r.tar.gz"
    ran = doctor("record", served.url, "-o", path, "--bench", "--dataset-name 'random' --seed 1")
    assert (ran.code, ran.err) == (0, "")
    assert "vllm bench serve: 100 requests, generation tokens 1,000/s, mean TTFT 250 ms, mean ITL 12 ms" in ran.out
    given = (folder / "arguments").read_text().splitlines()
    assert given[:8] == ["bench", "serve", "--dataset-name", "random", "--seed", "1", "--base-url", served.url]
    found = bundle.read(path)
    assert found.bench == result()
    assert found.report is not None
    assert found.report["verdict"] == "critical"
    assert len(found.server.metrics.times if found.server.metrics else ()) >= 2
    assert doctor(path, "--json").report["verdict"] == "critical"  # a source like any other


def text_of(part: bytes) -> str:
    return (zstd.decompress(part) if part.startswith(b"\x28\xb5\x2f\xfd") else part).decode()


def test_what_it_sent_and_was_answered_is_not_kept(
    tmp_path: Path, doctor: Doctor, served: Served, played: Callable[..., Path]
) -> None:
    played(generated_texts=[ANSWER], errors=[PROMPT], hf_token=HF, label=f"x --api-key {API_KEY}", note=f"for {HF}")
    path = tmp_path / "r.tar.gz"
    ran = doctor("record", served.url, "-o", path, "--bench", "--seed 1", "--header", f"Authorization: Bearer {HF}")
    assert ran.code == 0
    assert found_in(ran.out + ran.err + "".join(map(text_of, archive.read(path).values()))) == []
    masked = {item["what"] for item in json.loads(archive.read(path)["recording.json"])["redacted"]}
    assert {"prompt", "token"} <= masked


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sleep 1; echo 'OSError: no tokenizer in x' >&2; exit 1", "exit code 1: OSError: no tokenizer in x"),
        (
            "echo 'error: unrecognized arguments: --sed' >&2; exit 2",
            "exit code 2: error: unrecognized arguments: --sed",
        ),
        (f"echo 'bad key {HF}' >&2; exit 1", "bad key [masked]"),
        ("printf '\\033[31mred\\n' >&2; exit 1", "red"),
    ],
)
def test_its_failure_is_told_and_nothing_written(
    tmp_path: Path, doctor: Doctor, served: Served, played: Callable[..., Path], body: str, says: str
) -> None:
    played(body)
    ran = doctor("record", served.url, "-o", tmp_path / "r.tar.gz", "--bench", "--sed 1")
    assert says in one_line(ran)
    assert not (tmp_path / "r.tar.gz").exists()


def test_it_takes_no_longer_than_it_may(
    tmp_path: Path, doctor: Doctor, served: Served, played: Callable[..., Path]
) -> None:
    folder = played(LONG)
    ran = doctor("record", served.url, "-o", tmp_path / "r.tar.gz", "--bench", "", "--duration", "2")
    assert "was still running after" in one_line(ran)
    assert not (tmp_path / "r.tar.gz").exists()
    assert not is_alive(int((folder / "pid").read_text()))


def _heeding() -> None:
    """Tests that a shell runs in the background inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_it_ends_with_the_doctor(
    tmp_path: Path, served: Served, played: Callable[..., Path], number: signal.Signals
) -> None:
    folder = played(LONG)
    words = [sys.executable, "-m", "vllm_doctor", "record", served.url, "-o", str(tmp_path / "r.tar.gz"), "--bench", ""]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heeding)
    try:
        until(lambda: (folder / "pid").exists() and bool((folder / "pid").read_text().strip()))
        pid = int((folder / "pid").read_text())
        assert is_alive(pid)
        started.send_signal(number)
        out, err = started.communicate(timeout=60)
    finally:
        started.kill()
        started.wait()
    until(lambda: not is_alive(pid))
    assert (out, (tmp_path / "r.tar.gz").exists()) == ("", False)
    if number is not signal.SIGKILL:
        said = "interrupted" if number is signal.SIGINT else f"ended by {number.name}"
        assert (started.returncode, err) == (3, f"vllm-doctor: {said}\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--bench", "--result-dir x"], "leave --result-dir out"),
        (["--bench", "'x"], "no closing quotation"),
        (["--bench", "--seed 1", "--on", "critical"], "--on waits for what comes by itself"),
    ],
)
def test_what_cannot_be_is_told_at_once(
    tmp_path: Path, doctor: Doctor, served: Served, words: list[str], says: str
) -> None:
    assert says in one_line(doctor("record", served.url, "-o", tmp_path / "r.tar.gz", *words))
    assert served.asked("/metrics") == []


def test_it_wants_one_living_server(tmp_path: Path, doctor: Doctor, served: Served) -> None:
    (tmp_path / "vllm.log").write_text("INFO 11-20 10:00:00 [api_server.py:100] vLLM API server version 0.32.0\n")
    with serving(vllm(pages("preemption"))) as other:
        for sources in ([tmp_path / "vllm.log"], [served.url, other.url]):
            ran = doctor("record", *sources, "-o", tmp_path / "r.tar.gz", "--bench", "--seed 1")
            assert "--bench loads one running server" in one_line(ran)


def benched(folder: Path, name: str, doctor: Doctor, served: Served, played: Callable[..., Path], **how: Any) -> Path:
    """A recording of the same server, with another result."""
    played(duration=30.0, **how)
    path = folder / f"{name}.tar.gz"
    assert doctor("record", served.url, "-o", path, "--bench", "--seed 1").code == 0
    return path


def test_compare_takes_what_both_benchmarks_measured(
    tmp_path: Path, doctor: Doctor, served: Served, played: Callable[..., Path]
) -> None:
    before = benched(tmp_path, "before", doctor, served, played)
    after = benched(tmp_path, "after", doctor, served, played, output_throughput=2000.0)
    other = benched(tmp_path, "other", doctor, served, played, output_throughput=2000.0, max_concurrency=48)
    ran = doctor("compare", before, after)
    assert (ran.code, ran.out.split("(")[0]) == (0, "PASS  It got better: generation tokens 1,000/s → 2,000/s ")
    assert "those of vllm bench serve" in " ".join(ran.out.split())
    assert "requests waiting" in ran.out  # the server's own stands beside
    ran = doctor("compare", before, other, "--json")
    assert (ran.code, json.loads(ran.out)["same_load"]) == (3, False)
    (tmp_path / "result.json").write_text(json.dumps(result(duration=30.0, output_throughput=500.0)))
    ran = doctor("compare", before, tmp_path / "result.json", "--json")  # a recording's benchmark, and a result alone
    told = json.loads(ran.out)
    assert told["before"]["seen_by"] == told["after"]["seen_by"] == "vllm bench serve"
    rows = {row["name"]: row for row in told["measures"]}
    assert (rows["tokens_out"]["is"], rows["waiting"]["is"]) == ("worse", "cannot tell")


def test_a_recording_without_one_is_compared_by_what_its_server_told(
    tmp_path: Path, doctor: Doctor, served: Served, played: Callable[..., Path]
) -> None:
    with_one = benched(tmp_path, "with", doctor, served, played)
    without = tmp_path / "without.tar.gz"
    assert doctor("record", served.url, "-o", without, "--duration", "1").code == 0
    told = json.loads(doctor("compare", without, with_one, "--json").out)
    assert {told["before"]["seen_by"], told["after"]["seen_by"]} == {"server"}


def test_a_result_that_is_none_is_told(tmp_path: Path, doctor: Doctor, served: Served) -> None:
    path = tmp_path / "r.tar.gz"
    assert doctor("record", served.url, "-o", path, "--duration", "1").code == 0
    path.write_bytes(archive.packed(archive.read(path) | {"bench.json": b'{"duration": 1}'}))
    assert "its bench.json is no known result of `vllm bench serve`" in one_line(doctor("compare", path, path))
    assert doctor(path, "--json").report["verdict"] == "critical"
