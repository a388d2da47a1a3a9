"""Names of hosts and users, addresses and paths out of a recording that is shared (record --share)."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable

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
