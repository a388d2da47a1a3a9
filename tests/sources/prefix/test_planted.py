"""Thirty planted places where prompts part, by both inputs: the place is exact, and so is what changes there."""

from __future__ import annotations

import pytest

from tests.inputs.kv_events import Cache
from tests.inputs.prefixes import Planted, planted
from tests.sources.prefix.test_request_log import examined, new, old
from vllm_doctor.model.prefix import Prefixes
from vllm_doctor.sources.prefix.kv_blocks import Blocks

PLANTED = list(planted())


def test_there_are_thirty() -> None:
    assert len({one.name for one in PLANTED}) == 30


def found(one: Planted, seen: Prefixes | None) -> None:
    assert seen is not None
    [group] = seen.groups
    assert (group.at, group.at_most, group.change, group.from_start) == (one.at, one.at, one.change, True)


@pytest.mark.parametrize("words", [30000, 2048])
@pytest.mark.parametrize("place", range(30), ids=[one.name for one in PLANTED])
def test_by_events(place: int, words: int) -> None:
    one = list(planted(words))[place]
    cache, blocks = Cache(), Blocks()
    for number, prompt in enumerate(one.prompts):
        for event in cache.events(prompt, keys=[one.keys[number]] if one.keys else None):
            blocks.add([1.0, [event]])
    found(one, blocks.prefixes("here"))


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.name)
def test_by_logged_tokens(one: Planted) -> None:
    lines = [
        old(number, "", prompt, one.keys[number]) if one.keys else new(number, None, prompt)
        for number, prompt in enumerate(one.prompts)
    ]
    found(one, examined(*lines)[0])


def test_all_together() -> None:
    """The prompts of thirty clients in one log: none is taken for another's."""
    prompts = [(one, prompt) for one in PLANTED for prompt in one.prompts if not one.keys]
    seen, _ = examined(*(new(number, None, prompt) for number, (_, prompt) in enumerate(prompts)))
    assert seen is not None
    assert {(group.at, group.change) for group in seen.groups} == {
        (one.at, one.change) for one in PLANTED if not one.keys
    }
    assert len(seen.groups) == 28
