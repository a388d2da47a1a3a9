"""What `vllm-doctor compare` names, as a result: of a report, a recording, a server, a log, or a benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_doctor.compare import guidellm, vllm_bench
from vllm_doctor.compare.comparison import Advice, Result
from vllm_doctor.compare.measure import definitions, measured, metrics, window_of
from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.reading import Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import SCHEMA, Measure
from vllm_doctor.recording import archive
from vllm_doctor.text import files
from vllm_doctor.vllm import command_line

if TYPE_CHECKING:  # late below: two reports need no reader of scrapes
    from vllm_doctor.recording.bundle import Recording

_MOST_BYTES = 64 * 1024 * 1024
_REPORT = "vllm-doctor/report/"
_SPREADS = ("parts", "runs", "bucket", "none")
_FROM_VITALS = {
    "generation_tokens_per_second": "tokens_out",
    "prompt_tokens_per_second": "tokens_in",
    "requests_finished_per_second": "requests",
    "requests_waiting": "waiting",
    "requests_running": "running",
    "kv_cache_usage": "kv_cache",
    "preemptions_per_second": "preemptions",
}
"""What a report without measures still tells, as one sample."""


def of_source(source: str, look: Callable[[str], dict[str, Any]]) -> Result:
    """One result. `look` examines what is no file of JSON, and gives the report's document.

    Raises UsageError and SourceError, with one line to act on.
    """
    path = Path(source)
    if "://" in source or source.isdigit() or not path.exists():
        return of_report(look(source), source, kind=None)
    if archive.is_recording(path):
        from vllm_doctor.recording import bundle

        return _of_recording(bundle.read(path), source, look)
    documents = _json(path)
    if documents is None:
        return of_report(look(source), source, kind=None)
    if all(vllm_bench.is_result(document) for document in documents):
        return vllm_bench.result(documents, source)
    (first, *more) = documents
    if guidellm.is_result(first) and not more:
        return guidellm.result(first, source)
    schema = first.get("schema") if isinstance(first, dict) else None
    if isinstance(schema, str) and schema.startswith(_REPORT) and not more:
        if schema != SCHEMA:
            raise UsageError(f"{source} is a report of another format ({schema[:60]}): it needs a newer vllm-doctor")
        return of_report(first, source, kind="report")
    raise UsageError(
        f"{source} is JSON, but neither a report (vllm-doctor --json) nor a result of `vllm bench serve --save-result`"
        " or of GuideLLM"
    )


def _of_recording(found: Recording, name: str, look: Callable[[str], dict[str, Any]]) -> Result:
    """A recording: its scrapes, and what was said when it was taken; where it holds no report, what is said now."""
    if found.report is not None and found.report.get("schema") == SCHEMA:
        result = of_report(found.report, name, kind="recording")
        window = window_of([one.observation(metrics()) for one in found.sources if one.kind == "server"])
        if window is not None:
            result = replace(result, measures={m.name: m for m in measured(window)}, seconds=window.seconds)
    else:  # what is said now was measured now
        result = of_report(look(name), name, kind="recording")
    if found.bench is not None:
        if not vllm_bench.is_result(found.bench):
            raise UsageError(f"{name}: its bench.json is no known result of `vllm bench serve`")
        result = replace(result, bench=vllm_bench.result([found.bench], name))
    words = next((one.command for one in found.sources if one.command), ())
    return replace(result, flags=_flags(words)) if result.flags is None and words else result


def _flags(words: Sequence[str]) -> Mapping[str, Value]:
    return command_line.parse(words, lambda path: Reason.DENIED).flags


def _json(path: Path) -> list[Any] | None:
    """The JSON documents of a file: one, or one a line; None: it is not of JSON."""
    source = str(path)
    if not path.is_file():
        return None
    try:
        raw = files.read(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{source} cannot be read ({error.strerror})") from None
    if raw.lstrip()[:1] not in (b"{", b"["):
        return None
    if len(raw) > _MOST_BYTES:
        first = raw.split(b"\n", 1)[0]
        if len(first) < _MOST_BYTES:
            return None  # a log whose lines are JSON
        raise UsageError(
            f"{source} is JSON of more than {_MOST_BYTES // 2**20} MiB: save it without its single requests"
        )
    try:
        return [outside.json(raw)]
    except outside.DepthError:
        raise UsageError(f"{source} is JSON, nested too deeply") from None
    except ValueError:
        pass
    try:
        found = [outside.json(line) for line in raw.splitlines() if line.strip()]
    except ValueError:
        if raw.lstrip()[:20].replace(b" ", b"").replace(b"\n", b"").startswith(b'{"schema":'):
            raise UsageError(f"{source} is JSON that was cut off: write it again") from None
        return None
    return found if all(vllm_bench.is_result(document) for document in found) else None


def of_report(document: Mapping[str, Any], name: str, kind: str | None) -> Result:
    """A report's document as a result.

    Raises UsageError where it is not what the schema says, and SourceError where nobody was seen in it.
    """
    try:
        result = _of_report(document, name, kind)
        if document["error"] and not result.measures:
            raise SourceError(str(document["error"]["kind"]), str(document["error"]["message"]))
        return result
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"{name} is not a report as vllm-doctor writes it ({type(error).__name__}: {error})") from None


def _of_report(document: Mapping[str, Any], name: str, kind: str | None) -> Result:
    patient, command = document["patient"], document["command"]
    watched = [source for source in document["sources"] if source["kind"] in ("server", "log", "recording")]
    words = [str(word) for word in command["was"]] if command else []
    flags = _flags(words) if words else None
    error = document["error"]
    servers = [source for source in watched if source["kind"] == "server"]
    lacks = [str(error["message"])] if error else []
    if len(servers) > 1:
        lacks.append(f"{len(servers)} servers were examined together: compare one with one")
    gpus = f"{patient['gpus']} × {patient['gpu'] or 'GPU'}" if patient["gpus"] else None
    return Result(
        name=name,
        kind=kind or (str(watched[0]["kind"]) if watched else "command"),
        measures=_measures(document),
        seconds=max((_number(source["window_s"]) for source in watched), default=None) if servers else None,
        model=_text(patient["model"]),
        vllm=_text(patient["vllm"]),
        hardware=gpus,
        flags=flags,
        advice=tuple(_advice(document)),
        found={
            str(finding["rule"]): str(finding["severity"])
            for finding in document["findings"]
            if finding["severity"] in ("critical", "warning") and finding["role"] != "symptom"
        },
        verdict=str(document["verdict"]),
        lacks=tuple(lacks),
        at=_text(document["at"]),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)[:500]


def _measures(document: Mapping[str, Any]) -> dict[str, Measure]:
    found = {}
    for name, told in (document.get("measures") or {}).items():
        if name not in definitions():
            continue  # of a newer doctor
        value, low = _number(told["value"]), _number(told["low"])
        high = math.inf if told["high"] is None else _number(told["high"])
        if told["spread"] not in _SPREADS:
            raise ValueError(f"spread {told['spread']!r}")
        deviation = None if told.get("deviation") is None else _number(told["deviation"])
        found[name] = Measure(name, value, low, high, int(_number(told["samples"])), str(told["spread"]), deviation)
    if found:
        return found
    vitals = document["vitals"]
    return {
        name: Measure(name, value, value, value, 1, "none")
        for vital, name in _FROM_VITALS.items()
        if isinstance(vitals.get(vital), int | float) and (value := _number(vitals[vital])) is not None
    }


def _number(value: object) -> float:
    found = outside.number(value) if isinstance(value, int | float) else None
    if found is None:
        raise ValueError(f"{str(value)[:40]!r} is no number")
    return found


def _advice(document: Mapping[str, Any]) -> Iterator[Advice]:
    """What was advised: the corrected command's changes first, then each remedy."""
    for change in (document["command"] or {}).get("changes") or []:
        yield Advice(str(change["name"]), _value(change["now"]), str(change["rule"]))
    for finding in document["findings"]:
        for remedy in finding["remedies"]:
            now = {**dict.fromkeys(remedy["unset"]), **remedy["set"], **remedy["env"]}
            for flag, value in now.items():
                yield Advice(str(flag), _value(value), str(finding["rule"]), first=False)


def _value(value: object) -> Value | None:
    if value is None or isinstance(value, bool | float | str):
        return value
    return float(value) if isinstance(value, int) else str(value)
