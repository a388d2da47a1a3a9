"""What may leave: no secrets, and nothing that a terminal would obey.

The one place for it. Sources mask what they read of a command line or an environment, the whole report is masked once
more before a renderer sees it, and a recording is made of masked texts alone. `Pseudonyms` (record --share) take the
names of hosts and users, addresses and paths out too.
"""

from __future__ import annotations

import ipaddress
import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from vllm_doctor.model.report import Patch, Report
from vllm_doctor.text import named_values, secret_names

Shown = TypeVar("Shown")

MASK = "[masked]"
WHEN_READ = "when-read"
"""What a source has masked itself, of a command line, an environment or a file."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a secret looks like, or what stands around it: then it is the group `it`, else the whole match.

    A text without any of `literals`, in lower case, has none: few patterns are ever compiled.
    Each repetition is bounded or possessive: a hostile text must not take long.
    """

    what: str
    literals: tuple[str, ...]
    pattern: str

    def sub(self, value: str, low: str, masked: Counter[str]) -> str:
        for literal in self.literals:
            if literal in low:
                break
        else:
            return value
        value, count = _compiled(self.pattern).subn(_mask, value)
        if count:
            masked[self.what] += count
        return value


_compiled = cache(re.compile)
_BEFORE_NAMES = (
    _Shape("private-key", ("private key-----",), r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?P<it>[\w+/=\\\s]{1,9999})"),
    _Shape("url-credentials", ("://",), r"(?<=://)(?!\[masked\]@)(?P<it>[^/\s]{1,1000})(?=@)"),
    _Shape(
        "authorization",
        ("authorization",),
        r"""(?ix)\bauthorization ["']? \s{0,9} [:=] \s{0,9} ["'\[]{0,2} (?!\[?masked\])
            (?P<it> [^\s"',}\]]{1,9999} (?: [ ] [^\s"',}\]]{1,9999} )? )""",
    ),
    _Shape("authorization", ("bearer",), r"(?i)\bbearer\s{1,9}(?P<it>[\w.~+/=-]{8,})"),
    _Shape("authorization", ("basic",), r"\b(?i:basic)\s{1,9}(?P<it>(?=[a-z]{0,99}[A-Z0-9+/=])[\w+/=-]{8,})"),
    _Shape(
        "cookie",
        ("cookie",),
        r"""(?i)\b(?:set-)?cookie["']?\s{0,9}[:=]\s{0,9}["']?(?P<it>(?!\[masked)[^"'\s][^"']{3,9999})""",
    ),
)
_AFTER_NAMES = (
    _Shape(
        "signature",
        ("sig", "auth", "x-amz", "x-goog"),
        r"""(?i)[?&](?:sig|signature|auth|x-(?:amz|goog)-[a-z-]{3,20})=(?!\[masked)(?P<it>[^&\s"']{1,9999})""",
    ),
    _Shape("cloud-key", ("sharedaccess",), r"""(?i)\bsharedaccesssignature=(?!\[masked)(?P<it>[^;\s"']{1,9999})"""),
    _Shape(
        "prompt",
        ("prompt", "token_ids", "output", "messages", "content", "input_value"),
        r"""(?x) (?<![\w-])
            (?:prompts? | (?:prompt_|output_)?token_ids | outputs? | messages | content | input_value)
            ["']? \s?[:=]\s? (?P<it> '(?!\[masked)(?:[^'\\]|\\.){1,9999}'? | "(?!\[masked)(?:[^"\\]|\\.){1,9999}"?
            | \[(?!masked)[^\]]{1,9999}\]? )""",
    ),
)
_RUN = re.compile(r"[\w~+/=.:-]{12}")
"""Each token of `_token_shapes` has as many of these in a row."""
_SHAPES = Path(__file__).with_name("token_shapes.tsv")


@cache
def _token_shapes() -> tuple[tuple[str, _Shape], ...]:
    """Each with a text that is in it, as it is written."""
    lines = _SHAPES.read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return tuple(
        (literal, _Shape(what, (literal,), pattern))
        for _, what, _, literals, pattern in rows
        for literal in literals.split(",")
    )


