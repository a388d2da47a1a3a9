"""The README is true: its commands run, and every option, exit code and format stands in it."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import ssl
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
import yaml

from tests import expect_example
from tests.cli.test_examine_local import fake_vllm
from tests.compare.test_bench_run import script
from tests.compare.test_vllm_bench import run
from tests.fake_prometheus import FakePrometheus, targets
from tests.paths import PACKAGE, ROOT
from tests.serving import pages, serving, vllm
from vllm_doctor import __version__
from vllm_doctor.cli import main
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.recording import archive

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.split()[:1] == ["vllm-doctor"]]


pytestmark = pytest.mark.xdist_group("host")  # its servers are seen by all who look at this host


def fleet() -> FakePrometheus:
    return FakePrometheus((target, "preemption") for target in targets(2, namespace="prod"))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Servers for the addresses and the pid that the README names."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with (
        serving(vllm(pages("preemption"))) as first,
        serving(vllm(pages("healthy-busy"))) as second,
        serving(vllm(pages("preemption"), prefix="/llm"), tls=tls) as secure,
        fake_vllm(tmp_path_factory.mktemp("local")) as local,
        serving(fleet().routes()) as prometheus,
    ):
        yield {
            "http://127.0.0.1:8000": first.url,
            "http://127.0.0.1:8001": second.url,
            "https://host:8443": secure.url,
            "27038": str(local.pid),
            "http://prometheus:9090": prometheus.url,
            "ca": authority.cert_pem.bytes().decode(),
        }


def test_the_quick_start_is_two_commands() -> None:
    quick = README.split("## Quick start")[1].split("\n## ")[0]
    assert len(re.findall(r"```sh\n(.*?)\n```", quick)) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(
    command: str,
    answers: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token.txt").write_text("a-token\n")
    (tmp_path / "ca.pem").write_text(answers["ca"])
    mine = tmp_path / "my-rules"
    mine.mkdir()
    shipped = (ROOT / "rules/scheduler/preemption.yaml").read_text()
    (mine / "my-preemption.yaml").write_text(shipped.replace("rule: preemption", "rule: my-preemption"))
    for named, real in answers.items():
        command = command.replace(named, real) if named != "ca" else command
    (tmp_path / "smi.xml").write_bytes((ROOT / "tests/data/nvidia_smi/h100-driver-550.xml").read_bytes())
    log = gzip.decompress((ROOT / "fixtures/logs/max-num-seqs-cap.log.gz").read_bytes())
    (tmp_path / "vllm.log").write_bytes(log)
    manifest = (ROOT / "tests/data/commands/deployment.yaml").read_text()
    (tmp_path / "deployment.yaml").write_text(manifest.replace("--enable-prefix-caching", "--enforce-eager"))
    (tmp_path / "vllm.log.1").write_bytes(log)
    (tmp_path / "vllm.log.2.gz").write_bytes(gzip.compress(log))
    (tmp_path / "sick.tar.gz").write_bytes(archive.packed(archive.read(ROOT / "fixtures/preemption")))
    for name, fixture in (("bench.json", "sound.json"), ("issue.md", "open-loop.txt")):
        (tmp_path / name).write_bytes((ROOT / "fixtures/bench" / fixture).read_bytes())
    seen = tmp_path / "seen.json"
    if "compare" in command:
        main.main([answers["http://127.0.0.1:8000"], "--json", "--window", "1", "-o", str(seen)])
        for name in ("before.json", "after.json"):
            (tmp_path / name).write_bytes(seen.read_bytes())
        for name in ("bench-before.json", "bench-after.json"):
            (tmp_path / name).write_text(json.dumps(run()))
    arguments = shlex.split(command)[1:]
    if "--bench" in arguments:
        script(tmp_path / "bin", "sleep 1", run())
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    if arguments[:1] == ["compare"]:
        arguments += ["--window", "1"]
    elif arguments[:1] == ["record"] and "--bench" not in arguments:  # a minute is, too
        arguments += ["--duration", "1"]
    if "--window" in arguments:  # thirty seconds are for a person
        arguments[arguments.index("--window") + 1] = "1"
    code = main.main(arguments)
    out, err = capsys.readouterr()
    assert code in ((3,) if arguments[:1] == ["compare"] else (0, 1, 2)), err  # a server with itself: inconclusive
    written = Path(arguments[arguments.index("-o") + 1]) if "-o" in arguments else None
    assert out or (written is not None and written.read_bytes())


def test_what_is_expected_is_what_the_doctor_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Written by `python -m tests.expect_example`."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    command, shown = expect_example.example(README)
    assert expect_example.output(command) == shown
    assert "?" not in shown


def test_it_names_every_option_and_format() -> None:
    shown = ""
    for command in ([], ["fleet"], ["record"], ["compare"], ["expect"]):
        words = [sys.executable, "-m", "vllm_doctor", *command, "--help"]
        shown += subprocess.run(words, capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", shown)) - {"--help", "--version", "--check", "--signals"}
    assert not {option for option in options if option not in README}
    for word in FORMATS:
        assert word in README


def test_ci_runs_exactly_its_commands() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert '"$(command_of 1)"' in script
    assert '"$(command_of 2)"' in script


PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/architecture.md", "docs/api.md")
BESIDE = ("LICENSE", "NOTICE", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "README.md", "pyproject.toml")


@pytest.mark.parametrize("page", PAGES)
def test_the_paths_that_a_page_names_exist(page: str) -> None:
    """What looks like a path of the checkout or of the package (`docs/api.md`, `render/`) is one."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL)
    made = set(re.findall(r"^New file `([^`]+)`", text, re.MULTILINE))
    named = set(re.findall(r"`((?:\.?[\w-]+/)+(?:[\w-]+\.[\w.]+)?|[\w-]+\.py)`", text)) - made
    roots = (ROOT, PACKAGE, *(folder for folder in PACKAGE.rglob("*") if folder.is_dir()))
    assert [name for name in sorted(named) if not any((root / name).exists() for root in roots)] == []


