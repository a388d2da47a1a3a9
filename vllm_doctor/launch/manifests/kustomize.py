"""Kustomize: the patches of a kustomization, and files of JSON Patch (RFC 6902), as far as they hold a container."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_doctor.launch import budget, yaml_tree
from vllm_doctor.launch.manifests import kubernetes
from vllm_doctor.launch.manifests.container import texts
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Word, Written
from vllm_doctor.launch.unwrap import of_words
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.model.errors import SourceError
from vllm_doctor.vllm import flags as catalogue

_LISTS = ("patches", "patchesStrategicMerge", "patchesJson6902")
_WORDS = re.compile(r".*/(?:args|command)(?:/[\d-]+)?")
_STEPS_OF_A_PATCH = 50
_SETS = frozenset({"add", "replace"})
_BASE = "a patch: what the base itself has is not known"


def starts(root: Node, name: str) -> Iterable[Written] | None:
    if root.kind == "seq" and root.items and all(item["op"] and item["path"] for item in root.items):
        return list(map(_of_patch, _of_operations(root)))
    if root["kind"].text != "Kustomization" and not any(root[key].kind == "seq" for key in _LISTS):
        return None
    return _starts(root)


def _starts(kustomization: Node) -> Iterator[Written]:
    for patch in (item for key in _LISTS for item in kustomization[key].items):
        given = patch["patch"] if patch.kind == "map" else patch
        if not given.is_scalar:
            continue
        budget.spend(_STEPS_OF_A_PATCH)
        try:
            documents = yaml_tree.read(given.text, given.text_line)
        except SourceError:
            continue
        for root in documents.roots:
            found = _of_operations(root) if root.kind == "seq" else kubernetes.starts(root, "") or ()
            for written in map(_of_patch, found):
                yield replace(written, place=f"{given.path} {written.place}".strip())


def _of_patch(written: Written) -> Written:
    asked = written.resources
    asked = replace(asked, other_shm=asked.other_shm or asked.shm_bytes is None)
    return replace(written, resources=asked, holder=Values(), is_open=True, notes=(*written.notes, _BASE))


def _of_operations(patch: Node) -> Iterator[Written]:
    """The words that the operations set, for each container."""
    found: dict[str, list[Word]] = {}
    for operation in patch.items:
        path = operation["path"].text
        if operation["op"].text in _SETS and _WORDS.fullmatch(path):
            is_command = "/command" in path
            words = found.setdefault(path.rpartition("/command" if is_command else "/args")[0], [])
            at = 0 if is_command else len(words)
            words[at:at] = texts(operation["value"])
    for owner, words in found.items():
        whole = _whole(words)
        for launch in of_words(whole, Form.KUBERNETES, {}):
            yield Written.of(launch, place=owner)


def _whole(words: list[Word]) -> list[Word]:
    """The words, with vLLM's program before flags alone."""
    is_bare = bool(words) and words[0].text.startswith("-")
    known = any(catalogue.is_flag(word.text.partition("=")[0]) for word in words)
    return [*(Word(text, words[0].line) for text in ("vllm", "serve")), *words] if is_bare and known else words
