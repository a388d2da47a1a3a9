"""A function for each parser, from hostile bytes: it raises what the parser promises to raise, and nothing else.

What a function returns is a coarse sign of what the input led to (an error's kind, which facts were found): an input
with a new sign joins those that are mutated (engine.py).
"""

from __future__ import annotations

import atexit
import json
import math
import os
import re
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz import corpus
from tests.zstandard import zstd
from vllm_doctor.model.errors import DoctorError, SourceError
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Change


@dataclass(frozen=True)
class Harness:
    """`weight`: its part of the time. `most`: bytes of an input. `tokens`: words of the language it reads."""

    name: str
    run: Callable[[bytes], Hashable]
    corpus: Callable[[], list[bytes]]
    tokens: tuple[bytes, ...] = ()
    weight: float = 1.0
    most: int = 6000


HARNESSES: dict[str, Harness] = {}


def harness(
    corpus: Callable[[], list[bytes]],
    *tokens: str,
    raises: tuple[type[Exception], ...] = (),
    weight: float = 1.0,
    most: int = 6000,
) -> Callable[[Callable[[bytes], Hashable]], Callable[[bytes], Hashable]]:
    """Registers a function by its name. `raises`: what its parser may raise, beside the doctor's own errors."""

    def registered(function: Callable[[bytes], Hashable]) -> Callable[[bytes], Hashable]:
        promised: tuple[type[Exception], ...] = (DoctorError, *raises)

        def run(data: bytes) -> Hashable:
            try:
                return function(data)
            except promised as error:
                return _sign(error)

        name = function.__name__.strip("_").replace("_", "-")
        words = tuple(token.encode() for token in tokens)
        HARNESSES[name] = Harness(name, run, corpus, words, weight, most)
        return function

    return registered


def _sign(error: BaseException) -> Hashable:
    """What kind of failure it was: where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = (trace.tb_frame.f_code.co_name, trace.tb_lineno) if trace is not None else ()
    return type(error).__name__, getattr(error, "kind", ""), where


def _seen(found: Observation) -> Hashable:
    error = found.error.kind if found.error is not None else ""
    return (
        error,
        _facts(found.facts),
        len(found.runs),
        tuple(sorted(re.sub(r"\d+", "", note)[:20] for note in found.notes)),
    )


def _facts(facts: Mapping[str, Reading]) -> int:
    for name, reading in facts.items():
        if isinstance(reading, Known) and isinstance(reading.value, float):
            assert math.isfinite(reading.value), f"{name} is {reading.value}"
    return hash(frozenset((name, isinstance(reading, Known)) for name, reading in facts.items()))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def folder() -> Path:
    """A folder of this process, in memory where there is such a file system."""
    return _all_folders() / str(os.getpid())


@cache
def _all_folders() -> Path:
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="vllm-doctor-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)  # by the first process; its children end without this
    return made


def file_of(data: bytes, name: str) -> Path:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _json(data: bytes) -> Any:
    return json.loads(data)


# ---- a server -------------------------------------------------------------------------------------------------------


@cache
def _wanted() -> frozenset[str]:
    from tests.making import shipped_catalogue

    return shipped_catalogue().metrics


@harness(
    corpus.scrapes,
    'engine="0"',
    'model_name="m"',
    "vllm:",
    "ray_vllm_",
    "# TYPE ",
    'le="+Inf"',
    "} 1 ",
    " # {",
    weight=2,
)
def exposition(data: bytes) -> Hashable:
    """The text format, alone and as the second of two scrapes."""
    from vllm_doctor.sources.server import exposition

    heads: exposition.Heads = {}
    text = _text(data)
    first = exposition.parse(text, _wanted(), heads)
    again = exposition.parse(text, _wanted(), heads)
    assert len(again.samples) >= len(first.samples) - first.refused_lines
    assert all(math.isfinite(sample.value) for sample in (*first.samples, *again.samples))
    return len(first.samples) // 8, first.is_metrics, first.has_vllm, min(first.refused_lines, 3)


def _answers() -> list[bytes]:
    cards = '{"object": "list", "data": [{"id": "m", "owned_by": "vllm", "parent": null, "max_model_len": 4096}]}'
    head = f'{{"version": "0.11.0"}}\n{cards}\nMon, 23 Nov 2026 07:00:00 GMT\n'
    return [head.encode() + page for page in corpus.scrapes()]


@harness(_answers, '"version"', '"data"', '"id"', '"parent"', '"max_model_len"', "process_start_time_seconds")
def server(data: bytes) -> Hashable:
    """Two scrapes of a server, and what its /version and /v1/models answer."""
    from vllm_doctor.sources.server import exposition, scrapes
    from vllm_doctor.sources.server.server import _date

    version, models, date, page = [*data.split(b"\n", 3), b"", b"", b""][:4]
    told = []
    for text in (version, models):
        try:
            told.append(_json(text))
        except (ValueError, RecursionError):
            told.append({})
    read = exposition.parse(_text(page), _wanted() | {scrapes.START_TIME})
    half = exposition.parse(_text(page[len(page) // 3 :]), _wanted())
    identity = scrapes.identity("http://h:8000", read, *told)
    taken = [
        scrapes.Scrape(1.0, read, scrapes.started(read), _date({"date": date.decode("latin-1")})),
        scrapes.Scrape(3.0, half, scrapes.started(half), None),
    ]
    return _seen(scrapes.seen("http://h:8000", taken, identity))


@harness(corpus.scrapes)
def saved_scrape(data: bytes) -> Hashable:
    """A file that may be a page."""
    from vllm_doctor.sources.server import saved_scrape

    path = file_of(data, "page.txt")
    return saved_scrape.is_page(path), _seen(saved_scrape.examine(path, _wanted()))


def _states() -> list[bytes]:
    from vllm_doctor.sources.server import exposition, state
    from vllm_doctor.sources.server.scrapes import Scrape

    path = file_of(b"", "made.state")
    path.unlink()
    kept = state.State(path, lambda: 10.0, lambda: 1.79e9)
    for at, page in enumerate(corpus.scrapes()[:2]):
        kept.keep("http://h:8000", Scrape(4.0 * at, exposition.parse(page.decode(), _wanted()), 1.7e9, None))
    return [path.read_bytes()]


@harness(_states, '"servers":', '"at":', '"boot":', '"clock":', '"started":', '"samples":[')
def state(data: bytes) -> Hashable:
    """The state file of a hook; then it is written over."""
    from vllm_doctor.sources.server import exposition, state
    from vllm_doctor.sources.server.scrapes import Scrape

    path = file_of(data, "hook.state")
    kept = state.State(path, lambda: 20.0, lambda: 1.79e9 + 10)
    now = Scrape(19.0, exposition.parse(corpus.scrapes()[0].decode(), _wanted()), 1.7e9, None)
    recalled = kept.recall("http://h:8000", now)
    return len(recalled.scrapes), str(recalled.reason), kept.keep("http://h:8000", now)[:40]


@harness(lambda: [b"http://user:pw@h:8000/prefix/metrics", b"prom+http://h/p?pod=x&instance=y", b"[::1]:8000", b"h:1"])
def urls(data: bytes) -> Hashable:
    """What a word on the command line may be as a URL."""
    from vllm_doctor.prometheus import api, survey
    from vllm_doctor.sources.server import fetch

    text = _text(data)
    fetch.shown(text)
    signs: list[Hashable] = []
    for read in (fetch.base_of, api.address, survey.chosen):
        try:
            signs.append(str(type(read(text))))
        except DoctorError as error:
            signs.append(_sign(error))
    return tuple(signs)


# ---- a Prometheus ---------------------------------------------------------------------------------------------------


def prometheus_answers() -> list[bytes]:
    vector = {
        "status": "success",
        "data": {"resultType": "vector", "result": [
            {"metric": {"__name__": "vllm:num_requests_running", "job": "v", "instance": "h:1", "engine": "0",
                        "model_name": "m"}, "value": [1.79e9, "3"]},
            {"metric": {"job": "v", "instance": "h:2", "engine": "0", "model_name": "m"}, "value": [1.79e9, "NaN"]}]},
        "warnings": ["w"],
    }  # fmt: skip
    error = {"status": "error", "errorType": "bad_data", "error": "unknown function"}
    return [json.dumps(one).encode() for one in (vector, error)]


class _Answering:
    """In place of the connection to a Prometheus: it answers each query with the same bytes."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self._body, self._status = body, status

    def post(self, path: str, deadline: float, where: str | None = None, **parameters: Any) -> Any:
        from vllm_doctor.sources.server.fetch import Answer

        return Answer(self._status, {}, self._body, 0.0)

    get = post

    def close(self) -> None:
        pass


