from __future__ import annotations

import random
from pathlib import Path

import hyperscan
import pytest

from vllm_doctor.rules import log_lines, pickled
from vllm_doctor.sources.log import bytes_find, bytes_literals

TEXTS = log_lines.shipped().finds
LOG = b"INFO " + b" and ".join(TEXTS) + b"\n"


def keep(folder: Path, texts: tuple[bytes, ...], dumped: bytes) -> None:
    pickled.write(folder, f"literals-{hyperscan.__version__}", (texts, dumped))  # type: ignore[attr-defined]


def compiled(texts: tuple[bytes, ...]) -> bytes:
    return hyperscan.dumpb(bytes_literals._compiled(texts, range(len(texts))))


def test_where_a_buffer_is_cut_changes_nothing() -> None:
    chance = random.Random(4)
    for _ in range(200):
        literals = [bytes(chance.choices(b"ab", k=chance.randrange(1, 6))) for _ in range(6)]
        buffer = bytearray(chance.choices(b"abc\n", k=chance.randrange(60)))
        cuts = [0, *sorted(chance.randrange(len(buffer) + 1) for _ in range(4)), len(buffer)]
        find, slow = bytes_literals.finder(literals), bytes_find.finder(literals, range(6))
        parts = [hit for i in range(5) for hit in find(buffer, cuts[i], cuts[i + 1])]
        assert [end for end, _ in parts] == sorted(end for end, _ in parts)
        assert sorted(parts) == slow(buffer, 0, len(buffer))


def test_left_out_are_those_that_are_named() -> None:
    find = bytes_literals.finder([b"ab", b"b", b"c"], frozenset({1}))
    assert find(b"abc", 0, 3) == [(2, 0), (3, 2)]
    assert bytes_literals.finder([b"ab"], frozenset({0}))(b"ab", 0, 2) == []


def test_what_was_kept_finds_the_same(kept_folder: Path) -> None:
    wanted = bytes_literals.finder(TEXTS)(LOG, 0, len(LOG))
    assert len(wanted) >= len(TEXTS)
    assert bytes_literals.kept_finder(TEXTS)(LOG, 0, len(LOG)) == wanted
    keep(kept_folder, TEXTS, compiled(TEXTS))
    assert bytes_literals.kept_finder(TEXTS)(LOG, 0, len(LOG)) == wanted


def test_what_was_kept_is_used(kept_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(kept_folder, TEXTS, compiled(TEXTS))
    monkeypatch.setattr(bytes_literals, "_compiled", None)
    bytes_literals.kept_finder(TEXTS)


@pytest.mark.parametrize(
    ("texts", "dumped"),
    [
        (TEXTS[1:], compiled(TEXTS[1:])),  # a user's own log lines are among them
        (TEXTS, b"of another kind of processor, or another Hyperscan"),
        (TEXTS, compiled(TEXTS)[:100]),
    ],
)
def test_what_does_not_fit_is_compiled_anew(kept_folder: Path, texts: tuple[bytes, ...], dumped: bytes) -> None:
    keep(kept_folder, texts, dumped)
    assert bytes_literals.kept_finder(TEXTS)(LOG, 0, len(LOG)) == bytes_literals.finder(TEXTS)(LOG, 0, len(LOG))


def test_what_others_may_have_written_is_not_loaded(kept_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(kept_folder, TEXTS, b"a program of somebody's")
    (kept_folder / f"literals-{hyperscan.__version__}.pickle").chmod(0o666)  # type: ignore[attr-defined]
    loaded: list[bytes] = []
    load = hyperscan.loadb

    def noted(dumped: bytes, mode: int) -> hyperscan.Database:
        loaded.append(dumped)
        return load(dumped, mode)

    monkeypatch.setattr(hyperscan, "loadb", noted)
    bytes_literals.kept_finder(TEXTS)
    assert b"a program of somebody's" not in loaded
