"""A changed pool of KServe's LLMInferenceService as a JSON Patch."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from vllm_doctor.launch import (
    docker,
    rewrite,
    shell,
)
from vllm_doctor.launch.manifests import Pool
from vllm_doctor.launch.manifests.llm_inference_service import ADDITIONAL, PARALLELISM
from vllm_doctor.launch.patches.chart import stack_value
from vllm_doctor.launch.patches.containers import REFERENCE, Holes, has_marks, of_kubernetes_text
from vllm_doctor.launch.rewrite import UnwritableError, Wanted
from vllm_doctor.launch.start import Form, Launch, Word
from vllm_doctor.launch.yaml_tree import Node


def json_patch_of_pool(pool: Pool, wanted: Wanted) -> Iterator[dict[str, Any]]:
    """JSON Patch of the variable with vLLM's arguments, and of the parallel sizes. Raises UnwritableError."""
    sizes, container, at = pool.node["parallelism"], pool.container, "/" + "/".join(pool.keys)
    names = {flag: key for key, flag in PARALLELISM.items() if sizes[key]}
    for name in sorted(names.keys() & {*wanted.set, *wanted.unset}):
        path = f"{at}/parallelism/{names[name]}"
        if name in wanted.set:
            yield {"op": "replace", "path": path, "value": stack_value(wanted.set[name])}
        else:
            yield {"op": "remove", "path": path}
    rest = Wanted(
        {name: words for name, words in wanted.set.items() if name not in names}, wanted.unset - names.keys(), {}
    )
    variables = {name: of_kubernetes_text(text) for name, text in wanted.environment.items()}
    listed = [item["name"].text for item in container["env"].items]
    if rest.set or rest.unset:
        old = container["env"].items[listed.index(ADDITIONAL)]["value"] if ADDITIONAL in listed else container["none"]
        variables[ADDITIONAL] = _additional(old, rest)
    if pool.place is None:
        raise UnwritableError("no container of it has variables")
    at += f"/template/containers/{pool.place}/env"
    if variables and not listed:
        yield {"op": "add", "path": at, "value": [{"name": name, "value": text} for name, text in variables.items()]}
        return
    for name, text in variables.items():
        value = {"name": name, "value": text}
        if name in listed:
            yield {"op": "replace", "path": f"{at}/{listed.index(name)}", "value": value}
        else:
            yield {"op": "add", "path": f"{at}/-", "value": value}


def _additional(old: Node, wanted: Wanted) -> str:
    """The text of VLLM_ADDITIONAL_ARGS with the changes. Raises UnwritableError."""
    if has_marks(old):
        raise UnwritableError("it is a chart's template")
    holes = Holes(REFERENCE)
    text = holes.out(old.text)
    escaped = {name: tuple(map(of_kubernetes_text, words)) for name, words in wanted.set.items()}
    words = [*(Word(word, old.line) for word in (*docker.SERVE, "m")), *shell.words(text)[0]]
    launch = Launch(words, Form.KUBERNETES)
    if rewrite.may_tell(text, launch):
        raise UnwritableError(rewrite.SECRET)
    if not text.strip():
        return " ".join(shlex.join(added) for added in escaped.values())
    return holes.back(rewrite.in_text(text, launch, Wanted(escaped, wanted.unset, {})))
