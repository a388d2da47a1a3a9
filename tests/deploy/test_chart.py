"""deploy/chart: its rules are the command's own, and its templates leave them as they are."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.manifests import commands, doctor_of, objects, pod, unconfined
from tests.deploy.rendered import CHART, NAMESPACE, WRITTEN, rendered
from tests.paths import ROOT
from tests.promtool import promtool
from vllm_doctor.cli import alerts, examine
from vllm_doctor.cli.options import words_of
from vllm_doctor.model.version import __version__
from vllm_doctor.sources.kubernetes import target

SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
NAME = "doctor-vllm-doctor"
ALL = {
    "prometheusRule": {"labels": {"release": "kube-prometheus-stack"}},
    "dashboard": {"annotations": {"grafana_folder": "vLLM"}},
    "loki": {"enabled": True},
    "cronJob": {"enabled": True, "image": "registry.example/vllm-doctor:0.1.0", "imagePullSecrets": [{"name": "key"}]},
}


@pytest.fixture(scope="module")
def everything() -> dict[tuple[str, str], dict[str, Any]]:
    return rendered(ALL)


@pytest.fixture(scope="module")
def made_now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the command writes today."""
    folder = tmp_path_factory.mktemp("made") / "alerts"
    with contextlib.redirect_stdout(io.StringIO()):
        assert alerts.run(["-o", str(folder), "--no-config"]) == 0
    return folder


def written(name: str) -> str:
    return (CHART / "alerts" / name).read_text("utf-8")


# ---- the files -----------------------------------------------------------------------------------------------------


def test_its_rules_are_those_that_the_command_writes(made_now: Path) -> None:
    for name in WRITTEN:
        is_new = written(name) == (made_now / name).read_text("utf-8")
        assert is_new, f"{name} is old: vllm-doctor alerts -o deploy/chart/alerts"


def test_what_the_command_writes_besides_is_neither_kept_nor_packed(made_now: Path) -> None:
    besides = {path.name for path in made_now.iterdir()} - {*WRITTEN}
    for ignored in (".gitignore", ".helmignore"):
        lines = (CHART / ignored).read_text("utf-8").splitlines()
        assert {line.rpartition("/")[2] for line in lines if "alerts/" in line and line[0] != "#"} == besides


def test_its_version_is_the_doctors() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


# ---- values --------------------------------------------------------------------------------------------------------


def over(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {part: {**own, **values.get(part, {})} for part, own in VALUES.items()} | {
        part: value for part, value in values.items() if part not in VALUES
    }


@pytest.mark.parametrize("values", [{}, ALL, {"global": {"any": "thing"}}])
def test_the_schema_takes_its_values(values: Any) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(over(values))


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"prometheusrule": {"enabled": False}}, "prometheusrule"),
        ({"dashboard": {"enabled": "no"}}, "'no'"),
        ({"prometheusRule": {"labels": {"release": 1}}}, "1 is not"),
        ({"cronJob": {"enabled": True}}, "''"),  # no image is published
        ({"cronJob": {"workload": "deploy vllm"}}, "deploy vllm"),
        ({"cronJob": {"namespace": "a/b"}}, "a/b"),
        ({"cronJob": {"args": "--json"}}, "--json"),
    ],
)
def test_the_schema_refuses_a_slip(values: Any, where: str) -> None:
    (error,) = jsonschema.Draft7Validator(SCHEMA).iter_errors(over(values))
    assert where in error.message


def test_each_value_is_in_the_schema_and_in_a_template() -> None:
    templates = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    for part, own in VALUES.items():
        stated = SCHEMA["properties"][part]
        stated = SCHEMA["definitions"][stated["$ref"].rpartition("/")[2]] if "$ref" in stated else stated
        assert stated["properties"].keys() == own.keys()
        assert f".Values.{part}" in templates
        assert [name for name in own if f".{name}" not in templates] == []


# ---- manifests -----------------------------------------------------------------------------------------------------


def test_by_default_there_are_rules_and_a_dashboard_and_nothing_runs() -> None:
    assert {kind for kind, _ in rendered({})} == {"PrometheusRule", "ConfigMap"}
    off = {part: {"enabled": False} for part in VALUES}
    assert rendered(off) == {}


def test_prometheus_templates_arrive_as_they_are(
    everything: Mapping[tuple[str, str], dict[str, Any]], tmp_path: Path
) -> None:
    for part in ("signals", "alerts"):
        made = everything["PrometheusRule", f"{NAME}-{part}"]
        assert made["apiVersion"] == "monitoring.coreos.com/v1"
        assert made["metadata"]["labels"]["release"] == "kube-prometheus-stack"
        assert made["spec"] == yaml.safe_load(written(f"{part}.rules.yaml"))
        (tmp_path / f"{part}.yaml").write_text(json.dumps(made["spec"]))
    assert "{{ $labels.instance }}" in json.dumps(everything["PrometheusRule", f"{NAME}-alerts"])
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", "signals.yaml", "alerts.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_grafana_and_loki_get_their_files_as_they_are(everything: Mapping[tuple[str, str], dict[str, Any]]) -> None:
    dashboard, loki = everything["ConfigMap", f"{NAME}-dashboard"], everything["ConfigMap", f"{NAME}-loki"]
    assert dashboard["data"] == {"vllm-doctor.json": written("grafana.json")}
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "vLLM"}
    assert "{{model_name}}" in dashboard["data"]["vllm-doctor.json"]
    assert loki["data"] == {"vllm-doctor.yaml": written("loki.yaml")}
    assert "loki_rule" in loki["metadata"]["labels"]


def test_the_scheduled_doctor_is_confined_and_its_command_is_one(
    everything: Mapping[tuple[str, str], dict[str, Any]],
) -> None:
    job = everything["CronJob", NAME]
    assert unconfined(job) == []
    assert pod(job)["serviceAccountName"] == NAME
    assert pod(job)["imagePullSecrets"] == [{"name": "key"}]
    assert doctor_of(job)["image"] == "registry.example/vllm-doctor:0.1.0"
    (command,) = commands(doctor_of(job))
    (word,) = words_of(examine.parser().settled(command))
    assert target.parse(word).namespace == VALUES["cronJob"]["namespace"]


def test_its_rights_are_those_of_the_documented_manifest(
    everything: Mapping[tuple[str, str], dict[str, Any]],
) -> None:
    documented = {made["kind"]: made for made in objects(ROOT / "docs" / "kubernetes-rbac.yaml")}
    own = {made["kind"]: made for made in everything.values()}
    for kind in ("Role", "ClusterRole"):
        assert own[kind]["rules"] == documented[kind]["rules"]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        assert own[kind]["roleRef"]["name"] == own[kind.removesuffix("Binding")]["metadata"]["name"]
        assert own[kind]["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
    for kind in ("Role", "RoleBinding"):  # where the servers are; all else is where the release is
        assert own[kind]["metadata"]["namespace"] == VALUES["cronJob"]["namespace"]
    assert NAMESPACE in own["ClusterRole"]["metadata"]["name"]  # two releases in two namespaces do not share one


def test_a_file_that_is_missing_is_an_error_and_not_an_empty_rule(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "chart")
    (tmp_path / "chart" / "alerts" / "alerts.rules.yaml").unlink()
    with pytest.raises(RuntimeError, match=r"alerts/alerts\.rules\.yaml is missing: vllm-doctor alerts -o alerts"):
        rendered({}, tmp_path / "chart")
