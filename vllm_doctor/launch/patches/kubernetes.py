"""A changed container as a strategic merge patch, and as a JSON Patch."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from vllm_doctor.launch import (
    rewrite,
)
from vllm_doctor.launch.manifests import Container
from vllm_doctor.launch.patches.containers import New, of_kubernetes_text
from vllm_doctor.launch.patches.tree import put
from vllm_doctor.launch.rewrite import UnwritableError

_MERGED = {
    "v1": {"Pod", "ReplicationController"},
    "apps/v1": {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"},
    "batch/v1": {"Job", "CronJob"},
}
"""Kubernetes' own kinds, which take a strategic merge patch; of others the server does not know how lists merge."""


def is_merged(holder: Container) -> bool:
    object, keys = holder.object, holder.keys
    return (
        object["kind"].text in _MERGED.get(object["apiVersion"].text, ())
        and object.at("metadata", "name").is_scalar
        and keys[-2:-1] == ("containers",)
        and not any(isinstance(key, int) for key in keys[:-1])
        and holder.node["name"].is_scalar
    )


def strategic(holder: Container, new: New) -> dict[str, Any]:
    """Containers merge by their names, variables as well; a list of words is replaced."""
    object = holder.object
    metadata = {
        key: object.at("metadata", key).text for key in ("name", "namespace") if object.at("metadata", key).is_scalar
    }
    patch: dict[str, Any] = {"apiVersion": object["apiVersion"].text, "kind": object["kind"].text, "metadata": metadata}
    container = {"name": holder.node["name"].text, **new.parts}
    variables = []
    for item in as_list(holder, new):
        taken = any(old["name"].text == item["name"] and old["valueFrom"] for old in holder.node["env"].items)
        variables.append({**item, **({"valueFrom": None} if taken else {})})
    put(patch, [str(key) for key in holder.keys[:-1]], [{**container, **({"env": variables} if variables else {})}])
    return patch


def as_list(holder: Container, new: New) -> list[dict[str, Any]]:
    return [{"name": name, "value": of_kubernetes_text(value)} for name, value in new.environment.items()]


def json_patch(holder: Container, new: New) -> Iterator[dict[str, Any]]:
    """JSON Patch (RFC 6902): only the words that change, each told as it was. Raises UnwritableError."""
    at = "/" + "/".join(str(key).replace("~", "~0").replace("/", "~1") for key in holder.keys)
    at = at if holder.keys else ""
    for key, part in new.parts.items():
        assert not isinstance(part, str)
        node = holder.node[key]
        was = [item.text for item in node.items]
        if not node:
            yield {"op": "add", "path": f"{at}/{key}", "value": part}
            continue
        matcher = difflib.SequenceMatcher(None, was, part, autojunk=False)
        for tag, i, j, k, m in reversed(matcher.get_opcodes()):
            if tag == "equal":
                continue
            if new.hidden & set(part[k:m]):
                raise UnwritableError(rewrite.SECRET)
            for place in reversed(range(i, j)):
                if was[place] not in new.hidden:
                    yield {"op": "test", "path": f"{at}/{key}/{place}", "value": node.items[place].plain}
                yield {"op": "remove", "path": f"{at}/{key}/{place}"}
            for text in reversed(part[k:m]):
                yield {"op": "add", "path": f"{at}/{key}/{i}", "value": text}
    variables = as_list(holder, new)
    if holder.is_environment_a_map:
        told = {str(item["name"]): item["value"] for item in variables}
        if told and not holder.node["env"]:
            yield {"op": "add", "path": f"{at}/env", "value": told}
        elif told:
            yield from ({"op": "add", "path": f"{at}/env/{name}", "value": value} for name, value in told.items())
        return
    listed = [item["name"].text for item in holder.node["env"].items]
    if variables and not holder.node["env"]:
        yield {"op": "add", "path": f"{at}/env", "value": variables}
        return
    for variable in variables:
        if variable["name"] in listed:
            place = listed.index(variable["name"])
            yield {"op": "replace", "path": f"{at}/env/{place}", "value": variable}
        else:
            yield {"op": "add", "path": f"{at}/env/-", "value": variable}
