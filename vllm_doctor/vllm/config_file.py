"""The YAML of a --config file of vLLM."""

from __future__ import annotations

from typing import Any

import yaml

from vllm_doctor.model import outside

_MAX_DEPTH = 50
_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where PyYAML has it


def parsed(text: str) -> dict[str, Any]:
    """The file's mapping. Raises ValueError with what is wrong; no piece of the file: it may hold a secret."""
    try:
        _check(text)
        config = yaml.load(text, Loader=_Loader)  # a safe loader: nothing is constructed but plain values
    except _RefusedError as error:
        raise ValueError(str(error)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if outside.is_too_deep(error):
            raise ValueError("nested too deeply") from None
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{line}no valid YAML") from None
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise ValueError("it is no mapping of flags to values")
    return {str(key): value for key, value in config.items()}


class _RefusedError(Exception):
    """What YAML allows and a configuration never holds."""


def _check(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):  # one by one: deep nesting is seen before it takes long
        if isinstance(event, yaml.AliasEvent):
            raise _RefusedError("it has aliases, which may unfold without end")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise _RefusedError("nested too deeply")
