"""What stands after the name of a secret, in any text: `pass=X`, `"db_pass": "X"`, `--hf-token X`, `passphrase X`.

Which names are a secret's is in `secret_names`. Time is linear in the length of the text: what was looked at for one
name is not looked at again for the next, and each pattern is bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from vllm_doctor.text import secret_names

_compiled = cache(re.compile)
_STEM = "|".join(secret_names.STEMS)
_ASSIGNED = (
    rf"""(?i)(?:{_STEM})[\w.-]{{0,60}}+(?P<close>\\{{0,7}}["'`]?\]?)\s{{0,9}}+"""
    r"(?:=>|:=|(?P<sign>[:=]))(?![=:])\s{0,9}+"
)
_FLAG = rf"(?i)(?<![\w-])--?(?:[a-z][\w.-]{{0,60}}?)?(?:{_STEM})[\w.-]{{0,60}}+\s{{1,9}}+(?=[^\s-])"
_SPOKEN = r"""(?ix)(?<![\w-]) (?: (?P<pass> pass(?:word|wd|code) | pwd ) | (?P<phrase> passphrase )
    | (?:(?:api|access|secret)[ _-]?key | secret | token | credentials?) )
    \s{1,3} (?:(?:is|was)\s{1,3})? ["'`]?
    (?P<it> (?P<word> [^\s"'`,;)\]}]{3,200} ) (?(phrase) [^"'`,;)\]}\n]{0,200} ) )"""
_RANDOM = r"(?=[A-Za-z_/+=-]{0,99}\d)(?=[\d_/+=-]{0,99}[A-Za-z])[\w/+=-]{12,}"
_FOLLOWS = secret_names.words("""
    is was are were be been must may might can could cannot should shall will would for of in on at to from by
    with without and or not no the a an your this that these file files hash hashes auth authentication
    authorization protected required missing incorrect invalid wrong expired empty mismatch policy field fields
    manager reset prompt argument option parameter value length based has have login grant set given provided
    expected encrypted encryption hashing does did verification via store stored too when where which while if
    as it its contains changed change failed failure entry string strings only but than then default name using
    used
""")
"""What is written after "password" where no password is."""
_NONE = r"(?i)\[{0,2}masked\]|(?:none|null|true|false|nil|undefined)(?![\w-])|\*{3,}|\.{3}"
_NUMBER = r"[+-]?[\d.,]{1,40}(?:[eE][+-]?\d{1,4})?(?![\w/+])"
_QUOTE = r"""[bruBRU]{0,2}(\\{0,7})(["'`])"""
_BODY = {quote: rf"(?s:[^{quote}\\\n]|\\.)*+" for quote in "\"'`"}
_CALL = r"[A-Za-z_][\w.]{0,60}+\("
_BARE = r"""[^\s"'`&,;}\])]+"""
_BARE_PASSWORD = r"""(?:[^\s"'`&,;}\])]|[&,;](?!\s|\Z|["'{\[]|[\w.%-]{1,60}[=:])|[}\])](?![\s,;}\])"'`]|\Z))++"""
_WORDS = r"""[^"'`&,;}\])\n]+"""
_SAID_BEFORE = r"([A-Za-z]+) \Z"
_SCHEME = r"(?i)(?:bearer|basic|digest|token|apikey|negotiate|aws4-hmac-sha256)\s+"
_SIGN = r"""\\{0,7}["'`]|[\[\](){}]"""
_LEAF = (
    r"""(\\{0,7}["'])(?P<quoted>(?:(?!\1).){0,9999}+)\1(?P<is_key>(?=\s{0,9}:))?"""
    r"""|[:=]\s{0,9}(?![\w.-]{1,60}[:=])(?P<bare>[^\s"'`\[\](){}\\,;][^\s"'`\[\](){},;]*)"""
)
_MOST = 9999
"""Characters of a list or a mapping that is looked through."""
_SHORTEST = 4
"""Characters of a bare value after a name that may mean something else."""


def masked(text: str, low: str, counts: Counter[str], mask: str) -> str:
    """The text with `mask` in place of such values; `low`: the text in lower case. `counts` counts them by kind."""
    if not any(stem in low for stem in secret_names.STEMS):
        return text
    text = _replaced(text, _assigned(text), counts, mask)
    text = _replaced(text, _of_flags(text), counts, mask)
    return _replaced(text, _spoken(text), counts, mask)


def _replaced(text: str, found: Iterator[tuple[int, int, str]], counts: Counter[str], mask: str) -> str:
    pieces = []
    at = 0
    for start, end, kind in sorted(found):
        if start >= at:
            pieces += [text[at:start], mask]
            at = end
            counts[kind] += 1
    return "".join([*pieces, text[at:]]) if pieces else text


def _assigned(text: str) -> Iterator[tuple[int, int, str]]:
    """The places of values behind "=" or ":", with their kinds."""
    pattern = _compiled(_ASSIGNED)
    at = 0
    hidden = 0  # up to there all of a list or mapping is
    while (found := pattern.search(text, at)) is not None:
        at = found.end()
        name = _whole(text, found.start(), found.start("close"))
        before = text[max(0, found.start() - 24) : found.start()]
        said = _compiled(_SAID_BEFORE).search(before) if name == text[found.start() : found.start("close")] else None
        kind = secret_names.kind(f"{said[1]}_{name}" if said else name)  # "in each forward pass: the …"
        if kind is None or (name.lower() == "key" and found["sign"] == ":" and not found["close"]):  # "no such key: x"
            continue
        if _compiled(_NONE).match(text, at):
            continue
        inside = _opened(text, at)
        if inside is not None:
            if at >= hidden:
                hidden = _closing(text, inside)
                yield from ((start, end, kind) for start, end in _leaves(text, inside, hidden, kind))
        elif (place := _value(text, at, name, kind)) is not None:
            at = place[1]
            yield *place, kind


def _of_flags(text: str) -> Iterator[tuple[int, int, str]]:
    if "-" not in text:
        return
    for found in _compiled(_FLAG).finditer(text):
        name = found[0].strip()
        kind = secret_names.kind(name)
        if kind is None:
            continue
        at = found.end()
        quoted = _quoted(text, at)
        if quoted is None:
            word = _end_of(r"""[^\s"'`]*+""", text, at)
            if text[at] == "(" or text[at:word].lower() in _FOLLOWS:  # "--api-key or VLLM_API_KEY"
                continue
            quoted = at, _end_of(r"\S+(?: [^-\s\\]\S*)*", text, at) if name == "--api-key" else word  # it takes several
        start, end = quoted
        if end > start and not _is_setting(text[start:end], kind):
            yield start, end, kind


def _end_of(pattern: str, text: str, at: int) -> int:
    found = _compiled(pattern).match(text, at)
    return found.end() if found is not None else at


def _spoken(text: str) -> Iterator[tuple[int, int, str]]:
    """In prose. Behind a token or a key only what looks like one: many sentences have these words."""
    for found in _compiled(_SPOKEN).finditer(text):
        word = found["word"].strip(".:!?=-|*")
        if found["pass"] is None and found["phrase"] is None:
            if _compiled(_RANDOM).fullmatch(word) is not None:
                yield *found.span("it"), "api-key"
        elif len(word) > 1 and word.lower() not in _FOLLOWS and found["word"][0] not in "=:[<({":
            yield *found.span("it"), "password"


def _whole(text: str, start: int, end: int) -> str:
    """The name of which a piece was found."""
    before = text[max(0, start - 64) : start]
    return before[len(before.rstrip(_OF_NAMES)) :] + text[start:end]


_OF_NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"


def _opened(text: str, at: int) -> int | None:
    """Where the inside of a list, a mapping or a call begins."""
    call = _compiled(_CALL).match(text, at)
    return call.end() if call is not None else at + 1 if text[at : at + 1] in ("[", "{", "(") else None


def _leaves(text: str, start: int, end: int, kind: str) -> Iterator[tuple[int, int]]:
    """The places of the texts in a list or mapping."""
    inside = text[start:end]
    if text[start - 1] == "[" and "{" not in inside:
        if not _is_setting(inside.strip().lstrip("\\\"'"), kind):
            yield start, end
        return
    for leaf in _compiled(_LEAF).finditer(text, start, end):
        place = leaf.span("bare" if leaf["quoted"] is None else "quoted")
        if leaf["is_key"] is None and not _is_setting(text[slice(*place)], kind):
            yield place


def _value(text: str, at: int, name: str, kind: str) -> tuple[int, int] | None:
    """The place of a quoted or a bare value, if it is one that is hidden."""
    place = _quoted(text, at)
    if place is None:
        if name.lower() in ("tokens", "keys"):
            return None
        scheme = _compiled(_SCHEME).match(text, at) if kind == "authorization" else None
        start = scheme.end() if scheme else at
        words = _WORDS if name.lower().endswith("phrase") else _BARE_PASSWORD if kind == "password" else _BARE
        bare = _compiled(words).match(text, start)
        if bare is None or (kind != "password" and len(bare[0]) < _SHORTEST and "=" not in text[at - 2 : at]):
            return None
        place = start, start + len(bare[0].rstrip())
    return None if _is_setting(text[slice(*place)], kind) else place


def _quoted(text: str, at: int) -> tuple[int, int] | None:
    """The place of a quoted text's inside, to its end or to the end of the line; also in JSON within JSON."""
    quote = _compiled(_QUOTE).match(text, at)
    if quote is None:
        return None
    start = quote.end()
    if not quote[1]:
        return start, _end_of(_BODY[quote[2]], text, start)
    end = text.find(quote[1] + quote[2], start)
    if end < 0:
        end = text.find("\n", start)
    return start, end if end >= 0 else len(text)


def _closing(text: str, at: int) -> int:
    """The place of the bracket that closes what was opened before `at`, or where the search ends."""
    depth, quote = 1, ""
    for sign in _compiled(_SIGN).finditer(text, at, min(len(text), at + _MOST)):
        if sign[0][-1] in "\"'`":
            quote = "" if quote == sign[0] else quote or sign[0]
        elif not quote:
            depth += 1 if sign[0] in "[({" else -1
            if depth == 0:
                return sign.start()
    return min(len(text), at + _MOST)


def _is_setting(value: str, kind: str) -> bool:
    """Whether it is nothing that anybody hides: none, masked already, on or off, a number; no number for a password."""
    if not value.strip() or _compiled(_NONE).match(value.strip()):
        return True
    number = _compiled(_NUMBER).match(value)
    return number is not None and (kind != "password" or len(value) < _SHORTEST)
