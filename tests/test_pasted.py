"""What is printed to be pasted starts nothing else: hostile commands, each output of them pasted into a real shell.

A payload that takes effect calls `pwned`. The shell finds no program at all: those that outputs name are functions that
do nothing, and whatever else is called is written down.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.paths import LOGS
from vllm_doctor import api
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.model.errors import DoctorError
from vllm_doctor.model.report import Report, grouped
from vllm_doctor.tui.cure import to_copy

PAYLOADS = (
    "$(pwned)", "`pwned`", "; pwned", "| pwned", "|| pwned", "& pwned", "&& pwned", "\npwned\n", "\rpwned",
    "' pwned '", "'; pwned; '", '"; pwned; "', "'$(pwned)'", '"$(pwned)"', "\\'; pwned; \\'", "> written", "<(pwned)",
    "$((a[$(pwned)]))", "${x:-$(pwned)}", "{a,$(pwned)}", "# \npwned", "!pwned", "*", "~", "```\npwned\n```",
    "EOF\npwned\n", "\\\npwned", "a" * 60 + " pwned", " ; pwned #", "\u2028pwned", "\x1b[2Kpwned", "\tpwned\t",
    "-- pwned", "\\$(pwned)", "'\"`pwned`\"'",
)  # fmt: skip
SHELL = {
    "flag": "vllm serve m --max-num-seqs 4 {flag} --swap-space 4 --no-such-flag",
    "value": "vllm serve m --max-num-seqs 4 --chat-template {word} --swap-space 4 --no-such-flag",
    "model": "vllm serve {word} --max-num-seqs 4 --swap-space 4 --no-such-flag",
    "name": "vllm serve m --served-model-name {word} pwned --lora-modules a={word} --swap-space 4 --no-such-flag",
    "variable": "VLLM_CACHE_ROOT={word} vllm serve m --swap-space 4 --no-such-flag",
    "docker": "docker run --gpus all --name {word} -e HF_HOME={word} -v {word}:/m vllm/vllm-openai:v0.11.0"
    " --model {word} --swap-space 4 --no-such-flag",
}
COMPOSE = """\
services:
  {json}:
    image: vllm/vllm-openai:v0.11.0
    environment: {{A: {json}}}
    command: [--model, {json}, --swap-space, "4", {flag_json}]
"""
POD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {json}, namespace: {json}}}
spec:
  template:
    spec:
      containers:
      - name: {json}
        image: vllm/vllm-openai:v0.11.0
        command: [vllm, serve, {json}, --swap-space, "4", {flag_json}]
"""
UNIT = "[Service]\nEnvironment=A={word}\nExecStart=/usr/bin/vllm serve {word} --swap-space 4 --no-such-flag {flag}\n"
PROGRAMS = (
    "vllm", "vllm-doctor", "docker", "kubectl", "helm", "systemctl", "patch", "nvidia-smi", "sudo", "curl", "export",
)  # fmt: skip
_COMMAND = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, PROGRAMS))}) .*", re.DOTALL)


def commands() -> Iterator[tuple[str, str]]:
    """A name for the file, and what is in it."""
    for payload in PAYLOADS:
        name = payload.replace("/", "").replace("\n", "").replace("\0", "")[:40]
        given = {
            "word": shlex.quote(payload),
            "flag": shlex.quote(f"--x{payload}"),
            "json": json.dumps(payload),
            "flag_json": json.dumps(f"--x{payload}"),
        }
        for place, text in SHELL.items():
            yield f"{place}-{name}.sh", f"{text.format(**given)}\n"
        yield f"{name}.yaml", COMPOSE.format(**given)
        yield f"pod-{name}.yaml", POD.format(**given)
        yield f"{name}.service", UNIT.format(**given)
        # In words that end where a line may be folded.
        for before in (30, 44, 60):
            word = shlex.quote(f"{'m' * before}{payload} pwned")
            yield f"long-{before}.sh", f"vllm serve {word} --chat-template {word} pwned --swap-space 4 --no-such-flag\n"


