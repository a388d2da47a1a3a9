"""The example of `vllm-doctor expect`: its output is the command's.

    python -m tests.docs.expect_example      writes it anew

tests/docs/test_commands.py compares.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex

from tests.paths import ROOT
from vllm_doctor.cli import main

PAGE = ROOT / "docs" / "expect.md"
_EXAMPLE = re.compile(r"```sh\n(vllm-doctor expect [^\n]*)\n```\n\n```text\n(.*?)```\n", re.DOTALL)


def example(text: str) -> tuple[str, str]:
    """The command, and what stands below it."""
    found = _EXAMPLE.search(text)
    assert found is not None
    return found[1], found[2]


def output(command: str) -> str:
    """What the command prints."""
    shown = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(shown, "utf-8", write_through=True)):
        main.main(shlex.split(command)[1:])
        return shown.getvalue().decode()


def write() -> None:
    """Put the command's output into the page."""
    text = PAGE.read_text("utf-8")
    command, shown = example(text)
    PAGE.write_text(text.replace(f"```text\n{shown}```", f"```text\n{output(command)}```", 1), "utf-8")


if __name__ == "__main__":
    write()
