"""Containers in Terraform's language: lists such as `args = ["--model", var.model]`, beside the image of their block.

Scripts within it (`user_data = <<-EOF`) are texts of their own. Nothing is evaluated: `var.x` is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vllm_doctor.launch import budget, docker, region
from vllm_doctor.launch.region import Region, Wording
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.unexpanded import is_marked, mark
from vllm_doctor.launch.unwrap import of_words

_BLOCK = re.compile(
    r"^[ \t]*(?:resource|data|module|variable|provider|output)[ \t]+\"[^\"\n]{1,100}\"[^{}\n]{0,200}\{"
    r"|^(?:locals|terraform)[ \t]*\{",
    re.MULTILINE,
)
_CONTAINER = re.compile(r"^[ \t]*(?:container|containers|template)[ \t]*\{", re.MULTILINE)
_IMAGE = re.compile(
    r"^[ \t]*\"?(?:image|image_name|image_uri|container_image|docker_image)\"?[ \t]*[=:][ \t]*\"([^\"\n]{1,500})\"",
    re.MULTILINE,
)
_LIST = re.compile(
    r"^[ \t]*\"?(?P<key>command|args|arguments|entrypoint|entryPoint|docker_start_cmd|docker_entrypoint|cmd)\"?"
    r"[ \t]*[=:][ \t]*\[",
    re.MULTILINE,
)
_ITEM = re.compile(
    r"[ \t\n,]*(?:(?P<end>\])|(?:#|//)[^\n]*|\"(?P<text>(?:[^\"\\\n]|\\.){0,5000})\""
    r"|(?P<other>[^\s,\]\"][^,\]\n]{0,500}))"
)
_PUT_IN = re.compile(r"\$\{[^{}\n]{0,300}\}")
_VARIABLE = re.compile(
    r"\bname[ \t]*=[ \t]*\"(?P<name>[A-Z][A-Z0-9_]{1,80})\"\s{1,80}value[ \t]*=[ \t]*\"(?P<value>[^\"\n]{0,500})\""
    r"|^[ \t]*(?P<key>[A-Z][A-Z0-9_]{1,80})[ \t]*=[ \t]*(?P<text>\"[^\"\n]{0,500}\"|[a-z]\S{0,200})[ \t]*$",
    re.MULTILINE,
)
_GPUS = re.compile(r"\"?(?:nvidia\.com/gpu\"?|gpu_count|gpus)[ \t]*=[ \t]*\"?(\d{1,3})\"?")
_ENTRYPOINTS = {"entrypoint", "entryPoint", "docker_entrypoint"}
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_MOST_ITEMS = 500


def is_it(text: str) -> bool:
    return _BLOCK.search(text) is not None


def starts(text: str, line: int = 1) -> list[Written]:
    """The servers that the containers of its blocks start; it begins in this line."""
    found: list[Written] = []
    before = 0
    for at, end in _blocks(text):
        budget.spend()
        line += text.count("\n", before, at)
        before = at
        block = text[at:end]
        lists = list(_lists(block, line, at))
        image = _IMAGE.search(block)
        if not lists or image is None:
            continue
        named = _filled(image[1])
        is_kubernetes = any(key == "args" for key, _, _ in lists)
        first = {*_ENTRYPOINTS, *(["command"] if is_kubernetes else [])}
        entrypoint = [word for key, words, _ in lists if key in first for word in words]
        arguments = [word for key, words, _ in lists if key not in first for word in words]
        place = next((place for key, _, place in reversed(lists) if key not in first), lists[-1][2])
        environment = _environment(block)
        argv, guessed = docker.argv(named, entrypoint or None, arguments)
        gpus = _GPUS.search(block)
        for launch in of_words(argv, Form.TERRAFORM, environment):
            found.append(
                Written.of(
                    launch,
                    form=Form.TERRAFORM,
                    place=f"line {(arguments or entrypoint)[0].line}",
                    environment={**environment, **launch.environment},
                    image=named,
                    resources=Resources(gpus=float(gpus[1]) if gpus else None),
                    notes=(*launch.notes, *guessed),
                    holder=Region(text, *place, Wording.LIST, starts, number=len(found), quote=_quoted),
                )
            )
    return found


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Where each container's block stands, or that of the resource, where it has none."""
    begins = [match.start() for match in _BLOCK.finditer(text)]
    for at, end in zip(begins, [*begins[1:], len(text)], strict=True):
        within = [match.start() for match in _CONTAINER.finditer(text, at, end)] or [at]
        yield from zip(within, [*within[1:], end], strict=True)


def _lists(block: str, line: int, offset: int) -> Iterator[tuple[str, list[Word], tuple[int, int]]]:
    """The lists of a block by their keys, each with its place in the text in which the block begins at `offset`."""
    before = 0
    for match in _LIST.finditer(block):
        words: list[Word] = []
        line += block.count("\n", before, match.end())
        begins = at = before = match.end()
        for _ in range(_MOST_ITEMS):
            budget.spend()
            item = _ITEM.match(block, at)
            if item is None or item["end"]:
                at = item.end() if item else at
                break
            at = item.end()
            line += block.count("\n", before, at)
            before = at
            if item["text"] is not None:
                words.append(Word(_filled(_unescaped(item["text"])), line))
            elif item["other"]:
                words.append(Word(mark(item["other"].strip()), line))
        yield match["key"], words, (offset + begins - 1, offset + at)


def _quoted(text: str) -> str:
    """A text as Terraform reads it back: `${` and `%{` begin what it puts in."""
    return region.as_json(text.replace("${", "$${").replace("%{", "%%{"))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)


def _filled(text: str) -> str:
    return _PUT_IN.sub(lambda match: mark(match[0]), text)


def _environment(block: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for match in _VARIABLE.finditer(block):
        name = match["name"] or match["key"]
        value = match["value"] if match["name"] else match["text"]
        is_text = match["name"] is not None or value.startswith('"')
        known = _filled(value.strip('"')) if is_text else mark(value)
        found[name] = None if is_marked(known) else known
    return found
