"""The command on a command line alone, and beside a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import SECRET, Doctor, doctor, one_line, recorded
from vllm_doctor.cli import FORMATS
from vllm_doctor.sources import process

__all__ = ["doctor"]

DATA = Path(__file__).parent / "data" / "commands"


@pytest.fixture(autouse=True)
def nobody_looks_for_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(kernel: object) -> None:
        raise AssertionError("a command needs no server")

    monkeypatch.setattr(process, "find", find)


def rules(report: dict[str, Any]) -> dict[str, str]:
    return {finding["rule"]: finding["severity"] for finding in report["findings"]}


def test_a_command_alone(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m --enforce-eager --max-num-seqs 256", "--json")
    report = ran.report
    assert (ran.code, ran.err, report["verdict"], report["error"]) == (1, "", "warning", None)
    assert rules(report)["enforce-eager"] == "warning"
    assert report["command"]["was"] == ["vllm", "serve", "m", "--enforce-eager", "--max-num-seqs", "256"]
    assert report["patient"]["model"] == "m"
    assert [(source["kind"], source["target"], source["scrapes"]) for source in report["sources"]] == [
        ("command", "--command: line 1", 0)
    ]
    assert report["vitals_unknown"]["requests_running"] == "not-in-command"


def test_a_command_with_nothing_to_find_is_not_ok(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m", "--json")
    assert (ran.code, ran.err, ran.report["verdict"]) == (3, "", "unknown")
    assert ran.report["headline"] == "Nothing was measured: judged by its command alone"
    assert ran.report["findings"] == []


def test_a_command_that_will_blind_the_doctor(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m --disable-log-stats", "--json")
    assert (ran.code, ran.report["headline"]) == (1, "Statistics are switched off, so nothing can be measured")
    assert ran.report["command"]["now"] == ["vllm", "serve", "m"]


def test_statistics_that_are_off_hide_nothing_of_a_command(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m --disable-log-stats --enforce-eager", "--json")
    assert (ran.code, ran.report["verdict"]) == (1, "warning")
    assert rules(ran.report) == {"stats-disabled": "warning", "enforce-eager": "warning"}
    assert ran.report["command"]["now"] == ["vllm", "serve", "m"]  # both at once


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_no_server_is_claimed_to_be_seen(form: str, doctor: Doctor) -> None:
    for flags, code in (("", 3), (" --enforce-eager", 1)):
        ran = doctor("--command", f"vllm serve m{flags} --dtype $DT", "--format", form)
        assert ran.code == code
        assert "nothing was measured" in ran.out
        assert "no answer" not in ran.out
        assert "the value of" in " ".join(ran.out.split())


def test_what_a_broken_line_loses_is_told(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m \\ # first\n  --enforce-eager", "--text")
    said = " ".join(ran.out.split())
    assert ran.code == 1
    assert "line 1: a comment after the backslash" in said
    assert "never reaches vLLM: --enforce-eager" in said


def test_a_file_with_several_commands(doctor: Doctor) -> None:
    report = doctor("--command", DATA / "compose.yaml", "--json").report
    assert [source["target"].rpartition(": ")[2] for source in report["sources"]] == [
        "services.chat.command",
        "services.embed.command",
    ]
    assert report["patient"]["vllm"] == "0.11.0"
    [finding] = [finding for finding in report["findings"] if finding["rule"] == "enforce-eager"]
    assert finding["subject"]["server"].endswith("services.embed.command")


def test_a_manifest_tells_what_the_host_would(doctor: Doctor) -> None:
    manifest = "docker run --shm-size 64m vllm/vllm-openai:v0.11.0 --model m -tp 4"
    report = doctor("--command", manifest, "--json").report
    [finding] = [finding for finding in report["findings"] if finding["rule"] == "shm-small"]
    assert {evidence["from"] for evidence in finding["evidence"]} == {"manifest"}


@pytest.mark.usefixtures("hurried")
def test_beside_a_server(doctor: Doctor) -> None:
    with recorded("healthy-busy") as server:
        report = doctor(server.url, "--command", "vllm serve m --enforce-eager", "--json").report
    assert [source["kind"] for source in report["sources"]][-1] == "command"
    assert rules(report)["enforce-eager"] == "warning"
    assert report["command"]["was"] == ["vllm", "serve", "m", "--enforce-eager"]
    assert report["vitals"]["requests_running"] is not None
    assert report["patient"]["vllm"] != "0.11.0"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--command", "ls -l"],
        ["--command", "vllm bench serve"],
        ["--command", "no-such-file"],
        ["--command", "'vllm serve m"],
        ["--command", "a: [1"],
        ["--command", "a: !x 1"],
        ["--command", "\x1b[31mvllm serve"],
        ["--command", ""],
        ["--command", str(DATA)],
        ["--command"],
        ["--command", "-", "-"],
        ["http://127.0.0.1:1", "http://127.0.0.1:2", "--command", "vllm serve m"],
        ["http://127.0.0.1:1", "--command", str(DATA / "compose.yaml")],
    ],
    ids=lambda arguments: " ".join(arguments)[-40:],
)
def test_what_cannot_be_judged_is_one_line(arguments: list[str], doctor: Doctor, tmp_path: Path) -> None:
    output = tmp_path / "report"
    line = one_line(doctor(*arguments, "-o", output))
    assert not output.exists()
    ran = doctor(*arguments, "--json")
    assert (ran.code, ran.report["verdict"]) == (3, "unknown")
    assert ran.err == line


COMMANDS = [
    f"HF_TOKEN={SECRET} AWS_SECRET_ACCESS_KEY={SECRET} vllm serve m --api-key {SECRET}",
    f"export X={SECRET}; docker run -e HF_TOKEN={SECRET} -eY={SECRET} vllm/vllm-openai m --hf-token {SECRET}",
    f"vllm serve m –api-key {SECRET} '--api-key {SECRET}' --served-model-name ${{X:-{SECRET}}}",
    f"vllm serve m \\ # x\n --api-key {SECRET}\n --hf-token={SECRET}",
    f"services: {{a: {{image: vllm/vllm-openai, environment: {{PASSWORD: {SECRET}}}, command: m --api-key {SECRET}}}}}",
    f"kind: Pod\napiVersion: v1\nspec: {{containers: [{{command: [vllm, serve, m, --api-key, $(K)],"
    f" env: [{{name: K, value: {SECRET}}}]}}]}}",
    f"[Service]\nEnvironment=A_SECRET={SECRET}\nExecStart=vllm serve m --api-key {SECRET} --dtype ${{A_SECRET}}",
    f"model: m\napi-key: {SECRET}\nhf-token: {SECRET}\n",
    f"echo {SECRET}",
    f"vllm serve '{SECRET}",
    f"a: [{SECRET}",
    f"services: {{a: {{command: !x {SECRET}}}}}",
]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_a_secret_is_never_told(command: str, form: str, doctor: Doctor) -> None:
    ran = doctor("--command", command, "--format", form)
    assert SECRET not in ran.out + ran.err


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_that_a_terminal_obeys_comes_through(form: str, doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "deploy\x1b[31m.yaml"
    path.write_text(
        "kind: \"Pod\\e[31m\"\napiVersion: v1\nmetadata: {name: \"a\\nb\\e]0;x\\a\"}\n"
        "spec:\n  containers:\n  - image: \"vllm/vllm\\e:v1.2.3\"\n"
        "    args: [\"--model\", \"m\\e[2J\", \"--dtype\", \"x\\r\\ny\", \"--\\e[31m 1\", \"$(\\e)\"]\n"
        "    env: [{name: \"A\\e\", value: x}, {name: VLLM_X, value: \"\\e[31m\"}]\n",
        "utf-8",
    )  # fmt: skip
    ran = doctor("--command", path, "--format", form)
    assert ran.code in (1, 3)
    assert "\x1b" not in ran.out + ran.err
    assert all(char.isprintable() or char == "\n" for char in ran.out + ran.err)