def test_the_hooks_of_pre_commit_are_programs_of_the_environment() -> None:
    """Local ones, so that nothing is fetched; and the README's own."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    entries = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    for program in (".venv/bin/ruff check", ".venv/bin/ruff format --check", ".venv/bin/mypy"):
        assert program in README
        assert any(entry.startswith(program) for entry in entries)
    assert ".venv/bin/vllm-doctor rules --check rules" in entries


def test_the_hosted_workflow_runs_the_commands_of_the_readme() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    assert ".venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy" in workflow
    assert ".ci/run" in workflow
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f'"{project["requires-python"].removeprefix(">=")}"' in workflow
    yaml.safe_load(workflow)


@pytest.mark.parametrize("form", sorted((ROOT / ".github/ISSUE_TEMPLATE").iterdir()), ids=lambda path: path.stem)
def test_an_issue_form_asks_for_a_recording(form: Path) -> None:
    fields = yaml.safe_load(form.read_text("utf-8"))["body"]
    assert "recording" in {field.get("id") for field in fields}
    assert re.search(r"vllm-doctor record .*--share", form.read_text("utf-8"))


def test_the_changelog_begins_with_this_version_or_what_comes_after_it() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[1] == __version__


def test_the_sdist_holds_what_a_fork_needs(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    (sdist,) = tmp_path.glob("vllm_throughput_doctor-*.tar.gz")
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {*BESIDE, "vllm_doctor/py.typed", "rules/scheduler/preemption.yaml", "docs/architecture.md"}
    assert wanted | {"fixtures/preemption/recording.json", "tests/conftest.py"} <= names


def test_the_wheel_ships_rules_signals_recordings_schema_and_licence(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        env=os.environ | {"PYTHONSAFEPATH": "1"},  # as pipx starts pip
        check=True,
    )
    (wheel,) = tmp_path.glob("vllm_throughput_doctor-*.whl")
    with zipfile.ZipFile(wheel) as held:
        names = set(held.namelist())
        (metadata,) = (held.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    for name in ("LICENSE", "NOTICE"):
        assert any(held_name.endswith(f".dist-info/licenses/{name}") for held_name in names)
    assert "vllm_doctor/py.typed" in names
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    for path in ROOT.glob("rules/**/*.yaml"):
        assert f"vllm_doctor/rules/shipped/{path.relative_to(ROOT / 'rules').as_posix()}" in names
    demos = {path.parent for path in ROOT.glob("fixtures/*/recording.json")}
    files = {path.relative_to(ROOT / "fixtures").as_posix() for demo in demos for path in demo.rglob("*.*")}
    shipped = "vllm_doctor/recording/shipped/"
    assert {name.removeprefix(shipped) for name in names if name.startswith(shipped)} == files  # the rest is for tests
    assert "vllm_doctor/render/report.v1.schema.json" in names
    assert "vllm_doctor/render/fleet.v1.schema.json" in names
    assert "vllm_doctor/render/compare.v1.schema.json" in names
    assert "vllm_doctor/render/expect.v1.schema.json" in names
    for path in (ROOT / "vllm_doctor/vllm/data").iterdir():
        assert f"vllm_doctor/vllm/data/{path.name}" in names