def text(value: str, masked: Counter[str]) -> str:
    """The text without secrets and control characters; `masked` counts what was taken out."""
    clean, counts = _again(value) if len(value) <= _SHORT else _cleaned(value)
    if counts:
        masked.update(counts)
    return value if clean == value else clean  # the same one: what is unchanged is not copied


def secrets(value: str, masked: Counter[str]) -> str:
    """The text without secrets; else as it stands, with all its lines."""
    low = value.lower()
    for shape in _BEFORE_NAMES:
        value = shape.sub(value, low, masked)
    value = named_values.masked(value, low, masked, MASK)
    for shape in _AFTER_NAMES:
        value = shape.sub(value, low, masked)
    if _RUN.search(value):
        for literal, shape in _token_shapes():
            if literal in value:
                value = shape.sub(value, value, masked)
    return value


def _cleaned(value: str) -> tuple[str, dict[str, int]]:
    counts: Counter[str] = Counter()
    if MASK in value:
        counts[WHEN_READ] = value.count(MASK)
    value = secrets(value, counts)
    if not value.isprintable():
        value = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in value)
    return value, dict(counts)


_SHORT = 1000
_again = lru_cache(4096)(_cleaned)
"""Of a server that is watched most texts are the same each time."""


def _patch(value: Patch, masked: Counter[str]) -> Patch:
    """Its lines keep their tabs, without which they would not fit."""
    lines = ["\t".join(text(part, masked) for part in line.split("\t")) for line in value.lines]
    rest = {f.name: _clean(getattr(value, f.name), masked) for f in fields(value) if f.name != "lines"}
    return replace(value, **rest, lines=tuple(lines))


def _mask(match: re.Match[str]) -> str:
    start, end = (place - match.start() for place in match.span("it" if "it" in match.re.groupindex else 0))
    return match[0][:start] + MASK + match[0][end:]


def report(value: Report) -> Report:
    """The report as it may leave; says what was masked, in recordings also when they were taken."""
    masked: Counter[str] = Counter()
    clean: Report = _clean(value, masked)
    if value.recordings:
        del masked[WHEN_READ]
    for seen in value.recordings:
        masked.update(seen.redacted)
    return replace(clean, redacted=dict(masked))


def anything(value: Shown) -> Shown:
    """What else may leave, a comparison: the same without secrets and control characters."""
    clean: Shown = _clean(value, Counter())
    return clean


def _clean(value: Any, masked: Counter[str]) -> Any:
    if type(value) is str:
        return text(value, masked)
    if isinstance(value, Patch):
        return _patch(value, masked)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for name in _fields_of(type(value)):
            before = getattr(value, name)
            if (after := _clean(before, masked)) is not before:
                changes[name] = after
        return replace(value, **changes) if changes else value
    if isinstance(value, Mapping):
        return {_clean(key, masked): _of_name(key, _clean(item, masked), masked) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [_clean(item, masked) for item in value]
        return value if all(map(operator.is_, items, value)) else tuple(items)
    return value


@cache
def _fields_of(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _of_name(name: Any, value: Any, masked: Counter[str]) -> Any:
    """A value, unless its name tells that it is a secret: a label api_key="…"."""
    kind = secret_names.kind(name) if type(name) is str and type(value) is str and MASK not in value else None
    if kind is None:
        return value
    masked[kind] += 1
    return MASK


# ---- names, for a recording that is shared --------------------------------------------------------------------------

_ADDRESS = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)"
    r"|(?<![\w.:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])"
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}")
_URL_HOST = re.compile(r"(?<=://)(?:\[masked\]@)?([A-Za-z0-9][A-Za-z0-9.-]{0,252})(?=[:/\s\"'<>),;?#\\]|$)")
_HOST_KEY = re.compile(
    r"(?i)\b(?:host|host_?name|node|node_?name|server_?name)[\"']?\s{0,3}[:=]\s{0,3}[\"']?([a-z0-9][\w.-]{2,252})"
)
_INTERNAL = re.compile(
    r"(?i)(?<![\w.-])((?:[a-z0-9-]{1,63}\.){1,6}(?:local|internal|intranet|lan|corp|home|localdomain|svc))"
    r"(?![\w-]|\.\w)"
)
_HOME = re.compile(r"(?<![\w.])/(?:home|Users)/([\w.-]{1,64})")
_USER_KEY = re.compile(r"(?i)\b(?:user|user_?name|login|owner)[\"']?\s{0,3}[:=]\s{0,3}[\"']?([a-z_][\w.-]{2,63})")
_PATH = re.compile(r"(?<![\w.:/~*-])/(?!/)[\w.@+~%-]{1,200}(?:/[\w.@+~%-]{1,200}){1,40}/?")
_CODE = re.compile(r"/(?:site-packages|dist-packages|lib/python3\.\d{1,2}|vllm)/")
_SYSTEM = ("/usr/", "/lib", "/proc/", "/sys/", "/dev/", "/etc/", "/bin/", "/run/", "/v1/", "/v2/", "/api/")
_PUBLIC = re.compile(
    r"(?:.*\.)?(?:localhost|vllm\.ai|github\.com|githubusercontent\.com|huggingface\.co|hf\.co|pytorch\.org|nvidia\.com"
    r"|python\.org|readthedocs\.io|pydantic\.dev|docker\.io|kubernetes\.io|prometheus\.io|apache\.org)"
)
_WORDS = frozenset(
    {
        "vllm", "localhost", "server", "model", "engine", "host", "node", "user", "root", "admin", "api", "none",
        "null", "true", "false", "metrics", "worker", "default", "tiny", "local", "ubuntu", "nobody", "name", "main",
        "auto", "serve", "python", "gpu", "cpu", "cuda", "unknown", "error", "info", "warning",
    }
)  # fmt: skip
"""What is no name, though somebody's host or user may be called so."""


