"""Variables that are named as vLLM's flags (`MAX_MODEL_LEN=8192`), of images and recipes that make flags of them."""

from __future__ import annotations

import re

from vllm_doctor.launch import shell
from vllm_doctor.launch.manifests import worker_vllm
from vllm_doctor.launch.start import Form, Written

_MOST_LINES = 200
_LEAST = 2
_ASSIGNED = re.compile(r"(?:export[ \t]+)?([A-Z][A-Z0-9_]{2,60})=(.*)", re.DOTALL)
_NOTE = "the program is not in the text: variables that are named as flags of vLLM were read as these"


def starts(text: str, line: int = 1) -> list[Written]:
    """One start, where most of the text is variables and two of them at least are named as flags; else none."""
    lines = text.split("\n", _MOST_LINES + 1)
    if len(lines) > _MOST_LINES:
        return []
    kept = "\n".join(one for one in lines if not one.lstrip().startswith("#"))
    words = [word.text for word in shell.words(kept)[0] if word.text != "export"]
    given = {match[1]: match[2] for word in words if (match := _ASSIGNED.fullmatch(word))}
    found = worker_vllm.words(given, line)
    flags = [word for word in found if word.text.startswith("--")]
    if len(flags) < _LEAST or 2 * len(given) < len(words):
        return []
    return [Written(found, Form.FLAGS, place=f"line {line}", is_open=True, notes=(_NOTE,))]
