"""TCP sockets of a process's network namespace: which listen, which a process holds, and what connections have unsent.

Linux shows the list to everyone, but whose a socket is only to the process's user and root.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel

_LISTENS, _ESTABLISHED = "0A", "01"
_WORD = 8  # hexadecimal digits of a 32-bit word, which the kernel writes in the machine's byte order
_LOCAL_HOST = re.compile(r"\|-- ([\d.]+)\s+/32 host LOCAL")


@dataclass(frozen=True, slots=True)
class Listening:
    """A socket that waits for connections. `inode` is its name on the whole host, over all namespaces."""

    address: str
    port: int
    inode: int


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to a port of this side. `unsent`: bytes that the other side has not taken (ss calls them Send-Q)."""

    port: int
    peer: str
    peer_port: int
    unsent: int


def connections(kernel: Kernel, pid: int | str, ports: Collection[int]) -> tuple[Connection, ...] | Reason:
    """The connections to these ports in the network namespace of a process; of very many the first ones."""
    pages = [text for name in ("tcp", "tcp6") if not isinstance(text := kernel.text(f"proc/{pid}/net/{name}"), Reason)]
    if not pages:
        return Reason.DENIED
    return tuple(found for page in pages for found in _connections(page, ports))


def _connections(page: str, ports: Collection[int]) -> Iterator[Connection]:
    for fields in map(str.split, page.splitlines()[1:]):
        if len(fields) < 10 or fields[3] != _ESTABLISHED:
            continue
        try:
            port = int(fields[1].partition(":")[2], 16)
            if port in ports:
                peer, _, peer_port = fields[2].partition(":")
                yield Connection(port, _address(peer), int(peer_port, 16), int(fields[4].partition(":")[0], 16))
        except ValueError:  # a line cut off by the bound
            continue


def listening(kernel: Kernel, pid: int | str) -> tuple[Listening, ...] | Reason:
    """What listens in the network namespace of a process; "self" for the doctor's own.

    The kernel lists the listening sockets before the connections, so a bounded read has them all.
    """
    four, six = (kernel.text(f"proc/{pid}/net/{name}") for name in ("tcp", "tcp6"))
    if isinstance(four, Reason):
        return four
    pages = [four] if isinstance(six, Reason) else [four, six]
    return tuple(socket for page in pages for socket in _sockets(page))


def held(kernel: Kernel, pid: int) -> frozenset[int] | Reason:
    """The inodes of the sockets that a process has open."""
    folder = f"proc/{pid}/fd"
    names = kernel.names(folder)
    if not names:  # a process has open files: an empty answer is a refusal
        return Reason.DENIED
    targets = (kernel.link(f"{folder}/{name}") for name in names)
    return frozenset(int(target[8:-1]) for target in targets if re.fullmatch(r"socket:\[\d+\]", target))


def own_address(kernel: Kernel, pid: int) -> str | None:
    """An IPv4 address of the process's network namespace, other than the loopback's."""
    text = kernel.text(f"proc/{pid}/net/fib_trie")
    found = _LOCAL_HOST.findall(text) if not isinstance(text, Reason) else []
    return next((address for address in found if not address.startswith("127.")), None)


def _sockets(page: str) -> Iterator[Listening]:
    for line in page.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTENS:
            continue
        try:
            address, _, port = fields[1].partition(":")
            yield Listening(_address(address), int(port, 16), int(fields[9]))
        except ValueError:  # a line cut off by the bound
            continue


def _address(digits: str) -> str:
    words = (digits[start : start + _WORD] for start in range(0, len(digits), _WORD))
    found = ipaddress.ip_address(b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words))
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
