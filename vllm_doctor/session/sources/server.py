"""A server that is named by its URL, and its host where that is this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vllm_doctor.model.errors import DoctorError, told
from vllm_doctor.model.kinds import FRONTS, SourceKind
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source, failed, noted
from vllm_doctor.session.sources import gpus, processes
from vllm_doctor.sources.server.route import DIRECT, Route

if TYPE_CHECKING:
    from vllm_doctor.sources.host.process import Listener, ServerProcess
    from vllm_doctor.sources.server.server import Server

UNIX = "unix:"


def is_named_by(word: str) -> bool:
    """http://host:8000, or host:8000, or unix:/run/vllm.sock."""
    return ":" in word


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """Each server, with its host if that is this machine. One that cannot be asked is an error of its own, if others
    are named."""
    found: list[Source] = []
    for word in words:
        try:
            found += _opened(word, how, opened)
        except DoctorError as error:
            if len(words) == 1 and not beside:
                raise
            from vllm_doctor.sources.server.fetch import shown

            kind = SourceKind.GATEWAY if how.role in FRONTS else SourceKind.SERVER
            found.append(failed(kind, shown(word), *told(error)))
    return found


def _opened(word: str, how: Attachment, opened: ExitStack) -> list[Source]:
    if word.startswith(UNIX):
        from vllm_doctor.sources.host import process_files, routes

        path = word.removeprefix(UNIX)
        path = path[2:] if path.startswith("//") else path
        route = routes.to_socket(process_files.own(how.kernel), path)
        return [of_url(client(routes.OF_A_SOCKET, route, how, opened), how)]
    port, here = _listening(word, how)
    server = client(*_as_it_listens(word, here, how), how, opened)
    return [of_url(server, how), *_host(server, port, here, how, opened)]


OPENER = Opener(is_named_by, Turn.SERVER, opened)


def client(url: str, route: Route, how: Attachment, opened: ExitStack) -> Server:
    """A connection to a server. Raises UsageError where it is no URL."""
    from vllm_doctor.sources.server.server import Server

    return opened.enter_context(closing(Server(url, how.wanted, how.access, route=route, role=how.role)))


def of_url(server: Server, how: Attachment) -> Source:
    """The server's /metrics."""
    from vllm_doctor.sources.server.server import Followed

    return Source(
        server.kind,
        server.target,
        server.target,
        lambda: server.examine(how.seconds, how.deadline, how.state, how.waited),
        so_far=server.so_far,
        follow=lambda: Followed(server, keep=how.keep),
        server=server,
    )


def _listening(url: str, how: Attachment) -> tuple[int | None, ServerProcess | Listener | None]:
    """The port of a URL of this machine, and who listens there; None where it is another's."""
    from vllm_doctor.sources.server.fetch import base_of

    parts = urlsplit(base_of(url))
    if not is_here(parts.hostname or ""):
        return None, None
    from vllm_doctor.sources.host import process

    port = parts.port or (443 if parts.scheme == "https" else 80)
    return port, process.listening_on(how.kernel, port)


def _as_it_listens(url: str, here: ServerProcess | Listener | None, how: Attachment) -> tuple[str, Route]:
    """The URL with https where the server that listens there was started with TLS, and the way to it.

    A secret goes to nobody whose certificate is vouched for by himself alone: then a https that the user wrote is
    checked as any other.
    """
    from vllm_doctor.sources.host import process

    if not isinstance(here, process.ServerProcess) or here.url is None or not here.url.startswith("https://"):
        return url, DIRECT
    plain = url.removeprefix("http://")
    if "://" not in plain:
        return f"https://{plain}", here.route
    return url, DIRECT if how.access.headers or how.access.tokens else here.route


def _host(
    server: Server, port: int | None, here: ServerProcess | Listener | None, how: Attachment, opened: ExitStack
) -> list[Source]:
    """The host of a server that was named by its URL: this one, if its port is a vLLM's here."""
    unseen = gpus.of_file(server.target, how)
    if port is None:
        return unseen
    from vllm_doctor.sources.host import process

    match here:
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
