"""The forms of manifests, told by their structure, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from vllm_doctor.launch.manifests import (
    anywhere,
    around,
    chart,
    compose,
    config_file,
    dstack,
    dynamo_serve,
    kaito,
    kserve,
    kubernetes,
    kustomize,
    llama_swap,
    llm_d,
    llm_d_benchmark,
    production_stack,
    ray_serve,
    runpod,
    sky,
    srt_slurm,
    truss,
)
from vllm_doctor.launch.start import Written
from vllm_doctor.launch.yaml_tree import Documents, Node

_Read = Callable[[Node, str], Iterable[Written] | None]
_FORMS: tuple[_Read, ...] = (
    compose.starts,
    production_stack.starts,
    chart.starts,
    ray_serve.starts,
    llm_d.starts,
    llm_d_benchmark.starts,
    srt_slurm.starts,
    dynamo_serve.starts,
    sky.starts,
    dstack.starts,
    truss.starts,
    llama_swap.starts,
    runpod.starts,
    kustomize.starts,
    config_file.starts,
    kubernetes.starts,
    anywhere.starts,
)
"""Each gives the servers that one document starts; None where it is not of that form."""


def starts(documents: Documents, name: str) -> list[Written] | None:
    """The servers that the documents start; None where they are of no known form. `name`: of the file, if it is one."""
    known = False
    found: list[Written] = []
    with around.documents(documents.roots):
        for root in documents.roots:
            read = next((given for form in _FORMS if (given := form(root, name)) is not None), None)
            known = known or read is not None
            found += read or ()
    found = [kaito.configured(written, documents.roots) for written in kserve.joined(found)]
    if documents.is_open:
        found = [replace(written, is_open=True) for written in found]
    return found if known else None
