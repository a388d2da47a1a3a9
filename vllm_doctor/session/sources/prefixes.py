"""Prompts, for where they part: of a server that publishes its KV events (--kv-events), or of a log that holds them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import Problem
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source

if TYPE_CHECKING:
    from vllm_doctor.sources.log.bytes_stream import Origin
    from vllm_doctor.sources.prefix.kv_events import Endpoint

_OF_LOG = 10.0
"""Seconds in which a log is read again for its prompts."""
_TO_HAND_OVER = 0.5
_LOGGED = "log:request-logged"


def of_endpoints(how: Attachment, beside: Sequence[Source]) -> list[Source]:
    """Each endpoint, of the one server beside it, or as a patient of its own. Raises UsageError."""
    if not how.kv_events:
        return []
    from vllm_doctor.sources.prefix import kv_events

    patients = {source.patient for source in beside}
    patient = patients.pop() if len(patients) == 1 else ""
    endpoints = [kv_events.parse(text) for text in dict.fromkeys(how.kv_events)]
    return [
        Source(SourceKind.KV_EVENTS, str(each), patient or str(each), partial(_listened, each, patient, how))
        for each in endpoints
    ]


def _listened(endpoint: Endpoint, patient: str, how: Attachment) -> Observation:
    from vllm_doctor.model import prefix
    from vllm_doctor.sources.prefix import kv_events

    until = min(time.monotonic() + how.seconds, how.deadline)
    target, patient = str(endpoint), patient or str(endpoint)
    try:
        seen, notes = kv_events.listen(endpoint, until, how.show_text)
    except SourceError as error:
        return Observation(SourceKind.KV_EVENTS, target, error=Problem(error.kind, str(error)), patient=patient)
    facts = {} if seen is None else prefix.facts(seen, SourceKind.KV_EVENTS)
    return Observation(SourceKind.KV_EVENTS, target, facts=facts, notes=notes, patient=patient, prefixes=seen)


def with_prompts(log: Observation, paths: Sequence[Origin], how: Attachment, is_alive: bool) -> Observation:
    """A log with what the prompts in it have in common, where its server logs requests. `is_alive`: it is not waited
    for."""
    logged = any(isinstance(fact := run.facts.get(_LOGGED), Known) and fact.value for run in log.runs)
    if not logged:
        return log
    if None in paths:
        return replace(log, notes=(*log.notes, "prompts in it are not compared: give the log as a file, not by a pipe"))
    from vllm_doctor.model import prefix
    from vllm_doctor.sources.prefix import request_log

    until = how.deadline - _TO_HAND_OVER if is_alive else time.monotonic() + _OF_LOG
    try:
        seen, notes = request_log.examine(paths, log.target, how.show_text, lambda: time.monotonic() > until)
    except SourceError:  # it was read a moment ago
        return log
    if seen is None:
        return replace(log, notes=(*log.notes, *notes))
    facts = prefix.facts(seen, SourceKind.LOG)
    *earlier, newest = log.runs
    runs = (*earlier, replace(newest, facts={**newest.facts, **facts}))
    return replace(log, facts={**log.facts, **facts}, runs=runs, notes=(*log.notes, *notes), prefixes=seen)
