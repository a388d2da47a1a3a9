"""Whole examinations: hostile bytes as a log, a page, a command, …, through the command line, to each output."""

from __future__ import annotations

import contextlib
import gzip
import html.parser
import io
import json
import os
import re
import socket
import threading
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock
from urllib.parse import urlencode

import jsonschema
import referencing
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.fake_prometheus import FakePrometheus, targets
from tests.fuzz import corpus, of_commands, of_logs, of_recordings, of_rules, of_servers
from tests.fuzz.harness import CANARY, HARNESSES, clean, file_of, folder, harness, holds_canary, no_constant
from tests.paths import PACKAGE
from tests.serving import Request
from tests.zstandard import texts_of
from vllm_doctor.cli import chosen_rules
from vllm_doctor.cli.main import main
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.recording import archive
from vllm_doctor.sources.server.fetch import Answer

_CHECKED = 16
"""Of so many JSON outputs one is held against the schema, which takes longer than the examination."""


@cache
def _rules() -> Any:
    import argparse

    return _LOAD(argparse.Namespace(rules=[], rule=[], skip=[]))


def _loaded(options: Any) -> Any:
    return _rules() if not (options.rules or options.rule or options.skip) else _LOAD(options)


_LOAD = chosen_rules.load


def said(words: Sequence[str], form: str, codes: tuple[int, ...] = (0, 1, 2, 3)) -> str:
    """What the command line answers, which must be as promised whatever it read."""
    out, err = io.StringIO(), io.StringIO()
    log = "vllm_doctor.sources.log.source.Log"
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(chosen_rules, "load", _loaded),
        mock.patch(log, of_logs.log_class()),
    ):
        code = main([*words, *(["--format", form] if form else [])])
    text, told = out.getvalue(), err.getvalue()
    assert code in codes, f"ended with {code}"
    assert "internal error" not in told, told
    clean(told)
    assert not holds_canary(text + told), "a secret left"
    if form == "json":
        document = json.loads(text, parse_constant=no_constant)
        for one in _strings(document):
            clean(one)
        if zlib.crc32(text.encode("utf-8", "replace")) % _CHECKED == 0:
            _validator("report").validate(document)
    elif form:
        clean(text)
        if text:
            _CHECKS.get(form, str)(text)
    return text


def _is_still(page: str) -> None:
    """No element and no attribute of HTML by which something runs or is fetched."""

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            assert tag not in ("script", "img", "iframe", "object", "embed", "link", "form", "base"), tag
            for name, value in attributes:
                assert not name.startswith("on"), name
                assert name != "href" or str(value).startswith(("http://", "https://", "#")), value

    Parser(convert_charrefs=True).feed(page)


def _is_of_nagios(text: str) -> None:
    assert text.isascii()
    assert text.count("\n") <= 1
    assert text.count("|") <= 1


def _is_of_checkmk(text: str) -> None:
    for line in text.splitlines():
        assert re.match(r'[0-3P] (?:"[^"]*"|\S+) \S+ ', line), line


def _is_openmetrics(text: str) -> None:
    list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


_CHECKS: dict[str, Callable[[str], object]] = {
    "html": _is_still,
    "nagios": _is_of_nagios,
    "checkmk": _is_of_checkmk,
    "openmetrics": _is_openmetrics,
}


def _strings(value: Any) -> Iterator[str]:
    """All texts of a JSON document."""
    match value:
        case str():
            yield value
        case dict():
            for key, inner in value.items():
                yield key
                yield from _strings(inner)
        case list():
            for inner in value:
                yield from _strings(inner)


@cache
def _validator(kind: str) -> Any:
    def schema(name: str) -> Any:
        return json.loads((PACKAGE / "render" / f"{name}.v1.schema.json").read_text("utf-8"))

    report = referencing.Resource.from_contents(schema("report"))
    registry = referencing.Registry().with_resource("vllm-doctor/report/v1", report)
    return jsonschema.Draft202012Validator(schema(kind), registry=registry)


def _form(data: bytes) -> str:
    """Each format in its turn; JSON the most often."""
    forms = ("json", "json", *FORMATS)
    return forms[zlib.crc32(data) % len(forms)]


def _sign(text: str, form: str) -> Hashable:
    if form != "json":
        return form, len(text) // 2000
    document = json.loads(text)
    rules = tuple(sorted({finding["rule"] for finding in document["findings"]}))
    error = document.get("error") or {}
    return document["verdict"], rules, error.get("kind")