@harness(prometheus_answers, '"status":', '"success"', '"data":', '"result":', '"metric":', '"value":', '"warnings":')
def prometheus_answer(data: bytes) -> Hashable:
    """One answer of the API."""
    from vllm_doctor.prometheus.api import Api

    api = Api("http://h:9090", clock=lambda: 0.0)
    api.close()
    api._connection = _Answering(data, 400 if data[-1:] == b" " else 200)  # type: ignore[assignment]
    rows = api.rows("up", 1.79e9, 10.0)
    return len(rows), len(api.warnings)


@harness(
    lambda: [b'job="a",pod=~"x.*"', b'{a!="b"}', b'a="b" or c="d"'], '=~"', '!~"', '="', ",", "{", "}", "offset 5m"
)
def matchers(data: bytes) -> Hashable:
    """--select."""
    from vllm_doctor.prometheus import query

    found = query.matchers(_text(data))
    assert query.Scope(found, ("job",), "5m").matchers == found
    return len(found)


# ---- a log ----------------------------------------------------------------------------------------------------------


@cache
def _log_table() -> Any:
    from vllm_doctor.rules import log_lines, rule

    return log_lines.load(rule.shipped())


@cache
def _scanner() -> Any:
    from vllm_doctor.sources.log.bytes_scan import Scanner

    return Scanner(_log_table().finds, _log_table().uncounted)


_WRAPPED = (
    b'{"log":"INFO 11-20 10:15:00 [core.py:1] x\\n","stream":"stderr","time":"2025-11-20T10:15:00.123456789Z"}\n',
    b"2025-11-20T10:15:00.123456789Z stderr F (EngineCore_0 pid=12) INFO 11-20 10:15:00 [core.py:1] x\n",
    b"Nov 20 10:15:00 host vllm[12]: (APIServer pid=1) INFO 11-20 10:15:00 [loggers.py:1] Engine 000: x\n",
    b'{"__REALTIME_TIMESTAMP":"1763633700000000","MESSAGE":[73,78,70,79],"_HOSTNAME":"h","SYSLOG_IDENTIFIER":"v"}\n',
    b"vllm-1  | \x1b[36m(VllmWorker rank=0 pid=3)\x1b[0;0m WARNING 11-20 10:15:00 [x.py:1] y\n",
    b"(raylet, ip=10.0.0.1) [2025-11-20 10:15:00,123 E 1 2] x\n",
    b'<14>1 2025-11-20T10:15:00Z h vllm 12 - - INFO: 10.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n',
    b"Traceback (most recent call last):\n  File \"x.py\", line 1, in y\n    z\nValueError: a: 'b'\n",
)


