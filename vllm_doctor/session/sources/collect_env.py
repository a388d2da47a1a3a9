"""What `vllm collect-env` printed: of the machine of the servers beside it, or by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source


def of_texts(printouts: Sequence[tuple[str, str]], how: Attachment, beside: Sequence[Source]) -> list[Source]:
    """Each text as of the machine of every server beside it, or as a patient of its own; by their names."""
    if not printouts:
        return []
    from vllm_doctor.session.local import gpus_wanted
    from vllm_doctor.sources.collect_env import source

    wanted = None if how.written is None else gpus_wanted(how.written)
    found: list[Source] = []
    for name, text in printouts:
        for patient in dict.fromkeys(one.patient for one in beside) or (name,):
            look = partial(source.examine, text, name, patient, wanted)
            found.append(Source(SourceKind.COLLECT_ENV, name, patient, look))
    return found
