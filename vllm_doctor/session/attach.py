"""What the words of the command line point at, as sources: URLs, pids, logs, or every vLLM server of this host."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from vllm_doctor.session import inputs
from vllm_doctor.session.attachment import Attachment, Opener
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import (
    autoscaler,
    bench,
    collect_env,
    command,
    gpus,
    kubernetes,
    log,
    page,
    pid,
    prefixes,
    prometheus,
    recording,
    server,
    trace,
)
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.text import redact

if TYPE_CHECKING:
    from vllm_doctor.model.observation import Observation
    from vllm_doctor.session.view_model import Choice

OPENERS = (
    trace.OPENER,
    bench.OPENER,
    recording.OPENER,
    page.OPENER,
    log.OPENER,
    pid.OPENER,
    prometheus.OPENER,
    kubernetes.OPENER,
    server.OPENER,
)
"""What a word may name; the first that it names is taken."""


def attach(words: Sequence[str], how: Attachment, opened: ExitStack) -> list[Source]:
    """The sources that these words name, none: every server of this host; with what else they and options hold.

    Connections are closed with `opened`. Raises UsageError and SourceError, with one line to act on.
    """
    if how.state is not None:
        how.state.check()
    made = None
    if words and how.command is not None and (made := bench.made_by(how.command, how.deadline)) is not None:
        how = replace(how, command=None, benchmark=made)
    handed = inputs.sorted_out(words, how, _opener)
    how = gpus.checked(how, handed.problems if words else None)
    is_asked = bool(words) or how.command is not None or how.smi is not None or bool(how.kv_events)
    said, printed = inputs.of_options(how, handed)
    printed += handed.gpus
    if printed:
        how = replace(how, printed=printed[0])
    started = command.chosen(said, handed.commands)
    how = replace(how, written=started.only, is_written_whole=started.is_whole)
    how = replace(how, texts=handed.texts, parted=frozenset(handed.parted))
    found = _named(handed.words, how, opened) if handed.words or not is_asked else []
    found += page.of_texts(handed.scrapes, how, found)
    if found:
        found += started.beside(found)
    else:
        found = started.alone(how) or gpus.of_file(how.printed.name if how.printed else "", how)
    found += gpus.of_unseen(found, how)
    found += collect_env.of_texts(handed.environments, how, found)
    found += autoscaler.of_texts(handed.triggers, [*said, *handed.commands], found)
    found += [*handed.problems, *gpus.unused(printed[1:])]
    found += bench.as_said(how, found)
    found += prefixes.of_endpoints(how, found)
    found += recording.beside(how, found)
    how.given.meet(found)
    return [*found, *gpus.named(how, found)]


def _named(words: Sequence[tuple[Opener, str]], how: Attachment, opened: ExitStack) -> list[Source]:
    """The sources that the words name, those of one turn after those of the turn before."""
    if not words:
        how.access.check_found()
        return pid.every(how, opened)
    named = sorted(words, key=lambda pair: (pair[0].turn, how.roles.get(pair[1], "")))
    found: list[Source] = []
    for (opener, role), pairs in groupby(named, key=lambda pair: (pair[0], how.roles.get(pair[1], ""))):
        each = [word for _, word in pairs]
        new = opener.open(each, replace(how, role=role) if role else how, opened, found)
        new = [_with_role(one, role) for one in new] if role else new
        found = [one for one in found if one.kind != opener.in_place_of or one.recording is not None] + [*new]
    return _once(found)


def _with_role(source: Source, role: str) -> Source:
    """The source, of which each look says what it is on the path of a request."""
    look, so_far = source.look, source.so_far

    def so_far_with() -> Observation | None:
        seen = so_far()
        return replace(seen, role=role) if seen is not None else None

    return replace(source, look=lambda: replace(look(), role=role), so_far=so_far_with)


def _opener(word: str) -> Opener | None:
    """Who opens a word that names one kind of source; None: a text that must be looked into, or nothing."""
    if log.is_named_by(word) and os.path.isdir(word) and not os.path.exists(os.path.join(word, "recording.json")):
        return next((opener for opener in (bench.OPENER, trace.OPENER) if opener.is_named_by(word)), None)
    found = next((opener for opener in OPENERS if opener.is_named_by(word)), None)
    return None if found is log.OPENER else found


def _once(sources: Sequence[Source]) -> list[Source]:
    """Each source once, where two words name the same server; what recordings hold is all kept."""
    found: dict[object, Source] = {}
    for place, source in enumerate(sources):
        key = (source.kind, source.target, source.patient) if source.recording is None else place
        found.setdefault(key, source)
    return list(found.values())


def choices(kernel: Kernel | None = None) -> list[Choice]:
    """The vLLM servers of this host, for a person to choose from."""
    from vllm_doctor.session.view_model import Choice
    from vllm_doctor.sources.host import process

    return [
        Choice(
            (str(found.root),),
            redact.text(found.command.model or found.url or f"pid {found.root}", Counter()),
            redact.text(
                " · ".join(
                    part
                    for part in (
                        found.route.name or (found.url.removeprefix("http://") if found.url else "no reachable port"),
                        f"pid {found.root}",
                        f"vLLM {found.version}" if found.version else "",
                        found.user,
                    )
                    if part
                ),
                Counter(),
            ),
        )
        for found in process.find(kernel or Kernel())
    ]
