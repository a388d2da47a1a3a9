from __future__ import annotations

from tests.launch.manifests.written import of_file
from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Flaw, Form, Resources


def test_a_deployment_with_a_shell() -> None:
    [start] = of_file("deployment.yaml")
    assert start.place == "Deployment/llama spec.template.spec.containers[1].args"
    assert (start.form, start.version, start.command.model) == (Form.KUBERNETES, "0.10.2", "org/llama")
    assert start.command.flags == {
        "--tensor-parallel-size": 4.0,
        "--max-model-len": 32000.0,
        "--enable-prefix-caching": True,
    }
    assert start.environment == {
        "MODEL": None,
        "NCCL_P2P_DISABLE": "1",
        "HF_TOKEN": None,
        "VLLM_USE_V1": None,
        "DB_PASSWORD": None,
    }
    assert start.resources == Resources(gpus=4.0, cpu_limit=6.0, cpu_request=0.5, shm_bytes=16.0 * 2**30)
    assert start.is_environment_whole
    assert start.faults == ()


def test_a_list_of_objects() -> None:
    leader, job, kserve = of_file("mixed.yaml")
    assert leader.place.startswith("LeaderWorkerSet/big items[0].spec.leaderWorkerTemplate.leaderTemplate.spec")
    assert leader.argv == ("vllm", "serve", "org/big", "-tp", "8", "-pp", "2")
    assert leader.notes == ("envFrom is not read: what it sets is not known", "nodes: 2")
    assert not leader.is_environment_whole

    assert (job.command.model, job.is_open, job.resources.host_ipc) == ("org/m", True, True)
    assert job.command.flags["--max-num-seqs"] == 64.0
    assert job.command.flags["--port"] == "$(PORT)"  # Kubernetes leaves it as it is
    assert [fault.kind for fault in job.faults] == [Flaw.JOINED_WORDS, Flaw.NOT_TEXT, Flaw.UNEXPANDED]
    assert job.lost == ("--block-size",)

    assert (kserve.place, kserve.command.model) == (
        "InferenceService/isvc items[2].spec.predictor.model.args",
        "org/chat",
    )
    assert kserve.command.flags == {"--max-model-len": 4096.0, "--enforce-eager": True}
    assert kserve.resources == Resources(gpus=1.0, cpu_limit=6.0)


def test_a_chart_is_read_with_its_holes() -> None:
    [start] = of_file("chart.yaml")
    assert start.unknown_flags == {"--model", "--max-num-seqs"}
    assert start.is_open  # toYaml may give any flag
    assert start.command.flags == {"--enforce-eager": True}
    assert (start.command.model, start.version) == (None, None)


def test_a_command_that_is_one_text() -> None:
    [start] = read("kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - command: [vllm serve m --dtype half]\n")
    assert start.command.flags == {"--dtype": "half"}
    assert [(fault.kind, fault.line) for fault in start.faults] == [(Flaw.JOINED_WORDS, 5)]


def test_a_recipe_of_nobodys_form_whose_command_is_for_a_shell() -> None:
    [start] = read("name: r\ndefaults: {port: 1}\ncommand: |\n  vllm serve m \\\n    --enforce-eager\n")
    assert (start.form, start.place, start.faults) == (Form.SHELL, "command", ())
    assert start.command.flags == {"--enforce-eager": True}


CONFIG_MAPS = """kind: ConfigMap
apiVersion: v1
metadata: {name: serve}
data:
  VLLM_LOGGING_LEVEL: DEBUG
  SEQS: "8"
  run.sh: |
    #!/bin/bash
    set -e
    exec vllm serve "$@" --max-num-seqs $SEQS
  flags.yaml: |
    max-model-len: 4096
---
kind: Pod
apiVersion: v1
metadata: {name: p}
spec:
  volumes: [{name: files, configMap: {name: serve}}, {name: other, configMap: {name: none}}]
  containers:
  - name: script
    image: vllm/vllm-openai:v0.11.0
    command: [/bin/bash, /scripts/run.sh]
    args: [org/m, --seed, "1"]
    envFrom: [{configMapRef: {name: serve}}]
    volumeMounts: [{name: files, mountPath: /scripts}, {name: other, mountPath: /other}]
  - name: config
    image: vllm/vllm-openai:v0.11.0
    args: [--model, org/n, --config, /etc/vllm.yaml, --max-num-seqs, $(N)]
    env: [{name: N, valueFrom: {configMapKeyRef: {name: serve, key: SEQS}}}]
    envFrom: [{secretRef: {name: s}}]
    volumeMounts: [{name: files, mountPath: /etc/vllm.yaml, subPath: flags.yaml}]
"""


