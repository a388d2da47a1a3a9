"""A token or a header goes to the servers that it was given for: whatever the command, and to nobody else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cli.test_examine_local import Fake, fake_vllm
from tests.cli.test_main import Doctor, doctor, one_line
from tests.compare.test_bench_run import script
from tests.compare.test_vllm_bench import run
from tests.fake_prometheus import FakePrometheus, targets
from tests.serving import Answer, Served, pages, serving, vllm
from tests.tui.tmux import terminal

__all__ = ["doctor"]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
    pytest.mark.xdist_group("host"),  # its servers are seen by all who look at this host
]

TOKEN, OTHER = "t0ken-0123456789", "0ther-9876543210"


@pytest.fixture(autouse=True)
def token_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tok").write_text(f"{TOKEN}\n")
    Path("tok2").write_text(f"{OTHER}\n")


@pytest.fixture
def one() -> Iterator[Served]:
    with serving(vllm(pages("preemption"))) as server:
        yield server


@pytest.fixture
def other() -> Iterator[Served]:
    with serving(vllm(pages("preemption"))) as server:
        yield server


@pytest.fixture
def prometheus() -> Iterator[Served]:
    fake = FakePrometheus((target, "preemption") for target in targets(1))
    with serving(fake.routes()) as server:
        yield server


def sent(server: Served) -> set[str | None]:
    """What came with the requests, of which there were some."""
    assert server.requests
    return {request.headers.get("authorization") for request in server.requests}


def asked(fake: Fake) -> str:
    """What a process was asked, with the headers; maybe by another who looks at this host."""
    return fake.requests.read_text() if fake.requests.exists() else ""


# ---- servers found by themselves ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [["--token-file", "tok"], ["--header", f"X-Api-Key: {TOKEN}"], ["--token-file", "tok", "--token-for", "{url}=tok"]],
)
@pytest.mark.parametrize("command", [[], ["record", "-o", "r.tar.gz", "--duration", "1"]])
def test_servers_that_were_found_get_no_token(
    words: Sequence[str], command: Sequence[str], doctor: Doctor, tmp_path: Path
) -> None:
    """Any user of the host can start a program that looks like a vLLM."""
    with fake_vllm(tmp_path) as fake:
        line = one_line(doctor(*command, *(word.format(url=fake.url) for word in words)))
        assert "go to servers that you name, not to those found on this host" in line
        assert TOKEN not in asked(fake)
    assert not Path("r.tar.gz").exists()


def test_at_a_terminal_they_get_none_either(tmp_path: Path) -> None:
    """It is said before anything is drawn: the one server that is found would be examined without a question."""
    with fake_vllm(tmp_path) as fake, terminal(tmp_path) as tmux:
        tmux.type("doctor --token-file tok; echo code=$?", "Enter")
        assert "go to servers that you name" in " ".join(tmux.until("code=3").split())
        assert TOKEN not in asked(fake)


def test_a_server_that_was_found_gets_the_token_of_its_url(doctor: Doctor, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with fake_vllm(tmp_path / "one") as fake, fake_vllm(tmp_path / "other") as imposter:
        doctor("--json", "--window", "0", "--token-for", f"{fake.url}=tok")
        assert TOKEN in asked(fake)
        assert "/metrics" in asked(imposter)
        assert TOKEN not in asked(imposter)


def test_a_pid_that_is_named_names_its_server(doctor: Doctor, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with fake_vllm(tmp_path / "one") as fake, fake_vllm(tmp_path / "other") as imposter:
        doctor(str(fake.pid), "--json", "--window", "0", "--token-file", "tok")
        assert TOKEN in asked(fake)
        assert TOKEN not in asked(imposter)


# ---- each command ---------------------------------------------------------------------------------------------------


def test_each_gets_its_own(one: Served, other: Served, prometheus: Served, doctor: Doctor) -> None:
    tokens = ("--token-for", f"{one.url}=tok", "--token-for", f"prom+{prometheus.url}=tok2")
    doctor(one.url, other.url, f"prom+{prometheus.url}", "--window", "0", *tokens)
    assert sent(one) == {f"Bearer {TOKEN}"}
    assert sent(other) == {None}
    assert sent(prometheus) == {f"Bearer {OTHER}"}


@pytest.mark.parametrize(
    "words",
    [
        ["{one}", "--window", "0", "--json"],
        ["record", "{one}", "-o", "r.tar.gz", "--duration", "1"],
        ["alerts", "--url", "{one}"],
        ["fleet", "{prometheus}", "--json"],
        ["alerts", "--prometheus", "{prometheus}"],
    ],
)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--token-file", "tok"], f"Bearer {TOKEN}"),
        (["--header", f"authorization: Bearer {TOKEN}"], f"Bearer {TOKEN}"),
        (["--token-for", "{it}=tok"], f"Bearer {TOKEN}"),
        (["--token-file", "tok2", "--header", "authorization: x", "--token-for", "{it}=tok"], f"Bearer {TOKEN}"),
        (["--token-for", "http://127.0.0.1:1=tok"], None),
    ],
)
def test_each_command_sends_it(
    words: Sequence[str], options: Sequence[str], expected: str | None, one: Served, prometheus: Served, doctor: Doctor
) -> None:
    it = one if "{one}" in words else prometheus
    given = [word.format(one=one.url, prometheus=prometheus.url, it=it.url) for word in (*words, *options)]
    ran = doctor(*given)
    assert sent(it) == {expected}
    assert TOKEN not in ran.out + ran.err


def test_compare_asks_each_with_its_own(one: Served, other: Served, doctor: Doctor) -> None:
    doctor("compare", one.url, other.url, "--window", "0", "--token-file", "tok", "--token-for", f"{other.url}=tok2")
    assert sent(one) == {f"Bearer {TOKEN}"}
    assert sent(other) == {f"Bearer {OTHER}"}


def test_a_token_out_of_a_program_is_read_once(one: Served, other: Served, doctor: Doctor) -> None:
    """`compare A B --token-file <(…)` read the pipe twice, the second time in vain."""
    read, write = os.pipe()
    os.write(write, TOKEN.encode())
    os.close(write)
    doctor("compare", one.url, other.url, "--window", "0", "--token-file", f"/dev/fd/{read}")
    os.close(read)
    assert sent(one) == sent(other) == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("to", "options", "key"),
    [
        ("", ["--token-file", "tok"], TOKEN),
        ("", ["--token-for", "{one}=tok"], TOKEN),
        ("--base-url {other}", ["--token-for", "{one}=tok"], None),
        ("--base-url {other}", ["--token-for", "{one}=tok", "--token-for", "{other}=tok2"], OTHER),
        ("", ["--header", "Authorization: Basic bWU6"], None),
    ],
)
def test_a_benchmark_has_the_key_of_the_server_that_it_loads(
    to: str,
    options: Sequence[str],
    key: str | None,
    one: Served,
    other: Served,
    doctor: Doctor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script(Path("bin"), "sleep 1", run())
    monkeypatch.setenv("PATH", f"{Path('bin').absolute()}:{os.environ['PATH']}")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    urls = {"one": one.url, "other": other.url}
    bench = f"--seed 1 {to.format(**urls)}"
    ran = doctor("record", one.url, "-o", "r.tar.gz", "--bench", bench, *(word.format(**urls) for word in options))
    assert (ran.code, ran.err) == (0, "")
    given = [line for line in Path("bin/environment").read_text().splitlines() if line.startswith("OPENAI_API_KEY=")]
    assert given == ([f"OPENAI_API_KEY={key}"] if key else [])


# ---- what was not understood ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("http://h:8000", "--token-for http://h:8000: write http://host:8000=FILE"),
        (f"http://me:{TOKEN}@h:8000", "--token-for http://h:8000: write http://host:8000=FILE"),
        ("http://h:8000=", "write http://host:8000=FILE"),
        ("tok", "--token-for tok: write"),
        ("ftp://h=tok", "not a URL of a server: ftp://h"),
        ("http://h:8000=nowhere", "--token-for http://h:8000 nowhere: cannot be read"),
        ("http://h:8000=/dev/zero", "/dev/zero: cannot be read (a device"),
        ("http://h:8000=fifo", "fifo: cannot be read (a named pipe"),
    ],
)
def test_a_token_for_nobody(word: str, says: str, doctor: Doctor) -> None:
    os.mkfifo("fifo")
    line = one_line(doctor("http://127.0.0.1:1", "--token-for", word))
    assert says in line
    assert TOKEN not in line


@pytest.mark.parametrize("file", ["/dev/zero", "fifo", "."])
def test_a_token_file_without_an_end(file: str, doctor: Doctor) -> None:
    os.mkfifo("fifo")
    line = one_line(doctor("http://127.0.0.1:1", "--token-file", file))
    assert f"--token-file {file}: cannot be read (" in line


def test_who_wants_a_token_is_told_how(doctor: Doctor) -> None:
    with serving(vllm(lambda request: Answer(status=401))) as server:
        line = one_line(doctor(server.url, "--window", "0"))
    assert f"answers 401: give --token-file or --header with its URL, or --token-for {server.url}=FILE" in line
