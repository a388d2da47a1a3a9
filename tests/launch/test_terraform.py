from __future__ import annotations

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form


def test_a_container_of_kubernetes() -> None:
    [start] = read(
        'variable "model" {\n  default = "m"\n}\n'
        'resource "kubernetes_deployment" "llm" {\n  spec {\n    template {\n      spec {\n'
        '        container {\n          name  = "side"\n          image = "busybox"\n          args  = ["sleep"]\n'
        '        }\n        container {\n          image   = "vllm/vllm-openai:v0.10.0"\n'
        '          command = ["vllm", "serve"]\n          args = [\n            "Org/${var.model}", # which\n'
        '            "--max-model-len", "8192",\n            "--port", tostring(var.port)\n          ]\n'
        '          env {\n            name  = "VLLM_USE_V1"\n            value = "1"\n          }\n'
        '          resources {\n            limits = {\n              "nvidia.com/gpu" = "2"\n'
        "            }\n          }\n"
        "        }\n      }\n    }\n  }\n}\n"
    )
    assert (start.form, start.place, start.version) == (Form.TERRAFORM, "line 17", "0.10.0")
    assert start.command.flags == {"--max-model-len": 8192.0}
    assert start.unknown_flags == {"--port"}
    assert start.command.model is None
    assert start.environment == {"VLLM_USE_V1": "1"}
    assert start.resources.gpus == 2.0


def test_a_script_for_a_machine() -> None:
    [start] = read(
        'resource "aws_instance" "llm" {\n  user_data = <<-EOF\n    #!/bin/bash\n'
        "    docker run --gpus all vllm/vllm-openai:v0.10.0 --model ${var.model} --seed 1\n  EOF\n}\n"
    )
    assert (start.form, start.place) == (Form.DOCKER_RUN, "line 4")
    assert start.unknown_flags == {"--model"}
    assert start.command.flags == {"--seed": 1.0}
