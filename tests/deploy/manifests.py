"""What is in Kubernetes' objects and a compose file: the doctor's container, and the commands that it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT

DEPLOY = ROOT / "deploy"


def objects(path: Path) -> list[dict[str, Any]]:
    """All of a file."""
    return [found for found in yaml.safe_load_all(path.read_text("utf-8")) if found]


def pod(made: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of the pods that a workload makes."""
    spec: dict[str, Any] = made["spec"]
    while "template" in spec or "jobTemplate" in spec:
        spec = spec.get("jobTemplate", spec.get("template", {}))["spec"]
    return spec


def doctor_of(made: Mapping[str, Any]) -> dict[str, Any]:
    """The doctor's container in these pods."""
    found: list[dict[str, Any]] = [held for held in pod(made)["containers"] if held["name"] == "doctor"]
    assert len(found) == 1
    return found[0]


def commands(container: Mapping[str, Any]) -> Iterator[list[str]]:
    """The doctor's arguments in each of its commands there: those of the image's own, or within a shell's text."""
    given = container.get("command", ["vllm-doctor"])
    if given[:2] == ["sh", "-c"]:
        for line in re.findall(r"vllm-doctor ([^;|&\n]+)", given[2]):
            yield shlex.split(line)
    else:
        assert given[0] == "vllm-doctor"
        yield [*given[1:], *container.get("args", [])]


def unconfined(made: Mapping[str, Any]) -> list[str]:
    """What the doctor's container may, and need not."""
    of_pod, own = pod(made).get("securityContext", {}), doctor_of(made).get("securityContext", {})
    both = {**of_pod, **own}
    wanted = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    wrong = [f"{name}: {both.get(name)}" for name, value in wanted.items() if both.get(name) != value]
    wrong += [name for name in ("privileged", "runAsUser") if name in both]
    resources = doctor_of(made).get("resources", {})
    wrong += [] if {"cpu", "memory"} <= resources.get("requests", {}).keys() else ["no requests"]
    wrong += [] if "memory" in resources.get("limits", {}) else ["no limit of memory"]
    wrong += [name for name in ("hostPID", "hostNetwork", "hostIPC") if pod(made).get(name)]
    return wrong
