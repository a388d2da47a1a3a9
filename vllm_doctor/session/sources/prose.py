"""A text that is neither a log with statistics nor a benchmark's result, in which people say how fast it was.

What it names beside that figure, the model, the GPUs, the command, counts where no source says it: each is reported as
an assumption.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.text import files

if TYPE_CHECKING:
    from vllm_doctor.launch.start import Start
    from vllm_doctor.sources.bench.prose import Figure

ORIGIN = "text"
_MOST_BYTES = 1 << 20
_NOT_A_LOG = "not-vllm"
_IS_ABOUT = re.compile(r"(?i:vllm|tok|tps)")
_STATISTICS = re.compile(r"generation throughput: ")
_ASSUMED = "assumed"
_DEFAULTS: Mapping[str, Value] = {"--kv-cache-dtype": "auto", "--decode-context-parallel-size": 1.0}
"""Flags on which the speed depends, and which nobody mentions who does not change them."""
_SHOWN = 6
_LONGEST = 60


def within(path: Path | None, read: bytes | bytearray) -> str | None:
    """The text of a file, or that of standard input which was `read`; None where it is too long, or no text."""
    if path is None:
        raw = bytes(read[: _MOST_BYTES + 1])
    elif not os.path.isfile(path):  # a pipe was read as a log
        return None
    else:
        try:
            raw = files.read(path, _MOST_BYTES)
        except OSError:
            return None
    if len(raw) > _MOST_BYTES or b"\0" in raw:
        return None
    text = raw.decode("utf-8", "replace")
    return None if _STATISTICS.search(text) else text


def with_prose(seen: Observation, text: str, how: Attachment) -> Observation:
    """What was seen of a text that holds no measurement, with what people say in it. With --measured the figure is not
    the text's."""
    from vllm_doctor.sources.bench import measured, prose

    told = () if how.measured is not None else prose.figures(text)
    if how.measured is None and len(told) != 1:
        return _unmeasured(seen, text, told, how)
    figure = told[0] if told else None
    facts, models, start, notes = _setup(text, figure.start if figure else 0, how, seen)
    bench = None
    if figure is not None:
        run = measured.of_rate(figure.rate, figure.requests, figure.is_together)
        said = measured.Measured(figure.said, ORIGIN, run)
        facts |= said.facts()
        bench = said.examine(seen.patient).bench
        bench = None if bench is None else replace(bench, target=seen.target)
        notes = (_taken(figure), *notes)
    return Observation(
        SourceKind.BENCH,
        seen.target,
        facts=facts | {name: fact for name, fact in seen.facts.items() if name not in facts or isinstance(fact, Known)},
        models=seen.models or models,
        notes=(*seen.notes, *notes),
        patient=seen.patient or seen.target,
        command=seen.command or (start.argv if start is not None else ()),
        variables=seen.variables or (start.variables if start is not None else {}),
        bench=bench,
    )


def _unmeasured(seen: Observation, text: str, told: Sequence[Figure], how: Attachment) -> Observation:
    """Where no figure, or not one alone, stands in the text: with what to do."""
    if seen.target in how.parted and seen.error is not None:  # something else of it is judged
        return replace(seen, error=None, notes=(*seen.notes, _which(told)) if told else seen.notes)
    said = _which(told) if told else "no speed stands in it; if you know it: --measured 17tok/s"
    if seen.error is None:
        return replace(seen, notes=(*seen.notes, said)) if told else seen
    if seen.error.kind != _NOT_A_LOG or not _IS_ABOUT.search(text):
        return seen
    return replace(seen, error=replace(seen.error, message=f"{seen.error.message}; {said}"))


def _setup(
    text: str, at: int, how: Attachment, seen: Observation
) -> tuple[dict[str, Reading], tuple[str, ...], Start | None, tuple[str, ...]]:
    """Facts, the model's name, the command and assumptions that a text gives where no option and no log does."""
    from vllm_doctor.launch import source as launch
    from vllm_doctor.sources.bench import prose_command, prose_setup
    from vllm_doctor.sources.gpu import gpu_name

    facts: dict[str, Reading] = {}
    notes: list[str] = []
    models: tuple[str, ...] = ()
    count: int | None = None
    is_told = how.written is not None or bool(seen.command) or bool(seen.models)
    start = None if is_told else prose_command.start(text)
    if how.gpu is not None:
        count = gpu_name.parse(how.gpu).count
    elif (found := prose_setup.gpu(text)) is not None:
        words, named = found
        count = named.count
        facts["gpu_written"] = Known(words, origin=ORIGIN)
        notes += [f"GPUs from the text: {f'{count} × ' if count else ''}{named.gpu.name}", *named.assumptions]
    if start is not None:
        version = seen.facts.get("vllm_version")
        if start.version is None and isinstance(version, Known):
            start = replace(start, version=str(version.value))
        facts |= launch.facts(start)
        models = (start.command.model,) if start.command.model else ()
        notes += [f"command from the text: {_short(' '.join(start.argv))}", *launch.notes(start)]
    elif not is_told:
        if (model := prose_setup.model(text, at)) is not None:
            models = (model.name,)
            notes.append(f"model from the text: {_short(model.name)}")
        sizes = _divided(text, count)
        facts |= {name: Known(value, origin=_ASSUMED) for name, value in _DEFAULTS.items()}
        facts |= {f"--{name}-parallel-size": Known(float(size), origin=ORIGIN) for name, size in sizes.items()}
        if said := ", ".join(f"--{name}-parallel-size {size}" for name, size in sizes.items() if size > 1):
            notes.append(f"{said} is assumed: no command is given")
    return facts, models, start, tuple(notes)


def _divided(text: str, gpus: int | None) -> dict[str, int]:
    """How the model is split: as the text says, else over all GPUs that it names."""
    from vllm_doctor.sources.bench import prose_setup

    tensor, pipeline = prose_setup.parallel(text)
    if tensor is None:
        tensor = max(1, (gpus or 1) // (pipeline or 1))
    if tensor & (tensor - 1):  # no model divides by it
        return {}
    return {"tensor": tensor, "pipeline": pipeline or 1, "data": 1}


def _taken(figure: Figure) -> str:
    if figure.requests is None:
        load = "of one request at a time, as the text names no other number"
    elif figure.requests == 1:
        load = "of one request"
    elif figure.is_together:
        load = f"of {figure.requests:g} requests together"
    else:
        load = f"of each of {figure.requests:g} requests"
    return f"speed from the text: {figure.said!r}, {load}; for another: --measured 17tok/s"


def _which(told: Sequence[Figure]) -> str:
    shown = ", ".join(repr(figure.said) for figure in told[:_SHOWN])
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    rate = f"{told[0].of_request:.3g}tok/s"
    return (
        f"{len(told)} speeds stand in the text ({shown}{more}) and none is judged: say which, as in --measured {rate}"
    )


def _short(text: str) -> str:
    return text if len(text) <= 4 * _LONGEST else f"{text[: 4 * _LONGEST - 1]}…"
