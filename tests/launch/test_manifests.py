from __future__ import annotations

import pytest

from tests.paths import COMMANDS
from vllm_doctor.launch import yaml_tree
from vllm_doctor.launch.source import open_command, read
from vllm_doctor.launch.start import Flaw, Form, Resources, Start
from vllm_doctor.model.errors import SourceError


def of_file(name: str) -> list[Start]:
    starts = list(open_command(str(COMMANDS / name)).starts)
    assert "S3CRET" not in repr(starts)
    assert "s3cret" not in repr(starts)
    return starts


def test_compose() -> None:
    chat, embed = of_file("compose.yaml")
    assert (chat.form, chat.place, chat.version) == (Form.COMPOSE, "services.chat.command", "0.11.0")
    assert chat.command.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert chat.command.flags["--tensor-parallel-size"] == 2.0
    assert chat.command.flags["--speculative-config"] == '{"method": "ngram", "num_speculative_tokens": 3}'
    assert chat.unknown_flags == {"--max-num-seqs"}
    assert [fault.says for fault in chat.faults] == [
        "${MAX_SEQS} is not in the text: the value of --max-num-seqs is not known"
    ]
    assert chat.environment == {"HF_TOKEN": None, "VLLM_LOGGING_LEVEL": "DEBUG"}
    assert chat.resources == Resources(gpus=2.0, cpu_limit=8.0, host_ipc=True)
    assert embed.argv == (
        "python3", "-m", "vllm.entrypoints.openai.api_server",
        "--model=BAAI/bge-m3", "--enforce-eager", "--api-key", "[masked]",
    )  # fmt: skip
    assert embed.environment["VLLM_LOGGING_LEVEL"] == "INFO"
    assert embed.resources == Resources(gpus=1.0, shm_bytes=8.0 * 2**30)


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
    assert leader.notes == ("envFrom is not read: what it sets is not known",)
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


def test_values_of_the_production_stack() -> None:
    [start] = of_file("stack-values.yaml")
    assert (start.form, start.version) == (Form.HELM, "0.9.2")
    assert start.argv == (
        "vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "16384", "--enable-prefix-caching",
        "--no-enable-chunked-prefill", "--dtype", "bfloat16", "--tensor-parallel-size", "1", "--max-num-seqs", "32",
        "--gpu-memory-utilization", "0.95", "--disable-log-requests", "--swap-space=4",
    )  # fmt: skip
    assert start.notes == ("not read of vllmConfig: v1",)


def test_a_chart_is_read_with_its_holes() -> None:
    [start] = of_file("chart.yaml")
    assert start.unknown_flags == {"--model", "--max-num-seqs"}
    assert start.is_open  # toYaml may give any flag
    assert start.command.flags == {"--enforce-eager": True}
    assert (start.command.model, start.version) == (None, None)


def test_a_config_file() -> None:
    [start] = of_file("config.yaml")
    assert (start.form, start.command.model, start.is_open) == (Form.CONFIG, "org/m", False)
    assert start.argv == ("vllm", "serve", "--config", str(COMMANDS / "config.yaml"))
    flags = {flag: value for flag, value in start.command.flags.items() if flag != "--config"}
    assert flags == {
        "--model": "org/m",
        "--served-model-name": "a b",
        "--tensor-parallel-size": 2.0,
        "--max-num-seqs": 128.0,
        "--enforce-eager": True,
        "--enable-prefix-caching": False,
        "--api-key": "[masked]",
        "--speculative-config": '{"method": "ngram", "num_speculative_tokens": 3}',
    }


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("args: [--model, m]\nimage: vllm/vllm-openai", "vllm serve --model m"),
        ("command: [vllm, serve]\nargs:\n- m", "vllm serve m"),
        ("containers:\n- image: x\n  command: [vllm]\n  args: [serve, m]", "vllm serve m"),
        (
            '{"kind": "Pod", "apiVersion": "v1", "spec": {"containers": [{"args": ["vllm", "serve", "m"]}]}}',
            "vllm serve m",
        ),
        ("services: {a: {image: vllm/vllm-openai, command: serve m}}", "vllm serve m"),
        ("services: {a: {entrypoint: vllm serve, command: [m]}}", "vllm serve m"),
        ("services: {a: {command: bash -c 'vllm serve m'}}", "vllm serve m"),
        ("services: {a: {build: ., command: --model m --max-num-seqs 4}}", "vllm serve --model m --max-num-seqs 4"),
        ("---\n# one\n---\nservices: {a: {command: vllm serve m}}", "vllm serve m"),
        ("model: m\nmax-num-seqs: 4\n", "vllm serve --config config.yaml"),
    ],
)
def test_forms_by_structure(text: str, argv: str) -> None:
    [start] = read(text)
    assert start.argv == tuple(argv.split())
    assert start.command.model == "m"


