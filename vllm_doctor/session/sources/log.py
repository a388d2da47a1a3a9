"""A log: files, or standard input, that are read together."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import bench, gpus, prefixes, prose

if TYPE_CHECKING:
    from vllm_doctor.sources.log.bytes_stream import Origin
    from vllm_doctor.sources.log.source import Period

STDIN = "-"


def is_named_by(word: str) -> bool:
    """A file, or `-`. A number is a pid, unless it is written as ./123."""
    return word == STDIN or ("://" not in word and not word.isdigit() and os.path.exists(word))


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """All of them as one log. With one server beside it, it is that server's; GPUs that are not seen otherwise are
    those of --nvidia-smi."""
    patients = {source.patient for source in beside}
    paths = [_origin(word, how) for word in words]
    log = of_files(paths, how, patients.pop() if len(patients) == 1 else "")
    measured = list(bench.in_log([path for path in paths if isinstance(path, Path)], log.patient))
    has_gpus = any(source.kind is SourceKind.GPU for source in beside)
    return [log, *measured] if has_gpus else [log, *measured, *gpus.of_file(log.patient, how, how.written)]


def _origin(word: str, how: Attachment) -> Origin:
    if word in how.texts:
        from vllm_doctor.sources.log.bytes_stream import Held

        return Held(word, how.texts[word], time.time())
    return None if word == STDIN else Path(word)


OPENER = Opener(is_named_by, Turn.LOG, opened, in_place_of=SourceKind.LOG)


def of_files(given: Sequence[Origin], how: Attachment, patient: str = "") -> Source:
    """The log in these files, None: standard input; `patient`: the server that writes it, where that is known."""
    from vllm_doctor.rules import log_lines, rule
    from vllm_doctor.sources.host.process_log import ProcessLog
    from vllm_doctor.sources.log import bytes_unpacked, source
    from vllm_doctor.sources.log.bytes_stream import Held

    paths = list(dict.fromkeys(given))
    table = log_lines.load(rule.shipped(), *how.folders)
    watch = how.seconds if how.state is None else 0.0  # a hook takes what stands there
    log = source.Log(paths, table, *periods(how), watch=watch if patient else None, threads=how.threads)
    of_server, patient = bool(patient), patient or log.target

    def look() -> Observation:
        seen = prefixes.with_prompts(log.examine(patient), paths, how, of_server)
        for path in paths:
            if path is None or isinstance(path, Held):
                seen = bench.with_results(seen, bytes(bytes_unpacked.from_stdin) if path is None else path.text)
        is_unmeasured = seen.bench is None and not any(run.rounds for run in seen.runs) and not of_server
        if not is_unmeasured or len(paths) != 1 or isinstance(paths[0], ProcessLog) or how.since or how.until:
            return seen
        origin = paths[0]
        raw = origin.text if isinstance(origin, Held) else bytes_unpacked.from_stdin
        text = prose.within(origin if isinstance(origin, Path) else None, raw)
        return seen if text is None else prose.with_prose(seen, text, how)

    return Source(
        SourceKind.LOG,
        log.target,
        patient,
        look,
        bytes_read=lambda: log.bytes_read,
        share_read=lambda: log.share_read,
        follow=(lambda: source.Followed(paths, table, patient)) if of_server else None,
        logs=tuple(paths),
    )


def periods(how: Attachment) -> tuple[Period | None, Period | None]:
    """--since and --until. Raises UsageError."""
    from vllm_doctor.sources.log import source

    return source.period(how.since) if how.since else None, source.period(how.until) if how.until else None
