"""The signals of a server that is only written down: a command, the names of its GPUs, a version."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Reading
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.session.attach import attach
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.observe import observe
from vllm_doctor.session.patients import patients
from vllm_doctor.sources.server.access import Access

_SECONDS = 8.0


def read(command: str, gpu: str | None, vllm: str | None, catalogue: Catalogue) -> Callable[[str], Reading]:
    """How to read them. Raises UsageError and SourceError, with one line to act on."""
    until = time.monotonic() + _SECONDS
    how = Attachment(catalogue.metrics, Access(), 0.0, until, command=command, gpu=gpu, vllm=vllm)
    with ExitStack() as opened:
        examined = patients(observe(attach((), how, opened), _SECONDS))
    if len(examined) != 1:
        raise UsageError("give one command of vLLM")
    found = examined[0].snapshot(catalogue, {}, False)
    subject = found.subjects[0] if found.subjects else ()
    return lambda name: found.read(name, subject)[1]
