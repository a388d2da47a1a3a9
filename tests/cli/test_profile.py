"""vllm-doctor profile: what it answers, in each form, of a server whose sampling is done by another program."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import vllm_doctor
from vllm_doctor.cli import one_shot
from vllm_doctor.cli.main import main
from vllm_doctor.cli.options import PROFILED
from vllm_doctor.model.report import Problem
from vllm_doctor.render import profile_json
from vllm_doctor.sources.host import process
from vllm_doctor.sources.host.process import Member, ServerProcess
from vllm_doctor.sources.profile import profiler, py_spy, stacks
from vllm_doctor.sources.profile.py_spy import Sampled

STACKS = Path(__file__).parents[1] / "sources" / "profile"
MEMBERS = (Member(11, "engine-core", "x", 1), Member(12, "api-server", "x", 1), Member(13, "worker", "x", 1))
SCHEMA = json.loads(Path(profile_json.__file__).with_name("profile.v1.schema.json").read_text())
REPORT = json.loads(Path(profile_json.__file__).with_name("report.v1.schema.json").read_text())
ROLES = {member.pid: member.role for member in MEMBERS}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """A server of three processes, whose stacks are those of a real one unless a test gives others."""
    texts = {number: (STACKS / f"{role}.stacks").read_bytes() for number, role in ROLES.items()}

    def sample(kernel: object, pid: int, *how: object) -> Sampled:
        text = texts[pid]
        if not text:
            return Sampled(
                problem=Problem("denied", "this container lacks SYS_PTRACE: start it with --cap-add SYS_PTRACE")
            )
        return Sampled(stacks.parse(text), cpu=0.3)

    monkeypatch.setattr(py_spy, "sample", sample)
    monkeypatch.setattr(py_spy, "program", lambda: "py-spy")
    monkeypatch.setattr(profiler, "_cpu", lambda *_: {})
    monkeypatch.setattr(process, "of_pid", lambda *_: ServerProcess(root=12, members=MEMBERS, version="0.32.0"))
    return texts


def test_each_process_has_a_bar_by_part(server: dict[int, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "12", "--seconds", "1"]) == 0
    said = capsys.readouterr().out
    assert "engine core (pid 11), main thread" in said
    waiting = next(line for line in said.splitlines() if "waiting for the device" in line)
    assert "█" in waiting
    assert "Nothing in the profile" in said


def test_the_json_is_as_its_schema_has_it(server: dict[int, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "12", "--seconds", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, SCHEMA)
    shares = {p["role"]: t["shares"] for p in told["profiles"][0]["processes"] for t in p["threads"] if t["is_main"]}
    assert shares["engine-core"]["device-wait"] > 0.8


@pytest.mark.parametrize("form", ["markdown", "html", "collapsed"])
def test_other_forms_are_written(form: str, server: dict[int, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "12", "--seconds", "1", "--format", form]) == 0
    assert "engine" in capsys.readouterr().out


def test_the_html_has_a_flame_graph_of_each_process(
    server: dict[int, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["profile", "12", "--seconds", "1", "--format", "html"])
    said = capsys.readouterr().out
    assert said.count('aria-label="flame graph"') == len(MEMBERS)
    assert "EngineCoreProc.run_busy_loop (vllm/v1/engine/core.py)" in said
    assert "<script" not in said


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_an_examination_shows_the_profile_that_it_took(
    form: str, server: dict[int, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["12", "--profile", "--window", "0", "--format", form])
    said = " ".join(capsys.readouterr().out.split())
    assert "Where the time goes" in said
    assert "█ waiting for the device" in said
    assert ('aria-label="flame graph"' in said) is (form == "html")


def test_without_being_asked_nothing_is_sampled(
    server: dict[int, bytes], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(py_spy, "sample", lambda *_: pytest.fail("it was sampled"))
    main(["12", "--window", "0", "--format", "html"])
    assert "Where the time goes" not in capsys.readouterr().out


def test_its_json_has_the_profile_as_the_schema_has_it(
    server: dict[int, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    server[12] = b"thread (12): MainThread;<module> (vllm);parse (vllm/tool_parsers/xlam_tool_parser.py) 700\n"
    main(["12", "--profile", "--window", "0", "--json"])
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, REPORT)
    [profile] = told["profiles"]
    shares = {p["role"]: t["shares"] for p in profile["processes"] for t in p["threads"] if t["is_main"]}
    assert shares["engine-core"]["device-wait"] > 0.8
    assert profile["parts"]["device-wait"] == "waiting for the device"
    [finding] = [finding for finding in told["findings"] if finding["rule"] == "parser-overhead"]
    assert "py-spy" in {evidence["from"] for evidence in finding["evidence"]}


def test_from_python_it_can_be_asked_for(server: dict[int, bytes]) -> None:
    report = vllm_doctor.examine(12, profile=True, window=0)
    [seen] = report.profiles.values()
    assert [process.role for process in seen.processes] == ["engine-core", "api-server", "worker"]
    assert "flame graph" in vllm_doctor.render_report(report, "html")
    assert not vllm_doctor.examine(12, window=0).profiles


def test_from_python_it_is_of_ten_seconds_unless_others_are_asked_for(
    server: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def sample(kernel: object, pid: int, seconds: float, *how: object) -> Sampled:
        asked.append(seconds)
        return Sampled()

    monkeypatch.setattr(py_spy, "sample", sample)
    monkeypatch.setattr(one_shot, "PROFILED", 1.0)
    vllm_doctor.examine(12, profile=True)
    vllm_doctor.examine(12, profile=True, window=2)
    assert set(asked) == {PROFILED, 2.0}


def test_who_may_not_look_is_told_so_in_the_examination(
    server: dict[int, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    server.update(dict.fromkeys(server, b""))
    main(["12", "--profile", "--window", "0", "--text"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Where the time goes" not in said
    assert "--cap-add SYS_PTRACE" in said


def test_collapsed_stacks_are_those_of_every_process(
    server: dict[int, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["profile", "12", "--seconds", "1", "--format", "collapsed"])
    lines = capsys.readouterr().out.splitlines()
    assert {line.split(" ", 1)[0] for line in lines} == set(ROLES.values())
    assert all(line.rsplit(" ", 1)[1].isdigit() for line in lines)


def test_a_part_that_a_flag_cures_is_a_finding(server: dict[int, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    server[12] = (
        b"thread (12): MainThread;<module> (vllm);parse (vllm/tool_parsers/xlam_tool_parser.py) 700\n"
        b"thread (12): MainThread;<module> (vllm);Runner.run (asyncio/runners.py) 100\n"
    )
    assert main(["profile", "12", "--seconds", "1", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [finding["rule"] for finding in told["findings"]] == ["parser-overhead"]
    assert "88 %" in told["findings"][0]["here"]
    assert main(["profile", "12", "--seconds", "1", "--fail-on", "never"]) == 0


def test_an_engine_that_waits_for_other_ranks_does_not_work(
    server: dict[int, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    loop = b"thread (11): MainThread;<module> (vllm);run_busy_loop (vllm/v1/engine/core.py)"
    wait = b";has_unfinished_dp (vllm/config/parallel.py);all_reduce (torch/distributed/distributed_c10d.py)"
    server[11] = loop + wait + b" 700\n" + loop + b" 300\n"
    assert main(["profile", "12", "--seconds", "1"]) == 0
    said = capsys.readouterr().out
    assert "waiting for other ranks" in said
    assert "Nothing in the profile" in said


def test_stop_strings_are_named_and_bounded(server: dict[int, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    server[12] = (
        b"thread (12): MainThread;<module> (vllm);check_stop_strings (vllm/v1/engine/detokenizer.py) 500\n"
        b"thread (12): MainThread;<module> (vllm);Runner.run (asyncio/runners.py) 500\n"
    )
    assert main(["profile", "12", "--seconds", "1"]) == 1
    said = capsys.readouterr().out
    assert "Making text of tokens holds the API server up" in said
    assert "Send fewer stop strings" in said


def test_no_garbage_collection_in_native_frames_is_no_proof(
    server: dict[int, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["profile", "12", "--seconds", "1", "--native"])
    assert "stripped of its symbols" in " ".join(capsys.readouterr().out.split())
    server[12] = (
        b"thread (12): MainThread;<module> (vllm);work (a.py);gc_collect_main (libpython3.12.so.1.0) 200\n"
        b"thread (12): MainThread;<module> (vllm);Runner.run (asyncio/runners.py) 800\n"
    )
    main(["profile", "12", "--seconds", "1", "--native"])
    said = " ".join(capsys.readouterr().out.split())
    assert "stripped of its symbols" not in said
    assert "garbage collection stops a process" in said


def test_who_may_not_look_is_told_the_way(server: dict[int, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    server.update(dict.fromkeys(server, b""))
    assert main(["profile", "12", "--seconds", "1", "--json"]) == 3
    said = capsys.readouterr()
    assert "--cap-add SYS_PTRACE" in said.err
    assert json.loads(said.out)["error"]["kind"] == "denied"
    jsonschema.validate(json.loads(said.out), SCHEMA)


def test_one_process_that_cannot_be_looked_into_is_said(
    server: dict[int, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    server[13] = b""
    assert main(["profile", "12", "--seconds", "1"]) == 3
    assert "worker (pid 13): this container lacks SYS_PTRACE" in capsys.readouterr().out.replace("\n  ", " ")


def test_an_idle_server_is_not_ok(server: dict[int, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    for number in ROLES:
        server[number] = (
            f"thread ({number}): MainThread;<module> (vllm);get (queue.py);wait (threading.py) 900\n".encode()
        )
    assert main(["profile", "12", "--seconds", "1"]) == 3
    assert "The server was idle" in capsys.readouterr().out


def test_hostile_names_do_nothing(server: dict[int, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    server[12] = b"thread (12): MainThread;<module> (a.py);\x1b]0;x\x07<script>alert(1)</script> (x.py) 900\n"
    for form in ("text", "markdown", "html", "json", "collapsed"):
        main(["profile", "12", "--seconds", "1", "--format", form])
        said = capsys.readouterr().out
        assert "\x1b" not in said
        assert form != "html" or "<script>alert" not in said
    for form in ("text", "markdown", "html", "json"):
        main(["12", "--profile", "--window", "0", "--format", form])
        said = capsys.readouterr().out
        assert "\x1b" not in said
        assert form != "html" or "<script>alert" not in said


@pytest.mark.parametrize("words", [["--rate", "0"], ["--rate", "100000"], ["--seconds", "9999"]])
def test_it_is_bounded(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "12", *words]) == 3
    assert "from 1 to" in capsys.readouterr().err
