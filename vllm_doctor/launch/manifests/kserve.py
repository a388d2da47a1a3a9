"""KServe's InferenceService: its own server for Hugging Face models starts vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from vllm_doctor.launch.manifests.container import Container, text, texts
from vllm_doctor.launch.manifests.pod import Pod, environment_of, not_text, referenced, resources_of
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.vllm.command_line import program_of

_FORMATS = frozenset({"huggingface", "vllm"})
_RUNTIMES = frozenset({"ServingRuntime", "ClusterServingRuntime"})
_OF_SERVICE = frozenset({"--model", "--served-model-name"})
"""What a runtime takes from the service that uses it."""
_OWN = ("--model_", "--model-", "--http_", "--http-", "--backend", "--predictor", "--enable_docs_url")

IMAGE = "kserve/vllm"
"""Stands for the image of KServe's own server: its arguments are vLLM's."""


def is_language_model(model: Node) -> bool:
    """Whether KServe serves it with vLLM: by its format, or by the runtime that is named."""
    return model["modelFormat"]["name"].text.lower() in _FORMATS or "vllm" in model["runtime"].text.lower()


def served(pod: Pod, model: Node) -> Iterator[Written]:
    """KServe's Hugging Face server, which gives vLLM those arguments that are not its own."""
    if not is_language_model(model):
        return
    environment = environment_of(model["env"])
    words = list(referenced(texts(model["args"]), environment))
    named = (_model(words) or model["storageUri"].text).removeprefix("hf://")
    line = model["args"].line
    argv = [Word("vllm", line), Word("serve", line), *([Word(named, line)] if named else []), *_of_vllm(words)]
    place = f"{pod.owner} {model['args'].path}".strip()
    yield Written(
        argv,
        Form.KUBERNETES,
        environment,
        place=place,
        holder=Container(
            pod.object,
            (*pod.keys, "model"),
            model,
            Form.KUBERNETES,
            place,
            IMAGE,
            None,
            tuple(words),
            environment,
            Resources(),
        ),
        image=text(model["image"]),
        resources=resources_of(pod.spec, model),
        faults=tuple(not_text(model["args"])),
        notes=("KServe's own server starts vLLM: it was read as `vllm serve` with the same flags",),
    )


def joined(found: Sequence[Written]) -> list[Written]:
    """The servers, where each InferenceService whose ServingRuntime stands in the same text is one with it."""
    runtimes = {name: written for written in found if (name := _runtime(written)) is not None}
    used = {name for written in found if (name := _named_runtime(written)) in runtimes}
    return [
        _with(written, runtimes[name]) if (name := _named_runtime(written)) in used else written
        for written in found
        if _runtime(written) not in used
    ]


def _runtime(written: Written) -> str | None:
    """The name of the ServingRuntime that it stands in."""
    holder = written.holder
    if not isinstance(holder, Container) or holder.object["kind"].text not in _RUNTIMES:
        return None
    return holder.object.at("metadata", "name").text


def _named_runtime(written: Written) -> str:
    """The name of the ServingRuntime that an InferenceService takes."""
    holder = written.holder
    return holder.node["runtime"].text if isinstance(holder, Container) and holder.image == IMAGE else ""


def _with(service: Written, runtime: Written) -> Written:
    """The service's model and arguments after the runtime's own."""
    program = program_of([word.text for word in runtime.words])
    own = list(runtime.words[program[1] if program else 0 :])
    at = 2 if service.words[2:3] and service.words[2].text.startswith("-") else 3
    asked = runtime.resources if service.resources == Resources() else service.resources
    return replace(
        service,
        words=[*service.words[:at], *_without(own, _OF_SERVICE), *service.words[at:]],
        environment={**runtime.environment, **service.environment},
        image=service.image or runtime.image,
        resources=replace(asked, shm_bytes=runtime.resources.shm_bytes, other_shm=runtime.resources.other_shm),
        notes=(*runtime.notes, *service.notes, f"its ServingRuntime was read with it: {runtime.place}"),
    )


def _without(words: Iterable[Word], names: Iterable[str]) -> Iterator[Word]:
    """The words without these flags and their values."""
    skips = False
    for word in words:
        if word.text.startswith("-"):
            skips = word.text.partition("=")[0] in names
        if not skips:
            yield word


def _model(words: Iterable[Word]) -> str | None:
    given = [word.text for word in words]
    for place, word in enumerate(given):
        name, equals, value = word.partition("=")
        if name.replace("-", "_") == "__model_id":
            return value if equals else next(iter(given[place + 1 :]), None)
    return None


def _of_vllm(words: Iterable[Word]) -> Iterator[Word]:
    skips = False
    for word in words:
        if word.text.startswith("-"):
            skips = word.text.startswith(_OWN)
        if not skips:
            yield word
        skips = skips and word.text.startswith("-") and "=" not in word.text