def _logs() -> list[bytes]:
    return [*corpus.pieces(corpus.logs(), 1500, 4), *_WRAPPED]


_LOG_TOKENS = (
    "INFO 11-20 10:15:00 [", "ERROR ", "Engine 000: ", "Traceback (most recent call last):", "Received request ",
    "prompt: '", "non-default args: {", "(EngineCore_DP0 pid=12) ", "stderr F ", '"MESSAGE":', '{"log":"',
)  # fmt: skip


@harness(_logs, *_LOG_TOKENS, weight=3)
def log(data: bytes) -> Hashable:
    """A log, from bytes to the runs of a server."""
    from vllm_doctor.rules import postmortem
    from vllm_doctor.sources.log.bytes_stream import Held

    read = _log_of([Held("a.log", data, 1.79e9)]).examine("h")
    postmortem.seen(read.runs)
    postmortem.timeline(read.runs)
    return _seen(read)


@cache
def _log_class() -> Any:
    """A log whose texts are compiled once, not for each input."""
    from vllm_doctor.sources.log import source

    class Log(source.Log):
        def __post_init__(self) -> None:
            self._scanner = _scanner()

    return Log


def _log_of(paths: list[Any]) -> Any:
    return _log_class()(paths, _log_table())


@harness(_logs, *_LOG_TOKENS)
def log_entry(data: bytes) -> Hashable:
    """One line: its wrappers, its time, its level, its message."""
    from vllm_doctor.sources.log import entry
    from vllm_doctor.sources.log.entry_clock import Clock

    clock = Clock(datetime(2025, 11, 20, tzinfo=UTC))
    found = entry.records(data)
    for one in found:
        if one.stamp is not None:
            assert math.isfinite(clock.seconds(one.stamp))
    return len(found), found[-1].level if found else None, found[-1].process[:9] if found else None


_ARGUMENTS = (
    b"{'model_tag': 'm', 'port': 8000, 'max_num_seqs': 64, 'compilation_config': CompilationConfig(level=3), 'x': 0}",
    b"Namespace(model='m', enable_lora=True, seed=0, gpu_memory_utilization=0.9, allowed_origins=['*'], f=<fun x>)",
)


@harness(lambda: list(_ARGUMENTS), "'", "Namespace(", "=", ": ", "None", "<", ">", "[", "]", "{", "}", "\\'")
def log_arguments(data: bytes) -> Hashable:
    """The arguments as vLLM logs them at its start."""
    from vllm_doctor.sources.log import entry_arguments

    found = entry_arguments.parse(_text(data), data[:1] == b"N")
    found.given("0.11.0")
    return len(found.flags), found.whole, bool(found.command), len(found.unwritable)


@harness(_logs, "prompt: '", "-----BEGIN PRIVATE KEY-----", "logger.py:", "Received request x: ", "api_key=", "hf_")
def log_redacted(data: bytes) -> Hashable:
    """The log of a recording: twice masked is once masked."""
    from vllm_doctor.sources.log import entry_redact
    from vllm_doctor.sources.log.bytes_stream import Held

    masked: Counter[str] = Counter()
    text = entry_redact.text(Held("a.log", data, 1.79e9), [], masked)
    return tuple(sorted(masked)), text.count(b"[masked]")


def _packed_logs() -> list[bytes]:
    import bz2
    import gzip
    import lzma

    text = corpus.logs()[0][:1500]
    utf16 = text.decode().encode("utf-16")
    found = [text, utf16, gzip.compress(text), bz2.compress(text), lzma.compress(text), gzip.compress(text) * 2]
    return [*found, corpus.parts()["1-server/metrics.prom.zst"]]


@harness(_packed_logs, "\x1f\x8b\x08\x00", "BZh9", "\x28\xb5\x2f\xfd", "\xfd7zXZ", weight=0.5)
def log_file(data: bytes) -> Hashable:
    """A file, packed or not."""
    return _seen(_log_of([file_of(data, "some.log")]).examine("h"))


# ---- commands -------------------------------------------------------------------------------------------------------

_CHANGES = {
    0: [
        Change("--max-num-seqs", None, 7, "a"),
        Change("--kv-cache-dtype", "auto", "fp8", "b"),
        Change("--enable-prefix-caching", None, True, "c"),
        Change("VLLM_USE_V1", None, "1", "d"),
    ]
}


def _command(data: bytes) -> Hashable:
    """A text with commands; what they give; and the corrected text in the form it came in."""
    from vllm_doctor.launch import source

    opened = source._source("x", source._decoded(data, "x"))
    signs = []
    for start in opened.starts[:3]:
        seen = opened.examine(start, "h", None)
        signs.append((str(start.form), _facts(seen.facts)))
    patches = opened.document.patched(_CHANGES)
    for patch in patches:
        assert patch.lines or patch.problem
    return tuple(signs), tuple(bool(patch.problem) for patch in patches)


