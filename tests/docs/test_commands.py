"""The README and the pages are true: their commands run, and what they show is what the doctor prints."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.cli.test_examine_local import fake_vllm
from tests.compare.test_bench_run import script
from tests.compare.test_vllm_bench import run
from tests.docs import expect_example
from tests.fake_prometheus import FakePrometheus, targets
from tests.paths import ROOT
from tests.serving import pages, serving, vllm
from vllm_doctor.cli import commands, main
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.recording import archive

DOCS = ROOT / "docs"
PAGES = (
    "../README", "benchmarks", "commands", "docker", "expect", "flags", "fleet", "hooks", "inputs", "install", "logs",
    "own-rules", "ray", "recipe", "recordings", "regressions", "servers", "slurm", "verify",
)  # fmt: skip
"""Pages whose commands run here. Those of others need a cluster, a profiler, GPUs, or have a test of their own."""


def said(page: str) -> list[str]:
    """The commands of the doctor in a page's blocks for a shell; those of the hooks' recipes run in test_hooks.py."""
    text = (DOCS / f"{page}.md").read_text("utf-8").partition("\n## The recipes")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line.split()[:1] == ["vllm-doctor"]]


COMMANDS = [(page, command) for page in PAGES for command in said(page)]

pytestmark = pytest.mark.xdist_group("host")  # its servers are seen by all who look at this host


def fleet() -> FakePrometheus:
    return FakePrometheus((target, "preemption") for target in targets(2, namespace="prod"))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Servers for the addresses and the pid that the pages name."""
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


def lay_out(folder: Path, ca: str) -> None:
    """The files that the pages name."""
    (folder / "token.txt").write_text("a-token\n")
    (folder / "ca.pem").write_text(ca)
    mine = folder / "my-rules"
    mine.mkdir()
    shipped = (ROOT / "rules/scheduler/preemption.yaml").read_text()
    (mine / "my-preemption.yaml").write_text(shipped.replace("rule: preemption", "rule: my-preemption"))
    (folder / "smi.xml").write_bytes((ROOT / "tests/data/nvidia_smi/h100-driver-550.xml").read_bytes())
    (folder / "smi.txt").write_bytes((ROOT / "tests/data/nvidia_smi/h100-driver-550.xml").read_bytes())
    log = gzip.decompress((ROOT / "fixtures/logs/max-num-seqs-cap.log.gz").read_bytes())
    for name in ("vllm.log", "vllm.log.1"):
        (folder / name).write_bytes(log)
    (folder / "server.log").write_bytes(log.replace(b"0.32.0", b"0.26.0"))  # an upgrade leads from it
    (folder / "vllm.log.2.gz").write_bytes(gzip.compress(log))
    manifest = (ROOT / "tests/data/commands/deployment.yaml").read_text()
    (folder / "deployment.yaml").write_text(manifest.replace("--enable-prefix-caching", "--enforce-eager"))
    shutil.copy(ROOT / "tests/data/commands/start.sh", folder / "launch.sh")
    (folder / "job.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --gres=gpu:4\n#SBATCH --cpus-per-task=1\n"
        "srun vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --enforce-eager\n"
    )
    (folder / "sick.tar.gz").write_bytes(archive.packed(archive.read(ROOT / "fixtures/preemption")))
    for name, fixture in (("bench.json", "sound.json"), ("issue.md", "open-loop.txt")):
        (folder / name).write_bytes((ROOT / "fixtures/bench" / fixture).read_bytes())


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_runs(
    page: str,
    command: str,
    answers: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path, answers["ca"])
    for named, real in answers.items():
        command = command.replace(named, real) if named != "ca" else command
    if "compare" in command:
        main.main([answers["http://127.0.0.1:8000"], "--json", "--window", "1", "-o", "before.json"])
        shutil.copy("before.json", "after.json")
        for name in ("bench-before.json", "bench-after.json"):
            Path(name).write_text(json.dumps(run()))
    arguments = shlex.split(command, comments=True)[1:]
    if "--bench" in arguments:
        script(tmp_path / "bin", "sleep 1", run())
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    if arguments[:1] == ["compare"] and any("http" in word for word in arguments):  # of files --window is an error
        arguments += ["--window", "1"]
    elif arguments[:1] == ["record"] and "http" in command and "--bench" not in arguments:  # a minute is, too
        arguments += ["--duration", "1"]
    if "--window" in arguments:  # thirty seconds are for a person
        arguments[arguments.index("--window") + 1] = "1"
    code = main.main(arguments)
    out, err = capsys.readouterr()
    assert code in ((3,) if arguments[:1] == ["compare"] else (0, 1, 2)), err  # a server with itself: inconclusive
    written = Path(arguments[arguments.index("-o") + 1]) if "-o" in arguments else None
    assert out or (written is not None and written.read_bytes())


def test_what_is_expected_is_what_the_doctor_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Written by `python -m tests.docs.expect_example`."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    command, shown = expect_example.example(expect_example.PAGE.read_text("utf-8"))
    assert expect_example.output(command) == shown
    assert "?" not in shown


TUTORIAL = (DOCS / "tutorial.md").read_text("utf-8")
STEPS = re.findall(r"^```sh\n(vllm-doctor [^\n]*)\n```\n\n```text\n(.*?)^```", TUTORIAL, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("command", "shown"), STEPS, ids=[command for command, _ in STEPS])
def test_the_tutorial_shows_what_is_printed(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "..." stands for lines that are left out."""
    monkeypatch.chdir(ROOT)
    main.main(shlex.split(command)[1:])
    printed = capsys.readouterr().out
    for part in re.split(r"^ *\.\.\.\n", shown, flags=re.MULTILINE):
        assert part in printed


def test_the_tutorial_has_such_steps() -> None:
    assert len(STEPS) >= 3


def test_each_command_and_format_has_a_page() -> None:
    prose = "".join(path.read_text("utf-8") for path in DOCS.glob("*.md"))
    assert [name for name in commands.ABOUT if f"vllm-doctor {name}" not in prose] == []
    assert [name for name in FORMATS if f"--format {name}" not in prose and f"--{name}" not in prose] == []
