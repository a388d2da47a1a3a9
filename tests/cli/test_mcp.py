"""`vllm-doctor mcp`, asked by the SDK's own client over standard input and output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import jsonschema
import psutil
import pytest
from mcp import Client, StdioServerParameters

from tests.paths import FIXTURES, LOGS, PACKAGE, ROOT
from tests.planted import SK
from tests.serving import pages, serving, vllm
from vllm_doctor.cli import mcp_tools
from vllm_doctor.model.errors import UsageError

LOG = LOGS / "preemption.log.gz"
ENVIRONMENT = {"PYTHONPATH": str(ROOT)}

Answer = tuple[str, bool]
Ask = Callable[..., Awaitable[Answer]]


def asking(
    questions: Callable[[Ask], Awaitable[None]], *options: str, python: Sequence[str] = (), cwd: Path | None = None
) -> None:
    """A server of its own, and a client that puts these questions to it."""
    words = [*python, "-m", "vllm_doctor", "mcp", *options]
    server = StdioServerParameters(command=sys.executable, args=words, env=ENVIRONMENT, cwd=cwd)

    async def ask_all() -> None:
        async with Client(server, read_timeout_seconds=120) as client:

            async def ask(tool: str, **given: Any) -> Answer:
                result = await client.call_tool(tool, given)
                (content,) = result.content
                assert content.type == "text"
                return content.text, result.is_error

            await questions(ask)

    anyio.run(ask_all)


def test_a_client_lists_the_tools_and_each_only_reads() -> None:
    async def listing() -> None:
        server = StdioServerParameters(command=sys.executable, args=["-m", "vllm_doctor", "mcp"], env=ENVIRONMENT)
        async with Client(server, read_timeout_seconds=60) as client:
            listed = (await client.list_tools()).tools
            assert client.server_info is not None
            assert client.server_info.name == "vllm-doctor"
            assert client.instructions is not None
            assert "`unknown` is neither well nor ill" in client.instructions
        names = [tool.name for tool in listed]
        assert names == ["examine", "read_log", "explain_rule", "flags", "expect", "compare", "regressions"]
        for tool in listed:
            assert tool.description
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)

    anyio.run(listing)


def test_an_examination_is_the_commands_json(tmp_path: Path) -> None:
    schema = json.loads((PACKAGE / "render" / "report.v1.schema.json").read_text("utf-8"))

    async def questions(ask: Ask) -> None:
        text, is_error = await ask("examine", demo="preemption", window=1)
        assert not is_error
        report = json.loads(text)
        jsonschema.validate(report, schema)
        assert report["verdict"] == "critical"
        assert report["findings"][0]["rule"] == "preemption"

        text, is_error = await ask("read_log", files=[str(LOG)])
        assert not is_error
        report = json.loads(text)
        jsonschema.validate(report, schema)
        usual = _command(str(LOG), "--json", "--fail-on", "never").stdout
        assert _without_time(report) == _without_time(json.loads(usual))

        text, is_error = await ask("examine", sources=[str(FIXTURES / "preemption")], format="text")
        assert not is_error
        assert text.startswith("CRITICAL  The KV cache is too small for the running batch")

    asking(questions, cwd=tmp_path)


def test_text_that_somebody_pasted_is_read() -> None:
    line = "INFO 11-20 10:49:40 [loggers.py:123] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation"
    line += " throughput: 20.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit"
    line += " rate: 0.0%"

    async def questions(ask: Ask) -> None:
        text, is_error = await ask("read_log", text=f"{line}\napi_key={SK}\n")
        assert not is_error
        report = json.loads(text)
        assert report["lines"]["recognised"] == 1
        assert SK not in text

    asking(questions)


def test_the_other_tools_answer(tmp_path: Path) -> None:
    healthy, sick = (str(FIXTURES / name) for name in ("healthy-busy", "preemption"))

    async def questions(ask: Ask) -> None:
        page, is_error = await ask("explain_rule", id="preemption")
        assert (page, is_error) == (_command("rules", "preemption").stdout, False)
        pages, is_error = await ask("flags", version="0.32.0", names=["--max-num-seqs", "--not-a-flag"])
        assert not is_error
        assert "vLLM 0.32.0 takes it" in pages
        assert "vLLM 0.32.0 does not have it" in pages
        answer, is_error = await ask("expect", model="Qwen/Qwen3-32B", gpu="1xH100", concurrency=4)
        assert not is_error
        assert json.loads(answer)["schema"] == "vllm-doctor/expect/v1"
        answer, is_error = await ask("regressions", versions=["0.19.0", "0.21.0"])
        assert not is_error
        assert json.loads(answer)["schema"].startswith("vllm-doctor/")
        answer, is_error = await ask("compare", before=sick, after=healthy)
        assert not is_error
        assert json.loads(answer)["outcome"] in ("PASS", "FAIL", "INCONCLUSIVE")

    asking(questions, cwd=tmp_path)


def test_what_goes_wrong_is_one_line() -> None:
    async def questions(ask: Ask) -> None:
        wrong: list[tuple[str, Mapping[str, Any], str]] = [
            ("examine", {"sources": ["http://127.0.0.1:9"], "timeout": 5}, "http://127.0.0.1:9 refuses connections"),
            ("examine", {"sources": ["http://"]}, "http://"),
            ("examine", {"sources": ["-o/tmp/x"]}, "names no source"),
            ("examine", {"sources": ["\x1b[31mred"]}, "red"),
            ("examine", {"source": ["http://h"]}, "examine takes no 'source'; it takes sources, demo, "),
            ("examine", {"demo": "nope"}, "no demo 'nope'; there are: "),
            ("examine", {"window": "long"}, "window is a number, not 'long'"),
            ("read_log", {}, "read_log needs files, or text"),
            ("read_log", {"files": ["no-such.log"]}, "no-such.log"),
            ("explain_rule", {"id": "preemtion"}, "no rule 'preemtion'"),
            ("flags", {}, "flags needs version"),
            ("flags", {"version": "nine"}, "has not the form of one"),
            ("expect", {}, "which model?"),
            ("compare", {"before": "a"}, "compare needs after"),
            ("compare", {"before": "a", "after": "b"}, "'a' is neither a file nor a folder"),
            ("regressions", {"versions": ["0.1", "0.2", "0.3"]}, "one version, or two"),
        ]
        for tool, given, expected in wrong:
            text, is_error = await ask(tool, **given)
            assert is_error, (tool, given, text)
            assert expected in text
            assert text.isprintable(), text

    asking(questions)


def test_a_token_goes_to_the_server_it_was_given_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret-of-one\n")
    sick = vllm(pages("preemption"))
    with serving(sick) as one, serving(sick) as other:

        async def questions(ask: Ask) -> None:
            for server in (one, other):
                text, is_error = await ask("examine", sources=[server.url], window=0)
                assert not is_error, text
                assert "s3cret" not in text

        asking(questions, f"--token-for={one.url}={tmp_path / 'token'}")
        tokens = [
            {request.headers.get("authorization") for request in server.asked("/metrics")} for server in (one, other)
        ]
    assert tokens == [{"Bearer s3cret-of-one"}, {None}]


def test_a_package_in_the_folder_of_the_assistant_is_not_run(tmp_path: Path) -> None:
    planted = f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()"
    (tmp_path / "vllm_doctor").mkdir()
    (tmp_path / "vllm_doctor" / "__init__.py").write_text(planted)
    (tmp_path / "json.py").write_text(planted)

    async def questions(ask: Ask) -> None:
        text, is_error = await ask("explain_rule", id="preemption")
        assert not is_error, text

    asking(questions, python=["-P"], cwd=tmp_path)  # as the installed command starts: without its folder on the path
    assert not (tmp_path / "ran").exists()


def test_nothing_but_the_protocol_comes_to_standard_output() -> None:
    lines = [BEGIN, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    ran = _command("mcp", input="".join(f"{json.dumps(line)}\n" for line in lines) + "no JSON at all\n")
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr
    documents = [json.loads(line) for line in ran.stdout.splitlines()]
    assert documents
    assert all(document["jsonrpc"] == "2.0" for document in documents)


BEGIN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
CALL = {"name": "examine", "arguments": {"demo": "preemption", "window": 60}}


@pytest.mark.parametrize("how", ["signal", "input ends", "call is cancelled"])
def test_what_is_given_up_ends(how: str) -> None:
    words = [sys.executable, "-m", "vllm_doctor", "mcp"]
    with subprocess.Popen(
        words, env=os.environ | ENVIRONMENT, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None

        def say(message: Mapping[str, Any]) -> None:
            assert server.stdin is not None
            print(json.dumps({"jsonrpc": "2.0", **message}), file=server.stdin, flush=True)

        say(BEGIN)
        server.stdout.readline()
        say({"method": "notifications/initialized"})
        say({"id": 2, "method": "tools/call", "params": CALL})
        while not (commands := psutil.Process(server.pid).children()):
            pass
        match how:
            case "signal":
                server.send_signal(signal.SIGTERM)
            case "input ends":
                server.stdin.close()
            case _:
                say({"method": "notifications/cancelled", "params": {"requestId": 2}})
        assert psutil.wait_procs(commands, timeout=30)[1] == []
        if how == "call is cancelled":
            server.stdin.close()
        assert server.wait(30) == (3 if how == "signal" else 0)
        assert server.stderr.read() == ("vllm-doctor: ended by SIGTERM\n" if how == "signal" else "")


def test_without_the_package_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError('none', name='mcp')\n")
    ran = _command("mcp", path=f"{tmp_path}:{ROOT}")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.count("\n") == 1
    assert "pip install mcp where vllm-doctor is installed (in a clone: pip install '.[mcp]')" in ran.stderr


def test_each_option_of_a_tool_is_one_of_its_command() -> None:
    """The command's own help names it: a tool cannot offer what the command has not."""
    for name, tool in mcp_tools.TOOLS.items():
        command = {"examine": [], "read_log": [], "explain_rule": ["rules"]}.get(name, [name])
        described = _command(*command, "--help").stdout
        for argument, taken in tool.takes.items():
            if taken.is_option:
                assert f"--{argument.replace('_', '-')} " in described.replace("\n", " "), (name, argument)


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("flags", {"version": "0.32.0", "names": ["--ask-vllm"]}, ["flags", "0.32.0", "--", "--ask-vllm"]),
        (
            "examine",
            {"sources": ["http://h:1"], "slo": ["ttft=2s", "itl=50ms"], "explain": True},
            [
                "http://h:1",
                "--token-for=http://h=f",
                "--rules=r",
                "--slo=ttft=2s",
                "--slo=itl=50ms",
                "--explain",
                "--json",
            ],
        ),
        ("expect", {"command": "vllm serve m -o x"}, ["expect", "--rules=r", "--command=vllm serve m -o x", "--json"]),
        ("read_log", {"text": "x", "format": "text"}, ["-", "--token-for=http://h=f", "--rules=r", "--text"]),
    ],
)
def test_a_question_is_a_command_line(tool: str, given: Mapping[str, Any], words: list[str]) -> None:
    assert mcp_tools.asked(tool, given, ["--token-for=http://h=f"], ["--rules=r"]).words == words


@pytest.mark.parametrize("word", ["--ask-vllm=/bin/sh", "--o x", "-o", "", "/bin/sh"])
def test_what_is_no_flag_is_not_asked_for(word: str) -> None:
    with pytest.raises(UsageError, match="has not the form of one"):
        mcp_tools.asked("flags", {"version": "0.32.0", "names": [word]})


def _command(*words: str, input: str = "", path: str = str(ROOT)) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vllm_doctor", *words],
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
        input=input,
        capture_output=True,
        text=True,
        check=False,
    )


def _without_time(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key != "at"}
