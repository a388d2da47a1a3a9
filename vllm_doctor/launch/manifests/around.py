"""What stands around a document that is read: the other documents of its text, and the files beside its own file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from vllm_doctor.launch.yaml_tree import Node

Beside = Callable[[str], str | None]
"""The text of a file in the folder of the one that was given, by its name; None where it cannot be read."""


def nothing_beside(name: str) -> str | None:
    return None


@dataclass(frozen=True)
class Around:
    """`config_maps`: the `data` of the ConfigMaps among the documents, by their names."""

    config_maps: Mapping[str, Node] = field(default_factory=dict)
    beside: Beside = nothing_beside


_around: ContextVar[Around | None] = ContextVar("around", default=None)


def _now() -> Around:
    return _around.get() or Around()


@contextmanager
def files(beside: Beside) -> Iterator[None]:
    """All that is read within has these files beside it."""
    with _given(replace(_now(), beside=beside)):
        yield


@contextmanager
def documents(roots: tuple[Node, ...]) -> Iterator[None]:
    """All that is read within stands among these documents."""
    with _given(replace(_now(), config_maps=_config_maps(roots))):
        yield


@contextmanager
def _given(around: Around) -> Iterator[None]:
    token = _around.set(around)
    try:
        yield
    finally:
        _around.reset(token)


def config_map(name: str) -> Node | None:
    return _now().config_maps.get(name)


def file_beside(name: str) -> str | None:
    """The text of a file that lies in the same folder; `./x` is `x`."""
    plain = name.removeprefix("./")
    return _now().beside(plain) if plain and "/" not in plain and plain not in (".", "..") else None


def _config_maps(roots: tuple[Node, ...]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for root in (one for given in roots for one in (given, *given["items"].items)):
        if root["kind"].text == "ConfigMap" and root["data"].kind == "map" and root.at("metadata", "name").is_scalar:
            found[root.at("metadata", "name").text] = root["data"]
    return found
