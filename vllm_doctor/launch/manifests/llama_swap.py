"""llama-swap: a command for each model, parted at its blanks and lines, in which `${macro}` is replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from vllm_doctor.launch import budget, shell
from vllm_doctor.launch.manifests import script
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.launch.unwrap import of_words
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.text.secret_names import is_secret

_MACRO = re.compile(r"\$\{([A-Za-z_][\w.-]{0,100})\}")
_COMMENT = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_DEPTH = 5


def starts(root: Node, name: str) -> Iterable[Written] | None:
    models = root["models"]
    is_config = models.kind == "map" and any(model["cmd"].is_scalar for model in models.fields.values())
    return _starts(root) if is_config else None


def _starts(config: Node) -> Iterator[Written]:
    shared = _macros(config["macros"])
    for name, model in config["models"].fields.items():
        command = model["cmd"]
        macros = {**shared, **_macros(model["macros"]), "MODEL_ID": name}
        text = _COMMENT.sub("", _replaced(command.text, macros, _DEPTH))
        environment = script.environment_of(model["env"])
        for launch in of_words(shell.words(text, command.text_line)[0], Form.SHELL, environment):
            together = {**environment, **launch.environment}
            yield Written.of(launch, environment=together, place=command.path, holder=Values())


def _macros(node: Node) -> dict[str, str]:
    return {name: value.text for name, value in node.fields.items() if value.is_scalar}


def _replaced(text: str, macros: Mapping[str, str], depth: int) -> str:
    """With the macros filled in, which may use others; what is none of them is known only where it runs."""

    def value(match: re.Match[str]) -> str:
        found = macros.get(match[1])
        budget.spend()
        budget.spend_on(found or "")
        if found is None or depth == 0 or is_secret(match[1]):
            return mark(match[0])
        return _replaced(found, macros, depth - 1)

    return _MACRO.sub(value, text)
