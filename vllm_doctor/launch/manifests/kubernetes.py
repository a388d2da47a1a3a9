"""Kubernetes, and what is built on it: a pod's containers are found wherever they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from vllm_doctor.launch import budget, docker
from vllm_doctor.launch.manifests import (
    dynamo_graph,
    kaito,
    kserve,
    kubeai,
    llm_inference_service,
    production_stack,
    ray_serve,
)
from vllm_doctor.launch.manifests.pod import Pod, container_of, resources_of
from vllm_doctor.launch.start import Written
from vllm_doctor.launch.unwrap import of_script
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.model.kinds import Hop

_STEPS_OF_A_GROUP = 20
_ROLE_LABEL = "llm-d.ai/role"
_ROLES: Mapping[str, Hop] = {
    "prefill": Hop.PREFILL,
    "decode": Hop.DECODE,
    "prefill-decode": Hop.SERVER,
    "both": Hop.SERVER,
}
"""Its values, and names of roles in a set of them: what they are on the path of a request."""
_RAY_GROUPS = frozenset({"headGroupSpec", "workerGroupSpecs"})
"""Where KubeRay starts Ray in a container that says nothing else."""
_Read = Callable[[str, Node], Iterator[Written]]
_WHOLE: Mapping[str, _Read] = {
    "kaito.sh/InferenceSet": kaito.of_set,
    "kaito.sh/MultiRoleInference": kaito.of_roles,
    "kubeai.org/Model": kubeai.of_model,
    "nvidia.com/DynamoGraphDeployment": dynamo_graph.of_graph,
    "production-stack.vllm.ai/VLLMRuntime": production_stack.of_runtime,
    "serving.kserve.io/LLMInferenceService": llm_inference_service.of_service,
}
"""Kinds that an operator of their own turns to pods, by group: read in the place of what pods may stand in them."""
_BESIDE: Mapping[str, _Read] = {
    "kaito.sh/Workspace": kaito.of_workspace,
    "ray.io/RayService": ray_serve.of_service,
}
"""Kinds whose pods are read as well."""


def starts(root: Node, name: str) -> Iterable[Written] | None:
    found = list(_found(root, "", root))
    if not found and not (root["kind"] and root["apiVersion"]):
        return None
    return [written for each in found for written in each]


def _found(
    node: Node, owner: str, object: Node, keys: tuple[str | int, ...] = (), pods: float = 1.0, role: str = ""
) -> Iterator[Iterator[Written]]:
    """What may start servers, each with its reading. `pods`: how many one server spreads over. `role`: what they are on
    the path of a request, by a label of their pods, or by their place in a set of roles."""
    if node.kind == "map":
        role = _ROLES.get(node.at("metadata", "labels", _ROLE_LABEL).text, role)
        if node["kind"].is_scalar:
            owner = "/".join(text for text in (node["kind"].text, node.at("metadata", "name").text) if text)
        if node["kind"].is_scalar and node["apiVersion"].is_scalar:
            object, keys = node, ()
            kind = f"{node['apiVersion'].text.rpartition('/')[0]}/{node['kind'].text}"
            if kind in _WHOLE:
                yield _WHOLE[kind](owner, node)
                return
            if kind in _BESIDE:
                yield _BESIDE[kind](owner, node)
        is_bare = not node.path and not node["apiVersion"] and (_is_said(node["args"]) or _is_said(node["command"]))
        if node["containers"].kind == "seq" or node["model"]["modelFormat"] or is_bare:
            yield _in_role(_of_pod(Pod(owner, object, keys, node), pods), role)
        for key, value in node.fields.items():
            size = docker.number(value["size"].text) if key == "leaderWorkerTemplate" else None
            yield from _found(value, owner, object, (*keys, key), size or pods, role)
    for place, item in enumerate(node.items):
        named = item["name"].text if keys[-1:] == ("roles",) and item["name"].is_scalar else ""
        whole = f"{owner} {named}".strip() if item["template"] or named in _ROLES else owner
        yield from _found(item, whole, object, (*keys, place), pods, _ROLES.get(named, role))


def _in_role(found: Iterable[Written], role: str) -> Iterator[Written]:
    for written in found:
        yield replace(written, role=written.role or role)


def _is_said(words: Node) -> bool:
    """Whether they are words, or a text: a mapping is of another program."""
    return words.is_scalar or words.kind == "seq"


def _of_pod(pod: Pod, pods: float) -> Iterator[Written]:
    containers = pod.spec["containers"].items
    if pod.spec["model"]["modelFormat"]:
        yield from kserve.served(pod, pod.spec["model"])
    elif not containers and pod.spec["command"].is_scalar and not pod.spec["args"]:
        yield from _of_recipe(pod.spec)
    elif not containers:
        yield from container_of(pod, pod.keys, pod.spec).starts()
    is_of_ray = not _RAY_GROUPS.isdisjoint(pod.keys)
    for place, container in enumerate(containers):
        if container.kind == "map" and (container["command"] or container["args"] or not is_of_ray):
            for written in container_of(pod, (*pod.keys, "containers", place), container).starts():
                yield _on_cluster(written, pod) if is_of_ray else _spread(written, pods)


def _on_cluster(written: Written, pod: Pod) -> Written:
    """The server in a pod of a Ray cluster: it takes what it needs of the GPUs of all its nodes."""
    cluster = pod.object
    for key in pod.keys[: next(place for place, key in enumerate(pod.keys) if key in _RAY_GROUPS)]:
        cluster = cluster.items[key] if isinstance(key, int) else cluster[key]
    found = 0.0
    groups = (cluster["headGroupSpec"], *cluster["workerGroupSpecs"].items)
    budget.spend(_STEPS_OF_A_GROUP * len(groups))
    for group in groups:
        spec = group.at("template", "spec")
        replicas = docker.number((group["replicas"] or group["minReplicas"]).text) or 1.0
        hosts = docker.number(group["numOfHosts"].text) or 1.0
        gpus = [resources_of(spec, container).gpus for container in spec["containers"].items]
        found += replicas * hosts * sum(count for count in gpus if count)
    return replace(written, resources=replace(written.resources, gpus=found or None))


def _spread(written: Written, pods: float) -> Written:
    """The server as it spreads over so many pods like this one."""
    if pods == 1:
        return written
    asked = written.resources
    asked = replace(asked, gpus=None if asked.gpus is None else asked.gpus * pods)
    return replace(written, resources=asked, notes=(*written.notes, f"nodes: {pods:.0f}"))


def _of_recipe(recipe: Node) -> Iterator[Written]:
    """A mapping of nobody's form whose `command` is one text: it is for a shell."""
    for written in of_script(recipe["command"].text, recipe["command"].text_line):
        yield replace(written, place="command")
