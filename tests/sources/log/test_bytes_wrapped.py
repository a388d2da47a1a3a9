from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.sources.log.test_bytes_document import GENERATED, LINES, generated, read
from vllm_doctor.sources.log.bytes_wrapped import is_broken, joined


@pytest.mark.parametrize("width", [50, 72, 80, 100])
@pytest.mark.parametrize("quote", ["", "> "])
def test_lines_that_were_broken_between_words_are_put_together(width: int, quote: str, tmp_path: Path) -> None:
    wrapped = [f"{quote}{part}" for line in LINES for part in textwrap.wrap(line, width)]
    text = "\n".join(["Some words before.", "", "```", *wrapped, "```", "and after."])
    assert generated(read(tmp_path, text)) == pytest.approx(GENERATED)


def test_lines_that_a_terminal_broke_stay_as_they_are(tmp_path: Path) -> None:
    pieces = [line[at : at + 80] for line in LINES for at in range(0, len(line), 80)]
    assert not is_broken("\n".join(pieces).encode())
    assert generated(read(tmp_path, "\n".join(pieces))) == pytest.approx(GENERATED)


def test_lines_of_rich(tmp_path: Path) -> None:
    """With the time only where it is another, and the place at the right."""
    rows = []
    for n, line in enumerate(LINES):
        said = line.partition("] ")[2]
        first, *others = textwrap.wrap(said, 48)
        rows.append(f"[11/20/25 10:00:{10 * n:02d}] INFO     {first:<50} loggers.py:236")
        rows += [f"{'':29}{other}" for other in others]
        rows.append(f"{'':20}INFO     {'something else':<50} core.py:12")
    seen = read(tmp_path, "\n".join(rows))
    assert generated(seen) == pytest.approx(GENERATED)
    assert seen.lines is not None
    assert seen.lines.read == 12


def test_a_log_that_is_whole_is_left_alone() -> None:
    assert not is_broken("\n".join(LINES).encode())
    assert not is_broken(b"")


def test_no_line_becomes_longer_than_a_record_is() -> None:
    head = b"INFO 11-20 10:00:00 [a.py:1] Avg prompt throughput:\n1.0 tokens/s, Avg generation throughput:\n"
    assert is_broken(head)
    lines = b"".join(joined(head, iter([head + b"more\n" * 1000]))).split(b"\n")
    assert max(map(len, lines)) < 1000
