"""Whether a port that was asked by http speaks TLS, or one that was asked by https plain HTTP: asked once, after the
exchange has failed. Nothing secret is sent."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit, urlunsplit

_SECONDS = 1.0
_DEFAULT = {"http": 80, "https": 443}


def url(failed: str) -> str | None:
    """The URL with the other scheme, if that is what its port speaks; without a user and a password."""
    parts = urlsplit(failed)
    port = parts.port or _DEFAULT[parts.scheme]
    if parts.hostname is None:
        return None
    scheme, speaks = ("https", _speaks_tls) if parts.scheme == "http" else ("http", _speaks_http)
    try:
        with socket.create_connection((parts.hostname, port), _SECONDS) as connection:
            if not speaks(connection, parts.hostname):
                return None
    except (OSError, ValueError):
        return None
    return urlunsplit(parts._replace(scheme=scheme, netloc=parts.netloc.rpartition("@")[2]))


def _speaks_tls(connection: socket.socket, host: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # whoever it is: it is only asked for a handshake
    try:
        context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLError as error:
        return (
            error.reason is not None and "ALERT" in error.reason
        )  # a refusal in TLS, such as for want of a certificate
    return True


def _speaks_http(connection: socket.socket, host: str) -> bool:
    connection.sendall(f"HEAD / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode("idna" if not host.isascii() else "ascii"))
    return connection.recv(5) == b"HTTP/"