def _examined(data: bytes, *words: str | Path) -> Hashable:
    form = _form(data)
    return _sign(said([str(word) for word in words], form), form)


@harness(of_logs.texts, *of_logs.TOKENS, CANARY, weight=4)
def examine_log(data: bytes) -> Hashable:
    return _examined(data, file_of(data, "server.log"))


@harness(corpus.scrapes, 'engine="0"', 'model_name="m"', "vllm:", f'token="{CANARY}"', weight=4)
def examine_page(data: bytes) -> Hashable:
    return _examined(data, file_of(data, "page.txt"))


@harness(
    lambda: [*corpus.SHELL, *corpus.commands()], *of_commands.FLAGS, *of_commands.YAML, f"--api-key {CANARY}", weight=4
)
def examine_command(data: bytes) -> Hashable:
    return _examined(data, "--command", file_of(data, "start.yaml"))


@harness(of_recordings.bundle_parts, '"kind":', '"sources":', '"facts":', '"value":', CANARY, weight=4)
def examine_recording(data: bytes) -> Hashable:
    """`name`, then the content of that part of a recording."""
    path = folder() / "recording"
    for part, body in corpus.parts().items():
        file_of(body, f"recording/{part}")
    name, _, body = data.partition(b"\n")
    known = name.decode("utf-8", "replace")
    if known in corpus.parts() or known in ("report.json", "bench.json"):
        file_of(body, f"recording/{known}")
    try:
        return _examined(data, path)
    finally:
        for extra in ("report.json", "bench.json"):
            (path / extra).unlink(missing_ok=True)


@harness(lambda: corpus.pieces(corpus.smi(), 6000, 3), "<gpu id=", "MiB", "N/A", CANARY, weight=2)
def examine_nvidia_smi(data: bytes) -> Hashable:
    page = file_of(corpus.scrapes()[0], "good.txt")
    return _examined(data, page, "--nvidia-smi", file_of(data, "smi.txt"))


_BESIDE = ("--gpu", "4xH100", "--slo", "ttft=2s", "--slo", "itl=50ms")
_START = "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 64 --kv-cache-dtype fp8 -tp 4 --max-model-len 8192"


@harness(corpus.scrapes, 'engine="0"', "vllm:", "1e15", "} 0\n", weight=2)
def beside_command(data: bytes) -> Hashable:
    """A page with all that computes from it: a command, GPUs, targets."""
    return _examined(data, file_of(data, "page.txt"), *_BESIDE, "--command", _START)


@harness(lambda: [*corpus.SHELL, *corpus.commands()], *of_commands.FLAGS, *of_commands.YAML, weight=2)
def beside_page(data: bytes) -> Hashable:
    """A command of a server that was seen as well: its corrections are in its own form."""
    page, smi = file_of(corpus.scrapes()[0], "good.txt"), file_of(corpus.smi()[1], "good-smi.txt")
    form = "patch" if len(data) % 2 else "json"
    words = [str(page), *_BESIDE[2:], "--nvidia-smi", str(smi), "--command", str(file_of(data, "start.yaml"))]
    return _sign(said(words, form), form)


# ---- servers --------------------------------------------------------------------------------------------------------


class _Hostile:
    """A TCP server in a thread that answers each connection with the same bytes, whatever it is asked."""

    def __init__(self) -> None:
        self.answer = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            with contextlib.suppress(OSError), self._listener.accept()[0] as connection:
                connection.settimeout(2)
                connection.recv(65536)
                connection.sendall(self.answer)


def _hostile() -> _Hostile:
    return _hostile_of(os.getpid())


@cache
def _hostile_of(pid: int) -> _Hostile:
    return _Hostile()  # a thread, which a child of this process has not


def _responses() -> list[bytes]:
    page = corpus.scrapes()[0][:1500].rpartition(b"\n")[0] + b"\n"
    cards = b'{"object": "list", "data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]}'
    ok, date = b"HTTP/1.1 200 OK\r\n", b"Date: Mon, 23 Nov 2026 07:00:00 GMT\r\n"
    packed, flat = gzip.compress(page), zlib.compress(page)
    return [
        ok + date + b"Content-Length: %d\r\n\r\n" % len(page) + page,
        ok + date + b"Content-Type: text/plain\r\n\r\n" + page,
        ok + b"Content-Type: application/json\r\n\r\n" + cards,
        ok + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed,
        ok + b"Content-Encoding: deflate\r\n\r\n" + flat,
        ok + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(page) + page + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /metrics\r\nSet-Cookie: a=b; Max-Age=99\r\n\r\n",
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n\r\n",
        b"HTTP/1.0 503 x\r\nRetry-After: 1\r\n\r\nbusy",
    ]


