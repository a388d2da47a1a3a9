"""An upgrade of vLLM as people write it: "upgrading from 0.8.4 to 0.9.0 made it slow", "0.8.4 is fine, 0.9.0 is slow".

Only versions that vLLM may have are read, each without another program's name before it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

from vllm_doctor.vllm import flags

_MOST_CHARS = 200_000
_MOST_VERSIONS = 400
_WIDEST, _AROUND = 120, 80
_V = r"v?(0\.\d{1,2}(?:\.\d{1,2})?(?:[.-]?(?:post|rc|dev|beta|b|alpha|a)[\d.]{0,6})?)(?![\d%]|\.\d)"
_VERSION = re.compile(rf"(?<![\w.])[`'\"*]{{0,2}}{_V}[`'\"*]{{0,2}}")
_MOVES = re.compile(
    r"(?<![a-z])(?:upgrad|updat|mov|switch|migrat|bump|go|chang|regress)(?:e[ds]?|ing|es|ions?|ed)?(?![a-z])"
)
_FROM = re.compile(r"(?<![a-z])(?:from|between) (?:the )?(?:vllm |version |image |release |tag )*\Z")
_TO = re.compile(r"\A\s{0,2}(?:[^.!?\n;]{0,40}\s)?(?:to|and) (?:the )?(?:vllm |version |image |release |tag )*\Z")
_ARROW = re.compile(r"\s{0,2}(?:->|→|=>|--+>)\s{0,2}(?:vllm |version )?")
_FINE = re.compile(
    r"(?<![a-z])(?<!not )(?:fine|ok(?:ay)?|good|well|fast(?:er)?|works?|worked|working|normal(?:ly)?"
    r"|no (?:such )?(?:problem|issue)s?)(?![a-z])"
)
_BAD = re.compile(
    r"(?<![a-z])(?:slow(?:er|s|ed)?|regress\w{0,6}|degrad\w{0,6}|drop(?:s|ped)?|worse|broken|hangs?|stuck"
    r"|decreas\w{1,3})(?![a-z])|变慢|下降|退化"
)
_ENDS = re.compile(r"[.!?;](?=\s|\Z)|[。！？；\n]")
_OTHERS = re.compile(
    r"(?<![a-z])(?:cuda|torch|pytorch|python|driver|transformers|triton|flashinfer|flash-attn|nccl|rocm|kernel|sglang"
    r"|ollama|lmcache|litellm|ray|tokenizers|xformers|compressed-tensors)(?![a-z])"
)
_SETTING = re.compile(r"--[a-z]|utili[sz]ation|temperature|top[-_ ]p|penalty|swap|fraction|ratio|threshold")
_OF_VERSIONS = re.compile(
    r"(?<![a-z])(?:vllm|versions?|images?|releases?|tags?|upgrad\w{1,3}|updat\w{1,3}|docker)(?![a-z])"
)
_SHORT = re.compile(r"0\.(\d{1,2})")
"""Of a share, too: 0.85, 0.95."""
_BEYOND = 5
"""How many releases there may be by now after the newest that is known."""
_VLLM = re.compile(r"(?<![a-z])vllm(?![a-z])")
_NEAR = 300


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From one version to a later one. `is_worse`: the text says that something is, by it."""

    before: str
    after: str
    is_worse: bool

    def side(self, text: str) -> str:
        """Which of both a text names last: "before", "after"; "" for none."""
        named = [match[1] for match in _VERSION.finditer(text)]
        last = next((name for name in reversed(named) if name in (self.before, self.after)), None)
        return "" if last is None else "before" if last == self.before else "after"


def read(text: str) -> Upgrade | None:
    """The one upgrade that a text is about; None where it names none, or several."""
    small = text[:_MOST_CHARS].lower()
    found: dict[tuple[str, str], bool] = {}
    for before, after, at in _pairs(small):
        around = small[max(0, at - _NEAR) : at + _NEAR]
        found[before, after] = found.get((before, after), False) or _BAD.search(around) is not None
    if len(found) != 1:
        return None
    [((before, after), is_worse)] = found.items()
    return Upgrade(before, after, is_worse)


def _pairs(text: str) -> Iterator[tuple[str, str, int]]:
    """Versions that stand one after the other, and are the two of an upgrade."""
    found = list(islice(_VERSION.finditer(text), _MOST_VERSIONS))
    for one, other in pairwise(found):
        between = text[one.end() : other.start()]
        if len(between) > _WIDEST:
            continue
        lead = _ENDS.split(text[max(0, one.start() - _AROUND) : one.start()])[-1]
        tail = _ENDS.split(text[other.end() : other.end() + _AROUND], maxsplit=1)[0]
        if any(_OTHERS.search(part) and not _VLLM.search(part) for part in (lead, between)):
            continue
        if _SETTING.search(lead) or not all(_may_be(match[1], lead) for match in (one, other)):
            continue
        is_move = _MOVES.search(lead) and _FROM.search(lead) and _TO.fullmatch(between)
        is_told = is_move or _ARROW.fullmatch(between) or (_FINE.search(between) and _BAD.search(tail))
        if is_told and _order(one[1]) < _order(other[1]):
            yield one[1], other[1], one.start()


def _may_be(version: str, lead: str) -> bool:
    """Whether it can be a version of vLLM; two numbers alone only where the words before say so."""
    minor = _order(version)[1]
    if minor > int(flags.newest().split(".")[1]) + _BEYOND:
        return False
    return _SHORT.fullmatch(version) is None or _OF_VERSIONS.search(lead) is not None


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
