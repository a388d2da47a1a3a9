"""KServe's LLMInferenceService: a model, parallel sizes, and variables from which KServe makes vLLM's command.

With `prefill` two servers share the work, each with a pod of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.launch import docker, shell
from vllm_doctor.launch.manifests import flag_map
from vllm_doctor.launch.manifests.container import text, texts
from vllm_doctor.launch.manifests.pod import Pod, container_of, environment_of, referenced, resources_of
from vllm_doctor.launch.start import Form, Holder, Word, Written
from vllm_doctor.launch.yaml_tree import Node

ADDITIONAL = "VLLM_ADDITIONAL_ARGS"
"""The variable whose words KServe adds to vLLM's."""
PARALLELISM: Mapping[str, str] = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
    "dataLocal": "--data-parallel-size-local",
    "dataRPCPort": "--data-parallel-rpc-port",
    "expert": "--enable-expert-parallel",
}


@dataclass(frozen=True)
class Pool(Holder):
    """The pods of one role, at `keys` of the object; `place`: of the container among them, if there is one."""

    object: Node
    keys: tuple[str, ...]
    node: Node
    place: int | None

    @property
    def container(self) -> Node:
        containers = self.node.at("template", "containers").items
        return Node("", self.node.line) if self.place is None else containers[self.place]


def of_service(owner: str, object: Node) -> Iterator[Written]:
    spec = object["spec"]
    is_split = spec["prefill"].kind == "map"
    yield from _pool(Pool(object, ("spec",), spec, _main(spec)), owner, "decode" if is_split else "")
    if is_split:
        prefill = spec["prefill"]
        yield from _pool(Pool(object, ("spec", "prefill"), prefill, _main(prefill)), owner, "prefill")


def _main(pool: Node) -> int | None:
    """The place of the container that serves: the one of this name, or the first."""
    names = [container["name"].text for container in pool.at("template", "containers").items]
    return names.index("main") if "main" in names else 0 if names else None


def _pool(pool: Pool, owner: str, role: str) -> Iterator[Written]:
    spec, container = pool.node, pool.container
    whole = " ".join(filter(None, (owner, role)))
    notes = tuple(_notes(pool))
    if container["command"]:
        keys = (*pool.keys, "template")
        inside = Pod(whole, pool.object, keys, spec["template"])
        at: tuple[str | int, ...] = (*keys, "containers", pool.place or 0)
        for written in container_of(inside, at, container).starts():
            yield replace(written, notes=(*written.notes, *notes), role=role)
        return
    environment = environment_of(container["env"])
    more = next((item["value"] for item in container["env"].items if item["name"].text == ADDITIONAL), Node("", 1))
    line = spec.line
    words = [*(Word(word, line) for word in docker.SERVE), *_model(pool.object.at("spec", "model"))]
    words += flag_map.words(_named(spec["parallelism"]), turns_off=False)
    words += referenced(texts(container["args"]), environment)
    for told in referenced([Word(more.text, more.text_line)], environment):
        words += [replace(word, start=-1, end=-1) for word in shell.words(told.text, told.line)[0]]
    resources = resources_of(spec["template"], container)
    nodes = _nodes(spec)
    yield Written(
        words,
        Form.KUBERNETES,
        {name: value for name, value in environment.items() if name != ADDITIONAL},
        place=f"{whole} {'.'.join(pool.keys)}",
        holder=pool,
        image=text(container["image"]),
        resources=replace(resources, gpus=nodes * resources.gpus if resources.gpus else None),
        notes=("KServe makes the command: it was read as `vllm serve` with the same flags", *notes),
        is_open=bool(pool.object.at("spec", "baseRefs").items),
        role=role,
    )


def _notes(pool: Pool) -> Iterator[str]:
    if pool.object.at("spec", "baseRefs").items:
        yield "what its baseRefs hold is not in the text"
    if (nodes := _nodes(pool.node)) > 1:
        yield f"nodes: {nodes:.0f}"


def _nodes(spec: Node) -> float:
    """How many pods a server spreads over: one without `worker`."""
    sizes = spec["parallelism"]
    data, local = (docker.number(sizes[key].text) for key in ("data", "dataLocal"))
    if not spec["worker"]:
        return 1.0
    return data / local if data and local else docker.number(sizes["pipeline"].text) or 1.0


def _named(parallelism: Node) -> Node:
    """Its keys as vLLM's flags."""
    fields = {PARALLELISM[key]: value for key, value in parallelism.fields.items() if key in PARALLELISM}
    return replace(parallelism, fields=fields)


def _model(model: Node) -> Iterator[Word]:
    """The model by its place at Hugging Face, else by the name it is given; the weights stand elsewhere then."""
    uri, named = model["uri"], model["name"]
    is_known = uri.text.startswith("hf://") or not named.is_scalar
    told = uri if is_known else named
    if told.is_scalar:
        yield Word(told.text.removeprefix("hf://"), told.line)
    if is_known and named.is_scalar and named.text != uri.text.removeprefix("hf://"):
        yield from (Word("--served-model-name", named.line), Word(named.text, named.line))
