"""The ways to a server of this host that its URL alone does not tell: TLS, a Unix socket, another network namespace.

All that its processes name is opened with the rights of their user, as `process_files` does.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel, table
from vllm_doctor.sources.host.process_files import ProcessFiles
from vllm_doctor.sources.server.route import DIRECT, Route
from vllm_doctor.vllm.command_line import Command

CERTIFICATE = "--ssl-certfile"
OF_A_SOCKET = "http://localhost"
"""The base of what is asked through a Unix socket: the name is sent, and looked up by nobody."""
_MAX_CERTIFICATE = 1 << 20
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_SYS_ADMIN = 21
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


def with_its_certificate(files: ProcessFiles, command: Command) -> Route:
    """Over TLS its own certificate is trusted, as far as the file that it was started with can be read."""
    path = command.flags.get(CERTIFICATE)
    if not isinstance(path, str):
        return DIRECT
    text = files.text(path, _MAX_CERTIFICATE)
    found = _PEM.findall(text) if not isinstance(text, Reason) else []
    if found:  # the file may hold the key, too, which is not for us
        return Route(certificate="\n".join(found) + "\n", certificate_of=path)
    why = text.value if isinstance(text, Reason) else "no certificate in it"
    note = f"its certificate ({CERTIFICATE} {path}) cannot be read ({why}): this host's authorities must vouch for it"
    return Route(note=note)


def to_socket(files: ProcessFiles, path: str, whose: str = "") -> Route:
    """Through a Unix socket that the server listens on (--uds). `whose`: told in its name."""
    absolute = files.absolute(path)
    name = path if isinstance(absolute, Reason) else absolute
    return Route(name=f"unix:{name}{whose}", entered=lambda: files.socket(path))


def within_network(files: ProcessFiles, pid: int, route: Route) -> Route:
    """As `route`, from within the network namespace of a process."""
    return replace(route, name=f"the network of pid {pid}", entered=lambda: _network(files))


def named(route: Route, url: str) -> Route:
    """The route with the URL that holds where it leads."""
    return replace(route, name=f"{url} in {route.name}") if route.name else route


def may_enter(kernel: Kernel) -> bool:
    """Whether the doctor may enter other namespaces (CAP_SYS_ADMIN)."""
    status = kernel.text("proc/self/status")
    held = table(status).get("CapEff", "") if not isinstance(status, Reason) else ""
    try:
        return bool(int(held, 16) >> _SYS_ADMIN & 1)
    except ValueError:
        return False


@contextmanager
def _network(files: ProcessFiles) -> Iterator[None]:
    """This thread in the network namespace of the process, for good: it is to end afterwards. Raises OSError."""
    import ctypes  # late: most servers are in the doctor's own; os.setns is of Python 3.12

    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = files.network()
    try:
        if libc.setns(descriptor, _NEW_NETWORK):
            number = ctypes.get_errno()
            said = "run vllm-doctor as root, or inside its container"
            raise OSError(number, f"its network cannot be entered ({errno.errorcode.get(number, number)}): {said}")
    finally:
        os.close(descriptor)
    yield
