from __future__ import annotations

import json
from pathlib import Path

import pytest

from vllm_doctor.launch.source import open_command, read
from vllm_doctor.launch.start import Form, Resources
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.report import Change

CONFIGURATION = """\
Common:
  model: org/m
  block-size: 64
  max-model-len: 16384
Frontend: {served_model_name: m, port: 8000}
Processor: {router: kv, common-configs: [model, block-size]}
VllmWorker:
  remote-prefill: true
  max-local-prefill-length: 10
  enforce-eager: true
  ServiceArgs: {workers: 2, resources: {gpu: '1'}}
  common-configs: [model, block-size, max-model-len]
PrefillWorker:
  max-num-batched-tokens: 16384
  ServiceArgs: {workers: 1, resources: {gpu: 1}}
  common-configs: [model, block-size]
Planner: {environment: local}
"""
GRAPH = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {{name: g}}
spec:
  envs: [{{name: DYN_DEPLOYMENT_CONFIG, value: {value}}}]
  services:
    VllmWorker:
      extraPodSpec:
        mainContainer:
          image: ai-dynamo/vllm-runtime:0.3.2
          args: [dynamo, serve, "graphs.disagg:VllmWorker"]
"""


def test_each_worker_has_its_own_flags_and_those_it_shares() -> None:
    decode, prefill = read(CONFIGURATION)
    assert (decode.form, decode.place) == (Form.VALUES, "VllmWorker")
    assert decode.command.flags == {
        "--model": "org/m", "--block-size": 64, "--max-model-len": 16384, "--enforce-eager": True,
    }  # fmt: skip
    assert decode.resources == Resources(gpus=1.0)
    assert "its role: decode" in decode.notes
    assert "it starts 2 such workers" in decode.notes
    assert "not read, as vLLM does not have them: remote-prefill, max-local-prefill-length" in decode.notes
    assert prefill.command.flags == {"--model": "org/m", "--block-size": 64, "--max-num-batched-tokens": 16384}
    assert "its role: prefill" in prefill.notes


def test_a_graph_has_it_in_a_variable() -> None:
    document = {
        "Common": {"model": "org/m"},
        "VllmWorker": {"ServiceArgs": {"resources": {"gpu": "2"}}, "common-configs": ["model"]},
    }
    [start] = read(GRAPH.format(value=f"'{json.dumps(document)}'"))
    assert start.place == "DYN_DEPLOYMENT_CONFIG VllmWorker"
    assert (start.command.model, start.resources.gpus) == ("org/m", 2.0)
    for broken in ("'{'", "'[]'", "1", "'{\"VllmWorker\": []}'"):
        with pytest.raises(SourceError):
            read(GRAPH.format(value=broken))


def test_of_another_engine_it_is_none() -> None:
    with pytest.raises(SourceError):
        read(CONFIGURATION.replace("VllmWorker", "SGLangWorker").replace("PrefillWorker", "SGLangPrefillWorker"))


def test_a_flag_of_a_worker_is_changed_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "disagg.yaml"
    path.write_text(CONFIGURATION)
    source = open_command(str(path))
    assert source.document is not None
    [patch] = source.document.patched({0: [Change("--enforce-eager", True, None, "rule")]})
    assert patch.apply == ("put this in the place of VllmWorker",)
    assert "enforce-eager: true" not in patch.lines
    [patch] = source.document.patched({0: [Change("--block-size", 64.0, None, "rule")]})
    assert patch.problem == "--block-size is set elsewhere: change it by hand"
