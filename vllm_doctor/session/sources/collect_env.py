"""What `vllm collect-env` printed into a file: of the machine of the servers beside it, or by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import log
from vllm_doctor.sources.bench import signs
from vllm_doctor.text import files
from vllm_doctor.text.encoding import decoded

_MOST_BYTES = 4_000_000
_COMMAND = re.compile(rb"\bvllm serve\b|\bvllm\.entrypoints\b|\bdocker run\b")


def is_named_by(word: str) -> bool:
    """A file that holds a printout, and neither a log nor a result nor a command beside it."""
    if word == log.STDIN or not log.is_named_by(word) or not Path(word).is_file():
        return False
    from vllm_doctor.sources.collect_env import document

    text = signs.ends(Path(word))
    return document.holds(text) and not any(sign.search(text) for sign in (signs.SIGNS, signs.SERVER_LOG, _COMMAND))


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """Each file as of the machine of every server beside it, or as a patient of its own."""
    from vllm_doctor.session.local import gpus_wanted
    from vllm_doctor.sources.collect_env import source

    wanted = None if how.written is None else gpus_wanted(how.written)
    found: list[Source] = []
    for word in words:
        text = _text(word)
        for patient in dict.fromkeys(one.patient for one in beside) or (word,):
            look = partial(source.examine, text, word, patient, wanted)
            found.append(Source(SourceKind.COLLECT_ENV, word, patient, look))
    return found


OPENER = Opener(is_named_by, Turn.MACHINE, opened)


def _text(word: str) -> str:
    """Raises SourceError."""
    try:
        raw = files.read(word, _MOST_BYTES)
    except OSError as error:
        raise SourceError("unreadable", f"{word}: cannot be read ({error.strerror})") from None
    if len(raw) > _MOST_BYTES:
        raise SourceError("too-large", f"{word}: larger than 4 MB: the output of collect-env is not")
    return decoded(raw)
