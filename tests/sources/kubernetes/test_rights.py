"""The role that is offered: it only reads, and has each right that the doctor asks for, and no other."""

from __future__ import annotations

import ast
from typing import Any

import yaml

from tests.paths import PACKAGE, ROOT
from vllm_doctor.sources.kubernetes import workload

DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "docs" / "kubernetes-rbac.yaml").read_text("utf-8")))
GRANTED = {
    (verb, f"{resource}.{group}" if group else resource)
    for document in DOCUMENTS
    for rule in document.get("rules", [])
    for group in rule["apiGroups"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
}


def asked() -> set[tuple[str, str]]:
    """(verb, resource) of each Ask that the source code makes with literals, and those of workloads."""
    found = {("get", f"{plural}.apps") for plural in workload._APPS.values()}
    found |= {("list", "deployments.apps"), ("list", "statefulsets.apps")}  # "did you mean"
    places = [*(PACKAGE / "sources" / "kubernetes").glob("*.py"), PACKAGE / "session" / "sources" / "kubernetes.py"]
    for path in places:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Ask":
                verb, resource = node.args[1:3]
                if isinstance(verb, ast.Constant) and isinstance(resource, ast.Constant):
                    found.add((str(verb.value), str(resource.value)))
    return found


def test_the_role_only_reads() -> None:
    assert {verb for verb, _ in GRANTED} <= {"get", "list"}
    assert not {resource for _, resource in GRANTED} & {"secrets", "configmaps", "pods/exec", "nodes/proxy", "*"}


def test_it_has_what_is_asked_for_and_no_more() -> None:
    assert asked() == GRANTED


def test_its_parts_fit_together() -> None:
    kinds = [document["kind"] for document in DOCUMENTS]
    assert kinds == ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
    for document in DOCUMENTS:
        if "subjects" in document:
            assert document["subjects"][0]["name"] == DOCUMENTS[0]["metadata"]["name"]
            assert document["roleRef"]["name"] == "vllm-doctor"
