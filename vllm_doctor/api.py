"""The doctor from Python: what the command line does, without its output. All of it is in docs/api.md.

`import vllm_doctor` gives these names and loads this module with the first of them.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Iterable, Mapping
from importlib import import_module

from vllm_doctor.cli import chosen_rules, one_shot
from vllm_doctor.cli import expect as expecting
from vllm_doctor.cli.options import FORMATS, Parser, add_examining
from vllm_doctor.model.errors import DoctorError, SourceError, UsageError
from vllm_doctor.model.expectation import Expectation
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Finding, Remedy, Report, Verdict
from vllm_doctor.rules.rule import Rule
from vllm_doctor.text import words

__all__ = [
    "DoctorError",
    "Expectation",
    "Finding",
    "Remedy",
    "Report",
    "Rule",
    "SourceError",
    "UsageError",
    "Verdict",
    "examine",
    "expect",
    "load_rules",
    "render_report",
]

PathLike = str | os.PathLike[str]


def examine(
    *sources: PathLike | int,
    window: float | None = None,
    timeout: float | None = None,
    command: str | None = None,
    gpu: str | None = None,
    measured: str | None = None,
    nvidia_smi: PathLike | None = None,
    since: str | None = None,
    until: str | None = None,
    threads: int | None = None,
    goal: str | None = None,
    slo: Mapping[str, float] | None = None,
    rules: Iterable[PathLike] = (),
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    strict: bool = False,
    explain: bool = False,
    profile: bool = False,
    kv_events: Iterable[str] = (),
    show_text: bool = False,
    headers: Mapping[str, str] | None = None,
    token_for: Mapping[str, PathLike] | None = None,
    ca_file: PathLike | None = None,
    insecure: bool = False,
) -> Report:
    """Examine these sources together, for `window` seconds (3; 10 with `profile`), and return the report, redacted.

    A source is what the command line takes: a URL, a pid, a log, a recording, a saved page of /metrics; none: every
    vLLM server of this host. The keywords are the command line's options (`vllm-doctor --help`): `window` and `timeout`
    in seconds, `slo` in seconds by name (`{"ttft": 2.0, "itl": 0.05}`), `rules` folders of more rules, `only` and
    `skip` rule ids, `headers` for the servers that are named, `token_for` by a server's URL the file with its token.

    Raises UsageError where the arguments ask for what cannot be done, and SourceError where nothing could be examined;
    both are DoctorErrors, with one line to act on. A source that fails beside others is in `Report.sources`, and
    `Report.error` holds why.
    """
    asked = [
        *_words("window", window),
        *_words("timeout", timeout),
        *_words("command", command),
        *_words("gpu", gpu),
        *_words("measured", measured),
        *_words("nvidia-smi", nvidia_smi),
        *_words("since", since),
        *_words("until", until),
        *_words("threads", threads),
        *_words("goal", goal),
        *_words("slo", *(f"{name}={seconds}s" for name, seconds in (slo or {}).items())),
        *_words("rules", *rules),
        *_words("rule", *only),
        *_words("skip", *skip),
        *_words("kv-events", *kv_events),
        *_words("header", *(f"{name}: {value}" for name, value in (headers or {}).items())),
        *_words("token-for", *(f"{url}={_text(file)}" for url, file in (token_for or {}).items())),
        *_words("ca-file", ca_file),
        *(["--strict"] if strict else []),
        *(["--explain"] if explain else []),
        *(["--profile"] if profile else []),
        *(["--show-text"] if show_text else []),
        *(["--insecure"] if insecure else []),
    ]
    threshold = gc.get_threshold()
    try:
        judge = one_shot.judge_of(_options(asked), is_measured=True, is_quiet=True)
        report = judge([_text(source) for source in sources])
    finally:
        gc.set_threshold(*threshold)  # a program of its own may change it, a guest may not
    if report.error is not None and not report.vitals:
        raise SourceError(report.error.kind, report.error.message)
    return report


def expect(
    model: PathLike | None = None,
    *,
    gpu: str | None = None,
    concurrency: int = 16,
    input_len: int = 1024,
    output_len: int = 1024,
    dtype: str | None = None,
    vllm: str | None = None,
    command: str | None = None,
    flags: Mapping[str, Value] | None = None,
) -> Expectation:
    """What a vLLM server with these flags should do under this load, without a server: `vllm-doctor expect`.

    `concurrency` requests at a time, of so many prompt and generated tokens; `flags`: vLLM's own, by their names
    (`{"--tensor-parallel-size": 4, "--enable-expert-parallel": True}`); `command` in place of `model` and `flags`: a
    command line, or the file that holds one. Times are in seconds.

    Raises UsageError where nothing can be told: the model or the GPU is not known, or an argument is wrong.
    """
    asked = [
        *_words("model", model),
        *_words("gpu", gpu),
        *_words("concurrency", concurrency),
        *_words("input-len", input_len),
        *_words("output-len", output_len),
        *_words("dtype", dtype),
        *_words("vllm", vllm),
        *_words("command", command),
        *(word for name, value in (flags or {}).items() for word in words.setting(name, value)),
    ]
    return expecting.answer(*expecting.parsed(asked))[1]


def _options(asked: list[str]) -> argparse.Namespace:
    parser = Parser("vllm_doctor.examine", "")
    add_examining(parser)
    options = parser.settled([*asked, "--no-config"])
    options.given -= {"--profile"}  # nothing to sample is no mistake of a program's: `profiles` is empty then
    return options


def _words(option: str, *values: PathLike | float | None) -> list[str]:
    """An option as it would stand on the command line, once for each value: the two then mean the same."""
    return [f"--{option}={_text(value)}" for value in values if value is not None]


def _text(value: PathLike | float) -> str:
    return str(value) if isinstance(value, (int, float)) else os.fspath(value)


def render_report(report: Report, format: str = "text") -> str:
    """The report as the command line writes it, in one of its formats: text, json, markdown, html, nagios, …"""
    if format not in FORMATS:
        raise UsageError(f"no format {format!r}; one of: {', '.join(FORMATS)}")
    rendered: str = import_module(f"vllm_doctor.render.{'json_v1' if format == 'json' else format}").render(report)
    return rendered


def load_rules(*folders: PathLike) -> tuple[Rule, ...]:
    """The shipped rules, and those of these folders, in order of id. Raises DoctorError where one is not well."""
    return tuple(chosen_rules.load(_options(_words("rules", *folders)))[0])
