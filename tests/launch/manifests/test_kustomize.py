from __future__ import annotations

import pytest

from vllm_doctor.launch.source import read
from vllm_doctor.model.errors import SourceError

KUSTOMIZATION = """kind: Kustomization
resources: [../../base]
patches:
- target: {kind: Deployment}
  patch: |-
    - op: replace
      path: /spec/template/spec/containers/0/args
      value: ["--model", "org/m", "--tensor-parallel-size", "2"]
    - op: remove
      path: /spec/template/spec/containers/0/resources
- patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: d}
    spec: {template: {spec: {containers: [{name: v, command: [vllm, serve, org/n]}]}}}
- path: other.yaml
"""


def test_patches_of_a_kustomization() -> None:
    words, merged = read(KUSTOMIZATION)
    assert words.place == "patches[0].patch /spec/template/spec/containers/0"
    assert (words.command.model, words.is_open) == ("org/m", True)
    assert words.command.flags["--tensor-parallel-size"] == 2.0
    assert words.notes == ("a patch: what the base itself has is not known",)
    assert merged.command.model == "org/n"


def test_a_file_of_json_patch() -> None:
    [start] = read(
        "- {op: add, path: /spec/containers/0/args, value: ['--max-num-seqs', '4']}\n"
        "- {op: replace, path: /spec/containers/0/command, value: [vllm, serve, org/m]}\n"
    )
    assert start.argv == ("vllm", "serve", "org/m", "--max-num-seqs", "4")


def test_yaml_in_yaml_that_is_none() -> None:
    bomb = "patches:\n- patch: '{{{{'\n- patch: |\n    " + "[" * 200 + "\n- {patch: {a: 1}}\nkind: Kustomization\n"
    with pytest.raises(SourceError, match="no vLLM server is started here"):
        read(bomb)
