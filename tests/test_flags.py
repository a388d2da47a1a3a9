from __future__ import annotations

import pytest

from vllm_doctor import flags


@pytest.mark.parametrize(
    ("version", "flag", "expected"),
    [
        pytest.param("0.32.0", "--max-num-seqs", True, id="there from the first to the last sample"),
        pytest.param("0.17.1", "--swap-space", True, id="before it was removed"),
        pytest.param("0.18.1", "--swap-space", False, id="after it was removed"),
        pytest.param("0.32.0", "--swap-space", False, id="long after it was removed"),
        pytest.param("0.18.0", "--swap-space", None, id="perhaps removed between two samples"),
        pytest.param("0.24.0", "--watermark", True, id="since it came"),
        pytest.param("0.11.0", "--watermark", False, id="long before it came"),
        pytest.param("0.23.5", "--watermark", None, id="perhaps there, between two samples"),
        pytest.param("0.33.0", "--host", True, id="there again after a gap"),
        pytest.param("0.9.2", "--host", True, id="before the gap"),
        pytest.param("0.20.2", "--host", False, id="in the gap"),
        pytest.param("0.30.5", "--host", None, id="perhaps back, between two samples"),
        pytest.param("0.32.0", "--no-such-thing", False, id="of no version"),
        pytest.param("0.32.0", "--no-enable-prefix-caching", True, id="the no form"),
        pytest.param("0.11.1rc3.dev29+gabc", "--max-num-seqs", True, id="a development version"),
        pytest.param("0.11.1rc3.dev29+gabc", "--watermark", False, id="a development version without it"),
        pytest.param("v0.32.0", "--max-num-seqs", True, id="with a v"),
        pytest.param("0.32", "--max-num-seqs", True, id="two numbers"),
        pytest.param("9.0.0", "--max-num-seqs", None, id="newer than the samples: perhaps removed"),
        pytest.param("9.0.0", "--swap-space", False, id="newer than the samples: stays removed"),
        pytest.param("0.2.0", "--max-num-seqs", None, id="older than the samples"),
        pytest.param(None, "--max-num-seqs", None, id="no version"),
        pytest.param("main", "--max-num-seqs", None, id="no version in the text"),
    ],
)
def test_has(version: str | None, flag: str, expected: bool | None) -> None:
    assert flags.has(version, flag) is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.32.0", (0, 32, 0)),
        ("0.11.1rc3.dev29+g3fa2c12", (0, 11, 1)),
        ("0.6.6.post1", (0, 6, 6)),
        ("v1.2", (1, 2, 0)),
        ("dev", None),
        ("", None),
    ],
)
def test_release(version: str, expected: tuple[int, ...] | None) -> None:
    assert flags.release(version) == expected


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--max-num-seqs", True),
        ("--swap-space", True),  # also one that is gone
        ("--host", True),
        ("--no-enable-prefix-caching", True),
        ("--max-nun-seqs", False),
        ("max-num-seqs", False),
        ("", False),
    ],
)
def test_is_flag(flag: str, expected: bool) -> None:
    assert flags.is_flag(flag) is expected
