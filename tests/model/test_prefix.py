"""Where prompts part, what changes there, and what it costs."""

from __future__ import annotations

import random

import pytest

from vllm_doctor.model import prefix
from vllm_doctor.model.prefix import Change, Comparison, Numbers, Prefixes, Prompt, Unit


def tokens(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(1000, 30000), k=count)


def compared(*prompts: list[int], unit: Unit = Unit.TOKEN) -> Prefixes:
    numbers, comparison = Numbers(), Comparison(unit)
    for each in prompts:
        comparison.add(Prompt(numbers.of(each)))
    return prefix.summed("here", unit, [comparison])


SYSTEM = tokens(2000, 1)


def test_a_head_that_changes_costs_all_that_follows_it() -> None:
    found = compared(*([*tokens(9, 7), 40000 + n, *SYSTEM, *tokens(30, 100 + n)] for n in range(5)))
    group = found.worst
    assert group is not None
    assert (group.change, group.at, group.at_most, group.length, group.prompts) == (Change.HEAD, 9, 9, 1, 5)
    assert found.again == 4 * len(SYSTEM)
    assert found.lost_of_computed is not None
    assert found.lost_of_computed > 0.7


def test_a_counter_in_the_middle() -> None:
    found = compared(*([*SYSTEM[:500], 40000 + n, *SYSTEM[500:], *tokens(30, 100 + n)] for n in range(3)))
    assert found.worst is not None
    assert (found.worst.change, found.worst.at, found.again) == (Change.COUNTER, 500, 2 * 1500)


def test_pieces_in_another_order() -> None:
    one, two, three = tokens(200, 2), tokens(200, 3), tokens(200, 4)
    found = compared([*SYSTEM[:300], *one, *two, *three, 5], [*SYSTEM[:300], *three, *one, *two, 6])
    assert found.worst is not None
    assert (found.worst.change, found.worst.at, found.again) == (Change.ORDER, 300, 600)


def test_something_longer_within_what_stays() -> None:
    found = compared(
        [*SYSTEM[:300], *tokens(10, 2), *SYSTEM[300:], 5], [*SYSTEM[:300], *tokens(80, 3), *SYSTEM[300:], 6]
    )
    assert found.worst is not None
    assert (found.worst.change, found.worst.at, found.worst.length) == (Change.MIDDLE, 300, 80)


@pytest.mark.parametrize("kind", [Change.TAIL, Change.GROWTH])
def test_what_is_normal_costs_nothing(kind: Change) -> None:
    mine, theirs = tokens(100, 2), tokens(90, 3)
    end = [7, 8, 9]  # of a chat template
    prompts = {
        Change.TAIL: ([*SYSTEM, *mine, *end], [*SYSTEM, *theirs, *end]),
        Change.GROWTH: ([*SYSTEM, *mine], [*SYSTEM, *mine, *theirs]),
    }[kind]
    found = compared(*prompts)
    assert [group.change for group in found.groups] == [kind]
    assert found.worst is None
    assert found.lost_of_computed == 0
    assert found.shared == found.groups[0].at


def test_prompts_that_have_nothing_in_common_are_no_group() -> None:
    found = compared(*([1, 2, 3, *tokens(500, seed)] for seed in range(20)))
    assert (found.groups, found.again, found.prompts) == ((), 0, 20)


def test_an_adapter_is_no_loss() -> None:
    numbers, comparison = Numbers(), Comparison(Unit.TOKEN)
    comparison.add(Prompt(numbers.of(SYSTEM), ((0, 1),)))
    comparison.add(Prompt(numbers.of(SYSTEM), ((0, 2),)))
    comparison.add(Prompt(numbers.of([*SYSTEM, 4]), ((0, 2),)))
    found = prefix.summed("here", Unit.TOKEN, [comparison])
    assert {(group.change, group.at) for group in found.groups} == {(Change.KEYS, 0), (Change.GROWTH, 2000)}
    assert found.again == 0


def test_a_short_prompt_before_does_not_hide_the_loss() -> None:
    """It is the beginning of the others, which change behind it."""
    head = tokens(20, 9)
    found = compared(head, [*head, 1, *SYSTEM], [*head, 2, *SYSTEM])
    assert found.worst is not None
    assert (found.worst.change, found.worst.at, found.again) == (Change.HEAD, 20, 2000)


def test_the_parting_is_where_the_cache_ends() -> None:
    """The relative that says most of the same parts earlier than another one."""
    found = compared([1, *SYSTEM], [2, 3, 4, 5], [2, 3, 6, *SYSTEM])
    assert found.worst is not None
    assert (found.worst.at, found.again) == (2, 2000)


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix, "MOST_UNITS", 5000)
    found = compared(*([*SYSTEM, n] for n in range(4)))
    assert (found.prompts, found.left_out) == (2, 2)


def test_nothing_is_known_of_nothing() -> None:
    found = compared()
    assert (found.lost_of_computed, found.lost_share, found.worst) == (None, None, None)


def test_random_prompts_part_where_they_differ() -> None:
    """Against the plain definition."""
    for seed in range(200):
        chance = random.Random(seed)
        numbers, comparison = Numbers(), Comparison(Unit.TOKEN)
        prompts: list[list[int]] = []
        for _ in range(6):
            start = chance.choice(prompts)[: chance.randrange(60)] if prompts and chance.random() < 0.8 else []
            prompt = [*start, *chance.choices(range(4), k=chance.randrange(1, 60))]
            longest = max((_alike(prompt, other) for other in prompts), default=0)
            prompts.append(prompt)
            comparison.add(Prompt(numbers.of(prompt)))
            parting = comparison.partings[-1]
            assert parting is None or parting.at == longest


def _alike(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
