"""vLLM servers among the processes of this host: who belongs to one, how it was started, and where it listens.

Read from /proc, nothing else: no privilege is needed, and what the kernel refuses is a reason. A server is told by the
structure of its command line and by the titles that vLLM gives its processes, never by searching for a word.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import credentials, routes, sockets
from vllm_doctor.sources.host.kernel import Kernel, started_at, table
from vllm_doctor.sources.host.process_files import ProcessFiles
from vllm_doctor.sources.host.sockets import Listening
from vllm_doctor.sources.server.route import DIRECT, Route
from vllm_doctor.vllm.command_line import MAX_CONFIG, Command, is_python, masked, parse, program_of
from vllm_doctor.vllm.environment import is_shown
from vllm_doctor.vllm.release_table import release

API_SERVER, ENGINE_CORE, WORKER = "api-server", "engine-core", "worker"
COORDINATOR, LAUNCHER, OTHER = "coordinator", "launcher", "other"
DEFAULT_PORT = 8000

_VLLM = "VLLM::"
_CORE = "VLLM::EngineCor"
"""As the kernel cuts it."""
_TITLED_SINCE = (0, 11)
"""Every engine core has a title from here on, and none works inside the API server."""
_TITLE = re.compile(r"(?!ray::)[\w.-]+::(EngineCore|Worker|APIServer|DP_?Coordinator)")
"""Below a server vLLM's prefix may be any (VLLM_PROCESS_NAME_PREFIX); elsewhere Ruby has a Sidekiq::Worker, too."""
_ROLES = {"EngineCore": ENGINE_CORE, "Worker": WORKER, "APIServer": API_SERVER}
_RAY = re.compile(r"ray::\w")
_NAMESPACES = ("net", "mnt", "pid")
_NAMED = 5
_ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})

_RAY_FLAGS = {
    "--distributed-executor-backend": "ray",
    "--data-parallel-backend": "ray",
    "--worker-use-ray": True,
    "--engine-use-ray": True,
}


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a server. `started`: clock ticks after boot, which tells a pid that was used again."""

    pid: int
    role: str
    """api-server, engine-core, worker, coordinator; launcher: it only watches over API servers; other."""
    name: str
    started: int


@dataclass(frozen=True, slots=True)
class Listener:
    """Some program that listens on a port and is no vLLM: nginx, envoy, docker-proxy."""

    pid: int
    name: str


@dataclass(frozen=True)
class ServerProcess:
    """One vLLM server and its processes, as this host shows them."""

    root: int
    """The pid of its outermost vLLM process."""
    members: tuple[Member, ...] = ()
    command: Command = field(default_factory=lambda: Command(()))
    environ: Mapping[str, str] | Reason = Reason.NOT_LOCAL
    """What it was started with; only variables that vLLM and its libraries read, and none that may hold a secret."""
    user: str = ""
    url: str | None = None
    """Its base, as seen from this host; None where it has no port, or none that can be reached from here."""
    route: Route = DIRECT
    """How it is connected to."""
    ports: tuple[int, ...] = ()
    log: Path | None = None
    """The name of the file that its standard output goes to: `files` opens it."""
    version: str | None = None
    """The vLLM that is installed where it was started from."""
    model_path: str | None = None
    """The model as an absolute path that the server sees; None for a name on the Hub."""
    apart: frozenset[str] | Reason = frozenset()
    """The namespaces (net, mnt, pid) that differ from the doctor's: a container has all three."""
    files: ProcessFiles | None = None
    """What it sees as its files, with its user's rights; None where no process can be seen."""
    notes: tuple[str, ...] = ()
    """For people; those of the command are among them."""
    dead: tuple[Member, ...] = ()
    """Processes of it that have died, and that their parent has not noticed."""
    lacks: str = ""
    """A process that it needs and has not: "an engine core"; "" where nothing is missing, or that is not known."""

    @classmethod
    def unseen(cls) -> ServerProcess:
        """A server of which no process can be seen."""
        return cls(root=0)


HIDDEN = "/proc hides it (mounted with hidepid)"


def find(kernel: Kernel) -> list[ServerProcess]:
    """Every vLLM server on the host, by pid. A script that runs vLLM itself counts where it listens on a port."""
    host = _Host(kernel)
    servers = [_server(host, root) for root in sorted(host.roots)]
    return [server for server in servers if server.command.program or server.url]


def hides_others(kernel: Kernel) -> bool:
    """Whether /proc hides the processes of other users: it does not even show the first of all."""
    return bool(kernel.names("proc")) and _row(kernel, 1) is None


