"""`vllm bench serve` as the doctor runs it: a small script plays it, on the PATH."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.compare.test_vllm_bench import run as result
from tests.real_prometheus import until
from tests.serving import Served, pages, serving, vllm
from vllm_doctor.compare import bench_run
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.sources.host import process
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.server.server import Server
from vllm_doctor.vllm.command_line import Command

pytestmark = pytest.mark.xdist_group("host")

MODELS = {"data": [{"id": "tiny", "root": "/models/tiny"}]}
IDLE = "vllm:num_requests_running 0\nvllm:prompt_tokens_total 5\n"


def script(folder: Path, body: str, saved: dict[str, Any] | None = None) -> Path:
    """A `vllm` that saves this result where it is told to, and then does what the body says."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved.json").write_text(json.dumps(saved))
    path = folder / "vllm"
    path.write_text(
        "#!/bin/sh\n"
        f'folder={folder}\nprintf "%s\\n" "$@" >"$folder/arguments"\nenv >"$folder/environment"\n'
        'while [ $# -gt 0 ]; do case "$1" in --result-dir) dir=$2;; --result-filename) name=$2;; esac; shift; done\n'
        + ('cp "$folder/saved.json" "$dir/$name"\n' if saved is not None else "")
        + body
        + "\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(vllm(pages("preemption"))) as server:
        yield server


@contextlib.contextmanager
def asked(url: str) -> Iterator[Server]:
    server = Server(url, frozenset())
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def server(served: Served) -> Iterator[Server]:
    with asked(served.url) as server:
        yield server


def ran(path: Path, server: Server, given: Sequence[str] = (), masked: Counter[str] | None = None) -> dict[str, Any]:
    with bench_run.running(path, given, server, MODELS) as run:
        until(run.is_over)
        return run.result(Counter() if masked is None else masked)


def test_arguments_are_split_as_a_shell_does_and_none_runs() -> None:
    assert bench_run.words("--dataset-name 'random x' $(rm -rf /)") == [
        "--dataset-name", "random x", "$(rm", "-rf", "/)",
    ]  # fmt: skip
    assert bench_run.words("vllm bench serve --seed 1") == ["--seed", "1"]
    with pytest.raises(UsageError, match="--bench: no closing quotation"):
        bench_run.words("--dataset-name 'random")


@pytest.mark.parametrize("text", ["--result-dir x", "--result_filename=x", "--append-result", "--save-result"])
def test_where_the_result_goes_is_ours(text: str) -> None:
    with pytest.raises(UsageError, match="the result goes into the recording"):
        bench_run.words(text)


def test_server_and_model_are_filled_in(server: Server) -> None:
    told = bench_run.command(Path("/bin/vllm"), ["--seed", "1"], server, MODELS, Path("/x/bench.json"))
    assert told == [
        "/bin/vllm", "bench", "serve", "--seed", "1", "--base-url", server.base, "--model", "/models/tiny",
        "--served-model-name", "tiny", "--save-result", "--result-dir", "/x", "--result-filename", "bench.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        (["--base-url", "http://x"], ["--model", "--served-model-name"]),
        (["--port=1"], ["--model", "--served-model-name"]),
        (["--model", "other"], ["--base-url"]),
        (["--served_model_name=x"], ["--base-url", "--model"]),
    ],
)
def test_what_was_given_is_not_filled_in(server: Server, given: list[str], filled: list[str]) -> None:
    told = bench_run.command(Path("vllm"), given, server, MODELS, Path("x"))[3 + len(given) :]
    ours = {"--base-url", "--model", "--served-model-name"}
    assert [word for word in told if word in ours] == filled


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ([], None),
        (["--seed", "1"], None),
        (["--base-url", "http://x:1/"], "http://x:1"),
        (["--base_url=https://x/v1"], "https://x/v1"),
        (["--host=x"], "http://x:8000"),
        (["--port", "1", "--seed", "2"], "http://127.0.0.1:1"),
        (["--host", "x", "--port=1"], "http://x:1"),
    ],
)
def test_which_server_it_loads(server: Server, given: list[str], base: str | None) -> None:
    assert bench_run.loaded(given, server) == (base or server.base)