_FLAGS = (
    "vllm serve ", "--max-num-seqs 4", "--config c.yaml", "--model=", "-tp", "--hf-overrides '{\"a\":1}'", "\\\n",
    "&&", "$X", "${X:-1}", "<<EOF\n", "EOF\n", "bash -c '", "exec ", "docker run ", "vllm/vllm-openai:v0.9.1",
    "env A=b ", "; ",
)  # fmt: skip
_YAML = (
    "args:", "command:", "containers:", "services:", "image: vllm/vllm-openai:v0.9.1", "kind: Deployment", "spec:",
    "env:", "- name: A", "value:", "---\n", "|\n", ">-\n", "&a ", "*a", "<<: *a", "resources:", "limits:", "shm_size:",
    "nvidia.com/gpu: 2", "deploy:", "modelSpec:", "vllmConfig:", "emptyDir:", '["vllm", "serve", "m"]', "\t", "? ",
)  # fmt: skip


@harness(
    lambda: [*corpus.SHELL, *(text for text in corpus.commands() if b"services:" not in text)],
    *_FLAGS,
    weight=2,
    most=3000,
)
def command(data: bytes) -> Hashable:
    """Shell, docker run, Python, Markdown."""
    return _command(data)


@harness(lambda: [text for text in corpus.commands() if b":\n" in text], *_YAML, *_FLAGS[:6], weight=3, most=5000)
def manifest(data: bytes) -> Hashable:
    """Compose, Kubernetes, Helm values, --config files."""
    return _command(data)


@harness(
    lambda: [text for text in corpus.commands() if b"[Service]" in text],
    "[Service]", "ExecStart=", "Environment=", "EnvironmentFile=-", "\\\n", "%i", "-@!", "CPUQuota=200%", *_FLAGS[:5],
    most=3000,
)  # fmt: skip
def unit(data: bytes) -> Hashable:
    """A systemd unit."""
    return _command(data)


_ARGV = (
    b"vllm\nserve\nm\n--max-num-seqs\n64\n--api-key\nx\n--config\nc.yaml",
    b"/usr/bin/python3\n-m\nvllm.entrypoints.openai.api_server\n--model=m\n-O3\n--no-enable-chunked-prefill",
    b'vllm\nserve\n--model\nm\n--kv-transfer-config.kv_role=both\n--hf-overrides\n{"a": 1}\n-tp=2\n--quantization\nfp8',
)


@harness(
    lambda: list(_ARGV), *_FLAGS[1:6], "\n", "--", "-", "=", "--config\nx", "max-num-seqs: 7\n", weight=2, most=1500
)
def argv(data: bytes) -> Hashable:
    """The words of a process, with its --config file; and the words that correct it."""
    from vllm_doctor.vllm import command_line

    words = _text(data).split("\n")
    found = command_line.parse(words, lambda path: "\n".join(words))
    now = command_line.changed(words, {"--max-num-seqs": ("--max-num-seqs", "7")}, {"--seed"})
    again = command_line.parse(now, lambda path: Reason.DENIED)
    if found.program and not any(word.startswith("--config") for word in words) and "--" not in words:
        assert again.flags.get("--max-num-seqs") == 7.0, now
    return bool(found.program), len(found.flags), len(found.notes), len(now)


@harness(
    lambda: [b"model: m\nmax-num-seqs: 7\nhf-overrides: {a: 1}\nlist: [1, b]\nflag: true\n"],
    *_YAML[-6:],
    raises=(ValueError,),
    most=2000,
)
def config_file(data: bytes) -> Hashable:
    """--config."""
    from vllm_doctor.vllm import config_file

    return len(config_file.parsed(_text(data)))


# ---- rules ----------------------------------------------------------------------------------------------------------


@harness(lambda: [text[:1500] for text in corpus.rules()[::12]], *_YAML[9:18], "when:", "rule: x", raises=(), most=2000)
def strict_yaml(data: bytes) -> Hashable:
    """Any document of ours: alone, and with all its mistakes."""
    from vllm_doctor.rules import strict_yaml
    from vllm_doctor.rules.table import Problems

    problems = Problems()
    strict_yaml.parsed(_text(data), Path("x.yaml"), problems)
    return len(strict_yaml.parsed(_text(data), Path("x.yaml"), None)), len(problems.lines())


def _problems(read: Callable[[Any], object]) -> Hashable:
    from vllm_doctor.rules.table import Problems

    problems = Problems()
    read(problems)
    return tuple(sorted({re.sub(r"[\d'\"].*", "", line.split(": ", 1)[-1])[:40] for line in problems.lines()}))


@harness(
    lambda: corpus.rules("scheduler/*.yaml"),
    "when:",
    "critical: ",
    " and ",
    "remedies:",
    "- do: x",
    "set: {--x: 1}",
    "examples:",
    "gives: ok",
    "explains: [",
    "{kv_cache_usage}",
    weight=0.7,
)
def rule(data: bytes) -> Hashable:
    """A rule's file, and its examples."""
    from tests.making import shipped_catalogue
    from vllm_doctor.rules import rule

    path = file_of(data, "rules/scheduler/x.yaml")

    def read(problems: Any) -> None:
        rule.check_examples(rule.read(path, shipped_catalogue(), problems), shipped_catalogue(), problems)

    return _problems(read)


