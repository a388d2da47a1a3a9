"""Calls of Python with other keywords."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from vllm_doctor.launch import python_edit
from vllm_doctor.launch.rewrite import UnwritableError
from vllm_doctor.launch.source import open_command
from vllm_doctor.model.report import Change, Patch


def call(text: str) -> ast.Call:
    return next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def patched(given: str, *changes: Change) -> Patch:
    document = open_command(given).document
    assert document is not None
    [patch] = document.patched({0: changes})
    return patch


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("LLM('m', max_num_seqs=8)", "LLM('m', max_num_seqs=256)"),
        ("LLM('m', enforce_eager=True)", "LLM('m', max_num_seqs=256)"),
        ("LLM('é', enforce_eager=True, seed=1)", "LLM('é', seed=1, max_num_seqs=256)"),
        (
            "LLM(\n    'm',\n    enforce_eager=True,  # slow\n    seed=1,\n)",
            "LLM(\n    'm',\n    seed=1,\n    max_num_seqs=256,\n)",
        ),
        ("LLM(\n    model='m'\n)", "LLM(\n    model='m',\n    max_num_seqs=256\n)"),
    ],
)  # fmt: skip
def test_keywords_change_in_their_place(text: str, new: str) -> None:
    changes = [Change("--max-num-seqs", None, 256.0, "r")]
    if "enforce" in text:
        changes.append(Change("--enforce-eager", True, None, "r"))
    assert python_edit.edited(text, call(text), changes) == new


@pytest.mark.parametrize(
    ("text", "name"),
    [("LLM(**kw)", "--max-num-seqs"), ("LLM('m')", "--compilation-config.mode"), ("LLM('m')", "VLLM_USE_V1")],
)
def test_what_does_not_stand_in_the_call_is_said(text: str, name: str) -> None:
    with pytest.raises(UnwritableError):
        python_edit.edited(text, call(text), [Change(name, None, 1.0, "r")])


def test_a_patch_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("from vllm import LLM\n\nllm = LLM('a/b', enforce_eager=True)\nTOKEN = 'secret'\n")
    patch = patched(str(path), Change("--enforce-eager", True, None, "r"))
    assert patch.form == "python"
    assert patch.lines[2:] == ("@@ -3 +3 @@", "-llm = LLM('a/b', enforce_eager=True)", "+llm = LLM('a/b')")


def test_what_cannot_be_patched_is_told_as_keywords(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("from vllm import LLM\nkw = dict(enforce_eager=True, hf_token='x')\nllm = LLM('a/b', **kw)\n")
    changes = [Change("--enforce-eager", True, None, "r"), Change("--max-num-seqs", None, 8.0, "r")]
    patch = patched(str(path), *changes, Change("VLLM_X", None, "1", "r"))
    assert patch.lines == ("-enforce_eager=True", "+max_num_seqs=8", '+os.environ["VLLM_X"] = "1"')
    patch = patched("python - <<E\nfrom vllm import LLM\nLLM('a/b')\nE", *changes[1:])
    assert patch.lines == ("+max_num_seqs=8",)


def test_a_line_with_a_secret_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("from vllm import LLM\nLLM('a/b', enforce_eager=True, hf_token='abc')\n")
    patch = patched(str(path), Change("--enforce-eager", True, None, "r"))
    assert patch.lines == ("-enforce_eager=True",)