_HTTP = (
    "HTTP/1.1 200 OK\r\n", "\r\n", "\r\n\r\n", "Content-Length: 5\r\n", "Content-Encoding: gzip\r\n", "Location: ",
    "Content-Encoding: br, zstd\r\n", "Transfer-Encoding: chunked\r\n", "Set-Cookie: a=b; Max-Age=", "charset=utf-7",
    "HTTP/1.1 100 Continue\r\n\r\n", "Date: ", "http://127.0.0.1/", "//[::1", "Connection: keep-alive\r\n",
)  # fmt: skip


def _of_server(answer: bytes, *words: str, form: str = "") -> Hashable:
    _hostile().answer = answer
    form = form or _form(answer)
    url = f"http://127.0.0.1:{_hostile().port}"
    with mock.patch("vllm_doctor.session.sources.server.is_here", return_value=False):  # the host is our own
        return _sign(said([url, "--window", "0", "--timeout", "4", *words], form), form)


@harness(_responses, *_HTTP, weight=3, most=3000)
def examine_server(data: bytes) -> Hashable:
    """A server that answers these bytes to every request."""
    return _of_server(data)


@harness(of_servers.states, '"servers":', '"at":', '"clock":', '"samples":[', "vllm-doctor/state/v1\n", weight=1)
def examine_state(data: bytes) -> Hashable:
    """A well server, and a hook's state of it that is hostile."""
    port = str(_hostile().port).encode()
    path = file_of(data.replace(b"http://h:8000", b"http://127.0.0.1:" + port), "examined.state")
    return _of_server(_responses()[0], "--state", str(path), form=_form(data))


class _Prometheus:
    """In place of the connection to a Prometheus that knows two engines; one of its answers is hostile."""

    hostile: tuple[int, bytes] = (0, b"")
    _known: ClassVar[dict[str, bytes]] = {}

    def __init__(self, *how: object, **more: object) -> None:
        self._number = 0

    def post(self, path: str, deadline: float, where: str | None = None, **parameters: Any) -> Answer:
        self._number += 1
        which, body = self.hostile
        query = parameters["data"]["query"]
        return Answer(200, {}, body if which in (self._number, 0) else self.of_query(query), 0.0)

    @classmethod
    def of_query(cls, query: str) -> bytes:
        """What a good one answers; it is asked the same again and again."""
        if query not in cls._known:
            form = urlencode({"query": query}).encode()
            told = _fake_prometheus().answer(Request("POST", "/", {}, ("h", 1), 0, form))
            assert isinstance(told.body, bytes)
            cls._known[query] = told.body
        return cls._known[query]

    get = post

    def close(self) -> None:
        pass


@cache
def _fake_prometheus() -> FakePrometheus:
    return FakePrometheus(zip(targets(2), ("preemption", "healthy-busy"), strict=True), scrapes=8)


def _prometheus_answers() -> list[bytes]:
    """The answers to all queries, each with its number; number 0 is the answer to every one."""
    _Prometheus.hostile = (-1, b"")
    _fleet()
    known = list(_Prometheus._known.values())
    found = [b"%d\n%b" % (number, body) for number, body in enumerate(known, 1) if len(body) < 6000]
    return [*found, *(b"0\n" + body for body in of_servers.prometheus_answers())]


def _fleet() -> str:
    with mock.patch("vllm_doctor.prometheus.api.Connection", _Prometheus):
        return said(["fleet", "http://prometheus:9090", "--at", "2026-11-20T10:00:00Z", "--json"], "")


@harness(_prometheus_answers, '"metric":', '"value":', '"vector"', '"warnings":', '"instance"', "NaN", weight=4)
def examine_fleet(data: bytes) -> Hashable:
    """A Prometheus of which one answer is hostile: its number, then its body."""
    number, _, body = data.partition(b"\n")
    _Prometheus.hostile = (int(number) if number.isdigit() and len(number) < 4 else 0, body)
    document = json.loads(_fleet(), parse_constant=no_constant)
    for text in _strings(document):
        clean(text)
    if zlib.crc32(data) % _CHECKED == 0:
        _validator("fleet").validate(document)
    return document["verdict"], len(document.get("engines", ())), (document.get("error") or {}).get("kind")