def of_pid(kernel: Kernel, pid: int) -> ServerProcess:
    """The server that a process belongs to: any of its processes or threads, or a shell or wrapper around it.

    Raises SourceError: not-found, not-vllm.
    """
    host = _Host(kernel)
    if pid not in host.rows:
        pid = _leader(kernel, pid)  # a thread, as `top -H` shows it
    row = host.rows.get(pid)
    if row is None:
        hidden = "" if 1 in host.rows else f", or {HIDDEN}: run vllm-doctor as the server's user, or as root"
        raise SourceError("not-found", f"there is no process {pid}{hidden}; pgrep -f 'vllm serve' lists the pids")
    if row.is_dead:
        raise SourceError("not-found", f"process {pid} ({row.name}) has ended and waits for its parent: start it again")
    roots = [above.pid for above in host.line(pid) if above.pid in host.roots][-1:]
    roots = roots or sorted(below.pid for below in host.tree(pid) if below.pid in host.roots)
    if len(roots) == 1:
        return _server(host, roots[0])
    if roots:
        listed = ", ".join(str(root) for root in roots[:8])
        raise SourceError(
            "not-vllm", f"process {pid} ({row.name}) runs {len(roots)} vLLM servers: give one of {listed}"
        )
    if _RAY.match(row.title):
        what = "is a process of Ray: its server is the `vllm serve` that started it; give that pid"
    else:
        what = "is no vLLM server and belongs to none; give the pid of `vllm serve`"
    raise SourceError("not-vllm", f"process {pid} ({row.name}) {what}")


def listening_on(kernel: Kernel, port: int) -> ServerProcess | Listener | None:
    """Who listens on a TCP port of this host; None where nobody does, or nobody that can be seen."""
    found = sockets.listening(kernel, "self")
    inodes = frozenset() if isinstance(found, Reason) else frozenset(s.inode for s in found if s.port == port)
    if not inodes:
        return None
    host = _Host(kernel)
    for root in sorted(host.roots):
        command = _command(host.rows[root], _files(kernel, host.rows[root]))
        if inodes & {socket.inode for socket in _sockets(host, root, _port(command)).found}:
            return _server(host, root)
    for pid, row in sorted(host.rows.items()):
        mine = sockets.held(kernel, pid)
        if not isinstance(mine, Reason) and mine & inodes:
            return Listener(pid, row.name)
    return None


@dataclass(frozen=True, slots=True)
class _Row:
    """A process in the kernel's list."""

    pid: int
    parent: int
    group: int
    state: str
    comm: str
    started: int
    argv: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.argv[0] if self.argv else ""

    @property
    def name(self) -> str:
        """As people know it: vLLM's title, which `comm` cuts to 15 letters; or the comm."""
        return self.title if _TITLE.match(self.title) else self.comm

    @property
    def is_dead(self) -> bool:
        return self.state in "ZX"


