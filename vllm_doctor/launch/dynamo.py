"""NVIDIA Dynamo's worker, which starts vLLM's engine: `python3 -m dynamo.vllm`, with vLLM's flags and its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vllm_doctor.launch.start import Form, Launch, Word
from vllm_doctor.vllm import flags as catalogue
from vllm_doctor.vllm.command_line import is_python

_MODULES = (["dynamo.vllm"], ["dynamo.vllm.main"])
_BEFORE = 8
"""Words in which the module stands: behind Python's own options."""
_ROLES = frozenset({"prefill", "decode"})
_OF_ROLE = {"--disaggregation-mode": "", "--is-prefill-worker": "prefill", "--is-decode-worker": "decode"}
"""Its flags that tell the role: by their name, or by their value."""


def is_worker(words: Sequence[Word]) -> bool:
    """Whether the command is a Python that runs the worker's module."""
    texts = [word.text for word in words[:_BEFORE]]
    return is_python(texts) and "-m" in texts and texts[texts.index("-m") + 1 :][:1] in _MODULES


def engine(words: Sequence[Word], form: Form, environment: Mapping[str, str | None]) -> Launch | None:
    """What the worker gives vLLM, as `vllm serve`; None of any other command."""
    if not is_worker(words):
        return None
    at = next(place for place, word in enumerate(words) if word.text == "-m")
    arguments = words[at + 2 :]
    own = list(_own(arguments))
    program = [replace(words[0], text="vllm"), replace(words[at + 1], text="serve")]
    notes = ["Dynamo's worker starts vLLM's engine: it was read as `vllm serve` with the same flags"]
    names = dict.fromkeys(word.text.partition("=")[0] for word in own if word.text.startswith("--"))
    if others := [name for name in names if name not in _OF_ROLE]:
        notes.append(f"not read, as vLLM does not have them: {', '.join(others)}")
    left = [word for word in arguments if not any(word is other for other in own)]
    return Launch([*program, *left], form, environment, notes=tuple(notes), role=_role(arguments))


def _own(arguments: Sequence[Word]) -> Iterator[Word]:
    """Flags that no vLLM has, each with its values."""
    is_own = False
    for word in arguments:
        if word.text.startswith("--"):
            name = word.text.partition("=")[0].replace("_", "-")
            is_own = not (catalogue.is_flag(name) or catalogue.is_flag(name.partition(".")[0]))
        elif word.text.startswith("-"):
            is_own = False
        if is_own:
            yield word


def _role(arguments: Sequence[Word]) -> str:
    texts = [text for word in arguments for text in word.text.split("=", 1)]
    for flag, value in zip(texts, [*texts[1:], ""], strict=True):
        if flag in _OF_ROLE and (role := _OF_ROLE[flag] or value) in _ROLES:
            return role
    return ""
