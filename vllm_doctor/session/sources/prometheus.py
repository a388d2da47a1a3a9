"""A server whose signals a Prometheus reports: prom+http://host:9090."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source


def is_named_by(word: str) -> bool:
    """prom+http://host:9090."""
    return word.startswith("prom+")


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """The one server that each word chooses. Raises UsageError where the word is no such URL."""
    return [_of_word(word, how, opened) for word in words]


OPENER = Opener(is_named_by, Turn.SERVER, opened)


def _of_word(word: str, how: Attachment, opened: ExitStack) -> Source:
    from vllm_doctor.prometheus import survey
    from vllm_doctor.session.tracks import TRACKS, summed
    from vllm_doctor.sources.server.fetch import shown

    if how.signals is None:
        raise UsageError(f"{word!r}: a Prometheus is not asked here")
    matchers = survey.chosen(word)
    asked = opened.enter_context(closing(survey.Prometheus(word, how.access)))
    server = survey.OneServer(asked, how.signals, matchers, shown(word))
    return Source(
        SourceKind.PROMETHEUS,
        server.target,
        server.target,
        lambda: server.examine(how.asked, how.deadline),
        follow=lambda: survey.Followed(server, how.asked, TRACKS, summed(how.signals) if how.signals else ()),
    )
