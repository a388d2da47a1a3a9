"""Harnesses of times, numbers, and of what is written."""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Hashable
from datetime import UTC, datetime

from tests.fuzz.harness import CANARY, harness, text_of
from vllm_doctor.model.errors import DoctorError


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

    text = text_of(data)
    signs = []
    try:
        seconds = options.seconds(text)
        assert 0 <= seconds <= options.ONE_DAY
        signs.append(durations.duration(seconds)[-3:])
        durations.promql(seconds)
    except (ValueError, argparse.ArgumentTypeError):
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

    number, _, unit = text_of(data).partition(" ")
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
    from vllm_doctor.text.pseudonyms import Pseudonyms

    masked: Counter[str] = Counter()
    text = redact.text(f"{text_of(data)} {CANARY}", masked)
    assert text.isprintable()
    assert CANARY not in text
    names = Pseudonyms(("db1",), ("alice",))
    names.learn(text)
    names.text(text)
    return tuple(sorted(masked))


@harness(lambda: list(_TEXTS), "a: b", "- ", "#", "'", '"', "|", ">", weight=0.5, most=500)
def yaml_out(data: bytes) -> Hashable:
    """What is written as YAML is read as the same."""
    import yaml

    from vllm_doctor.text import yaml as written

    text = "".join(c for c in text_of(data) if c.isprintable() or c == "\n")
    lines = written.dump({"key": text, "list": [text]})
    assert yaml.safe_load("\n".join([*lines, ""])) == {"key": text, "list": [text]}
    return len(lines)


@harness(
    lambda: [
        b"I get only 17 tokens per second for 1 request on 2xa100 pcie, llama 3.1 70b bf16; expected 60-100 tok/s",
        b"$ vllm serve Qwen/Qwen3-8B -tp 2 and 32 users see 1,200 tok/s", b"tpot=58ms,concurrency=16,input=1024",
        "单张A800 每秒只有17个token，并发数为16".encode(), b"LLM(model='a/b1', tensor_parallel_size=2)",
        b"1200tok/s@64",
    ],
    "tok/s",
    "tokens per second",
    "expected",
    "vs",
    "4090",
    "8xH100",
    "70b",
    "Q4_K_M",
    "vllm serve ",
    "@",
    "\n",
    weight=2,
    most=2000,
)  # fmt: skip
def prose(data: bytes) -> Hashable:
    """What people write of a server's speed, and --measured."""
    from vllm_doctor.sources.bench import measured, prose, prose_command, prose_setup

    text = text_of(data)
    found = prose.figures(text)
    assert all(0 < figure.of_request < math.inf and figure.start <= len(text) for figure in found)
    model, gpu, start = prose_setup.model(text, len(text) // 2), prose_setup.gpu(text), prose_command.start(text)
    try:
        measured.parse(text).facts()
        sign = "measured"
    except ValueError:
        sign = "none"
    return len(found), model is None, gpu is None, start is None, prose_setup.parallel(text) == (None, None), sign
