"""What an assistant may ask for, and the command line that each question is.

A tool is a command of the doctor with some of its options: its limits, its masking and its JSON are the command's. What
writes a file, starts a program, shows prompts or sends a token is in none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_doctor.model.errors import UsageError

FORMS = ("json", "text")
_FLAG = re.compile(r"--[a-z][a-z0-9.-]{1,80}|VLLM_[A-Z0-9_]{1,80}|vllm:[a-z0-9_:]{1,120}")
_RULE = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")
_VERSION = re.compile(r"v?\d[\w.+-]{0,60}", re.ASCII)

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Argument:
    """One thing that a tool takes. `kind`: its JSON type; "strings" is a list of them.

    `is_option`: it goes to the command as the option of its name; else the tool's `words` place it.
    """

    kind: str
    says: str
    choices: tuple[str, ...] = ()
    is_option: bool = True

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema has it."""
        if self.kind == "strings":
            return {"type": "array", "items": {"type": "string"}, "description": self.says}
        return {"type": self.kind, "description": self.says} | ({"enum": [*self.choices]} if self.choices else {})


@dataclass(frozen=True)
class Tool:
    """`words`: how its command line begins, before options. `asks_servers`: it may talk to a server that is named."""

    says: str
    takes: Mapping[str, Argument]
    words: Callable[[Given], list[str]]
    needs: tuple[str, ...] = ()
    has_json: bool = True
    has_rules: bool = True
    asks_servers: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """What it takes, as JSON Schema."""
        properties = {name: argument.schema for name, argument in self.takes.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": list(self.needs),
            "additionalProperties": False,
        }


@dataclass(frozen=True)
class Asked:
    """A question as a command line, what it reads from standard input, and whether its answer is JSON."""

    words: list[str]
    input: str | None = field(default=None, repr=False)
    is_json: bool = True


def asked(name: str, given: Given, servers: Sequence[str] = (), rules: Sequence[str] = ()) -> Asked:
    """The command line of a tool with these arguments. Raises UsageError, with one line to act on.

    `servers`, `rules`: options that the person who set the server up gave, for all tools that can have them.
    """
    tool = TOOLS[name]
    _check(name, tool, given)
    words = tool.words(given)
    options = [*(servers if tool.asks_servers else ()), *(rules if tool.has_rules else ())]
    for argument, value in given.items():
        if tool.takes[argument].is_option:
            option = f"--{argument.replace('_', '-')}"
            values = value if isinstance(value, list) else [value]
            options += [option] if value is True else [f"{option}={item}" for item in values if item is not False]
    is_json = tool.has_json and given.get("format", "json") == "json"
    if tool.has_json:
        options.append("--json" if is_json else "--text")
    # An option may stand behind the sources; what the tool itself ends with "--" takes none behind it.
    at = words.index("--") if "--" in words else len(words)
    return Asked([*words[:at], *options, *words[at:]], given.get("text"), is_json)


def _check(name: str, tool: Tool, given: Given) -> None:
    for argument, value in given.items():
        if argument not in tool.takes:
            raise UsageError(f"{name} takes no {argument!r}; it takes {', '.join(tool.takes)}")
        wanted = tool.takes[argument]
        if not _is_a(wanted.kind, value):
            raise UsageError(f"{name}: {argument} is a {_WORDS.get(wanted.kind, wanted.kind)}, not {_shown(value)}")
        if wanted.choices and value not in wanted.choices:
            raise UsageError(f"{name}: {argument} is one of {', '.join(wanted.choices)}, not {_shown(value)}")
        if any("\0" in item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)):
            raise UsageError(f"{name}: {argument} holds a NUL, which no name has")
    for argument in tool.needs:
        if not given.get(argument):
            raise UsageError(f"{name} needs {argument}: {tool.takes[argument].says}")


_WORDS = {"strings": "list of strings", "boolean": "true or false"}