NAMELESS: list[Any] = [
    {}, {"data": []}, {"data": [{}]}, {"data": ["x"]}, [], None,
    {"data": [{"id": "--trust-remote-code"}]}, {"data": [{"id": "a\0b"}]}, {"data": [{"id": 7, "root": "x"}]},
]  # fmt: skip


@pytest.mark.parametrize("models", NAMELESS)
def test_a_server_that_names_no_model_leaves_it_to_vllm(server: Server, models: Any) -> None:
    assert "--model" not in bench_run.command(Path("vllm"), [], server, models, Path("x"))


def test_no_password_stands_on_its_command_line() -> None:
    with asked("http://me:secret@127.0.0.1:1") as server, pytest.raises(UsageError, match="a password in a URL"):
        bench_run.command(Path("vllm"), [], server, {}, Path("x"))


def test_its_key_comes_by_the_environment(tmp_path: Path, server: Server) -> None:
    path = script(tmp_path / "bin", "", result())
    with bench_run.running(path, [], server, MODELS, "sk-hidden") as run:
        until(run.is_over)
    assert "OPENAI_API_KEY=sk-hidden" in (tmp_path / "bin/environment").read_text()
    assert "sk-hidden" not in (tmp_path / "bin/arguments").read_text()


def test_without_a_vllm_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for is_local in (False, True):  # the process that listens is the test itself, and no vLLM
        with pytest.raises(SourceError, match="--bench needs the vllm command"):
            bench_run.program(server, is_local)
    path = script(tmp_path, "")
    assert bench_run.program(server, False) == path


def test_its_result_without_what_was_answered(tmp_path: Path, server: Server) -> None:
    saved = result(generated_texts=["a secret", "", "b"], errors=["", "prompt x", ""], ttfts=[0.1], burstiness=1.0)
    masked: Counter[str] = Counter()
    kept = ran(script(tmp_path / "bin", "", saved), server, masked=masked)
    assert kept == result(ttfts=[0.1])
    assert masked == {"prompt": 3}
    arguments = (tmp_path / "bin/arguments").read_text().splitlines()
    assert arguments[:2] == ["bench", "serve"]


def test_what_is_no_number_is_none(tmp_path: Path, server: Server) -> None:
    kept = ran(script(tmp_path / "bin", "", result(burstiness=float("inf"), ttfts=[float("nan"), 1.0])), server)
    assert (kept["burstiness"], kept["ttfts"]) == (None, [None, 1.0])


@pytest.mark.parametrize(
    ("body", "saved", "says"),
    [
        ("echo noise; echo 'ValueError: no dataset' >&2; echo; exit 1", None, "exit code 1: ValueError: no dataset"),
        ("exit 7", None, "exit code 7: it printed nothing"),
        ("echo done", None, "saved no result: done"),
        ("", {"duration": 1.0}, "a result of an unknown form"),
        ("kill -9 $$", None, "exit code -9"),
    ],
)
def test_a_failure_is_told_with_its_last_line(
    tmp_path: Path, server: Server, body: str, saved: dict[str, Any] | None, says: str
) -> None:
    with pytest.raises(SourceError, match=says):
        ran(script(tmp_path / "bin", body, saved), server)


def test_it_and_what_it_started_end_with_us(tmp_path: Path, server: Server) -> None:
    path = script(tmp_path / "bin", 'sleep 1000 & echo $$ $! >"$folder/pids"; wait')
    with bench_run.running(path, [], server, MODELS) as run:
        until((tmp_path / "bin/pids").exists)
        until(lambda: len((tmp_path / "bin/pids").read_text().split()) == 2)
        with pytest.raises(SourceError, match=r"still running after .* fewer --num-prompts"):
            run.result(Counter())
    for pid in (tmp_path / "bin/pids").read_text().split():
        until(lambda pid=pid: not is_alive(int(pid)))  # type: ignore[misc]


