"""--format patch end to end: a file in, a patch out, applied, and the doctor has nothing more to change."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests import patching
from tests.cli.test_main import Doctor, doctor, recorded
from tests.paths import ROOT
from vllm_doctor.launch.source import open_command
from vllm_doctor.sources.host import process
from vllm_doctor.vllm import flags

__all__ = ["doctor"]

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: tiny, namespace: prod}
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.32.0
        args: [--model, tiny, --max-num-seqs, "64", --num-gpu-blocks-override, "80", --swap-space=4, --dtype, float32]
        env:
        - {name: CUDA_LAUNCH_BLOCKING, value: "1"}
"""
SICK = {
    "kubernetes": MANIFEST,
    "compose": "services: {a: {image: 'vllm/vllm-openai:v0.32.0', command: m --dtype float32 --swap-space 4,"
    " environment: [CUDA_LAUNCH_BLOCKING=1]}}\n",
    "helm": "servingEngineSpec: {modelSpec: [{name: a, repository: vllm/vllm-openai, tag: v0.32.0, modelURL: m,"
    " vllmConfig: {dtype: float32, extraArgs: [--enforce-eager, --swap-space=4]}}]}\n",
    "systemd": "[Service]\nEnvironment=CUDA_LAUNCH_BLOCKING=1\nExecStart=vllm serve %i \\\n  --enforce-eager\n",
    "config": "model: m\nmax-num-seqs: 64\nenforce-eager: true\nswap_space: 4\n",
    "shell": "#!/bin/sh\ndocker run \\\n  vllm/vllm-openai:v0.32.0 --model m --dtype float32 \\\n  --swap-space 4\n",
}


@pytest.fixture(autouse=True)
def nobody_looks_for_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(kernel: object) -> None:
        raise AssertionError("a command needs no server")

    monkeypatch.setattr(process, "find", find)


@pytest.mark.parametrize("form", SICK)
def test_what_a_patch_cures_is_not_found_again(form: str, doctor: Doctor, tmp_path: Path) -> None:
    path, output = tmp_path / "sick", tmp_path / "patch"
    path.write_text(SICK[form])
    before = doctor("--command", path, "--json").report
    ran = doctor("--command", path, "--format", "patch", "-o", output)
    assert (ran.out, ran.err) == ("", "")
    patch = output.read_text()
    cured = {change["rule"] for change in before["command"]["changes"]}
    assert cured
    assert all(f"[{rule}]" in patch for rule in cured)
    path.write_text(patching.apply(form, path.read_text(), patch, path))
    after = doctor("--command", path, "--json").report
    assert not cured & {finding["rule"] for finding in after["findings"]}
    again = doctor("--command", path, "--format", "patch")
    assert (again.code, again.out) == (3, "")
    assert again.err == "vllm-doctor: no change of the command is advised\n"


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("beside", ["a server", "a log"])
def test_what_was_measured_patches_the_manifest(beside: str, doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "deployment.yaml"
    path.write_text(MANIFEST)
    if beside == "a server":
        with recorded("preemption") as server:
            ran = doctor(server.url, "--command", path, "--format", "patch")
        changed = {"--num-gpu-blocks-override": None, "--max-num-seqs": 64.0}
        rule = "preemption"
    else:
        log = tmp_path / "vllm.log"
        log.write_bytes(gzip.decompress((ROOT / "fixtures/logs/max-num-seqs-cap.log.gz").read_bytes()))
        report = doctor(log, "--json").report
        [change] = [c for c in report["command"]["changes"] if c["name"] == "--max-num-seqs"]
        ran = doctor(log, "--command", path, "--format", "patch")
        changed = {"--max-num-seqs": float(change["now"]), "--num-gpu-blocks-override": 80.0}
        rule = "max-num-seqs-cap"
    assert f"[{rule}]" in ran.out
    path.write_text(patching.apply("kubernetes", MANIFEST, ran.out, path))
    [start] = open_command(str(path)).starts
    assert {name: start.command.flags.get(name) for name in changed} == changed
    parser = flags.parser("0.32.0")
    assert parser is not None
    assert all(parser.flag(name) for name in start.command.flags if name != "--swap-space")


@pytest.mark.usefixtures("hurried")
def test_a_server_whose_command_is_not_known_has_nothing_to_change(doctor: Doctor) -> None:
    with recorded("preemption") as server:
        ran = doctor(server.url, "--format", "patch")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "vllm-doctor: no command was found, so there is none to change\n"


def test_a_log_gives_a_command_to_read(doctor: Doctor, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_bytes(gzip.decompress((ROOT / "fixtures/logs/max-num-seqs-cap.log.gz").read_bytes()))
    out = doctor(log, "--format", "patch").out
    assert "\n--- command\n+++ corrected\n" in out
    assert "\n+  --max-num-seqs " in out
    assert "[max-num-seqs-cap]" in out


def test_what_cannot_be_examined_prints_no_patch(doctor: Doctor) -> None:
    ran = doctor("--command", "ls -l", "--format", "patch")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1


def test_no_comment_goes_on_in_another_line(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "x\nservices: {evil: 1}\n# .yaml"
    path.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: \"a\\nb: 1\\e[31m\", namespace: \"x; rm\\n-rf\"}\n"
        "spec: {containers: [{name: \"c\\nd\", image: 'vllm/vllm-openai:v0.32.0', args: [m, --enforce-eager,"
        " \"--x\\n--dtype\", float32]}]}\n"
    )  # fmt: skip
    ran = doctor("--command", path, "--format", "patch")
    comments = [line for line in ran.out.splitlines() if line.startswith("#")]
    lines = ran.out.splitlines()
    assert comments == lines[: len(comments)]
    assert lines[len(comments)] == "apiVersion: v1"
    assert "\x1b" not in ran.out
    assert "evil" not in "".join(lines[len(comments) :])


def test_the_forms_of_the_patch_and_the_json_agree(doctor: Doctor) -> None:
    text = "vllm serve m --enforce-eager --no-such-flag=1"
    report = doctor("--command", text, "--json").report
    out = doctor("--command", text, "--format", "patch").out
    for change in report["command"]["changes"]:
        assert f"# {change['name']} " in out
    assert json.dumps(report["command"]["now"]) == '["vllm", "serve", "m"]'
    assert [line for line in out.splitlines() if line.startswith("+") and "corrected" not in line] == ["+vllm serve m"]