def pasted(text: str) -> Iterator[str]:
    """What a person takes out of a text: a line from the name of a program on, with the deeper lines below it; what
    stands in a block of code; and what a diff adds, behind a command."""
    lines = text.split("\n")
    fence = ""
    for number, line in enumerate(lines):
        if fence:
            fence = "" if line == fence else fence
        elif match := re.match(r"(`{3,})(sh|diff)?$", line):
            fence = match[1]
            end = lines.index(fence, number + 1)
            if match[2] == "sh":
                yield "\n".join(lines[number + 1 : end])
        bare = line.lstrip(" #$")
        if bare[:3] in ("+  ", "-  ") or (fence and bare[:2] in ("+ ", "- ")):
            yield f"vllm serve m {bare[2:].removesuffix('  (environment)')}"
        if found := _COMMAND.search(line):
            depth = len(line) - len(line.lstrip())
            below = list(_deeper(lines[number + 1 :], depth))
            yield "\n".join([found[0], *below])


def _deeper(lines: list[str], depth: int) -> Iterator[str]:
    for line in lines:
        if len(line) - len(line.lstrip()) <= depth:
            return
        yield line


def outputs(report: Report) -> Iterator[str]:
    for form in FORMATS:
        if form in ("text", "markdown", "patch", "nagios", "checkmk"):
            yield from pasted(api.render_report(report, form))
    for group in (*grouped(report.findings), ()):
        copied, _ = to_copy(report, group)
        # Flags alone are pasted behind a command.
        yield copied if copied.startswith((*PROGRAMS, "'", "V")) else f"vllm serve m {copied}"


def run_in_a_shell(texts: list[str], folder: Path) -> list[str]:
    """Which of these texts call `pwned`."""
    (folder / "texts").write_bytes(b"".join(text.encode(errors="replace") + b"\0" for text in texts))
    (folder / "here").mkdir()
    script = f"""
        cd {shlex.quote(str(folder / "here"))}
        command_not_found_handle() {{ [ "$1" != pwned ] || echo "$number" >> ../called; }}
        {" ".join(f"{name}() {{ :; }};" for name in PROGRAMS)}
        export PATH=/nonexistent HOME=/nonexistent
        number=0
        while IFS= read -r -d '' text; do
            ( eval "$text" ) </dev/null >/dev/null 2>&1
            number=$((number + 1))
        done < ../texts
    """
    subprocess.run(["/bin/bash", "--norc", "-c", script], check=False, timeout=120)
    called = folder / "called"
    assert list((folder / "here").iterdir()) == []
    return [texts[int(number)] for number in called.read_text().split()] if called.exists() else []


def test_the_shell_of_this_test_sees_what_is_not_quoted(tmp_path: Path) -> None:
    said = "  see: vllm-doctor flags 0.33.0 --y`pwned`\n  vllm serve m\n    pwned\n\n$  docker ps $(pwned)"
    texts = list(pasted(said))
    assert run_in_a_shell(texts, tmp_path) == texts


def test_nor_does_the_name_of_a_log(tmp_path: Path) -> None:
    log = gzip.decompress((LOGS / "preemption.log.gz").read_bytes())[:200_000]
    texts: list[str] = []
    for payload in PAYLOADS:
        path = tmp_path / payload.replace("/", "").replace("\n", "")
        path.write_bytes(log)
        texts += outputs(api.examine(path))
    assert run_in_a_shell(texts, tmp_path) == []


def test_nothing_that_is_pasted_starts_another_program(tmp_path: Path) -> None:
    texts: list[str] = []
    told = 0
    for number, (name, text) in enumerate(commands()):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / name
        path.write_text(text)
        try:
            report = api.examine(command=str(path))
        except DoctorError as error:
            texts += pasted(str(error))
            continue
        told += 1
        texts += outputs(report)
    assert told > 400
    assert sum(text.startswith("vllm-doctor flags 0.") for text in texts) > 400
    assert run_in_a_shell(texts, tmp_path) == []
