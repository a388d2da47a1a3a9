"""Options that say something of one kind of source: given without such a source they are an error, never ignored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.source import Source
from vllm_doctor.sources.kubernetes.target import SCHEME

_RUNNING = frozenset({SourceKind.SERVER, SourceKind.GATEWAY, SourceKind.HOST})
_ASKED = frozenset({SourceKind.SERVER, SourceKind.GATEWAY, SourceKind.PROMETHEUS})
_WATCHED = _RUNNING | _ASKED | {SourceKind.KV_EVENTS, SourceKind.PROFILE}


@dataclass(frozen=True)
class _Use:
    """What these options say is of a source for which `is_of` holds; `says`: what they are of, and what to do."""

    options: tuple[str, ...]
    is_of: Callable[[Source], bool]
    says: str


def _is_log(source: Source) -> bool:
    return source.kind is SourceKind.LOG or bool(source.logs)


def _of_now(kinds: frozenset[SourceKind]) -> Callable[[Source], bool]:
    return lambda source: source.kind in kinds and source.recording is None


def _is_asked(source: Source) -> bool:
    return _of_now(_ASKED)(source) and not source.patient.startswith(SCHEME)


_USES = (
    _Use(
        ("--since", "--until", "--last", "--threads"),
        _is_log,
        "is of a log, and no log is among the sources",
    ),
    _Use(("--state",), _of_now(_RUNNING), "is of a running server, and none is among the sources"),
    _Use(
        ("--window",),
        _of_now(_WATCHED),
        "is how long a server is watched, and files alone are not: leave it out (of a log a part: --since, --last)",
    ),
    _Use(
        ("--duration",),
        _of_now(_WATCHED),
        "is how long a server is watched, and files alone are not: leave it out",
    ),
    _Use(
        ("--header", "--token-file", "--token-for", "--ca-file", "--insecure"),
        _is_asked,
        "is how a server is asked, and none is among the sources (a cluster: by its kubeconfig): leave it out, or name"
        " a server's URL or pid",
    ),
    _Use(
        ("--profile",),
        _of_now(frozenset({SourceKind.PROFILE})),
        "samples the processes of a server of this host, and none is among the sources: run it there, with its pid",
    ),
    _Use(
        ("--show-text",),
        lambda source: source.kind is SourceKind.KV_EVENTS or _is_log(source),
        "is of prompts, and no source has any: give --kv-events, or a log of requests",
    ),
)


class Given:
    """The options that the user wrote, as they are spelled, until a source is there that they say something of.

    `is_more`: further sources may come before `check` is called. A --token-for of another server is none: the same
    options stand in scripts of several servers.
    """

    def __init__(self, options: Collection[str] = (), is_more: bool = False) -> None:
        self._left = [(use, option) for use in _USES for option in use.options if option in options]
        self._is_more = is_more

    def meet(self, sources: Sequence[Source]) -> None:
        """These sources are there. Raises UsageError for an option that says nothing of any, if these are all."""
        self._left = [(use, option) for use, option in self._left if not any(map(use.is_of, sources))]
        if not self._is_more:
            self.check()

    def check(self) -> None:
        """Raises UsageError for an option that says nothing of any source that was there."""
        for use, option in self._left:
            raise UsageError(f"{option} {use.says}")
