"""Benchmark commands within a text, and the `Namespace(…)` that vLLM's tools print when they start: their flags.

Nothing is run, and nothing expanded. Flags are looked up by the names that the tool itself has; what follows them is
kept as it stands.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.model import outside
from vllm_doctor.sources.bench.run import LATENCY, SERVE, THROUGHPUT, Asked, BenchRun

_PROGRAM = re.compile(
    r"(?<![\w./-])(?P<words>vllm[ \t]+bench[ \t]+(?P<sub>serve|throughput|latency)"
    r"|python3?(?:\.\d+)?[ \t]+(?:-m[ \t]+)?[\w./-]{0,200}benchmark_(?P<old>serving|throughput|latency)(?:\.py)?"
    r"|python3?(?:\.\d+)?[ \t]+[\w./-]{1,200}\.py)"
    r"(?=[ \t\\\n]|$)"
)
_TOOLS = {
    "serve": SERVE, "serving": SERVE, "throughput": THROUGHPUT, "latency": LATENCY,
}  # fmt: skip
_MOST_COMMANDS = 64
_MOST_CHARS = 6_000
_JOINED = re.compile(r"\\[ \t]*\n[ \t]{0,40}(?:>[ \t]{0,4})?")
_END = re.compile(r"\n|[|;&]|(?<!\S)#|(?<!\S)\d?>")
_NAMESPACE = re.compile(r"\bNamespace\(")
_ENTRY = re.compile(r"\b(?P<name>[a-z][a-z0-9_]{0,60})=(?P<value>'[^'\n]{0,300}'|[^\s,()'{}\[\]<>]{1,100})(?=[,)])")
_ABBREVIATED = (
    "--num-prompts", "--request-rate", "--max-concurrency", "--dataset-name", "--dataset-path", "--random-input-len",
    "--random-output-len", "--random-range-ratio", "--random-prefix-len", "--sharegpt-output-len", "--num-warmups",
    "--batch-size", "--input-len", "--output-len", "--ignore-eos",
)  # fmt: skip
"""Flags that are looked up, and that no other flag of the tools is the beginning of."""
_SHORTEST = len("--request")
_DEFAULT_LENGTHS = {LATENCY: (32.0, 128.0)}
_RANDOM = (1024.0, 128.0)
"""--random-input-len and --random-output-len, where they are not given: the same in all releases."""


@dataclass(frozen=True, slots=True)
class BenchCommand:
    """A command that starts a benchmark: where it begins and ends in its text, its program, and its flags."""

    tool: str
    start: int
    end: int
    program: tuple[str, ...]
    flags: Mapping[str, str]
    is_whole: bool = True
    """Whether all flags that differ from the defaults are there."""

    @property
    def model(self) -> str | None:
        return self.flags.get("--model") or self.flags.get("-m")


def commands(text: str) -> Iterator[BenchCommand]:
    """The commands, and the namespaces that were printed, in the order in which they stand."""
    found = [*_written(text), *_printed(text)]
    yield from sorted(found, key=lambda command: command.start)[:_MOST_COMMANDS]


def _written(text: str) -> Iterator[BenchCommand]:
    for count, match in enumerate(_PROGRAM.finditer(text)):
        if count >= _MOST_COMMANDS:
            return
        raw = _JOINED.sub(" ", text[match.end() : match.end() + _MOST_CHARS])
        end = _END.search(raw)
        line = raw[: end.start()] if end else raw
        try:
            words = shlex.split(line)
        except ValueError:  # a quote that is not closed
            words = line.split()
        if not words or not words[0].startswith("-"):
            continue  # a sentence about it
        program, flags = tuple(match["words"].split()), _flags(words)
        tool = _TOOLS.get(match["sub"] or match["old"]) or _tool_of_copy(flags)
        if tool is not None:
            yield BenchCommand(tool, match.start(), match.end(), program, flags)


def _tool_of_copy(flags: Mapping[str, str]) -> str | None:
    """What a script of another name does: people keep copies of benchmark_serving.py."""
    return SERVE if {"--num-prompts", "--request-rate"} <= flags.keys() else None


def _flags(words: list[str]) -> dict[str, str]:
    """Flag -> its value; "" where none follows. Of several values the first."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if re.match(r"-{1,2}[A-Za-z]", word):
            name, _, value = word.partition("=")
            name = _whole(name.replace("_", "-"))
            found[name] = value
        elif name and not found[name]:
            found[name] = word
    return found


def _whole(name: str) -> str:
    """The flag that argparse takes an abbreviation for: `--num-prompt`. Of one that several begin with, itself."""
    meant = [flag for flag in _ABBREVIATED if flag.startswith(name)]
    return meant[0] if len(meant) == 1 and len(name) >= _SHORTEST else name