class _Host:
    """All processes of the host at one moment: two small files read of each, and nothing more of those apart."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        pids = (int(name) for name in kernel.names("proc") if name.isdecimal())
        self.rows = {row.pid: row for pid in pids if (row := _row(kernel, pid)) is not None}

    @cached_property
    def roots(self) -> frozenset[int]:
        """The outermost process of each server."""
        known = (row for row in self.rows.values() if program_of(row.argv) or row.title.startswith(_VLLM))
        return frozenset(self._root_of(row) for row in known)

    @cached_property
    def _children(self) -> Mapping[int, list[_Row]]:
        children: dict[int, list[_Row]] = {}
        for row in self.rows.values():
            children.setdefault(row.parent, []).append(row)
        return children

    def line(self, pid: int) -> Iterator[_Row]:
        """The process, its parent, and so on."""
        seen = set[int]()  # the list is not of one instant: a pid may have been used again
        while pid in self.rows and pid not in seen:
            seen.add(pid)
            yield self.rows[pid]
            pid = self.rows[pid].parent

    def tree(self, pid: int) -> list[_Row]:
        """The process and all below it."""
        found = {pid: self.rows[pid]}
        todo = [pid]
        while todo:
            for row in self._children.get(todo.pop(), ()):
                if row.pid not in found:
                    found[row.pid] = row
                    todo.append(row.pid)
        return list(found.values())

    def _root_of(self, row: _Row) -> int:
        line = list(self.line(row.pid))
        servers = [above for above in line if program_of(above.argv)]
        if servers:
            return servers[-1].pid
        outermost = [above for above in line if above.title.startswith(_VLLM)][-1]
        parent = self.rows.get(outermost.parent)
        # A script with vLLM inside. An orphan has another parent now, but stays in the group of the dead one.
        if parent is not None and is_python(parent.argv) and parent.group == outermost.group:
            return parent.pid
        return outermost.pid


@dataclass(frozen=True)
class _Open:
    """What a server listens on; `is_sure`: whose the sockets are could be seen."""

    found: tuple[Listening, ...]
    is_sure: bool


def _row(kernel: Kernel, pid: int) -> _Row | None:
    stat, cmdline = kernel.text(f"proc/{pid}/stat"), kernel.text(f"proc/{pid}/cmdline")
    if isinstance(stat, Reason):
        return None  # gone meanwhile
    head, _, tail = stat.rpartition(")")
    fields, started = tail.split(), started_at(stat)
    try:
        parent, group = int(fields[1]), int(fields[2])
    except (ValueError, IndexError):
        return None
    if started is None:
        return None
    words = "" if isinstance(cmdline, Reason) else cmdline.rstrip("\0")  # a title is padded with zeros
    argv = tuple(words.split("\0")) if words else ()
    return _Row(pid, parent, group, fields[0], head.partition("(")[2], started, argv)


def _leader(kernel: Kernel, thread: int) -> int:
    status = kernel.text(f"proc/{thread}/status")
    leader = "" if isinstance(status, Reason) else table(status).get("Tgid", "")
    return int(leader) if leader.isdecimal() else thread


def _server(host: _Host, root: int) -> ServerProcess:
    kernel, row = host.kernel, host.rows[root]
    files = _files(kernel, row)
    command = _command(row, files)
    tree = host.tree(root)
    alive = [below for below in tree if not below.is_dead]
    apart = _apart(kernel, root)
    opened = _sockets(host, root, _port(command))
    url, route, url_notes = _url(kernel, root, command, opened, apart, files)
    roles = _roles(alive, row, command, listens=bool(opened.found))
    version = _version(files, row)
    return ServerProcess(
        root=root,
        members=tuple(Member(below.pid, roles[below.pid], below.name, below.started) for below in alive),
        command=command,
        environ=_environ(kernel, root),
        user=_user(kernel, root),
        url=url,
        route=route,
        ports=tuple(sorted({socket.port for socket in opened.found})),
        log=_log(kernel, root, apart),
        version=version,
        model_path=_model_path(files, command),
        apart=apart,
        files=files,
        notes=(*command.notes, *url_notes, *_notes(host, row, command)),
        dead=tuple(
            Member(below.pid, ENGINE_CORE if below.comm.startswith(_CORE) else WORKER, below.comm, below.started)
            for below in tree
            if below.is_dead and below.comm.startswith((_CORE, f"{_VLLM}Worker"))
        ),
        lacks=""
        if _may_do_without_engine(command, version) or _has_engine(alive, row, roles) or not opened.found
        else "an engine core",
    )


def successor(kernel: Kernel, server: ServerProcess) -> int | None:
    """The pid of a server that was started later with the same command: a supervisor's new try. None for none."""
    host = _Host(kernel)
    started = max((member.started for member in server.members), default=0)
    if not server.command.argv:
        return None
    found = [
        root
        for root in sorted(host.roots)
        if host.rows[root].started > started
        and not host.rows[root].is_dead
        and _command(host.rows[root], _files(kernel, host.rows[root])).argv == server.command.argv
    ]
    return found[0] if found else None


def _may_do_without_engine(command: Command, version: str | None) -> bool:
    """Whether such a server need not have an engine core with a title of its own below it."""
    since = release(version) if version is not None else None
    return (
        not command.program
        or bool(command.notes)
        or since is None
        or since < _TITLED_SINCE
        or command.flags.get("--headless") is True
        or command.flags.get("--data-parallel-size-local") == 0
        or any(command.flags.get(flag) == value for flag, value in _RAY_FLAGS.items())
    )


def _has_engine(alive: Iterable[_Row], root: _Row, roles: Mapping[int, str]) -> bool:
    """Whether one of these processes is its engine core, or may be: it says nothing of its role."""
    return any(roles[row.pid] == ENGINE_CORE or (row.pid != root.pid and _is_untitled(row, root)) for row in alive)


def _roles(alive: Iterable[_Row], root: _Row, command: Command, listens: bool) -> dict[int, str]:
    roles = {row.pid: _role(row) for row in alive}
    if not _TITLE.match(root.title):
        if API_SERVER in roles.values() or command.flags.get("--headless") is True:
            roles[root.pid] = LAUNCHER
        elif command.program or listens:
            roles[root.pid] = API_SERVER
    return roles