def _is_a(kind: str, value: object) -> bool:
    match kind:
        case "strings":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case _:
            return isinstance(value, str)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _sources(words: Sequence[str]) -> list[str]:
    """Words that name sources. One that begins with "-" would be an option of the command."""
    for word in words:
        if not word or word.startswith("-"):
            raise UsageError(
                f"{_shown(word)} names no source: give a URL, a pid or a path (./-name, where a name begins with -)"
            )
    return list(words)


def _examine(given: Given) -> list[str]:
    if not given.get("demo"):
        return _sources(given.get("sources", ()))
    if given.get("sources"):
        raise UsageError("examine: demo is a recorded server of its own, without sources")
    return ["demo", *_named(_RULE, "demo", given["demo"])]


def _read_log(given: Given) -> list[str]:
    files, text = given.get("files", []), given.get("text")
    if not files and not text:
        raise UsageError("read_log needs files, or text: what stands in the log")
    return [*_sources(files), *(["-"] if text else [])]


def _flags(given: Given) -> list[str]:
    names = [name for item in given.get("names", ()) for name in _named(_FLAG, "names", item)]
    return ["flags", *_named(_VERSION, "version", given["version"]), *(["--", *names] if names else [])]


def _regressions(given: Given) -> list[str]:
    versions = [version for item in given.get("versions", ()) for version in _named(_VERSION, "versions", item)]
    return ["regressions", *_sources(given.get("sources", ())), *versions]


def _named(pattern: re.Pattern[str], argument: str, word: str) -> list[str]:
    if not pattern.fullmatch(word):
        raise UsageError(f"{argument}: {_shown(word)} has not the form of one")
    return [word]


_COMMAND = Argument("string", "how the server is or will be started: the `vllm serve …` line, or the file that has it")
_GPU = Argument("string", "the GPUs where they cannot be seen: H100, 8xL40S, 'A100 40GB', p5.48xlarge")
_GOAL = Argument("string", "what matters", ("throughput", "latency"))
_FORM = Argument(
    "string", "json: everything (about 30 kB); text: what a person reads (about 4 kB)", FORMS, is_option=False
)
_KNOWN = {
    "command": _COMMAND,
    "gpu": _GPU,
    "measured": Argument("string", "a speed that somebody saw: 17tok/s, 58ms, 1200tok/s@64"),
    "goal": _GOAL,
    "slo": Argument("strings", "targets: ttft=2s, itl=50ms"),
    "rule": Argument("strings", "only these rules"),
    "explain": Argument("boolean", "also what was suspected, kept and dropped, and by which number"),
    "format": _FORM,
}