@harness(
    lambda: corpus.rules("signals/*.yaml"),
    "promql: ",
    "formula: ",
    "fact: ",
    "unit: s",
    "says: x",
    "from:",
    "where: ",
    "rate(",
    "[$window]",
    "$engine",
    weight=0.7,
)
def signals(data: bytes) -> Hashable:
    from vllm_doctor.rules import signals_file

    path = file_of(data, "signals/signals/x.yaml")
    return _problems(lambda problems: signals_file.load(path.parent.parent, problems=problems))


@harness(
    lambda: corpus.rules("log-lines/*.yaml"),
    "lines:",
    "find: x",
    "pattern: (a+)+b",
    "fields:",
    "example: x",
    "samples:",
    "facts:",
    "gives:",
    weight=0.7,
)
def log_lines(data: bytes) -> Hashable:
    from vllm_doctor.rules import log_lines

    path = file_of(data, "lines/log-lines/x.yaml")
    return _problems(lambda problems: log_lines.read([path.parent.parent], problems))


@harness(
    lambda: [b"overrides:\n  preemption: {skip: true, because: x}\n  idle: {when: {warning: kv_cache_usage > 0.5}}\n"],
    "preemption:",
    "skip: true",
    "when:",
    "warning: ",
    "because: ",
    weight=0.5,
    most=2000,
)
def overrides(data: bytes) -> Hashable:
    from tests.making import shipped_catalogue, shipped_rules
    from vllm_doctor.rules import overrides

    path = file_of(data, "over/overrides.yaml")
    return _problems(lambda problems: overrides.load([path.parent], shipped_rules(), shipped_catalogue(), problems))


@harness(
    lambda: corpus.rules("diagnosis.yaml"), "symptoms:", "refusals:", "negligible:", "outliers:", "when: ", weight=0.5
)
def diagnosis_file(data: bytes) -> Hashable:
    from tests.making import shipped_catalogue
    from vllm_doctor.rules import diagnosis_file

    path = file_of(data, "diagnosis.yaml")
    return _problems(lambda problems: diagnosis_file.load(path, shipped_catalogue().signals, problems))


_OPERATORS = (
    " and ", " or ", "not ", "(", ")", " > ", " <= ", " == ", " + ", " * ", " / ", " - ", "kv_cache_usage", "0.5",
    " in ", "min(", "known(", " if ", " else ", "is_known(", "where(", "**", "lambda: ", "'x'", ", ",
)  # fmt: skip


@harness(lambda: corpus.texts_below("*/*.yaml", "when|if|critical|warning|info"), *_OPERATORS, weight=3, most=400)
def condition(data: bytes) -> Hashable:
    """A condition: written back it is itself; judged, it is true, false or unknown."""
    from vllm_doctor.expr import nodes, parser
    from vllm_doctor.expr.condition import Condition

    text = _text(data)
    try:
        root = parser.condition(text)
    except parser.ConditionError as error:
        return _sign(error)
    written = nodes.text(root)
    assert parser.condition(written) == root, written
    verdict, met = Condition(text).judge(_read)
    return verdict, len(met), type(root).__name__


def _read(name: str) -> Reading:
    """A signal's value by the hash of its name: huge, none, text, zero."""
    values: tuple[Reading, ...] = (Known(0.0), Known(1e308), Known(-3.5), Known("x"), Known(True), Unknown(Reason.IDLE))
    return values[zlib.crc32(name.encode("utf-8", "replace")) % len(values)]


@harness(lambda: corpus.texts_below("signals/*.yaml", "formula"), *_OPERATORS, weight=3, most=400)
def formula(data: bytes) -> Hashable:
    """A formula: written back it is itself; its value is finite."""
    from vllm_doctor.expr import nodes, parser
    from vllm_doctor.expr.formula import Formula

    text = _text(data)
    try:
        found = Formula(text)
    except parser.FormulaError as error:
        return _sign(error)
    written = nodes.text(found.root)
    assert parser.formula(written) == found.root, written
    value = found.evaluate(_read)
    if isinstance(value, Known) and isinstance(value.value, float):
        assert math.isfinite(value.value)
    return type(value).__name__, type(found.root).__name__


@cache
def _window() -> Any:
    from vllm_doctor.model.window import Window
    from vllm_doctor.sources.server import exposition

    made = Window()
    for at, page in enumerate(corpus.scrapes()):
        made.add(2.0 * at, exposition.parse(page.decode(), _wanted()).samples)
    return made


def _queries() -> list[bytes]:
    found = corpus.texts_below("signals/*.yaml", "promql")
    return [text.replace(b"$window", b"5m").replace(b"$engine", b"engine") for text in found]


_PROMQL = (
    "rate(", "sum by (engine) (", "histogram_quantile(0.9, ", "max_over_time(", "[5m]", " or ", " unless ", "increase(",
    " and on (a) ", "vllm:num_requests_running", '{engine=~"(a+)+$"}', "> bool 1", " offset 5m", "@ 1", "le",
)  # fmt: skip


@harness(_queries, *_PROMQL, weight=3, most=600)
def promql(data: bytes) -> Hashable:
    """A query of the subset, over four scrapes."""
    from vllm_doctor.expr.promql_eval import Expression, PromQLError, aggregated_by

    text = _text(data)
    with suppress(PromQLError):
        aggregated_by(text)
    try:
        values, _ = Expression(text).evaluate(_window())
    except PromQLError as error:
        return _sign(error)
    return len(values), len(text) // 50


# ---- recordings -----------------------------------------------------------------------------------------------------


