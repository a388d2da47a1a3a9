"""Which form a text is taken for; what holds for each of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vllm_doctor.launch.source import notes, of_text, open_command, read
from vllm_doctor.launch.start import Form
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.report import Change

TEXTS = {
    Form.DOCKERFILE: 'FROM vllm/vllm-openai:v0.10.0\nCMD ["--model", "m", "--seed", "1"]\n',
    Form.TERRAFORM: 'resource "a" "b" {\n  image = "vllm/vllm-openai"\n  args = ["--model", "m", "--seed", "1"]\n}\n',
    Form.MAKEFILE: "serve:\n\tvllm serve m --seed 1\n",
    Form.JUSTFILE: 'seed := "1"\nserve:\n    vllm serve m --seed {{seed}}\n',
    Form.SUPERVISOR: "[program:llm]\ncommand=vllm serve m --seed 1\n",
    Form.QUADLET: "[Container]\nImage=vllm/vllm-openai:v0.10.0\nExec=--model m --seed 1\n",
    Form.SYSTEMD: "[Service]\nExecStart=vllm serve m --seed 1\n",
    Form.COMPOSE: "services:\n  a:\n    command: vllm serve m --seed 1\n",
    Form.SHELL: "cd /srv\nvllm serve m --seed 1\n",
    Form.PROCESS_LIST: "root  12  0.1  3.0 1 2 ? Sl 10:00 0:01 /usr/bin/python3 /usr/bin/vllm serve m --seed 1\n",
    Form.FLAGS: "Org/Model-8B --seed 1 --max-model-len 8192\n",
}


@pytest.mark.parametrize("form", TEXTS)
def test_each_is_told_by_its_structure(form: Form) -> None:
    source = of_text("x", TEXTS[form])
    [start] = source.starts
    assert start.form is form
    assert source.taken_as(start)
    assert start.command.model in ("m", "Org/Model-8B")
    assert start.command.flags["--seed"] == 1.0


@pytest.mark.parametrize("form", [form for form in TEXTS if form not in (Form.COMPOSE, Form.FLAGS)])
def test_each_is_found_in_a_page_and_in_a_script_that_writes_it(form: Form) -> None:
    [start] = read(f"# Notes\n\n```\n{TEXTS[form]}```\n\nThen:\n\n```\necho done\n```\n")
    assert start.form is form
    [start] = read(f"mkdir -p /srv\ncat > /srv/file <<'EOF'\n{TEXTS[form]}EOF\n")
    assert start.form in (form, Form.SHELL)


SECRET = "S3CRET-0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"FROM a\nARG HF_TOKEN={SECRET}\nENV HF_TOKEN=$HF_TOKEN X={SECRET}\nCMD vllm serve m --api-key $HF_TOKEN\n",
        f'resource "a" "b" {{\n image = "vllm/vllm-openai"\n args = ["m", "--api-key", "{SECRET}"]\n'
        f' env = {{\n  HF_TOKEN = "{SECRET}"\n }}\n}}\n',
        f"K := {SECRET}\nAPI_KEY := {SECRET}\na:\n\tHF_TOKEN={SECRET} vllm serve m --api-key $(K) --x $(API_KEY)\n",
        f'key := "{SECRET}"\na t="{SECRET}":\n  HF_TOKEN={{{{t}}}} vllm serve m --api-key {{{{key}}}}\n',
        f'[program:a]\nenvironment=HF_TOKEN="{SECRET}",X="{SECRET}"\ncommand=vllm serve m --api-key {SECRET}\n',
        f"[Container]\nImage=vllm/vllm-openai\nEnvironment=HF_TOKEN={SECRET}\nPodmanArgs=-e X={SECRET}\n"
        f"Exec=--model m --api-key {SECRET}\n",
        f"root 1 0 ? /usr/bin/vllm serve m --api-key {SECRET} --seed 1\n",
        f"Org/M --seed 1 --max-model-len 8 --api-key {SECRET}",
        f"python -m dynamo.vllm --model m --api-key {SECRET} --hf-token {SECRET}\n",
        f"docker run -e HF_TOKEN={SECRET} `\n vllm/vllm-openai `\n --model m --api-key {SECRET}\n",
    ],
)
def test_no_secret_leaves(text: str) -> None:
    starts = read(text)
    assert starts
    assert SECRET not in repr(starts)


@pytest.mark.parametrize("form", TEXTS)
def test_each_is_corrected_in_place_or_in_words(form: Form, tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text(TEXTS[form])
    source = open_command(str(path))
    assert source.document is not None
    [patch] = source.document.patched({0: [Change("--seed", 1.0, 2.0, "a-rule")]})
    assert patch.problem is None
    seeds = ("--seed 2", '"--seed", "2"')
    assert any(any(seed in line for seed in seeds) or line.strip("'- ") == "2" for line in patch.lines)
    assert patch.apply


def test_a_process_by_its_cmdline(tmp_path: Path) -> None:
    path = tmp_path / "cmdline"
    path.write_bytes(b'/usr/bin/python3\0-m\0vllm.entrypoints.openai.api_server\0--hf-overrides\0{"a": 1}\0')
    [start] = open_command(str(path)).starts
    assert start.command.flags == {"--hf-overrides": '{"a": 1}'}


def test_powershell_and_batch_files() -> None:
    [start] = read("docker run --gpus all `\n  vllm/vllm-openai:v0.10.0 `\n  --model m `\n  --seed 1\n")
    assert start.command.flags == {"--model": "m", "--seed": 1.0}
    [start] = read("docker run --gpus all ^\n  vllm/vllm-openai:v0.10.0 ^\n  --model m ^\n  --seed 1\n")
    assert start.command.flags == {"--model": "m", "--seed": 1.0}


def test_another_engine_is_told() -> None:
    with pytest.raises(SourceError) as error:
        read("cd /srv\npython3 -m sglang.launch_server --model-path m --tp 2\n")
    assert str(error.value) == (
        "no vLLM server is started here; line 2 starts SGLang, not vLLM: its flags are not judged"
    )
    [start] = read("vllm serve m &\ntrtllm-serve n --tp_size 2\n")
    assert notes(start) == ["line 2 starts TensorRT-LLM, not vLLM: its flags are not judged"]


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nRUN touch {0}\nENV X=$(touch {0})\nCMD vllm serve m\n",
        "X := $(shell touch {0})\nserve:\n\t$(shell touch {0})\n\tvllm serve m\n",
        "x := `touch {0}`\nserve:\n    vllm serve m --seed {{{{ `touch {0}` }}}}\n",
        '[program:a]\ncommand=/bin/sh -c "touch {0}; vllm serve m"\n',
        "[Container]\nImage=vllm/vllm-openai\nExecStartPre=touch {0}\nExec=--model m --seed $(touch {0})\n",
        '${{file("{0}")}}\nresource "a" "b" {{\n image = "vllm/vllm-openai"\n args = ["--model", file("{0}")]\n}}\n',
        "touch {0}\nvllm serve ${{X:-$(touch {0})}} {{{{ touch('{0}') }}}}\n",
    ],
)
def test_nothing_is_run(text: str, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    assert read(text.format(planted))
    assert not planted.exists()


@pytest.mark.parametrize(
    "piece",
    [
        "FROM a AS b\nFROM b AS a\n",
        "FROM x\nENV A=$A$A\n",
        'resource "a" "b" {\n image = "vllm/vllm-openai"\n args = ["a", ',
        "a:\n\t$(A)\nA := $(B)$(B)\nB := $(A)$(A)\n",
        'A := "x" + A\na:\n  {{A}}{{A}}\n',
        "[program:a]\ncommand='\n '\n",
        "[Container]\nExec=--model m \\\n",
        "#SBATCH --gres=gpu:\n",
        "root 1 python -m vllm {\n",
        "-tp 8 --max-model-len 1 ",
        "a {% if %}\n",
        "set -- $@ $@\n",
        "a `\n",
    ],
)
def test_a_hostile_text_does_not_take_long(piece: str) -> None:
    started = time.process_time()
    with pytest.raises(SourceError):
        read(piece * (1_000_000 // len(piece)))
    assert time.process_time() - started < 4


def test_blocks_that_stand_within_a_list_or_a_tab() -> None:
    page = (
        '=== "NVIDIA"\n\n    ```yaml\n    type: service\n    image: vllm/vllm-openai:v0.19.1\n    commands:\n'
        "      - |\n        vllm serve org/m \\\n          --max-model-len 4096\n"
        "    resources: {gpu: 'H100:4'}\n    ```\n"
        "\n1. Then:\n\n     ```sh\n     vllm serve org/n\n     ```\n"
    )
    one, two = read(page)
    assert (one.place, one.command.model, one.resources.gpu) == ("commands", "org/m", "H100")
    assert two.command.model == "org/n"
