"""A /proc of real files below a folder, process by process, for the tests of what reads it."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vllm_doctor.sources.host.kernel import Kernel

HOST = "host"
_TITLE_ROOM = 149  # bytes of the command line that a title is written over, on a real vLLM 0.32


class FakeProc:
    """Processes on a host. `kernel()` writes what listens, and gives the kernel that reads it all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listening: dict[str, list[tuple[str, int, int]]] = {HOST: []}
        self._nets: dict[str, str] = {"self": HOST}
        self._namespaces("self", HOST)
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")

    def add(
        self,
        pid: int,
        command: str | Sequence[str],
        parent: int = 1,
        *,
        comm: str = "",
        group: int = 0,
        state: str = "S",
        uid: int = 0,
        environ: Mapping[str, str] | None = None,
        sockets: Sequence[int] = (),
        net: str = HOST,
        cwd: str = "/",
        files: Mapping[str, str | int] | None = None,
    ) -> int:
        """A process. `command`: its words, or the title that it gave itself. `files`: what it sees, text or size."""
        folder = f"proc/{pid}"
        title = isinstance(command, str)
        words = [command] if isinstance(command, str) else list(command)
        cmdline = words[0].ljust(_TITLE_ROOM, "\0") if title else "".join(word + "\0" for word in words)
        comm = (comm or words[0].rsplit("/", 1)[-1])[:15]
        zeros = ["0"] * 16
        self.write(f"{folder}/stat", " ".join([f"{pid} ({comm}) {state} {parent} {group or pid}", *zeros, f"{pid}00"]))
        self.write(f"{folder}/cmdline", "" if state == "Z" else cmdline)
        self.write(
            f"{folder}/status",
            f"Name:\t{comm}\nTgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\n",
        )
        self.link(f"{folder}/exe", sys.executable)
        self.write(f"{folder}/environ", "".join(f"{name}={value}\0" for name, value in (environ or {}).items()))
        for number, inode in enumerate(sockets, 3):
            self.link(f"{folder}/fd/{number}", f"socket:[{inode}]")
        self.link(f"{folder}/fd/0", "/dev/null")
        self.link(f"{folder}/cwd", cwd)
        self._namespaces(str(pid), net)
        for name, content in (files or {}).items():
            path = self.write(f"{folder}/root/{name}", content if isinstance(content, str) else "")
            if isinstance(content, int):
                with path.open("r+b") as file:
                    file.truncate(content)
        return pid

    def listen(self, port: int, inode: int, address: str = "0.0.0.0", net: str = HOST) -> None:
        self._listening.setdefault(net, []).append((address, port, inode))

    def kernel(self) -> Kernel:
        for pid, net in self._nets.items():
            listening = self._listening.get(net, [])
            self.write(f"proc/{pid}/net/tcp", _page(row for row in listening if ":" not in row[0]))
            self.write(f"proc/{pid}/net/tcp6", _page(row for row in listening if ":" in row[0]))
        return Kernel(self.root)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def _namespaces(self, pid: str, net: str) -> None:
        self._nets[pid] = net
        for name in ("net", "mnt", "pid"):
            self.link(f"proc/{pid}/ns/{name}", f"{name}:[{net}]")


def _page(rows: Iterable[tuple[str, int, int]]) -> str:
    """As /proc/net/tcp has it, with a connection after the sockets that listen."""
    lines = ["  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"]
    tail = "00000000:00000000 00:00000000 00000000     0        0"
    for number, (address, port, inode) in enumerate(rows):
        lines.append(
            f"  {number}: {_hex(address)}:{port:04X} {_hex('0.0.0.0')}:0000 0A {tail} {inode} 1 0 100 0 0 10 0"
        )
    lines.append(f"  9: {_hex('127.0.0.1')}:1F40 {_hex('127.0.0.1')}:C350 01 {tail} 999999 1 0 20 4 30 10 -1")
    return "\n".join(lines) + "\n"


def _hex(address: str) -> str:
    packed = ipaddress.ip_address(address).packed
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