def _role(row: _Row) -> str:
    title = _TITLE.match(row.title)
    return _ROLES.get(title[1], COORDINATOR) if title else OTHER


def _notes(host: _Host, root: _Row, command: Command) -> Iterator[str]:
    below = [row for row in host.tree(root.pid) if row.pid != root.pid]
    if _TITLE.match(root.title):
        yield f"{root.name} (pid {root.pid}) is an orphan: the server that started it is gone, and its flags with it"
    elif not command.program:
        yield f"pid {root.pid} runs vLLM inside a program of its own: vLLM's flags are not on its command line"
    if command.strange_keys:
        named = [key for key in command.strange_keys if re.fullmatch(r"[\w.-]{1,40}", key)][:_NAMED]
        more = [f"{len(command.strange_keys) - len(named)} more"] if len(command.strange_keys) > len(named) else []
        path = command.flags.get("--config")
        yield f"--config {path}: no vLLM has these of its keys: {', '.join([*named, *more])}"
    untold = [row for row in below if not row.is_dead and _role(row) == OTHER and _is_untitled(row, root)]
    if untold:
        yield f"{len(untold)} of its processes have no title (starting, or no setproctitle): their roles are not known"
    for row in below:
        if row.is_dead and row.comm.startswith(_VLLM):
            yield f"{row.name} (pid {row.pid}) has exited, and the server did not notice"
    if any(command.flags.get(flag) == value for flag, value in _RAY_FLAGS.items()):
        yield "its workers run under Ray, outside its process tree: their processes are not examined"


def _is_untitled(row: _Row, root: _Row) -> bool:
    """Whether this is a process of vLLM's own that says nothing of its role: spawned, or forked off the root."""
    return row.argv == root.argv or any("multiprocessing.spawn" in word for word in row.argv[1:4])


def _port(command: Command) -> int | None:
    """The port that the command line speaks of; None where a file that could not be read may know another."""
    port = command.flags.get("--port")
    if isinstance(port, float):
        return int(port)
    return DEFAULT_PORT if command.program and not command.notes else None


def _files(kernel: Kernel, row: _Row) -> ProcessFiles:
    """The process's files, as the user sees them who gave it its words."""
    who = credentials.of_process(kernel, row.pid)
    now = _row(kernel, row.pid)
    if now is None or (now.argv, now.started) != (row.argv, row.started):
        who = Reason.STALE  # another program now, perhaps of another user
    return ProcessFiles(kernel, row.pid, who, row.started)


def _command(row: _Row, files: ProcessFiles) -> Command:
    return parse(row.argv, partial(files.text, limit=MAX_CONFIG))


def _sockets(host: _Host, root: int, port: int | None) -> _Open:
    """The listening sockets of the root and its API servers; where that is denied, whatever has the expected port."""
    listening = sockets.listening(host.kernel, root)
    if isinstance(listening, Reason):
        return _Open((), is_sure=False)
    mine: set[int] = set()
    for row in host.tree(root):
        if row.pid == root or _role(row) == API_SERVER:
            held = sockets.held(host.kernel, row.pid)
            if not isinstance(held, Reason):
                mine |= held
            elif row.pid == root and not row.is_dead:
                return _Open(tuple(socket for socket in listening if socket.port == port), is_sure=False)
    return _Open(tuple(socket for socket in listening if socket.inode in mine), is_sure=True)


def _url(
    kernel: Kernel,
    root: int,
    command: Command,
    opened: _Open,
    apart: frozenset[str] | Reason,
    files: ProcessFiles,
) -> tuple[str | None, Route, list[str]]:
    """The server's base URL as seen from this host, and the way to it; or why there is none."""
    if "--uds" in command.flags:
        is_own = isinstance(apart, Reason) or "mnt" in apart  # another's may have the same path
        route = routes.to_socket(files, str(command.flags["--uds"]), f" of pid {root}" if is_own else "")
        return routes.OF_A_SOCKET, route, []
    if command.flags.get("--headless") is True:
        return None, DIRECT, ["it is headless: another node has its API server"]
    port = _port(command)
    by_port = {socket.port: socket.address for socket in opened.found}
    if port is None:
        if not by_port:
            return None, DIRECT, []
        port = DEFAULT_PORT if DEFAULT_PORT in by_port else min(by_port)
    is_late = opened.is_sure and port not in by_port
    notes = [f"it does not listen on port {port}: is it still starting?"] if is_late else []
    address = by_port.get(port, str(command.flags.get("--host", "")))
    route = routes.with_its_certificate(files, command)
    if not isinstance(apart, Reason) and "net" in apart:
        is_loopback = address == "localhost" or address == "::1" or address.startswith("127.")
        own = sockets.own_address(kernel, root) if address in _ANY_ADDRESS else None
        if is_loopback or (address in _ANY_ADDRESS and own is None):
            if not routes.may_enter(kernel):
                where = f"on {address}" if is_loopback else "somewhere"
                inside = "run vllm-doctor as root, or inside its container"
                return None, DIRECT, [f"it listens {where} in a network of its own: {inside}"]
            route = routes.within_network(files, root, route)
            address = "127.0.0.1" if address in _ANY_ADDRESS else address
        address = own or address
    elif address in _ANY_ADDRESS:
        address = "127.0.0.1"
    scheme = "https" if routes.CERTIFICATE in command.flags else "http"
    url = f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}"
    return url, routes.named(route, url), notes