def _bundle_parts() -> list[bytes]:
    found = dict(corpus.parts())
    found["report.json"] = report_json()
    found["bench.json"] = corpus.benches()[0]
    return corpus.named({name: body for name, body in found.items() if not name.endswith(".zst")})


@cache
def report_json() -> bytes:
    """A whole report."""
    from tests.fuzz.examinations import said

    return said(["--command", "vllm serve m --max-num-seqs 4", "--json"], "").encode()


@harness(
    _bundle_parts,
    '"kind":',
    '"folder":',
    '"sources":',
    '"facts":',
    '"value":',
    '"redacted":',
    '"count":',
    "null",
    "[]",
    weight=2,
)
def recording(data: bytes) -> Hashable:
    """A recording of which one part is hostile."""
    from vllm_doctor.recording import bundle

    name, _, body = data.partition(b"\n")
    found = bundle.parsed("r", {**corpus.parts(), name.decode("utf-8", "replace"): body})
    found.seen("rules")
    signs = []
    for one in found.sources:
        signs.append(_seen(one.observation(_wanted())) if not one.logs else "log")
        if not one.logs:
            replayed = bundle.Replayed(one, "h", _wanted(), lambda: 0.0)
            replayed.look(30.0)
    return tuple(map(str, signs))


@cache
def _scrapes_file() -> bytes:
    from vllm_doctor.recording import metrics

    return zstd.decompress(corpus.parts()[f"1-server/{metrics.FILE}"])


@harness(lambda: [_scrapes_file(), _scrapes_file()[:400]], "\n# scrape ")
def metrics_file(data: bytes) -> Hashable:
    """The scrapes of a recording, unpacked."""
    from vllm_doctor.recording import metrics

    read = metrics.of_file(data, "r", is_packed=False)
    scrapes = list(read.scrapes(_wanted(), 10))
    return len(scrapes), len(read.pages) if scrapes else 0


@harness(lambda: [corpus.parts()["1-server/metrics.prom.zst"]], weight=0.5)
def metrics_packed(data: bytes) -> Hashable:
    """The same, packed."""
    from vllm_doctor.recording import metrics

    return len(list(metrics.of_file(data, "r").scrapes(_wanted(), 10)))


@harness(corpus.tars, "recording.json", "1-server/", "../", "ustar", "0000644", weight=1, most=60_000)
def archive(data: bytes) -> Hashable:
    """A recording's tar; the sums of its headers are right, so that what they say is looked at."""
    import gzip

    from vllm_doctor.recording import archive

    path = file_of(gzip.compress(_summed(data), 1), "r.tar.gz")
    assert isinstance(archive.is_recording(path), bool)
    return len(archive.read(path))


def _summed(tar: bytes) -> bytes:
    """The tar with each header's own sum."""
    fixed = bytearray(tar)
    for start in range(0, len(tar) - 511, 512):
        if fixed[start + 257 : start + 262] == b"ustar":
            head = bytes(fixed[start : start + 512])
            fixed[start + 148 : start + 156] = b"%06o\0 " % (sum(head[:148]) + 256 + sum(head[156:]))
    return bytes(fixed)


# ---- results --------------------------------------------------------------------------------------------------------


def _results() -> list[bytes]:
    return [text for text in [*corpus.benches(), report_json()] if len(text) < 100_000]


@harness(_results, '"duration":', '"measures":', '"schema":', "null", "[]", '"samples":', weight=2, most=100_000)
def result(data: bytes) -> Hashable:
    """A report, or a benchmark's result: alone and compared with a good one."""
    from vllm_doctor.compare import comparison, results
    from vllm_doctor.render import compare_json, compare_text
    from vllm_doctor.text import redact

    def look(source: str) -> dict[str, Any]:
        raise SourceError("not-a-log", "it is no log")

    found = results.of_source(str(file_of(data, "result.json")), look)
    signs = []
    for other in _good_results():
        for before, after in ((other, found), (found, other)):
            compared = redact.anything(comparison.compared(before, after))
            signs.append(str(compared.outcome))
            clean(compare_text.render(compared, False))
            json.loads(compare_json.render(compared, datetime(2026, 1, 1, tzinfo=UTC)), parse_constant=no_constant)
    return tuple(signs), len(found.measures)


@cache
def _good_results() -> list[Any]:
    from vllm_doctor.compare import results

    def look(source: str) -> dict[str, Any]:
        raise AssertionError(source)

    return [results.of_source(str(file_of(text, f"good{i}.json")), look) for i, text in enumerate(_results()[:2])]


# ---- GPUs, the host, the model --------------------------------------------------------------------------------------


_SMI = (
    "<gpu id=", "</gpu>", "<fb_memory_usage>", "MiB", "N/A", "[Not Supported]", "|", "+---", "GPU 0: ", "(UUID: GPU-",
    "MIG 1g.5gb", "<nvidia_smi_log>", "index, name, ", "Timestamp",
)  # fmt: skip


@harness(lambda: corpus.pieces(corpus.smi(), 6000, 3), *_SMI, weight=2)
def nvidia_smi(data: bytes) -> Hashable:
    """A file of nvidia-smi, in any of its forms."""
    from vllm_doctor.sources.gpu import gpu, nvidia_smi

    view = nvidia_smi.read(file_of(data, "smi.txt"))
    use = gpu.GpuUse(frozenset({1234}), "0,1", 2)
    gpu.rows(view, use)
    return _facts(gpu.facts(view, use)), len(view.gpus), len(view.samples), len(view.notes)


