from __future__ import annotations

from vllm_doctor.launch.source import read

SCENARIO = """scenario:
- name: pair
  common:
    model: {name: org/m, path: models/org/m, maxModelLen: 16384, blockSize: 128}
    affinity: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}}
    vllmCommon:
      flags: {enforceEager: false, noPrefixCaching: true}
      kvTransfer: {enabled: true, connector: NixlConnector, role: kv_both}
  modelservice:
    enabled: true
    prefill:
      enabled: true
      parallelism: {tensor: 4}
      vllm: {additionalFlags: ["--max-num-seqs 32"]}
    decode:
      parallelism: {tensor: 2}
      vllm:
        customCommand: |
          vllm serve /model-cache/$MODEL_PATH \\
            --max-model-len $VLLM_MAX_MODEL_LEN --tensor-parallel-size $TP_SIZE \\
            --max-num-seqs $VLLM_MAX_NUM_SEQ ${accelerator.dtypeArgs}
"""


def test_each_role_has_its_command() -> None:
    decode, prefill = read(SCENARIO)
    assert decode.command.model == "/model-cache/models/org/m"
    assert decode.command.flags["--max-model-len"] == 16384.0
    assert decode.command.flags["--tensor-parallel-size"] == 2.0
    assert "--kv-transfer-config" in decode.command.flags
    assert decode.unknown_flags == {"--max-num-seqs"}
    assert decode.is_open
    assert (prefill.place, prefill.command.model) == ("scenario[0].modelservice.prefill", "org/m")
    assert prefill.command.flags["--enable-prefix-caching"] is False
    assert prefill.command.flags["--max-num-seqs"] == 32.0
    assert prefill.unknown_flags == {"--gpu-memory-utilization"}
    assert (prefill.resources.gpus, prefill.resources.gpu) == (4.0, "NVIDIA-L40S")
    assert prefill.notes == (
        "what the scenario leaves out has the tool's own defaults, which are not known",
        "its role: prefill",
    )
    assert (decode.role, prefill.role) == ("decode", "prefill")