def test_config_maps_of_the_same_text() -> None:
    script, config = read(CONFIG_MAPS)
    assert script.argv == ("vllm", "serve", "org/m", "--seed", "1", "--max-num-seqs", "8")
    assert (script.environment["VLLM_LOGGING_LEVEL"], script.notes, script.faults) == ("DEBUG", (), ())
    assert script.is_environment_whole
    assert config.command.flags["--max-model-len"] == 4096.0
    assert config.command.flags["--max-num-seqs"] == 8.0
    assert config.notes == ("envFrom is not read: what it sets is not known",)


def test_a_script_that_calls_itself_ends() -> None:
    text = CONFIG_MAPS.replace('exec vllm serve "$@" --max-num-seqs $SEQS', 'bash /scripts/run.sh "$@"' + ' "$@"' * 50)
    [config] = read(text)
    assert config.command.model == "org/n"


def test_a_server_on_a_ray_cluster_has_the_gpus_of_all_nodes() -> None:
    [start] = read(
        "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: c}\nspec:\n  headGroupSpec:\n    template:\n"
        '      spec: {containers: [{command: [/bin/bash, -lc, "--"], resources: {limits: {nvidia.com/gpu: 8}},\n'
        '        args: ["ulimit -n 65536; ray start --head; vllm serve m -tp 8 -pp 3"]}]}\n'
        "  workerGroupSpecs:\n  - replicas: 2\n    template:\n"
        '      spec: {containers: [{image: "vllm/vllm-openai:v0.11.0", resources: {limits: {nvidia.com/gpu: 8}}}]}\n'
    )
    assert start.argv == ("vllm", "serve", "m", "-tp", "8", "-pp", "3")
    assert start.resources.gpus == 24.0


def test_the_roles_of_a_storm_service() -> None:
    pod = "template: {spec: {containers: [{image: x, command: [vllm, serve, m]}]}}"
    prefill, decode = read(
        "apiVersion: orchestration.aibrix.ai/v1alpha1\nkind: StormService\nmetadata: {name: s}\n"
        f"spec: {{template: {{spec: {{roles: [{{name: prefill, {pod}}}, {{name: decode, {pod}}}]}}}}}}\n"
        "---\napiVersion: autoscaling.aibrix.ai/v1alpha1\nkind: PodAutoscaler\n"
    )
    assert prefill.place.startswith("StormService/s prefill spec.template.spec.roles[0]")
    assert decode.place.startswith("StormService/s decode ")
    assert (prefill.role, decode.role) == ("prefill", "decode")


def test_the_role_that_a_label_of_the_pods_tells() -> None:
    pod = "spec: {containers: [{image: x, command: [vllm, serve, m]}]}"
    labels = "metadata: {labels: {llm-d.ai/role: ROLE}}"
    for value, role in (("prefill", "prefill"), ("decode", "decode"), ("prefill-decode", "server"), ("both", "server")):
        [start] = read(
            f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n"
            f"spec: {{template: {{{labels.replace('ROLE', value)}, {pod}}}}}\n"
        )
        assert start.role == role
        assert start.notes == ((f"its role: {role}",) if role != "server" else ())
        [start] = read(
            f"apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {{name: l}}\n"
            f"spec: {{leaderWorkerTemplate: {{workerTemplate: {{{labels.replace('ROLE', value)}, {pod}}}}}}}\n"
        )
        assert start.role == role
    [start] = read(f"apiVersion: v1\nkind: Pod\nmetadata: {{labels: {{llm-d.ai/role: encode}}}}\n{pod}\n")
    assert start.role == ""


def test_the_roles_of_a_disaggregated_set() -> None:
    pod = (
        "leaderWorkerTemplate: {size: 1, workerTemplate: {spec: {containers: [{image: x, command: [vllm, serve, m]}]}}}"
    )
    prefill, decode = read(
        "apiVersion: disaggregatedset.x-k8s.io/v1\nkind: DisaggregatedSet\nmetadata: {name: s}\n"
        f"spec: {{roles: [{{name: prefill, spec: {{{pod}}}}}, {{name: decode, {pod}}}]}}\n"
    )
    assert (prefill.role, decode.role) == ("prefill", "decode")
    assert prefill.place.startswith("DisaggregatedSet/s prefill spec.roles[0]")


def test_a_service_of_knative() -> None:
    [start] = read(
        "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: s}\nspec: {template: {spec: {containers:\n"
        '  [{image: "vllm/vllm-openai:v0.20.0", args: [m, --max-num-seqs, "8"]}]}}}\n'
    )
    assert start.argv == ("vllm", "serve", "m", "--max-num-seqs", "8")
