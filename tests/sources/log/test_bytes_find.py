from __future__ import annotations

import random

import pytest

from vllm_doctor.sources.log import bytes_literals, bytes_scan
from vllm_doctor.sources.log.bytes_find import finder
from vllm_doctor.sources.log.bytes_scan import Scanner


def test_every_place_is_found_also_where_they_overlap() -> None:
    literals = (b"aa", b"aab", b"x")
    assert finder(literals, range(3))(b"aaab", 0, 4) == [(2, 0), (3, 0), (4, 1)]
    assert finder(literals, [1])(b"aaab", 0, 4) == [(4, 1)]


def test_what_ends_before_the_start_was_found_before() -> None:
    find = finder((b"abc",), [0])
    assert find(b"abcabc", 3, 6) == [(6, 0)]
    assert find(b"abcabc", 2, 5) == [(3, 0)]


@pytest.mark.parametrize("seed", range(5))
def test_a_log_is_read_as_with_hyperscan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(bytes_scan, "_WINDOW", 500)
    data = bytes(chance.choices(b"abc \n", (5, 5, 5, 3, 1), k=20_000))
    literals = [bytes(chance.choices(b"abc", k=chance.randint(2, 6))) for _ in range(12)]
    uncounted = {3: 3, 4: 3}

    def told() -> list[tuple[int, bytes, tuple[int, ...]]]:
        return [(line.offset, line.raw, line.hits) for line in Scanner(literals, uncounted).lines([data])]

    with_it = told()
    monkeypatch.setattr(bytes_literals, "hyperscan", None)
    assert told() == with_it