def _apart(kernel: Kernel, pid: int) -> frozenset[str] | Reason:
    links = {name: (kernel.link(f"proc/{pid}/ns/{name}"), kernel.link(f"proc/self/ns/{name}")) for name in _NAMESPACES}
    for theirs, mine in links.values():
        if isinstance(theirs, Reason) or isinstance(mine, Reason):
            return theirs if isinstance(theirs, Reason) else Reason.ABSENT
    return frozenset(name for name, (theirs, mine) in links.items() if theirs != mine)


def _environ(kernel: Kernel, pid: int) -> Mapping[str, str] | Reason:
    text = kernel.text(f"proc/{pid}/environ")
    if isinstance(text, Reason):
        return text
    pairs = [pair.partition("=") for pair in text.split("\0") if "=" in pair]
    if not pairs and text:
        return Reason.NOT_SUPPORTED  # a process that gave itself a title wrote over its environment
    shown = {name: value for name, _, value in pairs if is_shown(name)}
    if "LD_PRELOAD" in shown:
        libraries = re.split(r"[:\s]+", shown["LD_PRELOAD"].strip())
        shown["LD_PRELOAD"] = ":".join(posixpath.basename(library) for library in libraries)
    return {name: masked(value) for name, value in shown.items()}


def _user(kernel: Kernel, pid: int) -> str:
    """The name of the process's user, or the number where the host has no name for it."""
    status = kernel.text(f"proc/{pid}/status")
    number = "" if isinstance(status, Reason) else table(status).get("Uid", "").partition("\t")[0]
    users = kernel.text("etc/passwd")
    entries = [] if isinstance(users, Reason) else [line.split(":") for line in users.splitlines()]
    return next((entry[0] for entry in entries if len(entry) > 2 and entry[2] == number), number)


def _log(kernel: Kernel, pid: int, apart: frozenset[str] | Reason) -> Path | None:
    name = f"proc/{pid}/fd/1"
    target = kernel.link(name)
    if isinstance(target, Reason) or not target.startswith("/") or target.endswith(" (deleted)"):
        return None
    elsewhere = isinstance(apart, Reason) or "mnt" in apart
    try:
        is_file = kernel.path(name).is_file()
    except OSError:
        return None
    if not is_file:  # a terminal, /dev/null
        return None
    return kernel.path(f"proc/{pid}/root{target}") if elsewhere else Path(target)


def _version(files: ProcessFiles, row: _Row) -> str | None:
    """By vllm-VERSION.dist-info in a site-packages folder of the interpreter, or of the `vllm` script."""
    places = [word for word in row.argv[:2] if "/" in word]
    prefixes = [posixpath.dirname(posixpath.dirname(place)) or "." for place in places]
    for prefix in dict.fromkeys([*prefixes, "/usr/local", "/usr"]):
        for lib in ("lib", "lib64"):
            pythons = files.names(f"{prefix}/{lib}")
            for python in [] if isinstance(pythons, Reason) else pythons:
                if python.startswith("python3"):
                    found = _installed(files, f"{prefix}/{lib}/{python}")
                    if found:
                        return found
    return None


def _installed(files: ProcessFiles, folder: str) -> str | None:
    for packages in ("site-packages", "dist-packages"):
        names = files.names(f"{folder}/{packages}")
        if isinstance(names, Reason):
            continue
        versions = [match[1] for name in names if (match := re.fullmatch(r"vllm-(\d[^-]{0,99})\.dist-info", name))]
        if len(versions) == 1:  # two are an installation that broke off
            return versions[0]
    return None


def _model_path(files: ProcessFiles, command: Command) -> str | None:
    model = command.model
    if model is None:
        return None
    if not model.startswith("/") and files.is_folder(model) is not True:  # a folder goes before a name on the Hub
        return None
    path = files.absolute(model)
    return None if isinstance(path, Reason) else path