@harness(
    lambda: [b"8xL40S", b"NVIDIA A100-SXM4-80GB", b"H100", b"2 x h200"], "x", "H", "GB", "NVIDIA ", "-", " ", most=200
)
def gpu_name(data: bytes) -> Hashable:
    """--gpu."""
    from vllm_doctor.sources.gpu import gpu_name

    found = gpu_name.parse(_text(data))
    return _facts(gpu_name.facts(found)), found.target[:3]


@cache
def _machine_of(folder: Path) -> Path:
    """A host with a vLLM on it."""
    from tests.sources.host.fake_proc import FakeProc
    from tests.trees import Tree

    root = folder / "machine"
    proc = FakeProc(root)
    config = json.dumps({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64})
    words = ["/usr/bin/python3", "/usr/bin/vllm", "serve", "/models/m", "--port", "8000", "--config", "/c.yaml"]
    files: dict[str, str | int] = {
        "models/m/config.json": config,
        "c.yaml": "max-num-seqs: 8\n",
        "models/m/a.safetensors": 9,
    }
    proc.add(42, words, files=files, sockets=[77], environ={"CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN": "x"})
    proc.add(43, "VLLM::EngineCore", parent=42)
    proc.listen(8000, 77)
    proc.kernel()
    tree = Tree(root)
    tree.process("0::/system.slice/docker-abc.scope", pid=42)
    tree.process("0::/system.slice/docker-abc.scope", pid=43)
    tree.mounts(("/", "/sys/fs/cgroup", "cgroup2"))
    tree.v2_root()
    tree.v2("sys/fs/cgroup/system.slice/docker-abc.scope", quota="200000 100000", memory="1073741824")
    tree.cpus([(0, [0, 1]), (0, [2, 3])], "0-3")
    tree.nodes(node0="0-3")
    tree.write("proc/stat", "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\nbtime 17\n")
    tree.write("proc/vmstat", "pswpin 1\nallocstall_normal 3\n")
    tree.write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 50 kB\nSwapTotal: 1 kB\nSwapFree: 1 kB\n")
    tree.write("proc/uptime", "100.5 200.1\n")
    for pid in (42, 43):
        tree.write(f"proc/{pid}/task/{pid}/schedstat", "1000 2000 3\n")
        tree.write(f"proc/{pid}/task/{pid}/status", "Name: x\nCpus_allowed_list:\t0-3\nvoluntary_ctxt_switches: 1\n")
        tree.write(f"proc/{pid}/limits", "Limit Soft Hard Units\nMax open files 1024 4096 files\n")
        tree.write(f"proc/{pid}/numa_maps", "7f00 default anon=1 N0=1\n")
    tree.write("dev/kmsg", "3,1,2,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1, name=x\n")
    return root


def _machine() -> Path:
    return _machine_of(folder())


def _machine_files() -> list[bytes]:
    root = _machine()
    paths = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return corpus.named({str(path.relative_to(root)): path.read_bytes() for path in paths if path.stat().st_size})


@contextmanager
def _instead(name: str, body: bytes) -> Iterator[None]:
    """The machine with a file changed."""
    path = _machine() / name
    if ".." in name.split("/") or name.startswith("/") or not path.is_file():
        yield
        return
    before = path.read_bytes()
    path.write_bytes(body)
    try:
        yield
    finally:
        path.write_bytes(before)


@harness(_machine_files, "0-3,8", "max 100000", "some avg10=0.00", "0::/", " (x) S 1", "N/A", "kB", most=2000)
def host(data: bytes) -> Hashable:
    """A file of /proc, of a control group, or of the model: `name`, then its content."""
    from vllm_doctor.session.local import Local
    from vllm_doctor.sources.gpu import kernel_log
    from vllm_doctor.sources.host import process
    from vllm_doctor.sources.host.kernel import Kernel

    name, _, body = data.partition(b"\n")
    with _instead(name.decode("utf-8", "replace").replace("\0", ""), body):
        kernel = Kernel(_machine())
        kernel_log.xids(kernel)
        process.find(kernel)
        process.listening_on(kernel, 8000)
        found = process.of_pid(kernel, 42)
        now = iter(range(100))
        local = Local(found, "h", kernel=kernel, clock=lambda: float(next(now)), sleep=lambda seconds: None)
        return _seen(local.examine_host(1.0, 50.0))


_MODEL = (
    b'{"model_type": "deepseek_v3", "num_hidden_layers": 4, "num_attention_heads": 8, "kv_lora_rank": 512,'
    b' "qk_rope_head_dim": 64, "hidden_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2, "vocab_size": 9}',
    b'{"model_type": "gemma3", "text_config": {"num_hidden_layers": 6, "sliding_window": 512, "layer_types":'
    b' ["sliding_attention", "full_attention"], "num_key_value_heads": 2, "head_dim": 32, "hidden_size": 64,'
    b' "num_attention_heads": 2}, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}',
    b'{"model_type": "qwen3_next", "num_hidden_layers": 4, "full_attention_interval": 4, "linear_num_key_heads": 2,'
    b' "linear_key_head_dim": 8, "linear_num_value_heads": 2, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,'
    b' "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 64}',
)


