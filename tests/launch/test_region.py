"""A command within a file of another language: a diff of that file, which its own reader finds in force."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from vllm_doctor.launch.source import open_command
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Change, Patch
from vllm_doctor.vllm import flags

DOCKERFILE_LIST = """\
FROM vllm/vllm-openai:v0.11.0
ENV VLLM_LOGGING_LEVEL=INFO
CMD ["--model", "org/m-7B", "--max-num-seqs", "64", \\
     "--enforce-eager", "--port", "8000"]
"""
DOCKERFILE_ENTRYPOINT = """\
FROM python:3.12
RUN pip install vllm==0.11.0
ENTRYPOINT ["vllm", "serve", "org/m-7B", "--enforce-eager", "--max-num-seqs", "64"]
"""
DOCKERFILE_SHELL = """\
FROM vllm/vllm-openai:v0.11.0
ENTRYPOINT vllm serve org/m-7B --port $PORT \\
    --max-num-seqs 64 \\
    --enforce-eager
EXPOSE 8000
"""
DOCKERFILE_SCRIPT = """\
FROM vllm/vllm-openai:v0.11.0
ENTRYPOINT ["/bin/bash", "-c", "exec vllm serve org/m-7B --max-num-seqs 64 --enforce-eager --port ${PORT}"]
"""
QUADLET = """\
[Container]
Image=docker.io/vllm/vllm-openai:v0.11.0
Environment=VLLM_LOGGING_LEVEL=INFO
Exec=--model org/m-7B \\
  --max-num-seqs 64 \\
  --enforce-eager
AddDevice=nvidia.com/gpu=all
"""
SUPERVISOR = """\
[program:other]
command=sleep 60

[program:vllm]
command=vllm serve org/m-7B --port %(ENV_PORT)s
    --max-num-seqs 64
    --enforce-eager ; for now
autostart=true

[program:second]
command=vllm serve org/m-1B --max-num-seqs 3
"""
MAKEFILE = """\
PORT ?= 8000
FLAGS := --trust-remote-code

.PHONY: serve
serve:
\t@echo starting
\t@cd /srv && vllm serve org/m-7B --port $(PORT) $(FLAGS) \\
\t\t--max-num-seqs 64 \\
\t\t--enforce-eager

stop:
\tpkill vllm
"""
JUSTFILE = """\
port := "8000"

serve:
    @vllm serve org/m-7B --port {{port}} \\
        --max-num-seqs 64 \\
        --enforce-eager
"""
TERRAFORM = """\
resource "kubernetes_deployment" "vllm" {
  spec {
    container {
      image = "vllm/vllm-openai:v0.11.0"
      args = [
        "--model", "org/m-7B",
        "--served-model-name", var.name,
        "--max-num-seqs", "64",
        "--enforce-eager",
      ]
    }
  }
}
"""
FORMS = {
    "main.tf": TERRAFORM,
    "Dockerfile": DOCKERFILE_LIST,
    "entrypoint/Dockerfile": DOCKERFILE_ENTRYPOINT,
    "shell/Dockerfile": DOCKERFILE_SHELL,
    "script/Dockerfile": DOCKERFILE_SCRIPT,
    "vllm.container": QUADLET,
    "supervisord.conf": SUPERVISOR,
    "Makefile": MAKEFILE,
    "justfile": JUSTFILE,
}


def patched(path: Path, wanted: Mapping[str, Value | None]) -> Patch:
    source = open_command(str(path))
    assert source.document is not None
    given = [Change(name, source.starts[0].command.flags.get(name), value, "rule") for name, value in wanted.items()]
    [patch] = source.document.patched({0: given})
    return patch


def applied(path: Path, patch: Patch) -> None:
    """As the line says how: by patch itself, which is shown where the file lies."""
    text = "".join(f"{line}\n" for line in patch.lines)
    ran = subprocess.run(["patch", "-p1", "-d", "/"], input=text, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert patch.apply == ("patch -d / -p1 < PATCH",)


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("name", FORMS)
def test_a_diff_of_the_file_is_in_force_and_changes_nothing_else(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name, FORMS[name])
    before = open_command(str(path)).starts
    wanted: dict[str, Value | None] = {
        "--max-num-seqs": 10.0,
        "--enforce-eager": None,
        "--gpu-memory-utilization": 0.9,
        "--kv-transfer-config": '{"a": "it\'s %d"}',
    }
    patch = patched(path, wanted)
    applied(path, patch)
    after = open_command(str(path)).starts
    assert flags.is_same(after[0].command.flags["--max-num-seqs"], 10.0)
    assert "--enforce-eager" not in after[0].command.flags
    assert after[0].command.flags["--kv-transfer-config"] == '{"a": "it\'s %d"}'
    for was, now in zip(before, after, strict=True):
        assert {k: v for k, v in was.command.flags.items() if k not in wanted} == {
            k: v for k, v in now.command.flags.items() if k not in wanted
        }
    assert path.read_text("utf-8").count("\n") >= FORMS[name].count("\n") - 1


def test_a_flag_of_a_line_of_its_own_stays_one(tmp_path: Path) -> None:
    path = written(tmp_path, "Makefile", MAKEFILE)
    patch = patched(path, {"--seed": 1.0})
    assert [line for line in patch.lines if line[0] == "+" and line[:3] != "+++"] == [
        "+\t\t--enforce-eager \\",
        "+\t\t--seed 1",
    ]


@pytest.mark.parametrize(
    ("name", "text", "wanted", "why"),
    [
        ("Dockerfile", DOCKERFILE_LIST, {"OMP_NUM_THREADS": 4.0}, "its variables are set in another place"),
        ("Makefile", MAKEFILE, {"--trust-remote-code": None}, "--trust-remote-code cannot be left out"),
        ("Dockerfile", DOCKERFILE_SHELL.rstrip("\n").replace("\nEXPOSE 8000", ""), {"--seed": 1.0}, "no end"),
        (
            "supervisord.conf",
            "[program:v]\ncommand=vllm serve m --max-num-seqs 4 --api-key planted-in-a-test\n",
            {"--max-num-seqs": 8.0},
            "may hold a secret",
        ),
        ("supervisord.conf", SUPERVISOR, {"--kv-transfer-config": '{"a": ";"}'}, "semicolon"),
        ("justfile", JUSTFILE, {"--kv-transfer-config": '{"a": {"b": {{}}}'}, "{{ and }}"),
    ],
    ids=["variables", "of a variable", "no end", "secret", "semicolon", "template"],
)
def test_what_cannot_be_changed_in_place_is_told_in_words(
    name: str, text: str, wanted: dict[str, Value | None], why: str, tmp_path: Path
) -> None:
    patch = patched(written(tmp_path, name, text), wanted)
    assert patch.lines[:1] != ("--- a/",)
    [apply] = patch.apply
    assert why in apply
    assert "planted-in-a-test" not in "\n".join((*patch.lines, *patch.apply))


def test_two_servers_of_one_file_are_one_diff(tmp_path: Path) -> None:
    path = written(tmp_path, "supervisord.conf", SUPERVISOR)
    source = open_command(str(path))
    assert source.document is not None
    changes = {number: [Change("--seed", None, float(number), "rule")] for number in (0, 1)}
    [patch] = source.document.patched(changes)
    applied(path, patch)
    assert [start.command.flags["--seed"] for start in open_command(str(path)).starts] == [0, 1]