def is_alive(pid: int) -> bool:
    """Neither gone nor a zombie that nobody has reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_waits_for_the_first_request(tmp_path: Path) -> None:
    busy = IDLE.replace("running 0", "running 3")
    with serving(vllm([IDLE, IDLE, busy])) as served, asked(served.url) as server:
        with bench_run.running(script(tmp_path / "bin", "sleep 1000"), [], server, MODELS) as run:
            run.await_load(server, 600)
        assert len(served.asked("/metrics")) == 3


def test_a_benchmark_of_another_server_is_told(tmp_path: Path) -> None:
    with serving(vllm([IDLE])) as served, asked(served.url) as server:
        with (
            bench_run.running(script(tmp_path / "a", "", result()), [], server, MODELS) as run,
            pytest.raises(SourceError, match="had no work from it: is --base-url another server"),
        ):
            run.await_load(server, 600)
        with (
            bench_run.running(script(tmp_path / "b", "echo no tokenizer; exit 1"), [], server, MODELS) as run,
            pytest.raises(SourceError, match="exit code 1: no tokenizer"),
        ):
            run.await_load(server, 600)
        with (
            bench_run.running(script(tmp_path / "c", "sleep 1000"), [], server, MODELS) as run,
            pytest.raises(SourceError, match="sent nothing in 0 s"),
        ):
            run.await_load(server, 0)


def test_a_file_that_cannot_be_run(tmp_path: Path, server: Server) -> None:
    (tmp_path / "vllm").write_text("not a program")
    os.chmod(tmp_path / "vllm", 0o755)
    with pytest.raises(SourceError, match=r"cannot be run|exit code"):
        ran(tmp_path / "vllm", server)


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `vllm` beside the Python of the server, and none on the PATH."""
    monkeypatch.setenv("PATH", "")
    own = script(tmp_path / "venv/bin", "")
    found = process.ServerProcess(root=1, command=Command((str(own.with_name("python")), "-m", "vllm")))
    monkeypatch.setattr(process, "listening_on", lambda kernel, port: found)
    return own


def test_beside_the_server_is_one_too(beside: Path, server: Server) -> None:
    assert bench_run.program(server, is_local=True) == beside
    with pytest.raises(SourceError, match="--bench needs the vllm command"):
        bench_run.program(server, is_local=False)


def test_what_a_container_calls_so_is_another_file_here(
    beside: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = process.listening_on(Kernel(), 1)
    assert isinstance(found, process.ServerProcess)
    monkeypatch.setattr(process, "listening_on", lambda kernel, port: replace(found, apart=frozenset({"mnt"})))
    with pytest.raises(SourceError, match="--bench needs the vllm command"):
        bench_run.program(server, is_local=True)


def given_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(path, 65534, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: path.lstat().st_uid + 1)


@pytest.mark.parametrize("whose", ["the file", "its folder", "a folder above", "a link to its folder", "a group's"])
def test_where_another_user_could_put_another_nothing_is_run(
    whose: str, beside: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's server names the file: as root, that would be run with more rights than that user has."""
    folder = beside.parent
    if whose == "a link to its folder":
        folder.rename(folder.with_name("real"))
        folder.symlink_to("real")
        assert bench_run.program(server, is_local=True) == folder.with_name("real") / "vllm"
    if whose == "a group's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder to a group that it is not in")
        folder.chmod(0o775)
        os.chown(folder, -1, 65534)
        part = folder
    else:
        part = {"the file": beside, "a folder above": folder.parent}.get(whose, folder)
        given_away(part, monkeypatch)
    with pytest.raises(SourceError, match=f"--bench does not run {beside}, as other users may change /"):
        bench_run.program(server, is_local=True)
