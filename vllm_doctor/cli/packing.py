"""A recording as a file, with the report on what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from vllm_doctor.cli.options import ONE_DAY
from vllm_doctor.compare import measure
from vllm_doctor.model.report import Report
from vllm_doctor.recording import archive, bundle
from vllm_doctor.recording.bundle import Recording
from vllm_doctor.render import json_v1
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import Rule
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.judge import judge
from vllm_doctor.session.observe import observe
from vllm_doctor.session.sources.recording import of_recording
from vllm_doctor.text import redact


def packed(
    name: str, parts: dict[str, bytes], look: Attachment, rules: Sequence[Rule], signals: Catalogue
) -> tuple[bytes, Report, Recording]:
    """The file, its report, and what it holds, read back: so the report is the same wherever it is read."""
    found = bundle.parsed(name, parts)
    observations = observe(list(of_recording(found, look)), ONE_DAY)
    report = redact.report(judge(observations, rules, signals, {}, datetime.now(UTC)))
    window = measure.window_of(observations)
    report = replace(report, measures=measure.measured(window) if window is not None else ())
    seen = replace(report.recordings[0], verdict=report.verdict.value, headline=report.headline)
    report = replace(report, at=found.taken, recordings=(seen,))
    return archive.packed(parts | {"report.json": json_v1.render(report).encode()}), report, found
