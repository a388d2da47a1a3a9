"""KServe's InferenceService: its own server for Hugging Face models starts vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_doctor.launch.manifests.container import Container, text, texts
from vllm_doctor.launch.manifests.pod import Pod, environment_of, not_text, referenced, resources_of
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.yaml_tree import Node

_FORMATS = frozenset({"huggingface", "vllm"})
_OWN = ("--model_", "--model-", "--http_", "--http-", "--backend", "--predictor", "--enable_docs_url")

KSERVE = "kserve/vllm"
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
    named = _model(words) or text(model["storageUri"])
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
            KSERVE,
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
