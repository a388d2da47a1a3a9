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
    from vllm_doctor.sources.bench.prose import Figure, Told
    from vllm_doctor.sources.bench.prose_upgrade import Upgrade

ORIGIN = "text"
_MOST_BYTES = 1 << 20
_NOT_A_LOG = "not-vllm"
_IS_ABOUT = re.compile(r"(?i:vllm|tok|tps)")
_STATISTICS = re.compile(r"generation throughput: ")
_ASSUMED = "assumed"
_DEFAULTS: Mapping[str, Value] = {"--kv-cache-dtype": "auto", "--decode-context-parallel-size": 1.0}
"""Flags on which the speed depends, and which nobody mentions who does not change them."""
_RELEASE = re.compile(r"(\d{1,2}\.\d{1,2})(\.\d{1,2})?(?![\d])")
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

    told = prose.told(text)
    figure = _his(told.own, how) if how.measured is None else None
    if how.measured is None and figure is None and not (told.upgrade is not None and told.upgrade.is_worse):
        return _unmeasured(seen, text, told, how)
    facts, models, start, notes = _setup(text, figure.start if figure else 0, how, seen)
    if figure is None and how.measured is None and told.own:
        notes = (_which(told), *notes)
    if figure is not None and figure.model and start is None and not (how.written or seen.command or seen.models):
        models = (figure.model,)
    bench = None
    if figure is not None:
        run = measured.of_rate(figure.rate, figure.requests, figure.is_together)
        said = measured.Measured(figure.said, ORIGIN, run)
        facts |= said.facts() | _counted(figure)
        bench = said.examine(seen.patient).bench
        bench = None if bench is None else replace(bench, target=seen.target)
        notes = (_taken(figure, told), *notes)
    if told.upgrade is not None and how.measured is None:
        facts |= _of_upgrade(told.upgrade, told, figure)
        notes = (*notes, f"upgrade from the text: {told.upgrade.before} to {told.upgrade.after}")
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


def _his(own: Sequence[Figure], how: Attachment) -> Figure | None:
    """The speed of the server that is examined: the only one, or that of the model which its command names."""
    if len(own) == 1:
        return own[0]
    model = how.written.model if how.written is not None else None
    mine = [figure for figure in own if model and figure.model and _plain(figure.model) == _plain(model)]
    return mine[0] if len(mine) == 1 else None


def _plain(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2].lower()


def _counted(figure: Figure) -> dict[str, Reading]:
    """Whether somebody says of how many requests the figure is."""
    return {"bench_count_told": Known(0.0, origin=ORIGIN)} if figure.is_total else {}


def _of_upgrade(upgrade: Upgrade, told: Told, figure: Figure | None) -> dict[str, Reading]:
    """Between which versions something changed, and what the text says of both."""
    from vllm_doctor.sources.bench import prose

    before = [one for one, what in told.references if what == prose.BEFORE]
    found: dict[str, Reading] = {
        "upgrade_from": Known(upgrade.before, origin=ORIGIN),
        "upgrade_to": Known(upgrade.after, origin=ORIGIN),
        "upgrade_is_worse": Known(float(upgrade.is_worse), origin=ORIGIN),
    }
    if figure is not None and len(before) == 1 and before[0].requests == figure.requests:
        found["speed_before"] = Known(before[0].of_request, origin=ORIGIN)
    releases = {"upgrade_from_release": upgrade.before, "upgrade_to_release": upgrade.after}
    return found | {
        name: Known(release, origin=ORIGIN) for name, version in releases.items() if (release := _release(version))
    }


def _release(version: str) -> str | None:
    """The release that a version is, or that a build of somebody's is named after."""
    from vllm_doctor.vllm import flags

    match = _RELEASE.match(version)
    plain = f"{match[1]}{match[2] or '.0'}" if match else ""
    return plain if plain in flags.releases() else None


def _unmeasured(seen: Observation, text: str, told: Told, how: Attachment) -> Observation:
    """Where no figure, or not one alone, stands in the text: with what to do."""
    if seen.target in how.parted and seen.error is not None:  # something else of it is judged
        return replace(seen, error=None, notes=(*seen.notes, _which(told)) if told.own else seen.notes)
    said = _which(told) if told.own else "no speed stands in it; if you know it: --measured 17tok/s"
    if seen.error is None:
        return replace(seen, notes=(*seen.notes, said)) if told.own else seen
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
    elif not is_told and (model := prose_setup.model(text, at)) is not None:
        models = (model.name,)
        notes.append(f"model from the text: {_short(model.name)}")
    if start is None and not (is_told and how.is_written_whole):
        sizes = _divided(text, count)
        facts |= {name: Known(value, origin=_ASSUMED) for name, value in _DEFAULTS.items()}
        facts |= {f"--{name}-parallel-size": Known(float(size), origin=ORIGIN) for name, size in sizes.items()}
        said = ", ".join(f"--{name}-parallel-size {size}" for name, size in sizes.items() if size > 1 or is_told)
        if said:
            why = "the command is cut" if is_told else "no command is given"
            notes.append(f"{said} is assumed: {why}")
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


def _taken(figure: Figure, told: Told) -> str:
    another = "--measured 17tok/s"
    if figure.is_total:
        load = (
            "of all requests together, as the text has it, and not of how many: one is assumed, of more each got less"
        )
        another = f"--measured {figure.rate:.3g}tok/s@8"
    elif figure.requests is None:
        load = "of a single request, as the text names no other number"
    elif figure.requests == 1:
        load = "of one request"
    elif figure.is_together:
        load = f"of {figure.requests:g} requests together"
    else:
        load = f"of each of {figure.requests:g} requests"
    others = [_named(one) for one in told.own if one is not figure]
    beside = f"; not of this server: {', '.join(others[:_SHOWN])}" if others else ""
    return f"speed from the text: {_named(figure)}, {load}{beside}{_compared(told)}; for another: {another}"


def _which(told: Told) -> str:
    own = told.own
    shown = ", ".join(_named(figure) for figure in own[:_SHOWN])
    more = f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
    rate = f"{own[0].of_request:.3g}tok/s"
    stand = f"{len(own)} speeds stand in the text ({shown}{more}){_compared(told)}"
    return f"{stand} and none is judged: say which, as in --measured {rate}"


def _named(figure: Figure) -> str:
    return f"{figure.said!r}{f' of {_short(figure.model)}' if figure.model else ''}"


def _compared(told: Told) -> str:
    """What the speed is compared with, as the text says it."""
    if not told.references:
        return ""
    shown = ", ".join(f"{one.said!r} ({what})" for one, what in told.references[:_SHOWN])
    return f", with {shown}"


def _short(text: str) -> str:
    return text if len(text) <= 4 * _LONGEST else f"{text[: 4 * _LONGEST - 1]}…"