@harness(
    lambda: list(_MODEL),
    '"num_hidden_layers":',
    '"layer_types":',
    '"text_config":',
    "null",
    "[]",
    "true",
    '"mamba"',
    most=2000,
    weight=2,
)
def model_config(data: bytes) -> Hashable:
    """A model's config.json."""
    from vllm_doctor.vllm import kv_cache, model_config, parameters

    config = model_config.parse(_text(data))
    if isinstance(config, Reason):
        return str(config)
    config = model_config.overridden(config, '{"num_hidden_layers": 3}')
    facts = (
        model_config.facts(config, config)
        | kv_cache.facts(config, {"--kv-cache-dtype": "fp8"})
        | parameters.facts(config)
    )
    return _facts(facts)


# ---- texts ----------------------------------------------------------------------------------------------------------

CANARY = "hf_CanaryThatMustNeverLeave0123456789"
"""A secret by its shape alone, where it is a word of its own."""


@harness(
    lambda: [b"3", b"50ms", b"1.5h", b"2 min", b"13:30", b"2025-11-20", b"2025-11-20T13:30:00+01:00"],
    "ms",
    "h",
    "d",
    ":",
    "T",
    "Z",
    "-",
    ".",
    weight=2,
    most=60,
)
def times(data: bytes) -> Hashable:
    """Durations and times, as options hold them."""
    from vllm_doctor.cli import asked_fleet, options
    from vllm_doctor.sources.log import source
    from vllm_doctor.text import durations

    text = _text(data)
    signs = []
    try:
        seconds = options.seconds(text)
        assert 0 <= seconds <= options.ONE_DAY
        signs.append(durations.duration(seconds)[-3:])
        durations.promql(seconds)
    except ValueError:
        signs.append("none")
    for read in (source.period, lambda text: asked_fleet.moment_of(text, datetime(2026, 1, 1, tzinfo=UTC))):
        try:
            signs.append(type(read(text)).__name__)
        except DoctorError:
            signs.append("none")
    return tuple(signs)


@harness(
    lambda: [b"3.5", b"1e300", b"0.00001", b"-7 bytes", b"1e308 ratio"],
    "e",
    "ratio",
    "bytes",
    "s",
    "tokens/s",
    "share",
    weight=0.5,
    most=60,
)
def numbers(data: bytes) -> Hashable:
    """Numbers as people read them."""
    from vllm_doctor.text import words

    number, _, unit = _text(data).partition(" ")
    try:
        value = float(number)
    except ValueError:
        return "none"
    if not math.isfinite(value):
        return "not finite"
    told = words.number(value, unit)
    words.compared(">", value, unit)
    return re.sub(r"\d+", "", told)[:6]


_TEXTS = (
    b"--api-key sk-abcdefghijklmnopqrstuv and Authorization: Bearer abcdefghijkl at http://user:pw@host/x?sig=abc\n",
    b'prompt: \'a b c\', token_ids: [1, 2], {"password": "x y"} AKIAABCDEFGHIJKLMNOP\n\x1b[31mred\x1b[0m\xc2\x9b1m',
    b"host=db1.internal user=alice /home/alice/models 10.0.0.1 fe80::1 alice@example.com\n",
)


@harness(
    lambda: list(_TEXTS),
    "api_key=",
    "token: ",
    "Bearer ",
    "password",
    "://u:p@",
    "prompt: '",
    "?sig=",
    "hf_0123456789",
    "/home/a/",
    weight=2,
    most=2000,
)
def redacted(data: bytes) -> Hashable:
    """A text as it may leave: no control characters; what was masked stays masked; with names, and without."""
    from vllm_doctor.text import redact

    masked: Counter[str] = Counter()
    text = redact.text(f"{_text(data)} {CANARY}", masked)
    assert text.isprintable()
    assert CANARY not in text
    names = redact.Pseudonyms(("db1",), ("alice",))
    names.learn(text)
    names.text(text)
    return tuple(sorted(masked))


@harness(lambda: list(_TEXTS), "a: b", "- ", "#", "'", '"', "|", ">", weight=0.5, most=500)
def yaml_out(data: bytes) -> Hashable:
    """What is written as YAML is read as the same."""
    import yaml

    from vllm_doctor.text import yaml as written

    text = "".join(c for c in _text(data) if c.isprintable() or c == "\n")
    lines = written.dump({"key": text, "list": [text]})
    assert yaml.safe_load("\n".join([*lines, ""])) == {"key": text, "list": [text]}
    return len(lines)


def holds_canary(text: str) -> bool:
    """As a word of its own."""
    return re.search(rf"(?<!\w){CANARY}", text) is not None


# ---- what outputs must be -------------------------------------------------------------------------------------------


def clean(text: str) -> None:
    """No character that a terminal obeys, beside the end of a line and the tab of a patch."""
    for c in text:
        assert c.isprintable() or c in "\n\t", f"an output holds {c!r}"


def no_constant(name: str) -> None:
    raise AssertionError(f"JSON holds {name}")


def warm() -> None:
    """Load what many harnesses need, once and not in each process."""
    from tests.fuzz.examinations import said
    from tests.making import shipped_catalogue, shipped_rules

    _all_folders()
    _scanner()
    shipped_catalogue()
    shipped_rules()
    said(["--command", "vllm serve m"], "json")


def names_of(chosen: Iterable[str]) -> list[str]:
    """The harnesses of these names, all where none is given."""
    import tests.fuzz.examinations  # noqa: F401 - registers the whole examinations

    unknown = set(chosen) - set(HARNESSES)
    assert not unknown, f"no harness {', '.join(sorted(unknown))}; there are: {', '.join(HARNESSES)}"
    return [name for name in HARNESSES if not chosen or name in chosen]
