"""A server that is named by its URL, and its host where that is this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source, noted
from vllm_doctor.session.sources import gpus, processes

if TYPE_CHECKING:
    from vllm_doctor.sources.server.server import Server


def is_named_by(word: str) -> bool:
    """http://host:8000, or host:8000."""
    return ":" in word


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """Each server, with its host if that is this machine."""
    found: list[Source] = []
    for word in words:
        server = client(word, how, opened)
        found += [of_url(server, how), *_host(server, word, how, opened)]
    return found


OPENER = Opener(is_named_by, Turn.SERVER, opened)


def client(url: str, how: Attachment, opened: ExitStack) -> Server:
    """A connection to a server. Raises UsageError where it is no URL."""
    from vllm_doctor.sources.server.server import Server

    return opened.enter_context(closing(Server(url, how.wanted, how.access)))


def of_url(server: Server, how: Attachment) -> Source:
    """The server's /metrics."""
    from vllm_doctor.sources.server.server import Followed

    return Source(
        SourceKind.SERVER,
        server.target,
        server.target,
        lambda: server.examine(how.seconds, how.deadline, how.state),
        so_far=server.so_far,
        follow=lambda: Followed(server, keep=how.keep),
        server=server,
    )


def _host(server: Server, url: str, how: Attachment, opened: ExitStack) -> list[Source]:
    """The host of a server that was named by its URL: this one, if its port is a vLLM's here."""
    from vllm_doctor.sources.server.fetch import base_of

    parts = urlsplit(base_of(url))
    port = parts.port or (443 if parts.scheme == "https" else 80)
    unseen = gpus.of_file(server.target, how)
    if not is_here(parts.hostname or ""):
        return unseen
    from vllm_doctor.sources.host import process

    match process.listening_on(how.kernel, port):
        case process.ServerProcess() as found:
            return processes.of_server(found, server.target, how, opened)
        case process.Listener(pid=pid, name=name) if pid != os.getpid():  # the demo is served by ourselves
            note = f"port {port} is {name} (pid {pid}), not vLLM itself: for its host, name the vLLM behind it"
            return [noted(SourceKind.HOST, f"port {port}", server.target, note), *unseen]
        case None if process.hides_others(how.kernel):
            note = f"whose port {port} is, is not known: {process.HIDDEN}; run vllm-doctor as its user, or as root"
            return [noted(SourceKind.HOST, f"port {port}", server.target, note), *unseen]
        case _:
            return unseen


def is_here(host: str) -> bool:
    """Whether the host's name or address is this machine's; names are not looked up beyond its own."""
    if host in ("localhost", "127.0.0.1", "0.0.0.0", "::1", socket.gethostname().lower()):
        return True
    try:
        for family, kind, _, _, address in socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        ):
            with socket.socket(family, kind) as tried:
                tried.bind(address)  # only an address of one's own can be bound
                return True
    except (OSError, UnicodeError):
        pass
    return False
