from __future__ import annotations

import pytest

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Resources
from vllm_doctor.model.errors import SourceError

MODEL = """\
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: chat}
spec:
  url: hf://org/m
  engine: VLLM
  args: [--max-model-len=4096]
  env: {VLLM_LOGGING_LEVEL: DEBUG}
  adapters: [{name: a, url: "hf://org/a"}]
  resourceProfile: nvidia-gpu-l4:2
"""


def test_a_model() -> None:
    [start] = read(MODEL)
    assert start.argv == ("vllm", "serve", "org/m", "--max-model-len=4096", "--enable-lora")
    assert start.environment == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert start.resources == Resources(gpus=2.0, gpu="l4", other_shm=True)
    assert start.place == "Model/chat spec.args"


def test_another_engine() -> None:
    with pytest.raises(SourceError, match="starts Ollama, not vLLM"):
        read(MODEL.replace("VLLM", "OLlama", 1))
