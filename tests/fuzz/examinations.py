"""Whole examinations: hostile bytes as a log, a page, a command, …, through the command line, to each output."""

from __future__ import annotations

import contextlib
import io
import json
import zlib
from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from tests.fuzz import corpus, harnesses
from tests.fuzz.harnesses import CANARY, clean, file_of, harness, holds_canary, no_constant
from vllm_doctor.cli import chosen_rules
from vllm_doctor.cli.main import main
from vllm_doctor.cli.options import FORMATS

_CHECKED = 16
"""Of so many JSON outputs one is held against the schema, which takes longer than the examination."""


@cache
def _rules() -> Any:
    import argparse

    return _LOAD(argparse.Namespace(rules=[], rule=[], skip=[]))


def _loaded(options: Any) -> Any:
    return _rules() if not (options.rules or options.rule or options.skip) else _LOAD(options)


_LOAD = chosen_rules.load


def said(words: Sequence[str], form: str, codes: tuple[int, ...] = (0, 1, 2, 3)) -> str:
    """What the command line answers, which must be as promised whatever it read."""
    out, err = io.StringIO(), io.StringIO()
    log = "vllm_doctor.sources.log.source.Log"
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(chosen_rules, "load", _loaded),
        mock.patch(log, harnesses._log_class()),
    ):
        code = main([*words, *(["--format", form] if form else [])])
    text, told = out.getvalue(), err.getvalue()
    assert code in codes, f"ended with {code}"
    assert "internal error" not in told, told
    clean(told)
    assert not holds_canary(text + told), "a secret left"
    if form == "json":
        document = json.loads(text, parse_constant=no_constant)
        for one in _strings(document):
            clean(one)
        if zlib.crc32(text.encode("utf-8", "replace")) % _CHECKED == 0:
            _validator("report").validate(document)
    elif form:
        clean(text)
        if form == "html":
            assert "<script>fuzz" not in text
            assert "<img src=x" not in text
    return text


def _strings(value: Any) -> Iterator[str]:
    """All texts of a JSON document."""
    match value:
        case str():
            yield value
        case dict():
            for key, inner in value.items():
                yield key
                yield from _strings(inner)
        case list():
            for inner in value:
                yield from _strings(inner)


@cache
def _validator(kind: str) -> Any:
    import jsonschema

    from tests.paths import PACKAGE

    schema = json.loads((PACKAGE / "render" / f"{kind}.v1.schema.json").read_text("utf-8"))
    return jsonschema.Draft202012Validator(schema)


def _form(data: bytes) -> str:
    """Each format in its turn; JSON the most often."""
    forms = ("json", "json", *FORMATS)
    return forms[zlib.crc32(data) % len(forms)]


def _sign(text: str, form: str) -> Hashable:
    if form != "json":
        return form, len(text) // 2000
    document = json.loads(text)
    rules = tuple(sorted({finding["rule"] for finding in document["findings"]}))
    error = document.get("error") or {}
    return document["verdict"], rules, error.get("kind")


def _examined(data: bytes, *words: str | Path) -> Hashable:
    form = _form(data)
    return _sign(said([str(word) for word in words], form), form)


@harness(harnesses._logs, *harnesses._LOG_TOKENS, CANARY, weight=4)
def examine_log(data: bytes) -> Hashable:
    return _examined(data, file_of(data, "server.log"))


@harness(corpus.scrapes, 'engine="0"', 'model_name="m"', "vllm:", f'token="{CANARY}"', weight=4)
def examine_page(data: bytes) -> Hashable:
    return _examined(data, file_of(data, "page.txt"))


@harness(
    lambda: [*corpus.SHELL, *corpus.commands()], *harnesses._FLAGS, *harnesses._YAML, f"--api-key {CANARY}", weight=4
)
def examine_command(data: bytes) -> Hashable:
    return _examined(data, "--command", file_of(data, "start.yaml"))


@harness(harnesses._bundle_parts, '"kind":', '"sources":', '"facts":', '"value":', CANARY, weight=4)
def examine_recording(data: bytes) -> Hashable:
    """`name`, then the content of that part of a recording."""
    folder = harnesses._folder() / "recording"
    for part, body in corpus.parts().items():
        file_of(body, f"recording/{part}")
    name, _, body = data.partition(b"\n")
    known = name.decode("utf-8", "replace")
    if known in corpus.parts() or known in ("report.json", "bench.json"):
        file_of(body, f"recording/{known}")
    try:
        return _examined(data, folder)
    finally:
        for extra in ("report.json", "bench.json"):
            (folder / extra).unlink(missing_ok=True)


@harness(lambda: corpus.pieces(corpus.smi(), 6000, 3), "<gpu id=", "MiB", "N/A", CANARY, weight=2)
def examine_nvidia_smi(data: bytes) -> Hashable:
    page = file_of(corpus.scrapes()[0], "good.txt")
    return _examined(data, page, "--nvidia-smi", file_of(data, "smi.txt"))
