"""Whatever a text below 1 MB unfolds to: it is read, or refused, with a bounded amount of work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from vllm_doctor.launch.budget import ExhaustedError, limited, spend
from vllm_doctor.launch.source import MAX_BYTES, read
from vllm_doctor.model.errors import SourceError

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - image: vllm/vllm-openai\n"
UNIT = "[Service]\n"


def filled(unit: str, before: str = "", after: str = "") -> str:
    """The unit, as often as it fits into 1 MB."""
    room = MAX_BYTES - 1 - len(before.encode()) - len(after.encode())
    return before + unit * (room // len(unit.encode())) + after


def numbered(unit: str, before: str = "", times: int = 30_000) -> str:
    """The unit with %d counted up."""
    return before + "".join(unit % place for place in range(times))


TEXTS = {
    "shell: starts": lambda: filled("vllm serve m\n"),
    "shell: starts in a line": lambda: filled("vllm serve m;"),
    "shell: starts, as from Windows": lambda: filled("vllm serve m\r\n"),
    "shell: comments behind backslashes": lambda: filled("vllm serve m \\ # x\n"),
    "shell: lost flags": lambda: filled("vllm serve m\n--a b\n"),
    "shell: arguments": lambda: filled("--a ", "vllm serve m "),
    "shell: one long word": lambda: filled("m", "vllm serve "),
    "shell: prompts": lambda: filled("$ "),
    "shell: then": lambda: filled("then "),
    "shell: blanks": lambda: filled(" ", after="vllm serve m"),
    "shell: empty lines": lambda: filled("\n", after="vllm serve m"),
    "shell: exports": lambda: numbered("export A%d=b\n"),
    "shell: variables that grow": lambda: "A=aaaaaaaaaa\n" + 'A="$A$A"\n' * 60 + "vllm serve $A",
    "shell: a variable that is added to": lambda: filled("A+=bbbbbbbbbbbbbbbbbbbb\n"),
    "shell: a variable of many words": lambda: filled("$A ", f"A='{'b ' * 1000}'\nvllm serve m "),
    "shell: an array, often": lambda: filled("${A[@]} ", f"A=({'b ' * 1000})\nvllm serve m "),
    "shell: arrays that are open": lambda: filled("A=("),
    "shell: quotes": lambda: filled("$'a\n"),
    "shell: unknown values": lambda: "vllm serve m " + "--a $X " * 900,
    "shell: unknown values, in many starts": lambda: ("vllm serve m " + "--a $X " * 90 + "--b c " * 800 + "\n") * 60,
    "shell: JSON": lambda: filled("[", "vllm serve m --hf-overrides '", "'"),
    "heredocs: open": lambda: numbered("cat <<E%d\n", times=24),
    "heredocs: many open": lambda: numbered("cat <<E%d\n", times=70_000),
    "heredocs: of one word": lambda: filled("cat <<E\n"),
    "heredocs: with starts": lambda: filled("cat <<E\nvllm serve m\nE\n"),
    "markdown: fences": lambda: filled("```\nvllm serve m\n```\n"),
    "markdown: open fences": lambda: filled("~~~\n```\n"),
    "env: variables": lambda: filled("A=b ", "env ", "vllm serve m"),
    "env: envs": lambda: filled("env A=b "),
    "wrappers: sudo": lambda: filled("sudo "),
    "wrappers: bash -c": lambda: filled("bash -c 'vllm serve m'\n"),
    "docker: runs": lambda: filled("docker run vllm/vllm-openai --model m\n"),
    "docker: options": lambda: filled("-e A=b ", "docker run ", "vllm/vllm-openai --model m"),
    "python: starts": lambda: filled("python -m vllm.entrypoints.openai.api_server --model m\n"),
    "compose: services": lambda: numbered(
        "  s%d: {image: vllm/vllm-openai, command: --model m}\n", "services:\n", 15_000
    ),
    "compose: a text by many names": lambda: numbered(
        "  s%d: {image: vllm/vllm-openai, command: *c}\n", f"x: &c '{'a ' * 200_000}'\nservices:\n", 10_000
    ),
    "compose: parentheses": lambda: filled("(", "services: {s: {image: vllm/vllm-openai, command: a", "}}"),
    "kubernetes: documents": lambda: filled("---\n"),
    "kubernetes: pods": lambda: filled(f"---\n{POD}    args: [--model, m]\n"),
    "kubernetes: values put in": lambda: filled(
        "$(A)", f"{POD}    env: [{{name: A, value: {'x' * 1000}}}]\n    args: ['", "']"
    ),
    "kubernetes: a long path": lambda: numbered("  k%d: v\n", f"{'k' * 100_000}:\n", 40_000),
    "kubernetes: a script": lambda: filled("  vllm serve m\n", "command: |\n"),
    "helm: templates": lambda: filled("a: {{ .x }}\n"),
    "config: keys": lambda: filled("max-model-len: 1\n"),
    "systemd: starts": lambda: filled("ExecStart=vllm serve m\n", UNIT),
    "systemd: lost flags": lambda: filled("ExecStart=x\n--a b\n", UNIT),
    "systemd: variables": lambda: filled("A=b ", f"{UNIT}Environment=", "\n" + "ExecStart=vllm serve m\n" * 60),
    "systemd: a variable of many words": lambda: filled(
        "$A ", f"{UNIT}Environment=A='{'b ' * 1000}'\nExecStart=vllm serve m "
    ),
}


def cpu(text: str) -> float:
    """Seconds of CPU that reading takes, whether it is refused or not."""
    started = time.process_time()
    with contextlib.suppress(SourceError):
        read(text)
    return time.process_time() - started


@pytest.fixture(scope="module")
def plain() -> float:
    """What the plainest text takes that uses up all steps."""
    return min(cpu(filled("x ")) for _ in range(3))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_text_costs_no_more_than_a_few_times_what_its_steps_allow(text: Callable[[], str], plain: float) -> None:
    assert cpu(text()) < 10 * plain


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        pytest.param(numbered("export A%d=b\n", times=100) + "echo a b\n" * 400 + "vllm serve m", 1, id="script"),
        pytest.param("- a\n" * 100 + "```\n" + "vllm serve m --seed 1 \\\n -tp 2\n" * 60 + "```\n", 60, id="page"),
        pytest.param(
            "services:\n"
            + "".join(f"  s{n}: {{image: vllm/vllm-openai, command: [--model, m, --seed, '1']}}\n" for n in range(60))
            + "".join(f"  o{n}: {{image: x, command: [a, b, c, d], environment: {{A: b}}}}\n" for n in range(1000)),
            60,
            id="compose",
        ),
        pytest.param(f"---\n{POD}    args: [--model, m]\n" * 60, 60, id="kubernetes"),
    ],
)  # fmt: skip
def test_what_people_write_is_read(text: str, starts: int) -> None:
    assert len(read(text)) == starts


def test_a_heredoc_in_a_heredoc_is_read_once() -> None:
    text = "cat > run.sh <<A\ncat > deploy.yaml <<B\n" + POD + "    args: [--model, m]\nB\nkubectl apply\nA\n"
    (start,) = read(text)
    assert (start.form, start.command.model) == ("kubernetes", "m")


def test_lines_are_those_of_the_whole_text() -> None:
    unit = "cat > a.service <<A\n[Service]\nExecStart=vllm serve m \\ # x\n --seed 1\nA\n"
    (start,) = read(f"echo\n{unit}")
    assert (start.place, start.faults[0].line) == ("ExecStart, line 4", 4)


def test_steps_are_counted_within_limited_only() -> None:
    spend(10**9)
    with pytest.raises(ExhaustedError, match="give the part that starts vLLM"), limited(10):
        spend(11)
