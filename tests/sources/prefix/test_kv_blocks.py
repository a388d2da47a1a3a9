"""Prompts out of the blocks that a KV cache stores."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.inputs.kv_events import Cache, stored
from vllm_doctor.model.prefix import Change, Prefixes
from vllm_doctor.sources.prefix import kv_blocks
from vllm_doctor.sources.prefix.kv_blocks import Blocks, FormError


def tokens(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(30000), k=count)


SYSTEM = tokens(800, 1)


def examined(*events: object, show_text: bool = False) -> Prefixes | None:
    blocks = Blocks(show_text)
    for event in events:
        blocks.add([1.0, [event], 0])
    return blocks.prefixes("tcp://here:5557")


@pytest.mark.parametrize("is_array", [False, True])
@pytest.mark.parametrize("size", [16, 64])
def test_prompts_that_change_within_a_block(is_array: bool, size: int) -> None:
    """Also as earlier releases write events: as an array, with numbers as hashes."""
    cache = Cache(size, is_array)
    found = examined(*cache.events([*SYSTEM[:301], 50000, *SYSTEM[301:]], [*SYSTEM[:301], 50001, *SYSTEM[301:]]))
    assert found is not None
    assert found.worst is not None
    assert (found.prompts, found.worst.change, found.worst.at) == (2, Change.COUNTER, 301)


def test_a_prompt_computed_in_pieces_is_one() -> None:
    cache = Cache()
    first = cache.events(SYSTEM[:320])
    found = examined(*first, *cache.events(SYSTEM), *cache.events([*SYSTEM[:640], *tokens(64, 2)]))
    assert found is not None
    assert (found.prompts, [group.change for group in found.groups]) == (2, [Change.TAIL])
    assert found.groups[0].at == 640


def test_what_was_stored_before_is_not_counted() -> None:
    """Of what is known of it no position is told, but what is lost is."""
    cache = Cache()
    cache.events(SYSTEM[:320])  # before anybody listened
    found = examined(*cache.events(*([*SYSTEM[:320], n, *SYSTEM[320:]] for n in range(40000, 40003))))
    assert found is not None
    assert found.worst is not None
    assert (found.worst.at, found.worst.from_start, found.worst.change) == (0, False, Change.COUNTER)
    assert found.again == 2 * 480 - 2 * 1  # the last of its tokens fills no block


@pytest.mark.parametrize("extra", [["adapter"], ["salt"], [["picture", 0]]])
def test_what_tells_blocks_apart_beside_tokens(extra: list[object]) -> None:
    cache = Cache()
    found = examined(*cache.events(SYSTEM), *cache.events(SYSTEM, keys=extra))
    assert found is not None
    assert (found.groups[0].change, found.groups[0].at, found.again) == (Change.KEYS, 0, 0)


def test_a_block_that_is_dropped_was_there() -> None:
    cache = Cache()
    found = examined(
        *cache.events([1, *SYSTEM]),
        {"type": "BlockRemoved", "block_hashes": [b"x"], "medium": "GPU"},
        {"type": "AllBlocksCleared"},
        *cache.events([2, *SYSTEM]),
    )
    assert found is not None
    assert found.prompts == 2


def test_groups_of_layers_tell_of_the_same_prompts() -> None:
    cache = Cache()
    events = cache.events([1, *SYSTEM], [2, *SYSTEM])
    found = examined(*events, *({**event, "group_idx": 1} for event in events))
    assert found is not None
    assert found.prompts == 2


def test_tokens_are_shown_only_if_asked_for() -> None:
    events = Cache().events([40001, *SYSTEM], [40002, *SYSTEM])
    found, shown = examined(*events), examined(*events, show_text=True)
    assert found is not None
    assert shown is not None
    assert found.groups[0].shown == ()
    assert [text.split()[0] for text in shown.groups[0].shown] == ["40001", "40002"]


GOOD: dict[str, Any] = stored([b"a" * 32], None, tokens(16, 1), 16)


@pytest.mark.parametrize(
    "event",
    [
        None,
        7,
        [],
        [7],
        {},
        {"type": 3},
        {**GOOD, "block_hashes": None},
        {**GOOD, "block_hashes": ["text"]},
        {**GOOD, "block_hashes": [True]},
        {**GOOD, "block_hashes": [b""]},
        {**GOOD, "block_hashes": [b"x" * 1000]},
        {**GOOD, "token_ids": [1.5] * 16},
        {**GOOD, "token_ids": [-1] * 16},
        {**GOOD, "token_ids": [1 << 63] * 16},
        {**GOOD, "token_ids": {"a": 1}},
        {**GOOD, "block_size": 0},
        {**GOOD, "block_size": True},
        {**GOOD, "block_size": -16},
        {**GOOD, "parent_block_hash": "text"},
        {**GOOD, "group_idx": "0"},
        {**GOOD, "group_idx": {}},
    ],
)
def test_odd_events_are_counted_and_left_out(event: object) -> None:
    blocks = Blocks()
    blocks.add([1.0, [event]])
    assert (blocks.odd, blocks.prefixes("x")) == (1, None)


@pytest.mark.parametrize("extra", [7, "x", [], [None, 3], [{"a": {"b": []}}]])
def test_extra_keys_may_be_anything(extra: object) -> None:
    blocks = Blocks()
    blocks.add([1.0, [{**GOOD, "extra_keys": extra}]])
    assert (blocks.odd, blocks.stored) == (0, 1)


@pytest.mark.parametrize("batch", [None, 7, {}, [], [1.0], [1.0, None], "text"])
def test_what_is_no_batch(batch: object) -> None:
    with pytest.raises(FormError):
        Blocks().add(batch)


def test_events_that_leave_out_blocks_are_told() -> None:
    blocks = Blocks()
    blocks.add([1.0, [{**GOOD, "token_ids": tokens(64, 1)}]])
    assert (blocks.sparse, blocks.odd) == (1, 0)


def test_blocks_that_go_round_end() -> None:
    ids = tokens(16, 1)
    found = examined(
        stored([b"a"], b"b", ids, 16),
        stored([b"b"], b"a", ids, 16),
        stored([b"c"], b"a", ids, 16),
        stored([b"d"], b"a", ids, 16),
    )
    assert found is not None


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_blocks, "MOST_BLOCKS", 10)
    blocks = Blocks()
    for event in Cache().events([1, *SYSTEM], [2, *SYSTEM]):
        blocks.add([1.0, [event]])
    assert blocks.left_out == 2 * 50 - 10