class Pseudonyms:
    """host-1, address-1, user-1, /path-1 in place of names: the same for the same name, in the order they are met.

    Numbers in place of a hash: nobody can find a guessed name in them. `learn` from all texts before any is written,
    so that a name which one text tells as such is found in the others.
    """

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._words: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        for host in hosts:
            self._word("host", host)
        for user in users:
            self._word("user", user)

    @property
    def counts(self) -> dict[str, int]:
        """How many names of each kind were replaced."""
        return dict(Counter(kind for kind, _ in self._names))

    def learn(self, value: str) -> None:
        """The names of hosts and users that a text tells as such."""
        for pattern in (_URL_HOST, _HOST_KEY, _INTERNAL):
            for match in pattern.finditer(value):
                self._word("host", match[1])
        for pattern in (_HOME, _USER_KEY):
            for match in pattern.finditer(value):
                self._word("user", match[1])

    def text(self, value: str) -> str:
        """The text with pseudonyms."""
        value = _EMAIL.sub(lambda match: self._named("user", match[0]), value)
        value = _PATH.sub(self._path, value)
        if self._words:
            if self._pattern is None:
                longest = sorted(self._words, key=len, reverse=True)
                self._pattern = re.compile(
                    rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])", re.IGNORECASE
                )
            value = self._pattern.sub(lambda match: self._named(self._words[match[0].lower()], match[0].lower()), value)
        return _ADDRESS.sub(self._address, value)

    def _word(self, kind: str, name: str) -> None:
        name = name.rstrip(".").lower()
        if len(name) < 3 or name in _WORDS or name.replace(".", "").isdigit() or _PUBLIC.fullmatch(name):
            return
        if re.fullmatch(r"(?:host|user|address|path)-\d{1,9}", name) or name in self._words:
            return
        self._words[name] = kind
        self._pattern = None

    def _named(self, kind: str, name: str) -> str:
        found = self._names.get((kind, name))
        if found is None:
            number = sum(known == kind for known, _ in self._names) + 1
            found = self._names[kind, name] = f"{kind}-{number}"
        return found

    def _address(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(match[0])
        except ValueError:
            return match[0]
        if address.is_loopback or address.is_unspecified:
            return match[0]
        return self._named("address", match[0].lower())

    def _path(self, match: re.Match[str]) -> str:
        path = match[0]
        if path.startswith(_SYSTEM) or re.match(r"/path-\d", path):
            return path
        code = _CODE.search(path)
        if code is not None:  # whose code it is may be told, and where in it, not where it lies
            return (f"/{self._named('path', path[: code.start()])}" if code.start() else "") + path[code.start() :]
        return f"/{self._named('path', path.rstrip('/'))}" + ("/" if path.endswith("/") else "")
