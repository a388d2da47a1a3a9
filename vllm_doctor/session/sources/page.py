"""A saved scrape of /metrics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import gpus, log


def is_named_by(word: str) -> bool:
    """A file that holds a page of /metrics."""
    if word == log.STDIN or not log.is_named_by(word):
        return False
    from vllm_doctor.sources.server import saved_scrape

    return saved_scrape.is_page(Path(word))


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """Each page as a server of its own, with the GPUs of --nvidia-smi."""
    from vllm_doctor.sources.server import saved_scrape

    found: list[Source] = []
    for word in words:
        look = partial(saved_scrape.examine, Path(word), how.wanted, how.role)
        found += [Source(SourceKind.PAGE, word, word, look), *gpus.of_file(word, how)]
    return found


def of_texts(scrapes: Sequence[tuple[str, str]], how: Attachment, beside: Sequence[Source]) -> list[Source]:
    """Lines of pages that stand among other things: of the one server beside them, else servers of their own."""
    if not scrapes:
        return []
    from vllm_doctor.sources.server import saved_scrape

    patients = list(dict.fromkeys(source.patient for source in beside))
    found: list[Source] = []
    for name, text in scrapes:
        patient = patients[0] if len(patients) == 1 and len(scrapes) == 1 else name
        look = partial(saved_scrape.of_text, name, text, how.wanted, patient)
        found += [Source(SourceKind.PAGE, name, patient, look)]
        if not beside:
            found += gpus.of_file(patient, how)
    return found


OPENER = Opener(is_named_by, Turn.PAGE, opened)
