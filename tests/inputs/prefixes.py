"""Thirty pairs of prompts that part at a known token, and what changes there: as clients build them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from vllm_doctor.model.prefix import Change

Tokens = list[int]
_WORDS = 30000


@dataclass(frozen=True)
class Planted:
    """`prompts` part at token `at`. `keys`: what else tells one from the other (an adapter, a salt); `adapters`: their
    names."""

    name: str
    prompts: tuple[Tokens, ...]
    at: int
    change: Change
    keys: tuple[str, ...] = ()


def planted(words: int = _WORDS) -> Iterator[Planted]:
    """`words`: ids of tokens are below this."""
    chance = random.Random(20251124)
    others = words * 3 // 4

    def text(count: int) -> Tokens:
        """Ids that `new` has none of."""
        return [chance.randrange(4, others) for _ in range(count)]

    numbers = cycle(range(others, words))

    def new(count: int) -> Tokens:
        """No two in a row are the same: what is new parts at its first token."""
        return [next(numbers) for _ in range(count)]

    def around(before: int, changed: Callable[[], Tokens], after: int, own: int) -> tuple[Tokens, ...]:
        """What stays, what changes, what stays, and each prompt's own end."""
        head, rest = text(before), text(after)
        return tuple([*head, *changed(), *rest, *new(1), *text(own)] for _ in range(2))

    def ordered(before: int, count: int, each: int, after: int, order: Sequence[int]) -> tuple[Tokens, ...]:
        """So many pieces, in this order in the second."""
        head, pieces, rest = text(before), [[*new(1), *text(each)] for _ in range(count)], text(after)
        orders = (range(count), order)
        return tuple([*head, *(token for place in one for token in pieces[place]), *rest] for one in orders)

    yield Planted("a date as the first line", around(0, lambda: new(6), 1500, 40), 0, Change.HEAD)
    yield Planted("a time behind the template's preamble", around(25, lambda: new(4), 3000, 60), 25, Change.HEAD)
    yield Planted("a header's hash", around(9, lambda: new(12), 12000, 200), 9, Change.HEAD)
    yield Planted("a user's name in the first sentence", around(12, lambda: new(1), 700, 20), 12, Change.HEAD)
    yield Planted(
        "a greeting of another length", around(5, lambda: new(chance.choice((2, 9))), 900, 30), 5, Change.HEAD
    )
    yield Planted("an id at the end of the first block", around(15, lambda: new(1), 400, 20), 15, Change.HEAD)
    yield Planted("an id at the start of the second block", around(16, lambda: new(1), 400, 20), 16, Change.HEAD)
    yield Planted("an id at token 63", around(63, lambda: new(2), 400, 20), 63, Change.HEAD)
    yield Planted("a uuid within the system prompt", around(1200, lambda: new(20), 2400, 80), 1200, Change.COUNTER)
    yield Planted("a counter of turns", around(350, lambda: new(1), 350, 30), 350, Change.COUNTER)
    yield Planted("a date behind the rules", around(4096, lambda: new(8), 4096, 100), 4096, Change.COUNTER)
    yield Planted("a budget of tokens near the end", around(8000, lambda: new(3), 300, 50), 8000, Change.COUNTER)
    yield Planted("a session's id at a block's border", around(512, lambda: new(16), 512, 20), 512, Change.COUNTER)
    yield Planted("a counter before the end of a block", around(527, lambda: new(1), 600, 20), 527, Change.COUNTER)
    yield Planted("whitespace that one has more", _with_more(text, new, 777, 1, 500), 777, Change.MIDDLE)
    yield Planted("two line ends for one", _with_more(text, new, 100, 1, 90), 100, Change.MIDDLE)
    yield Planted("a tool more", _with_more(text, new, 600, 150, 2000), 600, Change.MIDDLE)
    yield Planted(
        "another document before the question's rules",
        around(900, lambda: new(chance.choice((70, 90, 110))), 700, 20),
        900,
        Change.MIDDLE,
    )
    yield Planted(
        "thoughts that are left out of the history", _with_more(text, new, 3000, 400, 250), 3000, Change.MIDDLE
    )
    yield Planted("tools in another order", ordered(256, 5, 120, 800, (1, 0, 2, 3, 4)), 256, Change.ORDER)
    yield Planted("the last tools in another order", ordered(256, 5, 120, 800, (0, 1, 4, 3, 2)), 498, Change.ORDER)
    yield Planted("documents in another order", ordered(70, 4, 999, 1, (2, 3, 0, 1)), 70, Change.ORDER)
    system = text(2000)
    yield Planted(
        "each user's own question", tuple([*system, *new(1), *text(100)] for _ in range(2)), 2000, Change.TAIL
    )
    system = text(48)
    yield Planted(
        "a short system prompt and a question", tuple([*system, *new(1), *text(40)] for _ in range(2)), 48, Change.TAIL
    )
    system, end = text(500), text(5)
    yield Planted(
        "questions before the template's end",
        tuple([*system, *new(1), *text(60), *end] for _ in range(2)),
        500,
        Change.TAIL,
    )
    system = text(19000)
    yield Planted(
        "20,000 tokens and a question", tuple([*system, *new(1), *text(1000)] for _ in range(2)), 19000, Change.TAIL
    )
    turn = text(1600)
    yield Planted(
        "an answer that is asked for again, and the turns behind it",
        tuple([*turn, *new(1), *text(320)] for _ in range(2)),
        1600,
        Change.TAIL,
    )
    yield Planted(
        "prompts of thirty tokens", tuple([*reversed(turn[:20]), *new(1), *text(12)] for _ in range(2)), 20, Change.TAIL
    )
    same = text(1024)
    yield Planted("another adapter", (same, same), 0, Change.KEYS, ("adapter-a", "adapter-b"))
    same = text(640)
    yield Planted("another salt", (same, same), 0, Change.KEYS, ("salt-a", "salt-b"))


def _with_more(
    text: Callable[[int], Tokens], new: Callable[[int], Tokens], before: int, more: int, after: int
) -> tuple[Tokens, ...]:
    """The second has something more in the middle."""
    head, rest = text(before), text(after)
    return [*head, *rest, *new(1), *text(20)], [*head, *new(more), *rest, *new(1), *text(20)]
