"""Harnesses of recordings and of results."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Hashable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.harness import clean, file_of, harness, no_constant, seen
from tests.fuzz.of_servers import wanted
from tests.paths import FIXTURES
from tests.zstandard import zstd
from vllm_doctor.model.errors import SourceError

BENCH = FIXTURES / "bench"


def bundle_parts() -> list[bytes]:
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
    bundle_parts,
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
        signs.append(seen(one.observation(wanted())) if not one.logs else "log")
        if not one.logs:
            replayed = bundle.Replayed(one, "h", wanted(), lambda: 0.0)
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
    scrapes = list(read.scrapes(wanted(), 10))
    return len(scrapes), len(read.pages) if scrapes else 0


@harness(lambda: [corpus.parts()["1-server/metrics.prom.zst"]], weight=0.5)
def metrics_packed(data: bytes) -> Hashable:
    """The same, packed."""
    from vllm_doctor.recording import metrics

    return len(list(metrics.of_file(data, "r").scrapes(wanted(), 10)))


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


def result_texts() -> list[bytes]:
    return [text for text in [*corpus.benches(), report_json()] if len(text) < 100_000]


@harness(result_texts, '"duration":', '"measures":', '"schema":', "null", "[]", '"samples":', weight=2, most=100_000)
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


@harness(
    lambda: [*result_texts(), *corpus.files(*(path for path in BENCH.iterdir() if path.suffix in (".txt", ".json")))],
    "============ Serving Benchmark Result ============",
    "Successful requests:",
    "Throughput: 1 requests/s, 2 total tokens/s, 3 output tokens/s",
    "vllm bench serve --",
    "Namespace(",
    "nan",
    "inf",
    weight=2,
    most=100_000,
)
def benchmark(data: bytes) -> Hashable:
    """A benchmark's result, saved or printed: its facts are finite, its command holds no piece that a shell runs."""
    from vllm_doctor.model.reading import Known
    from vllm_doctor.sources.bench import source

    signs = []
    for one in source.of_text(data, "x") or source.results([file_of(data, "result.json")]):
        seen = one.examine("x")
        for fact in seen.facts.values():
            assert not (isinstance(fact, Known) and isinstance(fact.value, float)) or math.isfinite(fact.value)
        command = seen.facts["bench_command_corrected"]
        assert isinstance(command, Known)
        assert shlex.split(" ".join(map(shlex.quote, str(command.value).split())))
        signs.append(one.run.tool)
    return tuple(signs)


@cache
def _good_results() -> list[Any]:
    from vllm_doctor.compare import results

    def look(source: str) -> dict[str, Any]:
        raise AssertionError(source)

    return [results.of_source(str(file_of(text, f"good{i}.json")), look) for i, text in enumerate(result_texts()[:2])]
