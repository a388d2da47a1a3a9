"""`vllm-doctor flags`: the list of a version's flags; the page of one flag, environment variable or metric."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_doctor.vllm import defaults, flags, metrics
from vllm_doctor.vllm.defaults import DeviceDefault
from vllm_doctor.vllm.flags import Flag, Parser

_WIDTH = 80
_NAME = re.compile(r"--?[A-Za-z][\w.+-]*(=.*)?|[A-Za-z][\w.-]*|vllm:\w+", re.ASCII)
_LONGEST = 200
_GONE = "gone: "
_FULL = 44  # of a default, in the list


@dataclass(frozen=True)
class Page:
    """The text, and whether the version has what was asked for."""

    text: str
    is_there: bool


def listing(parser: Parser, remark: str) -> str:
    """All flags of a vLLM, a line each: spellings, what they take, default. `remark`: said below the title, or ""."""
    lines = [f"vLLM {parser.version}: {len(parser.flags)} flags", *([remark] if remark else []), ""]
    for flag in sorted(parser.flags, key=lambda flag: flag.name):
        spelled = " ".join(flag.spellings)
        default = "" if flag.default in (None, "None") else f" [{_cut(flag.default or '')}]"
        note = " (deprecated)" if flag.is_deprecated else ""
        lines.append(f"{spelled:<42} {flag.kind or ''}{default}{note}".rstrip())
    return "\n".join(lines) + "\n\none flag's page: vllm-doctor flags VERSION FLAG\n"


def is_name(text: str) -> bool:
    """Whether a page can be asked for: of a flag, with or without its dashes, a variable or a metric."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


def page(parser: Parser, name: str, remark: str) -> Page:
    """What a vLLM says to a flag, an environment variable (VLLM_…) or a metric (vllm:…)."""
    if name.startswith("vllm:"):
        return _metric(parser.version, name, remark)
    if not name.startswith("-") and name == name.upper():
        return _variable(parser.version, name, remark)
    return _flag(parser, name if name.startswith("-") else f"--{name}", remark)


def _flag(parser: Parser, name: str, remark: str) -> Page:
    written = name.partition("=")[0]
    flag = parser.flag(written)
    short_for = None if flag else parser.abbreviated(written)
    if short_for:
        flag = parser.flag(short_for)
    if flag is None:
        return _absent(written, parser.version, remark, flags.spans(written), parser.nearest(written))
    rows = [("spelled", " ".join(flag.spellings)), ("takes", _takes(flag))]
    if flag.off:
        rows.insert(1, ("off", " ".join(flag.off)))
    if flag.choices:
        rows.append(("choices", " ".join(flag.choices)))
    rows.append(("default", _default(flag.default)))
    rows += [("", line) for line in _by_device(defaults.of_flag(parser.version, flag.name))]
    rows += _run(flag.since, flag.until, flags.samples()[0])
    if flag.is_deprecated:
        rows.append(("deprecated", "yes"))
    rows += _instead(flag.name) if flag.is_deprecated or flag.until else []
    lead = f"{written}: short for {short_for}" if short_for else written
    return Page(_written(lead, f"vLLM {parser.version} takes it", remark, rows), True)


def _variable(version: str, name: str, remark: str) -> Page:
    variable = flags.environment(version, name)
    if variable is None:
        return _absent(name, version, remark, flags.environment_spans(name), flags.nearest_environment(version, name))
    default = "depends on the machine" if variable.default is None else _default(variable.default)
    rows = [("default", default), *_run(variable.since, variable.until, flags.first())]
    rows += _instead(name) if variable.until else []
    return Page(_written(name, f"vLLM {version} reads it", remark, rows), True)


def _metric(version: str, name: str, remark: str) -> Page:
    metric = metrics.metric(version, name)
    if metric is None:
        return _absent(name, version, remark, metrics.spans(name), metrics.nearest(version, name))
    rows = [("kind", metric.kind or "not known"), ("engine", " ".join(metric.engines))]
    if metric.name != name:
        rows.insert(0, ("shown as", metric.name))
    if metric.is_hidden:
        rows.append(("hidden", "shown only with --show-hidden-metrics-for-version"))
    rows += _run(metric.since, metric.until, flags.samples()[0])
    rows += _instead(metric.name) if metric.until or metric.is_hidden else []
    return Page(_written(name, f"vLLM {version} has it", remark, rows), True)


def _absent(name: str, version: str, remark: str, spans: Sequence[tuple[str, str]], nearest: Sequence[str]) -> Page:
    rows = []
    if spans:
        rows.append(("was in" if _is_past(spans, version) else "is in", ", ".join(_span(*span) for span in spans)))
    instead = _instead(name)
    if not spans and not instead:
        rows.append(("was in", "no known version"))
    rows += instead
    if nearest and not instead:
        rows.append(("nearest", ", ".join(nearest)))
    return Page(_written(name, f"vLLM {version} does not have it", remark, rows), False)


def _is_past(spans: Sequence[tuple[str, str]], version: str) -> bool:
    return spans[-1][1] != flags.newest()


def _span(first: str, last: str) -> str:
    if last == flags.newest():
        return f"{first} and later"
    return first if first == last else f"{first} to {last}"


def _instead(name: str) -> list[tuple[str, str]]:
    found = flags.replacement(name)
    if found is None:
        return []
    if found.instead.startswith(_GONE):
        return [("gone", found.instead.removeprefix(_GONE)), ("source", found.source)]
    return [("now", found.instead), ("source", found.source)]


def _run(since: str | None, until: str | None, oldest: str) -> list[tuple[str, str]]:
    if since is None:
        return [("since", "not in the catalogue")]
    if since == oldest:
        since += " or before"
    elif since in flags.samples():
        since += " at the latest"
    return [("since", since), ("until", until or f"still there in {flags.newest()}")]


def _takes(flag: Flag) -> str:
    says = {
        None: "not known",
        "switch": "nothing: a switch",
        "on-off": "nothing: a switch, to turn on or off",
        "size": "an int, also as 2k or 2K",
        "json": "JSON",
    }
    return says.get(flag.kind, flag.kind or "")


def _default(default: str | None) -> str:
    if default is None:
        return "not known"
    return {"None": "none: vLLM decides", "": '""'}.get(default, default)


def _by_device(rows: Sequence[DeviceDefault]) -> list[str]:
    """A line for each: "8192 on a GPU of 70 GiB or more that is no A100", "2048 on another GPU"."""
    return [f"{row.value} {_device(row, is_first=row is rows[0])}" for row in rows]


def _device(row: DeviceDefault, is_first: bool) -> str:
    if row.device != "GPU":
        return "a worker on the CPU"
    if row.gpus:
        return f"on an {' or '.join(row.gpus)}"
    if row.min_gib is None:
        return "on any GPU" if is_first else "on another GPU"
    but = f" that is {'no' if len(row.but_not) == 1 else 'neither'} {' nor '.join(row.but_not)}" if row.but_not else ""
    return f"on {'a GPU' if is_first else 'one'} of {row.min_gib} GiB or more{but}"


def _cut(text: str) -> str:
    return text if len(text) <= _FULL else text[: _FULL - 1] + "…"


def _written(title: str, verdict: str, remark: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = [title, "=" * min(_WIDTH, len(title)), *textwrap.wrap(verdict, _WIDTH)]
    lines += [*textwrap.wrap(remark, _WIDTH), ""] if remark else [""]
    for label, text in rows:
        lines += textwrap.wrap(
            f"{label:<11}{text}", _WIDTH, subsequent_indent=" " * 11, break_on_hyphens=False, break_long_words=False
        )
    return "\n".join(lines) + "\n"
