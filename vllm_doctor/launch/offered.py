"""The load that a text names beside the command of a server: how many requests at a time, and how long. Pure.

It is written as flags of a client (`vllm bench serve --max-concurrency 128`), or in a remark ("random 1000 in / 5000
out, max_concurrency=256"). Where two places say different things nothing is taken: a sweep is no load.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_MOST = 100_000
_N = r"(\d{1,7})(?![\d.\w%])"
_SAID: Mapping[str, re.Pattern[str]] = {
    "bench_concurrency_asked": re.compile(rf"(?i)(?<![\w])(?:--)?max[-_ ]concurrency[ =:]{{1,3}}{_N}"),
    "bench_input_len_asked": re.compile(
        rf"(?i)--(?:random-)?input-len[ =]{{1,3}}{_N}"
        r"|(?<![\w.,])(\d{1,7}) ?(?:tokens )?in(?:put)?(?: tokens)? ?[/,|] ?(?=\d{1,7} ?(?:tokens )?out)"
    ),
    "bench_output_len_asked": re.compile(
        rf"(?i)--(?:random-)?output-len[ =]{{1,3}}{_N}|in(?:put)?(?: tokens)? ?[/,|] ?(\d{{1,7}}) ?(?:tokens )?out"
    ),
}


def of_text(text: str) -> dict[str, float]:
    """The facts of a benchmark that is asked for, as far as the text fixes them."""
    found = {}
    for fact, pattern in _SAID.items():
        said = {float(next(filter(None, match.groups()))) for match in pattern.finditer(text[:_MOST])}
        if len(said) == 1 and (number := said.pop()) > 0:
            found[fact] = number
    return found