# ---- results, recordings, rules, options ----------------------------------------------------------------------------


@harness(of_recordings.result_texts, '"duration":', '"measures":', '"schema":', "null", CANARY, weight=2, most=100_000)
def examine_compare(data: bytes) -> Hashable:
    """A result, compared with a good one."""
    good = file_of(corpus.benches()[0], "bench.json")
    words = [str(good), str(file_of(data, "result.json"))]
    document = json.loads(said(["compare", *words, "--json"], ""), parse_constant=no_constant)
    clean(said(["compare", *reversed(words)], ""))
    for text in _strings(document):
        clean(text)
    return document.get("outcome"), len(document.get("rows") or ()), (document.get("error") or {}).get("kind")


@harness(of_logs.texts, *of_logs.TOKENS, f" {CANARY} ", weight=2)
def record_log(data: bytes) -> Hashable:
    """A log that is recorded, and the recording examined: neither holds the secret that the log holds."""
    out = folder() / "recorded.tar.gz"
    out.unlink(missing_ok=True)
    share = ["--share"] if len(data) % 2 else []
    said(["record", str(file_of(data, "server.log")), "-o", str(out), *share], "", codes=(0, 3))
    if not out.exists():
        return "none"
    for text in texts_of(archive.read(out)).values():
        assert not holds_canary(text), "a secret is in the recording"
    return _sign(said([str(out)], "json"), "json")


@harness(lambda: [*corpus.rules("scheduler/*.yaml"), *HARNESSES["overrides"].corpus()], "when:", "info: ", weight=1)
def examine_rules(data: bytes) -> Hashable:
    """A folder of rules: checked, then used."""
    own = folder() / "own"
    name = "overrides.yaml" if data.startswith(b"over") else "scheduler/x.yaml"
    for other in ("overrides.yaml", "scheduler/x.yaml"):
        (own / other).unlink(missing_ok=True)
    file_of(of_rules.named_x(data), f"own/{name}")
    clean(said(["rules", "--check", str(own)], "", codes=(0, 3)))
    page = file_of(corpus.scrapes()[0], "good.txt")
    return _sign(said([str(page), "--rules", str(own)], "json"), "json")


_OPTIONS = (
    "--gpu", "--slo", "--since", "--until", "--last", "--window", "--timeout", "--goal", "--rule", "--skip",
    "--fail-on", "--header", "--command",
)  # fmt: skip
_OF_ALERTS = ("--select", "--by", "--logs", "--window", "--for", "--slo", "--rule", "--skip")
_WORDS = (
    b"examine\n--gpu\n8xH100\n--slo\nttft=2s\n--since\n13:30",
    b"examine\n--until\n2025-11-20\n--rule\npreemption\n--goal\nlatency",
    b"examine\n--command\nvllm serve m --max-num-seqs 4 -tp 2\n--gpu\nA100",
    b'alerts\n--select\npod=~"a.*"\n--by\njob,instance\n--logs\n{app="vllm"}\n--window\n5m\n--rule\npreemption',
    b"flags\n0.11.0\n--max-num-seqs\nVLLM_USE_V1\nvllm:num_requests_running",
    b"rules\npreemption",
)


@harness(lambda: list(_WORDS), *_OPTIONS, *_OF_ALERTS, "\n", "=", "ttft=", weight=3, most=1000)
def words(data: bytes) -> Hashable:
    """The command line: of each command the options that write nothing and start nothing."""
    command, *rest = data.decode("utf-8", "surrogateescape").replace("\0", "").split("\n")
    match command:
        case "flags" | "rules":
            given = [command, *(word for word in rest if not word.startswith(("--a", "--n", "-o", "--o", "--c")))]
        case "alerts":
            given = ["alerts", *_pairs(rest, _OF_ALERTS)]
        case _:
            given = [str(file_of(corpus.logs()[0][:4000], "good.log")), *_pairs(rest, _OPTIONS), "--json"]
    return given[0] if command in ("flags", "rules", "alerts") else "", len(said(given, "")) // 1000


def _pairs(words: Sequence[str], known: Sequence[str]) -> list[str]:
    """Options with their values."""
    return [
        word for name, value in zip(words[::2], words[1::2], strict=False) if name in known for word in (name, value)
    ]
