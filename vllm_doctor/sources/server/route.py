"""How a server is connected to, where its URL alone does not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_doctor.model.errors import SourceError

if TYPE_CHECKING:
    from ssl import SSLContext

Enter = Callable[[], AbstractContextManager[str | None]]
"""A context within which a thread can connect: to the path that it gives, of a Unix socket, or, None, to the URL's host
and port. The thread does nothing else before or after. Raises OSError."""


@dataclass(frozen=True)
class Route:
    """The way to one server. `name`: what it is called where its base is not what reaches it."""

    name: str = ""
    entered: Enter | None = None
    certificate: str = ""
    """The server's own certificate (PEM), which is trusted whatever name stands in it; `certificate_of`: its file."""
    certificate_of: str = ""
    note: str = ""
    """What is to be said of the way."""
    secured: SSLContext | None = None
    """Whose certificates are trusted on the way, in place of the system's, and the certificate that is shown there."""
    credentials: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)
    """Headers that let one in on the way, in place of the command line's; asked before each request."""
    refused: Callable[[int, bytes], SourceError | None] = lambda status, body: None
    """What an answer that is no 200 means where somebody on the way gives it; None: the server gave it."""


DIRECT = Route()