TOOLS: dict[str, Tool] = {
    "examine": Tool(
        "Examine running vLLM servers (or recordings of some) and report what limits their speed now: the cause with"
        " its evidence, its consequences, the corrected command, and what could not be checked. It only reads: a"
        " server's /metrics for `window` seconds, on the server's own host also processes and GPUs. Without sources:"
        " every vLLM server of this host. Takes about window + 1 seconds.",
        {
            "sources": Argument(
                "strings",
                "URLs (http://host:8000), pids, recordings, saved /metrics pages, prom+http://host:9090/?pod=x;"
                " several add up to one examination",
                is_option=False,
            ),
            "demo": Argument(
                "string", "in place of sources: a recorded server with a fault, such as preemption", is_option=False
            ),
            "window": Argument(
                "number", "seconds between the first and the last scrape (3); longer under waves of load"
            ),
            "timeout": Argument("number", "seconds for the whole (8 + window)"),
            "nvidia_smi": Argument("string", "a file with what nvidia-smi -q -x printed on the server's host"),
            "role": Argument(
                "strings", "what a source is on a request's path: gateway=URL, router=…, prefill=…, decode=…"
            ),
            **_KNOWN,
        },
        _examine,
        asks_servers=True,
    ),
    "read_log": Tool(
        "Read vLLM logs after the fact, or whatever somebody handed over (an issue's text, a command, what nvidia-smi"
        " or collect-env printed): what limited the server and when, why it crashed or did not start.",
        {
            "files": Argument(
                "strings", "paths, also .gz, .xz, .bz2, .zst, of any kind and in any order", is_option=False
            ),
            "text": Argument(
                "string", "the log's or the issue's text itself, in place of files, or with them", is_option=False
            ),
            "since": Argument("string", "from here on: 13:30, 2026-01-20T13:30, or 2h before its end"),
            "until": Argument("string", "up to here"),
            "nvidia_smi": Argument("string", "a file with what nvidia-smi printed on the server's host"),
            **_KNOWN,
        },
        _read_log,
        asks_servers=True,
    ),
    "explain_rule": Tool(
        "A rule's page: why it matters, its conditions and thresholds, its fixes, its sources. Without id: the list.",
        {"id": Argument("string", "the rule's id, such as preemption", is_option=False)},
        lambda given: ["rules", *(_named(_RULE, "id", given["id"]) if given.get("id") else ())],
        has_json=False,
    ),
    "flags": Tool(
        "Whether a vLLM version has a flag, environment variable or metric; since and until when, its default, what"
        " replaced it. Ask before you suggest any of them. Without names: all flags of that version.",
        {
            "version": Argument("string", "vLLM's version: 0.32.0", is_option=False),
            "names": Argument("strings", "--max-num-seqs, VLLM_USE_V1, vllm:num_requests_running", is_option=False),
        },
        _flags,
        needs=("version",),
        has_json=False,
        has_rules=False,
    ),
    "expect": Tool(
        "What a vLLM server with these flags should do under this load, as a range with its physical bound, without a"
        " server: does it fit, how many requests fit, tokens per second, time per token, and from which assumptions.",
        {
            "model": Argument("string", "its name on the Hugging Face Hub, or its folder; or give command"),
            "gpu": _GPU,
            "command": Argument("string", "in place of model: the whole `vllm serve MODEL …` line, or its file"),
            "concurrency": Argument("integer", "requests at a time (16)"),
            "input_len": Argument("integer", "prompt tokens of a request (1024)"),
            "output_len": Argument("integer", "generated tokens of a request (1024)"),
            "dtype": Argument("string", "of the weights: bf16, fp16, fp8, int4, awq, gptq, mxfp4, nvfp4"),
            "vllm": Argument("string", "vLLM's version (the newest that is known)"),
            "format": _FORM,
        },
        lambda _: ["expect"],
    ),
    "compare": Tool(
        "Verify a fix: what got better or worse between two examinations under the same load. PASS, FAIL, or"
        " INCONCLUSIVE where nothing can be concluded.",
        {
            "before": Argument(
                "string", "a report (JSON), recording, benchmark result, log, URL or pid", is_option=False
            ),
            "after": Argument("string", "the same, of the server after the change", is_option=False),
            "window": Argument("number", "seconds for each server that is asked now (20; after as long as before was)"),
            "open_loop": Argument("boolean", "requests come at a rate of their own, whatever the server does"),
            "goal": _GOAL,
            "format": _FORM,
        },
        lambda given: ["compare", *_sources([given["before"], given["after"]])],
        needs=("before", "after"),
        asks_servers=True,
    ),
    "regressions": Tool(
        "Known faults of a vLLM version, with the thread of each, and what came only later; with two versions what the"
        " upgrade brings. For this model, GPU and command where they are given: certain, possible or not there.",
        {
            "versions": Argument("strings", "one version, or from and to: [0.19.0, 0.21.0]", is_option=False),
            "sources": Argument("strings", "a log, URL, manifest or recording that shows the setup", is_option=False),
            "model": Argument("string", "its name on the Hugging Face Hub, or its folder"),
            "gpu": _GPU,
            "command": Argument("string", "in place of model: the whole `vllm serve MODEL …` line, or its file"),
            "format": _FORM,
        },
        _regressions,
    ),
}
