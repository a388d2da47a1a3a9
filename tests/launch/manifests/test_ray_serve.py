from __future__ import annotations

import pytest

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form, Resources, Start
from vllm_doctor.model.errors import SourceError

CONFIG = """\
model_loading_config: {model_id: small, model_source: org/m}
accelerator_type: L4
engine_kwargs: {max_num_seqs: 8, enable_prefix_caching: false, speculative_config: {method: ngram}}
"""
SERVICE = """\
apiVersion: ray.io/v1
kind: RayService
metadata: {name: chat}
spec:
  serveConfigV2: |
    applications:
    - name: llms
      import_path: ray.serve.llm:build_openai_app
      args:
        llm_configs:
        - model_loading_config: {model_id: big, model_source: {bucket_uri: "s3://b/m"}}
          runtime_env: {env_vars: {VLLM_LOGGING_LEVEL: DEBUG, HF_TOKEN: S3CRET}}
          deployment_config: {autoscaling_config: {min_replicas: 1, max_replicas: 4}}
          lora_config: {max_num_adapters_per_replica: 4}
          engine_kwargs:
            tensor_parallel_size: 8
            max_model_len: ${LONGEST}
        - elsewhere/other.yaml
  rayClusterConfig:
    headGroupSpec: {template: {spec: {containers: [{image: "rayproject/ray-llm:2.52.0"}]}}}
    workerGroupSpecs:
    - template:
        spec:
          nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}
          containers: [{name: w, image: "vllm/vllm-openai:v0.11.0"}]
"""


def test_an_llm_config_alone() -> None:
    [start] = read(CONFIG)
    assert start.form is Form.VALUES
    assert start.argv == (
        "vllm", "serve", "org/m", "--served-model-name", "small", "--max-num-seqs", "8", "--no-enable-prefix-caching",
        "--speculative-config", '{"method": "ngram"}',
    )  # fmt: skip
    assert start.resources == Resources(gpu="L4")


def test_a_service_of_kuberay() -> None:
    big, other = read(SERVICE)
    assert big.place == "RayService/chat spec.serveConfigV2 applications[0].args.llm_configs[0]"
    assert big.command.model == "s3://b/m"
    assert big.command.flags == {"--served-model-name": "big", "--tensor-parallel-size": 8.0}
    assert big.unknown_flags == {"--max-model-len"}
    assert [fault.line for fault in big.faults] == [17]  # of the whole text
    assert big.environment == {"VLLM_LOGGING_LEVEL": "DEBUG", "HF_TOKEN": None}
    assert big.resources == Resources(gpu="nvidia-h100-80gb")
    assert big.notes[1:] == ("replicas: 1 to 4", "not read of LLMConfig: lora_config")
    assert (other.command.model, other.is_open) == (None, True)
    assert "its LLMConfig is another file: give elsewhere/other.yaml as well" in other.notes


def test_prefill_and_decode_are_two_servers() -> None:
    configs = "{model_loading_config: {model_id: org/m}, engine_kwargs: {}}"
    prefill, decode = read(
        "applications:\n- import_path: ray.serve.llm:build_pd_openai_app\n"
        f"  args: {{prefill_config: {configs}, decode_config: {configs}}}\n"
    )
    assert "its role: prefill" in prefill.notes
    assert "its role: decode" in decode.notes
    assert decode.place == "applications[0].args.decode_config"


def own(variables: str, path: str = "vllm_serve:model") -> tuple[Start, ...]:
    return read(
        f"applications:\n- import_path: {path}\n"
        "  deployments: [{name: D, ray_actor_options: {num_gpus: 2}}]\n"
        f'  runtime_env: {{pip: ["vllm==0.5.4", numpy], env_vars: {variables}}}\n'
    )


def test_an_application_of_somebodys_own() -> None:
    [start] = own(
        '{MODEL_ID: org/m, TENSOR_PARALLELISM: "2", MAX_MODEL_LEN: $LONGEST, HF_TOKEN: S3CRET, PATH: /x,'
        ' ENGINE_ARGS: "--max-num-seqs 8"}'
    )
    assert start.argv == (
        "vllm", "serve", "org/m", "--tensor-parallel-size", "2", "--max-model-len", "${LONGEST}", "--max-num-seqs", "8",
    )  # fmt: skip
    assert (start.version, start.is_open, start.resources) == ("0.5.4", True, Resources(gpus=2.0))
    assert start.environment["HF_TOKEN"] is None
    [unnamed] = own("{A: b}")
    assert unnamed.command.model is None


def test_an_application_of_something_else() -> None:
    with pytest.raises(SourceError, match="no vLLM server is started here"):
        read("applications: [{import_path: 'translate:app', runtime_env: {env_vars: {MODEL_ID: t5}}}]")


def test_a_container_that_kuberay_starts_ray_in_is_no_server() -> None:
    text = SERVICE.replace("serveConfigV2: |", "other: |")
    with pytest.raises(SourceError, match="no vLLM server is started here"):
        read(text)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ("{a: [", "line 5: this is no valid YAML"),
        ("a: &a [*a]", "nested deeper than 50 levels"),
        ("[" * 2000, "nested deeper than 50 levels"),
        ("a: !!python/object/apply:os.system [touch /tmp/planted]", "line 4: a tag"),
        ("\\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"] + [
            f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)
        ]), "unfolds to more than 50,000 values"),
    ],
)  # fmt: skip
def test_a_hostile_text_within_the_text(held: str, message: str) -> None:
    with pytest.raises(SourceError, match=message.replace("[", r"\[")):
        read(f'apiVersion: ray.io/v1\nkind: RayService\nspec:\n  serveConfigV2: "{held}"\n')


def test_texts_within_texts_are_read_once() -> None:
    text = "x"
    for _ in range(100):
        text = "spec: {serveConfigV2: " + repr(text[-200:]) + ", kind: RayService, apiVersion: ray.io/v1}"
    with pytest.raises(SourceError):
        read(text)
