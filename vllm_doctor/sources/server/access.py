"""What a server asks for before it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from vllm_doctor.model.errors import UsageError

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Access:
    """How to be let in. `ca_file`: PEM certificates to trust beside the system's."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of the servers that the user names; names in small letters."""
    ca_file: Path | None = None
    insecure: bool = False
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of --token-for, by the base of the URL: of that server, and what lies below that path."""

    def credentials(self, base: str) -> Mapping[str, str]:
        """The headers for the server at `base`, and for nobody else."""
        token = max(((len(of), token) for of, token in self.tokens.items() if covers(of, base)), default=None)
        return self.headers if token is None else {**self.headers, "authorization": f"Bearer {token[1]}"}

    def check_found(self) -> None:
        """Raise UsageError where headers would go to servers that nobody named.

        Every user of a host can start what looks like a vLLM there.
        """
        if self.headers:
            raise UsageError(
                "--token-file and --header go to servers that you name, not to those found on this host:"
                " give the URL or the pid too, or --token-for http://127.0.0.1:8000=FILE"
            )


def covers(url: str, base: str) -> bool:
    """Whether what --token-for says of this URL is of the server at `base`."""
    of, server = urlsplit(url), urlsplit(base)
    place, its = ((p.scheme, p.hostname, p.port or _PORTS.get(p.scheme)) for p in (of, server))
    return place == its and f"{server.path}/".startswith(f"{of.path}/")
