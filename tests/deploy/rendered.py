"""The chart's manifests: by Helm where it is installed, else by what Helm is made of, Go's templates and sprig."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT
from tests.programs import needed

CHART = ROOT / "deploy" / "chart"
WRITTEN = ("signals.rules.yaml", "alerts.rules.yaml", "grafana.json", "loki.yaml")
"""What the templates take of the folder that `vllm-doctor alerts` writes."""

NAMESPACE, RELEASE = "monitoring", "doctor"
_PACKAGES = "golang-go golang-github-masterminds-sprig-dev golang-gopkg-yaml.v3-dev"
_GO = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": ""}


def rendered(values: Mapping[str, Any], chart: Path = CHART) -> dict[tuple[str, str], dict[str, Any]]:
    """Each object by its kind and name. Raises RuntimeError with what the engine says."""
    program = shutil.which("helm") or needed(_PACKAGES, "go")
    text = _by_helm(program, values, chart) if program.endswith("/helm") else _by_go(program, values, chart)
    objects = [found for found in yaml.safe_load_all(text) if found]
    by_name = {(found["kind"], found["metadata"]["name"]): found for found in objects}
    assert len(by_name) == len(objects)
    return by_name


def _by_helm(program: str, values: Mapping[str, Any], chart: Path) -> str:
    return _said([program, "template", RELEASE, str(chart), "-n", NAMESPACE, "-f", "-"], json.dumps(values), {})


def _by_go(program: str, values: Mapping[str, Any], chart: Path) -> str:
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    given = {
        "Values": _over(yaml.safe_load((chart / "values.yaml").read_text()), values),
        "Chart": {"Name": about["name"], "AppVersion": about["appVersion"]},
        "Release": {"Name": RELEASE, "Namespace": NAMESPACE, "Service": "Helm"},
    }
    written = {f"alerts/{name}": chart / "alerts" / name for name in WRITTEN}
    asked = {
        "templates": {path.name: path.read_text() for path in (chart / "templates").iterdir()},
        "files": {name: path.read_text() for name, path in written.items() if path.exists()},
        "given": given,
    }
    made = json.loads(_said([program, "run", str(Path(__file__).with_name("render.go"))], json.dumps(asked), _GO))
    return "\n---\n".join(text for name, text in sorted(made.items()) if name != "NOTES.txt")


def _over(defaults: Any, values: Any) -> Any:
    """Values over the chart's own, as Helm puts them: maps are merged, all else is replaced."""
    if not isinstance(defaults, Mapping) or not isinstance(values, Mapping):
        return values
    return {**defaults, **{key: _over(defaults.get(key), value) for key, value in values.items()}}


def _said(command: list[str], told: str, env: Mapping[str, str]) -> str:
    done = subprocess.run(command, input=told, capture_output=True, text=True, env={**os.environ, **env}, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout
