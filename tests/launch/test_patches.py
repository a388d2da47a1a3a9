"""A correction in the form its command came in: applied as its tool does, and read again, it is in force."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import patching
from vllm_doctor.launch.source import StartSource, open_command
from vllm_doctor.launch.start import Start
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Change, Patch, Patient, Report, Verdict
from vllm_doctor.render import patch as rendering
from vllm_doctor.vllm import flags

IMAGE = "vllm/vllm-openai:v0.11.0"


def rendered(patches: Sequence[Patch]) -> str:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    patient = Patient(None, None, None)
    return rendering.render(
        Report(at, Verdict.WARNING, "", patient, (), (), (), (), (), (), {}, patches=tuple(patches))
    )


def changes(start: Start, wanted: Mapping[str, Value | None]) -> list[Change]:
    return [Change(name, start.command.flags.get(name), value, "rule") for name, value in wanted.items()]


def patched(path: Path, wanted: Mapping[str, Value | None], number: int = 0) -> tuple[Patch, ...]:
    source = open_command(str(path))
    number %= len(source.starts)
    return source.document.patched({number: changes(source.starts[number], wanted)})


def written(tmp_path: Path, text: str, name: str = "written.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def again(path: Path, found: Sequence[Patch]) -> StartSource:
    """The file with the patches applied, read again."""
    [form] = {patch.form for patch in found}
    form = "shell" if form == "docker-run" else form
    text = path.read_text("utf-8")
    path.write_text(patching.apply(form, text, rendered(found), path), "utf-8")
    return open_command(str(path))


COMPOSE_LIST = f"""\
services:
  a:
    image: {IMAGE}
    environment: {{VLLM_TRACE_FUNCTION: "1"}}
    command: [--model, m, "--max-num-seqs", "${{N:-6 4}}", --seed=$$X, --enforce-eager]
"""
COMPOSE_TEXT = f"""\
services:
  a:
    image: {IMAGE}
    environment: [VLLM_TRACE_FUNCTION=1]
    command: >
      --model m --max-num-seqs ${{N:- 64}}
      --enforce-eager --seed=$$X
"""
COMPOSE_ENTRYPOINT = """\
services:
  a: {entrypoint: vllm serve m --max-num-seqs 4, command: "--enforce-eager --seed=$$X"}
"""
COMPOSE_SCRIPT = """\
services:
  a: {command: "bash -c 'export A=1; exec vllm serve m --max-num-seqs 64 --enforce-eager --seed=$$X'"}
"""
KUBERNETES = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: s, namespace: prod}
spec:
  template:
    spec:
      containers:
      - {name: other, image: x, args: ["1", "true"]}
      - name: vllm
        image: vllm/vllm-openai:v0.11.0
        args: [--model, $(M), --max-num-seqs, "64", --enforce-eager, "--seed=$$(X)"]
        env:
        - {name: M, value: m}
        - name: VLLM_TRACE_FUNCTION
          valueFrom: {configMapKeyRef: {name: c, key: k}}
"""
CRON = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: c}
spec: {jobTemplate: {spec: {template: {spec: {containers: [
  {name: v, command: [nohup, vllm, serve, m], args: [--enforce-eager, --seed=$X]}]}}}}}
"""
SCRIPT = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: v
    command: ["/bin/sh", "-c"]
    args:
    - |
      set -e  # stop at the first error
      if true; then echo "it's here"; fi
      exec vllm serve m \\
        --max-num-seqs 64 \\
        --seed=$X \\
        --enforce-eager
      # the end
"""
CRD = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec: {leaderWorkerTemplate: {leaderTemplate: {spec: {containers: [{name: l, image: x,
  command: [vllm, serve, org/big, --max-num-seqs, "64", --enforce-eager, --seed=$X], env: [{name: A, value: b}]}]}}}}
"""
STACK = """\
servingEngineSpec:
  modelSpec:
  - {name: other, modelURL: o, vllmConfig: {maxModelLen: 1024}}
  - name: a
    repository: vllm/vllm-openai
    tag: v0.11.0
    modelURL: m
    env: [{name: VLLM_TRACE_FUNCTION, value: "1"}]
    vllmConfig: {maxNumSeqs: 64, extraArgs: [--enforce-eager, "--seed=$X"]}
"""
RUNTIME = """\
apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
metadata: {name: r}
spec:
  model: {modelURL: m, maxNumSeqs: 64}
  vllmConfig:
    enableChunkedPrefill: true
    env: [{name: VLLM_TRACE_FUNCTION, value: "1"}]
    extraArgs: [--enforce-eager, "--seed=$X"]
"""
POOL = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: p}
spec:
  model: {uri: "hf://m"}
  parallelism: {tensor: 2}
  template:
    containers:
    - name: main
      env:
      - {name: VLLM_TRACE_FUNCTION, value: "1"}
      - {name: VLLM_ADDITIONAL_ARGS, value: "--max-num-seqs 64 --enforce-eager --seed=$X"}
"""
KUBEAI = """\
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: k}
spec: {url: "hf://m", engine: VLLM, env: {VLLM_TRACE_FUNCTION: "1"},
  args: [--max-num-seqs=64, --enforce-eager, --seed=$X]}
"""
DYNAMO = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: d}
spec:
  services:
    W:
      extraPodSpec:
        mainContainer:
          image: x/vllm-runtime:1
          env: [{name: VLLM_TRACE_FUNCTION, value: "1"}]
          command: [python3, -m, dynamo.vllm]
          args: [--model, m, --max-num-seqs, "64", --enforce-eager, --seed=$X, --connector, none]
"""
UNIT = """\
[Unit]
Description=x
[Service]
Environment=VLLM_TRACE_FUNCTION=1 OTHER=2
ExecStart=-/opt/vllm/bin/vllm serve /models/%i \\
    # as many as fit
    --max-num-seqs ${N} \\
    --hf-overrides '{"a": 100}' --seed=$$X \\
    --enforce-eager
Restart=always
[Install]
WantedBy=multi-user.target
"""
CONFIG = "model: m\nmax_num_seqs: 64\nenforce_eager: true\nseed: $X\n"
SHELL = """\
#!/bin/bash
set -e
export API_PASSWORD=S3CRET ANY=S3CRET
ARGS=(
  --max-num-seqs 64   # what fits
  --enforce-eager
)
VLLM_TRACE_FUNCTION=1 nohup numactl -C 0-3 \\
\tvllm serve m --port "$PORT" \\
\t--seed=$X \\
\t"${ARGS[@]}" > vllm.log 2>&1 &
wait
"""
DOCKER = """\
docker run -e HF_TOKEN=S3CRET \\
  --rm -e VLLM_TRACE_FUNCTION=1 \\
  vllm/vllm-openai:v0.11.0 \\
  --model m --max-num-seqs 64 \\
  --seed=$X --enforce-eager
