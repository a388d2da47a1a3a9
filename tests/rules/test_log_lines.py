"""The table of log lines: each example is found, read, and is a text that vLLM has."""

from __future__ import annotations

import re

import pytest

from tests.lab.release import log_calls
from tests.paths import DATA
from vllm_doctor.rules import catalogue, folders, log_lines, rule
from vllm_doctor.vllm import flags

TABLE = log_lines.load(rule.shipped() / log_lines.FOLDER)
RELEASE, CALLS = log_calls.read(DATA / "log_calls.tsv.gz")
FORMATS = [text for _, _, _, text in CALLS]


FROM_PARTS = {"banner-version", "stats", "cpu-threads-bound"}
"""Put together from parts in vLLM, or in its C++ (csrc/cpu/utils.cpp): no one call has the text."""


REQUEST = "request-logged"
ASKS = {"request-grammar", "request-logprobs", "request-prompt-logprobs"}
"""What a request asks for stands in the line that it came: that is counted by itself, and each of these beside it."""


def id_of(line: log_lines.LogLine) -> str:
    return line.id


ANY_EXCEPTION = "recorded-exception"
"""It counts where no other line tells why an engine died."""


def message(line: log_lines.LogLine) -> str:
    """The message of the example: what follows vLLM's own prefix; the whole line of a bare one."""
    found = re.search(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d [\d:]{8} \[?[\w./]+\.py:\d+\] ?", line.example)
    assert (found is None) == line.bare, "an example is a whole line, with vLLM's prefix unless it is bare"
    return line.example[found.end() :] if found else line.example


@pytest.mark.parametrize("line", TABLE.lines.values(), ids=id_of)
def test_the_example_is_found_and_gives_what_it_says(line: log_lines.LogLine) -> None:
    assert any(text in line.example.encode() for text in line.find)
    values = line.values(message(line))
    assert values is not None
    assert {name: values.get(name) for name in line.gives} == dict(line.gives)


@pytest.mark.parametrize("line", TABLE.lines.values(), ids=id_of)
def test_the_example_is_no_other_line(line: log_lines.LogLine) -> None:
    others = [
        other.id for other in TABLE.lines.values() if other is not line and other.values(message(line)) is not None
    ]
    others = [id for id in others if id != ANY_EXCEPTION]
    assert others == ([REQUEST] if line.id in ASKS else [])


@pytest.mark.parametrize("line", TABLE.lines.values(), ids=id_of)
def test_what_it_names_are_its_values(line: log_lines.LogLine) -> None:
    used = {*line.facts, *line.gives, *(name for s in line.samples for name in s.of.names)}
    assert used <= log_lines.names_of(line)


@pytest.mark.parametrize(
    "line",
    [
        line
        for line in TABLE.lines.values()
        if not line.bare and line.until is None and line.id not in FROM_PARTS | ASKS | {ANY_EXCEPTION}
    ],
    ids=id_of,
)
def test_a_line_that_is_still_printed_is_one_of_the_newest_release(line: log_lines.LogLine) -> None:
    assert any(text.decode() in a_format for text in line.find for a_format in FORMATS)


def test_the_log_calls_are_those_of_the_newest_release() -> None:
    assert flags.newest() == RELEASE


def test_each_signal_of_a_log_names_a_line_or_its_value() -> None:
    signals = catalogue.load(rule.shipped()).signals.values()
    named = [(s.name, name) for s in signals if s.way == "log" for name in s.definition.split()]
    assert [pair for pair in named if not TABLE.has(pair[1])] == []


WITHOUT_A_CURE = {
    # They only introduce or repeat an exception: the traceback has the cause.
    "worker-exception", "worker-failed", "worker-exception-v0", "worker-died-v0", "worker-method-failed",
    "engine-exception", "engine-step-timeout-v0", "ray-actor-died", "python-fatal",
    # Each says something else, and no flag is known for it.
    "cpp-exception", "xla-oom",
}  # fmt: skip


def test_each_line_of_an_error_is_read_by_a_rule() -> None:
    signals = catalogue.load(rule.shipped()).signals.values()
    others = (folders.LOG_LINES, folders.SIGNALS)
    rules = "".join(path.read_text() for path in rule.shipped().rglob("*.yaml") if path.parent.name not in others)
    words = set(re.findall(r"\w+", rules))
    used = [signal for signal in signals if signal.way == "log" and signal.name.partition(".")[0] in words]
    read = {re.split(r"[.@]", name)[0] for signal in used for name in signal.definition.split()}
    errors = {line.id for line in TABLE.lines.values() if line.marks == "error"}
    assert errors - read == WITHOUT_A_CURE


def test_what_is_a_scrape_is_not_counted() -> None:
    told = {TABLE.finds[text]: TABLE.finds[first] for text, first in TABLE.uncounted.items()}
    assert told[b"Engine 0"] == told[b"Avg prompt throughput:"] == b"Avg prompt throughput:"
    assert b"400 Bad Request" not in told


def test_a_line_that_was_cut_tells_nothing_false() -> None:
    line = TABLE.lines["engine-config"]
    whole = "Initializing a V1 LLM engine (v0.32.0) with config: model='m', enforce_eager=False, device_config=cpu"
    assert (line.values(whole) or {})["on_gpu"] is False
    assert (line.values(whole.replace("cpu", "cuda")) or {})["on_gpu"] is True
    assert "on_gpu" not in (line.values(whole.partition(", device")[0]) or {})
