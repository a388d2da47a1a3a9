"""Shell commands that stand in YAML, with the variables that the document sets around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vllm_doctor.launch.manifests.container import text, texts
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.unwrap import of_script
from vllm_doctor.launch.yaml_tree import Node


def commands(
    place: str,
    node: Node,
    environment: Mapping[str, str | None],
    resources: Resources,
    image: str | None = None,
) -> Iterator[Written]:
    """The servers that the commands of a node start: one text, or a list of them, which one shell runs."""
    script = joined(texts(node))
    if script is None:
        return
    for written in of_script(script.text, script.line, environment):
        asked = written.resources
        yield replace(
            written,
            form=written.form if written.form is Form.DOCKER_RUN else Form.VALUES if image else Form.SHELL,
            place=place,
            environment={**environment, **written.environment},
            image=written.image or image,
            resources=replace(asked, gpus=asked.gpus or resources.gpus, gpu=resources.gpu)
            if asked != Resources()
            else resources,
        )


def joined(lines: Sequence[Word]) -> Word | None:
    """Commands as one script, each in its line of the document."""
    if not lines:
        return None
    pieces, line = [lines[0].text], lines[0].line
    at = line + lines[0].text.count("\n")
    for word in lines[1:]:
        gap = max(word.line - at, not pieces[-1].endswith("\n"))
        pieces += ["\n" * gap, word.text]
        at += gap + word.text.count("\n")
    return Word("".join(pieces), line)


def environment_of(node: Node) -> dict[str, str | None]:
    """`[NAME=VALUE, NAME]`, or a mapping; None for what is set elsewhere."""
    if node.kind == "seq":
        pairs = [word.text.partition("=") for word in texts(node)]
        return {name: value if equals else None for name, equals, value in pairs}
    return {name: text(value) for name, value in node.fields.items()}