"""

FORMS = {
    "compose-list": COMPOSE_LIST,
    "compose-text": COMPOSE_TEXT,
    "compose-entrypoint": COMPOSE_ENTRYPOINT,
    "compose-script": COMPOSE_SCRIPT,
    "kubernetes": KUBERNETES,
    "cron": CRON,
    "script": SCRIPT,
    "crd": CRD,
    "stack": STACK,
    "runtime": RUNTIME,
    "pool": POOL,
    "kubeai": KUBEAI,
    "dynamo": DYNAMO,
    "unit": UNIT,
    "config": CONFIG,
    "shell": SHELL,
    "docker": DOCKER,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_patch_applied_is_in_force_and_changes_nothing_else(form: str, tmp_path: Path) -> None:
    path = written(tmp_path, FORMS[form])
    number = len(open_command(str(path)).starts) - 1
    wanted: dict[str, Value | None] = {
        "--max-num-seqs": 10.0,
        "--enforce-eager": None,
        "--gpu-memory-utilization": 0.9,
        "--kv-transfer-config": '{"a": "$(b) ${c} %d it\'s"}',
        "--dtype": "auto",
    }
    if form != "config":
        wanted |= {"VLLM_TRACE_FUNCTION": 0.0, "OMP_NUM_THREADS": 1.0}
    before = open_command(str(path)).starts
    found = patched(path, wanted, number)
    assert "S3CRET" not in rendered(found)
    assert [patch.problem for patch in found] == [None]
    after = again(path, found).starts
    start = after[number]
    set_now = {name: value for name, value in wanted.items() if name.startswith("-") and value is not None}
    kept = {name: value for name, value in before[number].command.flags.items() if name not in wanted}
    assert dict(start.command.flags) == kept | set_now
    assert start.unknown_flags == before[number].unknown_flags - wanted.keys()
    assert start.command.model == before[number].command.model
    parser = flags.parser("0.11.0")
    assert parser is not None
    assert all(parser.flag(name) for name in start.command.flags)
    if form != "config":
        told = {name: start.environment[name] for name in ("VLLM_TRACE_FUNCTION", "OMP_NUM_THREADS")}
        assert told == {"VLLM_TRACE_FUNCTION": "0", "OMP_NUM_THREADS": "1"}
        others = {name: value for name, value in before[number].environment.items() if name not in wanted}
        assert others == {name: value for name, value in start.environment.items() if name not in wanted}
    assert [s.command for n, s in enumerate(after) if n != number] == [
        s.command for n, s in enumerate(before) if n != number
    ]
    assert patched(path, wanted, number) == ()


def test_a_secret_among_the_words_is_not_printed_and_the_patch_changes_the_others_only(tmp_path: Path) -> None:
    path = written(tmp_path, KUBERNETES.replace("[--model,", "[--api-key, S3CRET, --model,"))
    found = patched(path, {"--max-num-seqs": 10.0, "--enforce-eager": None, "OMP_NUM_THREADS": 1.0})
    assert "S3CRET" not in rendered(found)
    assert "kubectl patch statefulset/s -n prod --type json --patch-file PATCH" in rendered(found)
    [start] = again(path, found).starts
    assert "S3CRET" in path.read_text()
    assert start.command.flags["--max-num-seqs"] == 10.0
    assert "--enforce-eager" not in start.command.flags
    assert start.environment["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    "text",
    [
        COMPOSE_LIST.replace("[--model,", "[--api-key, S3CRET, --model,"),
        COMPOSE_TEXT.replace("--model", "--api-key S3CRET --model"),
        COMPOSE_SCRIPT.replace("A=1", "A=S3CRET"),
        SCRIPT.replace("set -e", "export Q=S3CRET; set -e"),
        SCRIPT.replace("set -e", "huggingface-cli login --token S3CRET"),
        SCRIPT.replace("--seed", "--hf-token=S3CRET --seed"),
        STACK.replace("modelURL: o", "modelURL: o, hf_token: S3CRET"),
        UNIT.replace("--seed", "--api-key S3CRET --seed"),
        UNIT.replace("Restart", "ExecStart=/bin/x --password S3CRET\nRestart"),
    ],
    ids=range(9),
)
def test_what_would_have_to_print_a_secret_is_no_patch(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    [patch] = patched(path, {"--enforce-eager": None, "--max-num-seqs": 10.0}, number=-1)
    assert patch.lines == ()
    assert patch.problem is not None
    assert "secret" in patch.problem
    shown = rendered([patch])
    assert "S3CRET" not in shown
    assert "--enforce-eager on -> not set [rule]" in shown
    assert all(line.startswith("# ") for line in shown.splitlines())


def test_helm_can_set_a_key_beside_a_secret(tmp_path: Path) -> None:
    path = written(tmp_path, STACK.replace("modelURL: o", "modelURL: o, hf_token: S3CRET"))
    [patch] = patched(path, {"--max-num-seqs": 10.0}, number=-1)
    [apply] = patch.apply
    assert shlex.split(apply)[-2:] == ["--set-json", "servingEngineSpec.modelSpec[1].vllmConfig.maxNumSeqs=10"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (UNIT.replace("--enforce-eager", "$FLAGS").replace("OTHER=2", '"FLAGS=--enforce-eager --seed 1"'), "variable"),
        (
            KUBERNETES.replace("vllm/vllm-openai:v0.11.0", "x").replace("args: [", "args: [vllm, serve, '{{x}}', "),
            "template",
        ),
        (
            CRON.replace(
                "[nohup, vllm, serve, m], args: [--enforce-eager, --seed=$X]", "[vllm serve m --enforce-eager]"
            ),
            "by themselves",
        ),
        (SCRIPT.replace("exec vllm", "vllm serve a & exec vllm"), "by themselves"),
    ],
    ids=range(4),
)
def test_what_cannot_be_changed_in_place_is_said(text: str, says: str, tmp_path: Path) -> None:
    [patch] = patched(written(tmp_path, text), {"--enforce-eager": None}, number=-1)
    assert patch.problem is not None
    assert says in patch.problem
    assert patch.lines == ()


def test_what_a_variable_sets_is_set_again_behind_it(tmp_path: Path) -> None:
    path = written(tmp_path, "FLAGS='--max-num-seqs 64 --seed 1'\nvllm serve m $FLAGS --port 1\n", "start.sh")
    [start] = again(path, patched(path, {"--max-num-seqs": 10.0})).starts
    assert start.command.flags == {"--max-num-seqs": 10.0, "--seed": 1.0, "--port": 1.0}
    assert "vllm serve m $FLAGS --port 1 --max-num-seqs 10\n" in path.read_text()


def test_what_the_text_has_already_is_not_changed(tmp_path: Path) -> None:
    assert patched(written(tmp_path, CONFIG), {"--max-num-seqs": 64.0, "--dtype": None, "--enforce-eager": True}) == ()


def test_servers_of_one_file_are_one_document(tmp_path: Path) -> None:
    two = COMPOSE_LIST + "".join(COMPOSE_LIST.splitlines(keepends=True)[1:]).replace("  a:", "  b:")
    path = written(tmp_path, two)
    source = open_command(str(path))
    wanted: dict[str, Value | None] = {"--enforce-eager": None}
    found = source.document.patched({n: changes(start, wanted) for n, start in enumerate(source.starts)})
    assert len(found) == 1
    assert all("--enforce-eager" not in start.command.flags for start in again(path, found).starts)
    assert rendered(found).count("--enforce-eager on -> not set") == 2


def test_servers_of_one_script_are_one_diff(tmp_path: Path) -> None:
    path = written(
        tmp_path, "vllm serve a \\\n  --seed 1 \\\n  --enforce-eager &\nvllm serve b \\\n  --seed 1\n", "a b.sh"
    )
    source = open_command(str(path))
    wanted: dict[str, Value | None] = {"--seed": 2.0, "--enforce-eager": None}
    found = source.document.patched({n: changes(start, wanted) for n, start in enumerate(source.starts)})
    assert [start.command.flags for start in again(path, found).starts] == [{"--seed": 2.0}, {"--seed": 2.0}]


def test_objects_of_one_file_are_documents_of_their_own(tmp_path: Path) -> None:
    path = written(tmp_path, KUBERNETES + "---\n" + CRON)
    source = open_command(str(path))
    wanted: dict[str, Value | None] = {"--enforce-eager": None}
    found = source.document.patched({n: changes(start, wanted) for n, start in enumerate(source.starts)})
    assert "\n---\n" in rendered(found)
    assert all("--enforce-eager" not in start.command.flags for start in again(path, found).starts)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vllm serve m --enforce-eager", "no-end-of-line.sh"),
        ("vllm serve m \\\r\n  --enforce-eager\r\n", "windows.sh"),
        ("X=S3CRET vllm serve m --enforce-eager\n", "secret.sh"),
        ("vllm serve m --api-key S3CRET --enforce-eager\n", "secret.sh"),
        ("bash -c 'vllm serve m --api-key S3CRET --enforce-eager'\n", "secret.sh"),
        ("docker run -eTOK=S3CRET vllm/vllm-openai m --enforce-eager\n", "secret.sh"),
        ("vllm serve m --enforce-eager\n", "x\ty.sh"),
    ],
    ids=range(7),
)
def test_a_file_that_cannot_be_patched_gets_a_command_to_read(text: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    [patch] = patched(path, {"--enforce-eager": None})
    assert patch.lines[:2] == ("--- command", "+++ corrected")
    assert any(line.startswith("-") and "--enforce-eager" in line for line in patch.lines)
    assert not any(line.startswith("+") and "--enforce-eager" in line for line in patch.lines)
    assert "S3CRET" not in rendered([patch])


def test_a_text_is_shown_one_flag_a_line() -> None:
    source = open_command("FOO_TOKEN=S3CRET vllm serve $MODEL -tp 2 --enforce-eager --x '{\"a\": 1}' | tee log")
    [patch] = source.document.patched({0: changes(source.starts[0], {"--enforce-eager": None, "OMP_NUM_THREADS": 1.0})})
    assert list(patch.lines)[3:] == [
        "-FOO_TOKEN=[masked] vllm serve $MODEL \\",
        "+FOO_TOKEN=[masked] OMP_NUM_THREADS=1 vllm serve $MODEL \\",
        "   -tp 2 \\",
        "-  --enforce-eager \\",
        "   --x '{\"a\": 1}'",
    ]


def test_no_reader_takes_a_word_for_another_kind(tmp_path: Path) -> None:
    words = [
        "y",
        "1e3",
        "0o17",
        "1:30",
        ".5",
        "~",
        "null",
        "0x1f",
        "- x",
        "a: b",
        "#",
        "&a",
        "*a",
        "é",
        "2024-01-01",
    ]
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: 'on'}\nspec: {containers: [{name: '1', command: [vllm, serve, m, "
    )
    text += ", ".join(f'"{word}"' for word in words) + ", --enforce-eager]}]}\n"
    path = written(tmp_path, text)
    found = patched(path, {"--enforce-eager": None})
    lines = [line.strip() for line in found[0].lines]
    assert all(f'- "{word}"' in lines for word in words if word != "é")
    assert 'name: "on"' in lines
    assert not any("&" in line.replace('"&a"', "") or line.startswith("*") for line in lines)
    [start] = again(path, found).starts
    assert "--enforce-eager" not in start.command.flags


def test_an_array_may_become_empty(tmp_path: Path) -> None:
    path = written(tmp_path, 'ARGS=(\n  --enforce-eager\n)\nvllm serve m "${ARGS[@]}" --seed 1\n', "start.sh")
    [start] = again(path, patched(path, {"--enforce-eager": None})).starts
    assert path.read_text() == 'ARGS=(\n)\nvllm serve m "${ARGS[@]}" --seed 1\n'
    assert start.argv == ("vllm", "serve", "m", "--seed", "1")


def test_long_scripts_are_compared_only_where_they_change(tmp_path: Path) -> None:
    lines = "x\n" * 5000
    path = written(tmp_path, f"{lines}vllm serve m \\\n  --enforce-eager \\\n  --seed 1\n{lines}", "start.sh")
    [start] = again(path, patched(path, {"--enforce-eager": None})).starts
    assert "--enforce-eager" not in start.command.flags
    far = written(tmp_path, f"A=(--enforce-eager)\n{lines}vllm serve m --seed 1 ${{A[@]}}\n", "far.sh")
    [patch] = patched(far, {"--enforce-eager": None, "--seed": 2.0})
    assert patch.lines[:2] == ("--- command", "+++ corrected")


def test_a_key_of_a_stack_that_has_no_value_gets_one(tmp_path: Path) -> None:
    text = "servingEngineSpec:\n  modelSpec:\n  - name: a\n    modelURL: m\n    vllmConfig:\n"
    [patch] = patched(written(tmp_path, text), {"--max-num-seqs": 10.0})
    assert patch.problem is None
    assert patch.lines[-3:] == ("        extraArgs:", "          - --max-num-seqs", '          - "10"')


def test_a_model_of_a_stack_that_is_none_is_changed_by_hand(tmp_path: Path) -> None:
    [patch] = patched(written(tmp_path, "servingEngineSpec:\n  modelSpec:\n  -\n"), {"--max-num-seqs": 10.0})
    assert (patch.lines, patch.problem) == ((), "what holds vllmConfig.extraArgs is no mapping: change it by hand")


def test_of_a_chart_its_image_is_patched(tmp_path: Path) -> None:
    text = "image: {repository: vllm/vllm-openai, tag: v0.20.0, command: [vllm, serve, m, --enforce-eager]}\n"
    [patch] = patched(written(tmp_path, text), {"--enforce-eager": None})
    assert patch.lines[0] == "image:"
    assert patch.apply[0].startswith("helm upgrade RELEASE CHART -f ")


def test_a_manifest_within_a_script_is_not_taken_for_the_file(tmp_path: Path) -> None:
    manifest = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: v,\n"
        "  image: vllm/vllm-openai, args: [--model, m, --enforce-eager]}]}}}\n"
    )
    [patch] = patched(written(tmp_path, f"kubectl apply -f - <<E\n{manifest}E\n", "up.sh"), {"--enforce-eager": None})
    assert patch.apply == ("kubectl patch deployment/a --patch-file PATCH",)


def test_of_a_long_text_with_many_commands_the_changed_commands_are_told(tmp_path: Path) -> None:
    """To change it in place it is read again for each of them: more than its readings may take."""
    path = written(tmp_path, ("vllm serve m --seed 1\n" + "echo a b c d\n" * 100) * 60)
    source = open_command(str(path))
    found = source.document.patched({n: changes(start, {"--seed": 2.0}) for n, start in enumerate(source.starts)})
    assert len(found) == 60
    assert all("+  --seed 2" in patch.lines for patch in found)
    assert "not in place" in found[-1].apply[0]


# Values of a program that makes the command


def test_values_are_shown_for_the_place_where_they_stand(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "modelArtifacts: {uri: 'hf://org/m'}\ndecode:\n  parallelism: {tensor: 2}\n  containers:\n"
        "  - modelCommand: vllmServe\n    args: [--enforce-eager, --max-num-seqs, '4']\n",
    )
    [patch] = patched(path, {"--enforce-eager": None, "--max-num-seqs": 64.0, "--dtype": "auto"})
    assert patch.apply == ("put this in the place of decode.containers[0].args",)
    assert patch.lines == ("- --max-num-seqs", '- "64"', "- --dtype", "- auto")
    [patch] = patched(path, {"--tensor-parallel-size": None})
    assert patch.problem == "--tensor-parallel-size is set elsewhere: change it by hand"


def test_a_mapping_of_flags_keeps_its_other_keys(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "model: {path: org/m}\nbackend:\n  vllm_config:\n"
        "    decode: {max-num-seqs: 4, enforce-eager: true, no-enable-prefix-caching: true, dtype: half}\n",
    )
    [patch] = patched(path, {"--enforce-eager": None, "--max-num-seqs": 64.0, "--enable-prefix-caching": True})
    assert patch.apply == ("put this in the place of backend.vllm_config.decode",)
    assert patch.lines == ("max-num-seqs: 64", "dtype: half", "enable-prefix-caching: true")
    [patch] = patched(path, {"OMP_NUM_THREADS": 1.0})
    assert patch.problem is not None


def test_what_has_no_place_is_said_in_words(tmp_path: Path) -> None:
    path = written(tmp_path, "models: {a: {cmd: 'vllm serve m --enforce-eager'}}\n")
    [patch] = patched(path, {"--enforce-eager": None})
    assert patch.problem == "its command is made by the program that reads the document: change it by hand"
    path = written(tmp_path, "vllm:\n  args: [--max-num-seqs, '4', --api-key, S3CRET, --seed, '1']\n")
    [patch] = patched(path, {"--max-num-seqs": 8.0})
    assert "S3CRET" not in rendered([patch])
    assert patch.lines == ()


def test_a_size_of_a_pool_changes_where_it_stands(tmp_path: Path) -> None:
    path = written(tmp_path, POOL)
    [start] = again(path, patched(path, {"--tensor-parallel-size": 4.0, "--enforce-eager": None})).starts
    assert start.command.flags["--tensor-parallel-size"] == 4.0
    assert "tensor: 4" in path.read_text("utf-8")
    [patch] = patched(written(tmp_path, POOL.replace("--seed=$X", "--api-key S3CRET")), {"--enforce-eager": None})
    assert (patch.lines, "S3CRET" in str(patch)) == ((), False)
    [patch] = patched(written(tmp_path, POOL[: POOL.index("  template")]), {"--max-num-seqs": 8.0})
    assert patch.problem == "no container of it has variables: change it by hand"


def test_a_switch_that_a_stack_turns_off_is_set_by_its_key(tmp_path: Path) -> None:
    for text in (STACK, RUNTIME):
        path = written(tmp_path, text)
        starts = again(path, patched(path, {"--enable-prefix-caching": True}, number=-1)).starts
        assert starts[-1].command.flags["--enable-prefix-caching"] is True
        assert "enablePrefixCaching: true" in path.read_text("utf-8")


def test_the_flags_of_ray_serve_are_told_where_they_stand(tmp_path: Path) -> None:
    config = "model_loading_config: {model_id: m}\nengine_kwargs: {max_num_seqs: 8, enforce_eager: true}\n"
    [patch] = patched(written(tmp_path, config), {"--max-num-seqs": 64.0, "--enforce-eager": None})
    assert patch.apply == ("put this in the place of engine_kwargs",)
    assert patch.lines == ("max_num_seqs: 64",)
