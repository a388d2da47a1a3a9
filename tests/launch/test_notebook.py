"""Notebooks: what their cells start and printed; nothing in them is run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from vllm_doctor.launch import notebook
from vllm_doctor.launch.source import open_command, read
from vllm_doctor.model.errors import SourceError


def cell(source: str, *printed: str) -> dict[str, object]:
    outputs = [{"output_type": "stream", "name": "stdout", "text": [text]} for text in printed]
    return {"cell_type": "code", "source": source.splitlines(keepends=True), "outputs": outputs}


def of(*cells: dict[str, object]) -> str:
    return json.dumps({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_cells_are_read_in_their_order() -> None:
    text = of(
        {"cell_type": "markdown", "source": ["vllm serve not/this"]},
        cell("!pip install -q vllm==0.8.5\nMODEL = 'a/b'\n%env VLLM_USE_V1=1"),
        cell("broken ( here\n"),
        cell("from vllm import LLM\n%time llm = LLM(MODEL, seed=1)"),
        cell("!nohup vllm serve {MODEL} --port $PORT \\\n  --dtype half &"),
        cell("%%bash --bg\nexport A=1\nvllm serve c/d\n"),
        cell("%%writefile x.txt\nvllm serve e/f\n"),
    )
    found = read(text, "x.ipynb")
    assert [(start.place, start.command.model) for start in found] == [
        ("cell 4, line 2", "a/b"),
        ("cell 5, line 1", "a/b"),
        ("cell 6, line 1", "c/d"),
    ]
    assert {start.version for start in found} == {"0.8.5"}
    assert found[0].environment == {"VLLM_USE_V1": "1"}
    assert found[1].unknown_flags == {"--port"}
    assert found[1].command.flags["--dtype"] == "half"


def test_what_cells_printed() -> None:
    error = {"output_type": "error", "ename": "E", "evalue": "", "traceback": ["\x1b[0;31mE\x1b[0m", "out of memory"]}
    picture = {"output_type": "display_data", "data": {"image/png": "AAAA", "text/plain": ["<Figure>"]}}
    text = of(cell("1", "INFO one\n", "two"), {**cell("2"), "outputs": [error, picture, "x", {"text": 1}]})
    assert notebook.outputs(text) == "INFO one\ntwo\nE\nout of memory\n<Figure>\n"
    assert notebook.outputs(text.encode()) == notebook.outputs(text)
    assert notebook.outputs("no notebook") == ""


def test_arguments_that_were_printed_count_where_no_cell_starts_it() -> None:
    [start] = read(of(cell("start()", "INFO [utils.py:1] non-default args: {'model': 'a/b', 'seed': 1}\n")))
    assert start.argv == ("vllm", "serve", "a/b", "--seed", "1")


@pytest.mark.parametrize("text", [of(), of(cell("print('vllm')")), of(cell("")), '{"cells": [1, {"source": 2}, null]}'])
def test_a_notebook_without_a_start_says_so(text: str) -> None:
    with pytest.raises(SourceError, match="no cell of this notebook starts vLLM"):
        read(text)


def test_large_and_hostile_ones(tmp_path: Path) -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "A" * 9_000_000}}
    large = of({**cell("from vllm import LLM"), "outputs": [picture]}, cell("LLM('a/b')"))
    path = tmp_path / "x.ipynb"
    path.write_text(large)
    begin = time.process_time()
    assert open_command(str(path)).starts[0].command.model == "a/b"
    many = of(
        *[cell(f"x{n} = {n}\n") for n in range(990)], cell("import vllm\nvllm.LLM('a/b')"), *[cell("(" * 500)] * 99
    )
    assert len(read(many)) == 1
    assert not notebook.is_notebook('{"cells": ' + "[" * 100_000)
    assert time.process_time() - begin < 8


def test_planted_code_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    planted = f"__import__('os').system('touch {mark}')"
    text = of(
        cell(f"!touch {mark}"),
        cell(f"!vllm serve {{{planted}}} $(touch {mark})"),
        cell(f"%run {mark}\n%%time\n{planted}\nfrom vllm import LLM\nLLM('a/b', seed={planted})"),
        cell(f"%%bash\ntouch {mark}"),
    )
    read(text)
    assert not os.path.exists(mark)
