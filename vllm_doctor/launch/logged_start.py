"""The arguments that vLLM wrote to a log when it started, given as a command: `non-default args: {…}`, `args:
Namespace(…)`, or its configuration (`Initializing a V1 LLM engine (v0.11.0) with config: …`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from vllm_doctor.launch.start import Form, Word, Written
from vllm_doctor.model.reading import Value
from vllm_doctor.sources.log import entry_arguments
from vllm_doctor.vllm import flags as catalogue

_MOST = 8
_LONGEST = 20_000
_ARGUMENTS = re.compile(r"(?<!\w)(?:(?P<set>non-default )args: (?=[{A-Z])|args: (?=Namespace\())")
_CONFIG = re.compile(r"LLM engine (?:\(v(?P<version>[^)\n]{1,60})\) )?with config: ")
_VERSION = re.compile(r"(?:vLLM API server version |vLLM version |LLM engine \(v)(\d{1,3}\.\d{1,4}[\w.+]{0,60})")
_OF_CONFIG = {"max_seq_len": "max_model_len", "chunked_prefill_enabled": "enable_chunked_prefill"}
_GIVEN = frozenset(
    {
        "model", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_seq_len", "dtype",
        "quantization", "enforce_eager", "kv_cache_dtype", "enable_prefix_caching", "chunked_prefill_enabled",
        "enable_chunked_prefill", "load_format", "served_model_name",
    }
)  # fmt: skip
"""What of the configuration is a flag with that value."""
_SETTING = re.compile(r"(?:^|, )(\w{1,60})=('[^'\n]{0,300}'|[\w./:-]{1,200})(?=,)")


def has_arguments(text: str) -> bool:
    return _ARGUMENTS.search(text) is not None or _CONFIG.search(text) is not None


def starts(text: str, line: int = 1) -> list[Written]:
    """The servers whose arguments stand in a text; the configuration counts where no arguments do."""
    version = version_in(text)
    found = [
        _of_arguments(text[match.end() : match.end() + _LONGEST], not match["set"], version, _line(text, match, line))
        for match in _first(_ARGUMENTS, text)
    ]
    found = found or [
        _of_config(text[match.end() : match.end() + _LONGEST], match["version"] or version, _line(text, match, line))
        for match in _first(_CONFIG, text)
    ]
    return list({tuple(word.text for word in one.words): one for one in found}.values())


def version_in(text: str) -> str | None:
    """vLLM's version, as it logs it."""
    told = _VERSION.search(text)
    return told[1].partition("+")[0] if told else None


def _first(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    for count, match in enumerate(pattern.finditer(text)):
        if count >= _MOST:
            return
        yield match


def _line(text: str, match: re.Match[str], line: int) -> int:
    return line + text.count("\n", 0, match.start())


def _of_arguments(text: str, with_defaults: bool, version: str | None, line: int) -> Written:
    found = entry_arguments.parse(text, with_defaults)
    given = found.given(version)
    notes = () if found.whole else ("the arguments are cut off in the text: more may be given",)
    return _written(found.model, given.flags, version, line, not found.whole, notes)


def _of_config(text: str, version: str | None, line: int) -> Written:
    text = text.partition("\n")[0]
    told = {match[1]: match[2].strip("'") for match in _SETTING.finditer(text) if match[1] in _GIVEN}
    model = told.pop("model", None)
    flags: dict[str, Value] = {}
    for key, value in told.items():
        flag = f"--{_OF_CONFIG.get(key, key).replace('_', '-')}"
        if value.rpartition(".")[2] in ("None", "False", "auto", "AUTO") or not catalogue.is_flag(flag):
            continue
        flags[flag] = True if value == "True" else value.removeprefix("torch.")
    note = "from the configuration that vLLM logged, with what it chose by itself; other settings are not in it"
    return _written(model, flags, version, line, True, (note,))


def _written(
    model: str | None, flags: Mapping[str, Value], version: str | None, line: int, is_open: bool, notes: tuple[str, ...]
) -> Written:
    words = ["vllm", "serve", *([model] if model else [])]
    for flag, value in flags.items():
        if flag == "--model":
            continue
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, f"{value:.12g}" if isinstance(value, float) else str(value)]
    return Written(
        [Word(word, line) for word in words],
        Form.LOG,
        place=f"line {line}",
        is_open=is_open,
        notes=notes,
        version=version,
        of_keywords=True,
    )