def test_a_command_that_is_one_text() -> None:
    [start] = read("kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - command: [vllm serve m --dtype half]\n")
    assert start.command.flags == {"--dtype": "half"}
    assert [(fault.kind, fault.line) for fault in start.faults] == [(Flaw.JOINED_WORDS, 5)]


def test_backslashes_in_a_folded_text() -> None:
    [start] = read("services:\n  a:\n    command: >\n      vllm serve m \\\n      --dtype half\n")
    assert start.lost == ("--dtype",)
    [start] = read("services:\n  a:\n    command: |\n      vllm serve m \\\n      --dtype half\n")
    assert start.lost == ("--dtype",)
    [start] = read("services:\n  a:\n    command: |\n      vllm serve m \\\n        --dtype half\n")
    assert [(fault.kind, fault.line) for fault in start.faults] == [(Flaw.STRAY_WORD, 4)]
    assert start.command.flags == {"--dtype": "half"}


def test_variables_of_compose() -> None:
    [start] = read(
        "services: {a: {command: 'vllm serve m --dtype $DT --seed $$X', environment: [A=1, HF_HOME=$$h, B]}}"
    )
    assert start.unknown_flags == {"--dtype"}
    assert start.command.flags == {"--seed": "$X"}
    assert start.environment == {"A": None, "HF_HOME": "$h", "B": None}


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a: [1", "unreadable", "line 2: this is no valid YAML"),
        ("services: {a: {command: !secret S3CRET}}", "unreadable", "line 1: a tag"),
        ("services: !!python/object:os.system {}", "unreadable", "line 1: a tag"),
        ("a: &a [*a]", "too-large", "line 1: nested deeper than 50 levels"),
        ("services:\n  <<: 5\n", "unreadable", "line 2: << takes a mapping"),
        ("services:\n  ? [a]\n  : 1\n", "unreadable", "line 2: a key must be a plain text"),
        ("services: {a: *none}", "unreadable", "line 1: this is no valid YAML"),
        ("a: " + "[" * 100_000, "too-large", "line 1: nested deeper than 50 levels"),
        ("- " * 100_000, "too-large", "line 1: nested deeper than 50 levels"),
        ("a: 1\nb: 2\n", "not-vllm", "this YAML is neither a compose file"),
        ("services: {a: {image: nginx}}", "not-vllm", "no vLLM server is started here"),
        ("apiVersion: v1\nkind: Service\n", "not-vllm", "no vLLM server is started here"),
        ("a:\n\x07", "unreadable", "this is no valid YAML"),
    ],
)
def test_what_cannot_be_read(text: str, kind: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        read(text)
    assert caught.value.kind == kind
    assert message in str(caught.value)
    assert "S3CRET" not in str(caught.value)


def test_a_small_text_does_not_unfold_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(SourceError, match="unfolds to more than 50,000 values"):
        read("\n".join(lines))
    merged = "\n".join(
        ["m0: &m0 {x: 1, y: 2}", *(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 9))]
    )
    with pytest.raises(SourceError, match="unfolds to more than 50,000 values"):
        read(merged)


def test_values_as_yaml_has_them() -> None:
    [root] = yaml_tree.read("{a: 1, b: 0x10, c: 1.5, d: off, e: ~, f: '1', g: 2020-01-01, h: 1_000, i: [.inf]}").roots
    assert root.plain == {
        "a": 1, "b": 16, "c": 1.5, "d": False, "e": None, "f": "1", "g": "2020-01-01", "h": 1000, "i": [".inf"],
    }  # fmt: skip


def test_a_recipe_of_nobodys_form_whose_command_is_for_a_shell() -> None:
    [start] = read("name: r\ndefaults: {port: 1}\ncommand: |\n  vllm serve m \\\n    --enforce-eager\n")
    assert (start.form, start.place, start.faults) == (Form.SHELL, "command", ())
    assert start.command.flags == {"--enforce-eager": True}


def test_the_values_of_a_chart_with_the_command_in_its_image() -> None:
    text = (
        "image: {repository: vllm/vllm-openai, tag: v0.20.0, command: [vllm, serve, m, -tp, '2']}\n"
        "resources: {limits: {nvidia.com/gpu: 2, cpu: 8}}\n"
    )
    [start] = read(text)
    assert (start.place, start.version, start.command.flags) == (
        "image.command",
        "0.20.0",
        {"--tensor-parallel-size": 2.0},
    )
    assert start.resources == Resources(gpus=2.0, cpu_limit=8.0)
    [start] = read(text + "shm: {enabled: true, size: 16Gi}\n")
    assert start.resources.shm_bytes == 16.0 * 2**30


def test_a_template_that_is_no_yaml() -> None:
    with pytest.raises(SourceError, match="of a chart's template give what `helm template` prints"):
        read("command:\n{{- if or\n  (eq .a .b)\n}}\n- vllm\n{{- end }}\n- serve\n")
