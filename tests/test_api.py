"""The doctor from Python: a contract of few names, and the page that documents them."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vllm_doctor
from tests.paths import FIXTURES, LOGS, ROOT
from tests.serving import pages, serving, vllm
from vllm_doctor import DoctorError, SourceError, UsageError, Verdict
from vllm_doctor.cli.main import main
from vllm_doctor.model.report import Report

PAGE = (ROOT / "docs/api.md").read_text("utf-8")
SICK = FIXTURES / "preemption"


def test_a_recording_is_examined() -> None:
    report = vllm_doctor.examine(SICK)
    assert isinstance(report, vllm_doctor.Report)
    assert report.verdict is Verdict.CRITICAL
    assert report.findings[0].rule == "preemption"
    assert report.findings[0].evidence
    assert report.findings[0].remedies


def test_a_log_is_examined() -> None:
    report = vllm_doctor.examine(LOGS / "max-num-seqs-cap.log.gz", goal="throughput")
    assert report.lines is not None
    assert report.lines.recognised
    assert "max-num-seqs-cap" in {finding.rule for finding in report.findings}


def test_its_keywords_are_the_options_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    report = vllm_doctor.examine(
        SICK,
        command="vllm serve m --num-gpu-blocks-override 80",
        gpu="H100",
        slo={"ttft": 0.001},
        skip=["kv-cache-saturated"],
    )
    words = [str(SICK), "--command", "vllm serve m --num-gpu-blocks-override 80", "--gpu", "H100", "--slo", "ttft=1ms"]
    main([*words, "--skip", "kv-cache-saturated", "--text"])
    assert capsys.readouterr().out == vllm_doctor.render_report(report)
    assert [target.met for target in report.targets] == [False]
    assert report.correction is not None


def test_only_some_rules_judge(tmp_path: Path) -> None:
    mine = (ROOT / "rules/scheduler/preemption.yaml").read_text("utf-8").replace("rule: preemption", "rule: mine")
    (tmp_path / "mine.yaml").write_text(mine, "utf-8")
    assert set(vllm_doctor.examine(SICK, rules=[tmp_path], only=["mine"]).states) == {"mine"}
    assert "preemption" not in vllm_doctor.examine(SICK, skip=["preemption"]).states


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ("nowhere.log", {}, "'nowhere.log' is neither a file nor a folder, nor a URL"),
        (SICK, {"only": ["no-such-rule"]}, "no rule 'no-such-rule'"),
        (SICK, {"goal": "speed"}, "--goal: no 'speed': one of throughput, latency"),
        (SICK, {"window": -1.0}, "--window: '-1.0' is no duration"),
        (SICK, {"headers": {"a\n": "b"}}, "--header: write it as 'Name: value'"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(source: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        vllm_doctor.examine(source, **options)  # type: ignore[arg-type]


def test_a_source_that_says_nothing_is_an_error_with_its_kind(tmp_path: Path) -> None:
    (tmp_path / "recording").mkdir()
    with pytest.raises(SourceError) as raised:
        vllm_doctor.examine(tmp_path / "recording")
    assert raised.value.kind == "not-a-recording"
    with pytest.raises(SourceError) as raised:
        vllm_doctor.examine("http://127.0.0.1:9", window=0, timeout=5)
    assert raised.value.kind == "unreachable"
    assert isinstance(raised.value, DoctorError)


def test_what_a_server_should_do() -> None:
    found = vllm_doctor.expect(
        "Qwen/Qwen3-32B", gpu="4xH100", concurrency=8, flags={"--tensor-parallel-size": 4, "--enforce-eager": True}
    )
    assert isinstance(found, vllm_doctor.Expectation)
    assert (found.fits, found.gpus, found.loads[0].load.requests) == (True, 4.0, 8.0)
    by_command = vllm_doctor.expect(
        command="vllm serve Qwen/Qwen3-32B -tp 4 --enforce-eager", gpu="4xH100", concurrency=8
    )
    assert by_command.loads == found.loads
    with pytest.raises(UsageError, match="which model"):
        vllm_doctor.expect(gpu="H100")


def test_each_server_gets_its_own_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("its-own\n")
    with serving(vllm(pages("preemption"))) as one, serving(vllm(pages("preemption"))) as other:
        vllm_doctor.examine(one.url, other.url, window=0, token_for={one.url: tmp_path / "token"})
        assert {request.headers.get("authorization") for request in one.requests} == {"Bearer its-own"}
        assert {request.headers.get("authorization") for request in other.requests} == {None}
    with pytest.raises(UsageError, match="go to servers that you name"):
        vllm_doctor.examine(headers={"x-api-key": "its-own"})


def test_the_rules_can_be_listed() -> None:
    rules = {rule.id: rule for rule in vllm_doctor.load_rules()}
    assert isinstance(rules["preemption"], vllm_doctor.Rule)
    assert "kv_cache_usage" in rules["preemption"].signals()
    with pytest.raises(UsageError, match="no such folder of rules"):
        vllm_doctor.load_rules("nowhere")


@pytest.mark.parametrize("form", ["text", "json", "markdown", "html", "nagios", "checkmk", "openmetrics"])
def test_a_report_is_rendered(form: str) -> None:
    assert "preemption" in vllm_doctor.render_report(vllm_doctor.examine(SICK), form)


def test_an_unknown_format_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no format 'pdf'; one of: text, json"):
        vllm_doctor.render_report(vllm_doctor.examine(SICK), "pdf")


def test_the_collector_of_a_guest_stays_as_it_was() -> None:
    before = gc.get_threshold()
    vllm_doctor.examine(SICK)
    assert gc.get_threshold() == before


def test_its_names_are_those_it_gives() -> None:
    assert sorted(vllm_doctor.__all__) == vllm_doctor.__all__
    for name in vllm_doctor.__all__:
        assert getattr(vllm_doctor, name) is not None
        assert name in dir(vllm_doctor)
    assert vllm_doctor.Report is Report
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        vllm_doctor.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_loads_nothing_else() -> None:
    code = "import sys, vllm_doctor; print(*(name for name in sys.modules if name.startswith('vllm_doctor.')))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["vllm_doctor.model", "vllm_doctor.model.version"]


def test_its_page_names_all_of_it() -> None:
    for name in vllm_doctor.__all__:
        assert f"`{name}" in PAGE


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_of_its_page_run(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each in a clone's folder; what a comment at the end of a line says is what the line prints."""
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/api.md", "exec"), {"__name__": "example"})
    expected = re.findall(r"print\(.*\)  # (.*)", example)
    assert capsys.readouterr().out.splitlines()[: len(expected)] == expected
