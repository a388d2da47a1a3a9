"""Connections to servers that must be gone to: by a Unix socket of theirs, or in their network namespace.

A thread goes there, connects, and ends; what it connected is then used from anywhere.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx
from httpcore._backends.sync import SyncStream

from vllm_doctor.sources.server.route import Enter


def transport(verify: ssl.SSLContext | bool, enter: Enter) -> httpx.HTTPTransport:
    """A transport whose connections are made within `enter`."""
    made = httpx.HTTPTransport(verify=verify)
    context = verify if isinstance(verify, ssl.SSLContext) else None
    # httpx has no parameter for the network backend, which is httpcore's own joint for this.
    made._pool = httpcore.ConnectionPool(ssl_context=context, network_backend=_Entered(enter))
    return made


class _Entered(httpcore.NetworkBackend):
    def __init__(self, enter: Enter) -> None:
        self._enter = enter

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """The connection. Raises httpcore.ConnectError, also where nobody may go there."""
        made: list[httpcore.NetworkStream] = []
        failed: list[BaseException] = []
        backend = httpcore.SyncBackend()

        def connect() -> None:
            try:
                with self._enter() as path:
                    if path is None:
                        made.append(backend.connect_tcp(host, port, timeout, local_address, socket_options))
                    else:
                        made.append(_to_socket(path, timeout))
            except BaseException as error:  # raised again in the caller's thread
                failed.append(error)

        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        thread.join(timeout)
        if made:
            return made[0]
        if not failed:
            raise httpcore.ConnectTimeout("timed out")
        if isinstance(failed[0], OSError):
            raise httpcore.ConnectError(failed[0]) from failed[0]
        raise failed[0]


def _to_socket(path: str, timeout: float | None) -> httpcore.NetworkStream:
    """As httpcore.SyncBackend connects, which leaves a socket open where that fails."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return SyncStream(made)
