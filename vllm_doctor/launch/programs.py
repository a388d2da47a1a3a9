"""Programs that start vLLM's engine and are no `vllm serve`: benchmarks of vLLM's own, and batches.

They take vLLM's flags among their own, so the same words are read as `vllm serve` would have them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vllm_doctor.launch.start import Word
from vllm_doctor.launch.unexpanded import is_marked
from vllm_doctor.model import outside
from vllm_doctor.vllm import flags as catalogue
from vllm_doctor.vllm.command_line import flag_of_key, is_python

_BENCHMARKS = frozenset({"throughput", "latency", "startup"})
"""`vllm bench …` of these starts an engine; `vllm bench serve` asks one that runs."""
_MODULES = frozenset({"vllm.entrypoints.openai.run_batch"})
_SCRIPT = re.compile(r"(?:^|/)benchmark_(throughput|latency)\.py$")
BENCHMARK: Mapping[str, str] = {
    "--input-len": "bench_input_len_asked", "--random-input-len": "bench_input_len_asked",
    "--output-len": "bench_output_len_asked", "--random-output-len": "bench_output_len_asked",
}  # fmt: skip
_OWN_SHORT = frozenset({"-i", "-o", "-n", "-h"})
_MOST_NAMED = 6


@dataclass(frozen=True)
class AsServe:
    """The words as `vllm serve` has them, and what is said of that."""

    words: tuple[Word, ...]
    notes: tuple[str, ...]
    benchmark: Mapping[str, float]
    """Tokens that it asks for: facts of BENCHMARK."""


def as_serve(words: Sequence[Word]) -> AsServe | None:
    """The command read as `vllm serve`; None where it is none of these programs."""
    found = program_of([word.text for word in words])
    if found is None:
        return None
    name, at = found
    line = words[0].line
    kept: list[Word] = [Word("vllm", line), Word("serve", line)]
    own: dict[str, None] = {}
    texts = [word.text for word in words[at:]]
    is_kept = True
    for place, word in enumerate(words[at:]):
        if re.match(r"--?[A-Za-z]", word.text):
            is_kept = _is_of_vllm(word.text)
            if not is_kept:
                own[word.text.partition("=")[0]] = None
        elif word.is_split and is_marked(word.text) and not words[at + place - 1].text.startswith("-"):
            is_kept = True  # it may hold any flag
        if is_kept:
            kept.append(word)
    others = f"; its own flags are not judged: {', '.join(list(own)[:_MOST_NAMED])}" if own else ""
    note = f"line {line}: `{name}` starts an engine: read as `vllm serve`{others}"
    return AsServe(tuple(kept), (note,), dict(_lengths(texts)))


def _lengths(texts: Sequence[str]) -> Iterator[tuple[str, float]]:
    for text, following in zip(texts, [*texts[1:], ""], strict=True):
        name, equals, value = text.partition("=")
        fact = BENCHMARK.get(name.replace("_", "-"))
        tokens = outside.number(value if equals else following) if fact is not None else None
        if fact is not None and tokens is not None and tokens >= 0:
            yield fact, tokens


def program_of(argv: Sequence[str]) -> tuple[str, int] | None:
    """The program, and where its arguments begin."""
    if not argv:
        return None
    if posixpath.basename(argv[0]) == "vllm":
        if argv[1:2] == ["run-batch"]:
            return "vllm run-batch", 2
        if argv[1:2] == ["bench"] and argv[2:3] and argv[2] in _BENCHMARKS:
            return f"vllm bench {argv[2]}", 3
        return None
    if not is_python(argv):
        return None
    at = next((place for place in range(1, min(len(argv), 6)) if argv[place] == "-m" or argv[place][:1] != "-"), None)
    if at is None:
        return None
    if argv[at] == "-m":
        module = argv[at + 1] if at + 1 < len(argv) else ""
        return (f"python -m {module}", at + 2) if module in _MODULES else None
    script = _SCRIPT.search(argv[at])
    return (f"benchmark_{script[1]}.py", at + 1) if script else None


def _is_of_vllm(text: str) -> bool:
    name = text.partition("=")[0]
    if not name.startswith("--"):
        return name not in _OWN_SHORT
    flag = flag_of_key(name[2:]).partition(".")[0]
    return catalogue.is_flag(flag) or catalogue.is_flag(flag.replace("--no-", "--", 1))
