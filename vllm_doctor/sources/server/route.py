"""How a server is connected to, where its URL alone does not say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

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


DIRECT = Route()