def _printed(text: str) -> Iterator[BenchCommand]:
    """`Namespace(backend='vllm', num_prompts=100, …)`: what the tool took, defaults included."""
    for count, match in enumerate(_NAMESPACE.finditer(text)):
        if count >= _MOST_COMMANDS:
            return
        end = text.find("\n", match.end())
        line = text[match.end() : min(end if end >= 0 else len(text), match.end() + _MOST_CHARS)]
        entries = {entry["name"]: entry["value"].strip("'") for entry in _ENTRY.finditer(line)}
        if "num_prompts" not in entries and "num_iters" not in entries:
            continue
        tool = SERVE if "request_rate" in entries else LATENCY if "num_iters" in entries else THROUGHPUT
        flags: dict[str, str] = {}
        for name, value in entries.items():
            if value in ("None", "False"):
                continue
            flags[f"--{name.replace('_', '-')}"] = "" if value == "True" else value
        dataset = flags.get("--dataset-name")
        flags = {name: value for name, value in flags.items() if not _is_of_another(name, dataset)}
        yield BenchCommand(tool, match.start(), match.start() + len(line), ("vllm", *tool.split()[1:]), flags, True)


_DATASETS = re.compile(
    r"--(custom|spec-bench|sonnet|sharegpt|timed-trace|blazedit|asr|random-mm|random|hf|bfcl|prefix-repetition|speed-bench)-"
)


def _is_of_another(flag: str, dataset: str | None) -> bool:
    """Whether it is a flag of a dataset that was not used: a namespace holds those of all."""
    match = _DATASETS.match(flag)
    return match is not None and dataset is not None and match[1] != dataset.replace("_", "-")


def commanded(run: BenchRun, command: BenchCommand) -> BenchRun:
    """The run, with what its command says that its result does not."""
    flags = command.flags
    dataset = flags.get("--dataset-name") or ("random" if command.tool == LATENCY else None)
    if dataset is None and not flags.get("--dataset-path") and not flags.get("--dataset"):
        dataset = "random"  # the default, since 0.8.5
    input_len, output_len = _lengths(command, dataset)
    asked = run.asked
    limit, rate = _number(flags, "--max-concurrency"), _number(flags, "--request-rate")
    batch = _number(flags, "--batch-size") or (8.0 if command.tool == LATENCY else None)
    told = Asked(
        rate=rate if rate is not None else math.inf,
        concurrency=(limit if limit is not None else math.inf) if command.tool == SERVE else batch or asked.concurrency,
        prompts=_number(flags, "--num-prompts") or (1000.0 if command.tool != LATENCY else None),
        input_len=input_len,
        output_len=output_len,
        warmups=_number(flags, "--num-warmups") or 0.0,
        seed=_number(flags, "--seed") or 0.0,
        ignore_eos="--ignore-eos" in flags or command.tool != SERVE,
        dataset=dataset,
        prefix_len=_number(flags, "--random-prefix-len") or (0.0 if dataset == "random" else None),
    )
    both = {
        name: given if (given := getattr(asked, name)) is not None else getattr(told, name)
        for name in Asked.__dataclass_fields__
    }
    prompts = both["prompts"]
    failed = run.failed
    if failed is None and run.completed is not None and prompts is not None and prompts >= run.completed:
        failed = prompts - run.completed
    return replace(
        run,
        asked=Asked(**both),
        failed=failed,
        model=run.model or command.model,
        program=command.program,
        flags=flags,
        has_command=command.is_whole,
    )


def _lengths(command: BenchCommand, dataset: str | None) -> tuple[float | None, float | None]:
    """Tokens of a request, prompt and output, as far as the flags fix them."""
    flags = command.flags
    plain = _number(flags, "--input-len"), _number(flags, "--output-len")
    if command.tool == LATENCY:
        return plain[0] or _DEFAULT_LENGTHS[LATENCY][0], plain[1] or _DEFAULT_LENGTHS[LATENCY][1]
    if dataset != "random":
        named = _number(flags, f"--{dataset}-output-len") if dataset else None
        return plain[0], plain[1] or named
    given = _number(flags, "--random-input-len"), _number(flags, "--random-output-len")
    ranged = _number(flags, "--random-range-ratio") not in (None, 0.0)
    lengths = plain[0] or given[0], plain[1] or given[1]
    if ranged and command.program[:1] == ("python",):
        return None, None  # before 0.9 the ratio lowered the mean
    return lengths[0] or _RANDOM[0], lengths[1] or _RANDOM[1]


def _number(flags: Mapping[str, str], name: str) -> float | None:
    value = flags.get(name)
    found = None if value is None else outside.number(value)
    return found if found is None or found >= 0 else None
