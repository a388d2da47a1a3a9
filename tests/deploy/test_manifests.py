"""deploy/*.yaml: objects that Kubernetes and compose take, confined, with commands that the doctor takes."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, commands, doctor_of, objects, pod, unconfined
from tests.paths import ROOT
from vllm_doctor.cli import examine, main
from vllm_doctor.cli.options import words_of
from vllm_doctor.model.errors import UsageError

WORKLOADS = {path.stem: objects(path)[0] for path in (DEPLOY / "job.yaml", DEPLOY / "sidecar.yaml")}
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["doctor"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_doctor_is_confined(name: str) -> None:
    assert unconfined(WORKLOADS[name]) == []


@pytest.mark.parametrize(
    "loosen",
    [
        lambda pod, doctor: doctor["securityContext"].update(readOnlyRootFilesystem=False),
        lambda pod, doctor: doctor["securityContext"]["capabilities"].update(add=["SYS_PTRACE"]),
        lambda pod, doctor: doctor["securityContext"].update(runAsUser=0),
        lambda pod, doctor: doctor["securityContext"].pop("allowPrivilegeEscalation"),
        lambda pod, doctor: doctor["resources"].pop("limits"),
        lambda pod, doctor: pod.update(hostPID=True),
    ],
)
def test_one_that_is_not_confined_is_seen(loosen: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    job = copy.deepcopy(WORKLOADS["job"])
    loosen(pod(job), doctor_of(job))
    assert len(unconfined(job)) == 1


def test_in_compose_too() -> None:
    assert COMPOSE["read_only"] is True
    assert all(int(number) > 0 for number in COMPOSE["user"].split(":"))
    assert COMPOSE["cap_drop"] == ["ALL"]
    assert COMPOSE["security_opt"] == ["no-new-privileges:true"]
    assert "mem_limit" in COMPOSE
    assert not COMPOSE.keys() & {"privileged", "cap_add", "pid", "network_mode", "volumes"}


def test_each_command_is_one_that_the_doctor_takes() -> None:
    given = [command for made in WORKLOADS.values() for command in commands(doctor_of(made))] + [COMPOSE["command"]]
    assert len(given) == len(WORKLOADS) + 1
    for command in given:
        options = examine.parser().settled(command)
        assert len(words_of(options)) == 1
    with pytest.raises(UsageError, match="--windo"):
        examine.parser().settled(["http://vllm:8000", "--windo", "30"])


def test_the_image_has_one_name() -> None:
    images = {doctor_of(made)["image"] for made in WORKLOADS.values()} | {COMPOSE["image"]}
    assert images == {"vllm-doctor"}
    for page in ("Containerfile", "docs/container.md"):
        assert "build -t vllm-doctor ." in (ROOT / page).read_text("utf-8")


def test_the_server_beside_the_sidecar_is_one_that_starts() -> None:
    """By the doctor's own reading: a vLLM of a known version, each flag known there."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main.main(["--command", str(DEPLOY / "sidecar.yaml"), "--json"])
    report = json.loads(out.getvalue())
    assert report["error"] is None
    assert report["patient"]["vllm"]
    assert report["command"]["was"][:2] == ["vllm", "serve"]
    assert [finding["rule"] for finding in report["findings"]] == []


def test_the_sidecar_shares_what_it_reads_and_writes_only_where_it_may() -> None:
    sidecar = WORKLOADS["sidecar"]
    assert pod(sidecar)["shareProcessNamespace"] is True
    (command,) = commands(doctor_of(sidecar))
    kept = command[command.index("--state") + 1]
    mounts: list[Mapping[str, str]] = doctor_of(sidecar)["volumeMounts"]
    assert [kept.startswith(f"{mount['mountPath']}/") for mount in mounts] == [True]
    volumes = {volume["name"] for volume in pod(sidecar)["volumes"]}
    used = {mount["name"] for container in pod(sidecar)["containers"] for mount in container["volumeMounts"]}
    assert used == volumes


def test_the_rights_for_debugging_are_one_capability_and_no_more() -> None:
    (given,) = objects(DEPLOY / "debug.yaml")
    assert given == {
        "securityContext": {
            "runAsNonRoot": False,
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE"]},
        }
    }


@pytest.mark.parametrize("page", ["container.md", "kubernetes.md", "alerts.md", "releasing.md"])
def test_the_files_that_its_pages_name_are_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    named = set(re.findall(r"(?<![\w/])(?:deploy|docs|\.ci)/[\w./-]*\w", text)) - {"deploy/x", "deploy/vllm"}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_page_tells_when_to_take_each_of_them() -> None:
    text = (ROOT / "docs" / "container.md").read_text("utf-8")
    assert [path.name for path in DEPLOY.glob("*.yaml") if f"deploy/{path.name}" not in text] == []
