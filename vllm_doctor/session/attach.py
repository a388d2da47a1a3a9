"""What the words of the command line point at, as watchers: URLs, pids, logs, or every vLLM server of this host."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem, RecordingSeen
from vllm_doctor.session.examination import Watcher
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.server.access import Access
from vllm_doctor.text import redact

if TYPE_CHECKING:
    # Imported late below: a log needs no client, a server on another machine no processes, and all start sooner.
    from vllm_doctor.launch.source import StartSource
    from vllm_doctor.launch.start import Start
    from vllm_doctor.recording.bundle import Recorded, Recording
    from vllm_doctor.rules.catalogue import Catalogue
    from vllm_doctor.session.view_model import Choice
    from vllm_doctor.sources.gpu.gpu_name import NamedGpu
    from vllm_doctor.sources.host.process import ServerProcess
    from vllm_doctor.sources.log.source import Period
    from vllm_doctor.sources.server.server import Server
    from vllm_doctor.sources.server.state import State
    from vllm_doctor.vllm.command_line import Command

NOBODY = (
    "no vLLM server was found on this host; point me at one: vllm-doctor http://host:8000, or vllm-doctor PID"
    " (or try: vllm-doctor demo)"
)

_GLANCE = 1.0

NOT_LINUX = (
    "processes can be looked for on Linux only (there is no /proc here); name a server: vllm-doctor http://host:8000"
)


@dataclass(frozen=True)
class Attachment:
    """How to look. `seconds`: the window; `deadline`: when to be done, on time.monotonic."""

    wanted: frozenset[str]
    """Metrics that are kept."""
    access: Access
    seconds: float
    deadline: float
    smi: Path | None = None
    kernel: Kernel = field(default_factory=Kernel)
    since: str | None = None
    until: str | None = None
    """Of logs: what to judge."""
    command: str | None = None
    """A command line as a text, or the file that holds one."""
    gpu: str | None = None
    """The GPU's name, as --gpu has it."""
    signals: Catalogue | None = None
    """What a Prometheus is asked for, and the `asked` seconds that it is asked of; None: it is not asked."""
    asked: float = 0.0
    state: State | None = None
    """The last looks at these servers: with them one scrape is enough."""
    keep: float = 0.0
    """Of a server that is watched: so many seconds of its answers can be recorded afterwards."""
    rules: Callable[[], str] = str
    """The name of the rules, where a recording tells by which it was judged."""
    folders: tuple[Path, ...] = ()
    """More folders of rules, which may hold log lines."""

    def watchers(self, sources: Sequence[str], opened: ExitStack) -> list[Watcher]:
        """The watchers of these sources; connections are closed with `opened`.

        Raises UsageError and SourceError, with one line to act on.
        """
        if self.state is not None:
            self.state.check()
        if self.smi is not None:
            from vllm_doctor.sources.gpu import nvidia_smi

            nvidia_smi.read(self.smi)  # says now what is wrong with the file
        named = None
        if self.gpu is not None:
            from vllm_doctor.sources.gpu import gpu_name

            named = gpu_name.parse(self.gpu)
        found = (
            self._with_command(self.command, sources, opened)
            if self.command is not None
            else self._of_sources(sources, opened)
        )
        return found if named is None else [*found, *_of_named(named, found)]

    @property
    def _host_seconds(self) -> float:
        """With a state the host is only glanced at: its rates are not kept."""
        return self.seconds if self.state is None else min(self.seconds, _GLANCE)

    def _of_sources(self, sources: Sequence[str], opened: ExitStack, command: Command | None = None) -> list[Watcher]:
        """The sources; none: every server of this host. `command`: a log's, where it is given beside it."""
        if not sources:
            from vllm_doctor.sources.host import process

            here = process.find(self.kernel)
            if not here:
                raise UsageError(NOBODY if self.kernel.path("proc").is_dir() else NOT_LINUX)
            return [watcher for server in here for watcher in self._of_server(server, opened)]
        recordings = [source for source in dict.fromkeys(sources) if is_recording(source)]
        pages = [source for source in sources if source not in recordings and _is_page(source)]
        logs = [source for source in sources if source not in (*recordings, *pages) and _is_file(source)]
        servers = [source for source in sources if source not in (*recordings, *pages, *logs)]
        watchers: dict[tuple[str, str, str], Watcher] = {}
        found = [watcher for source in servers for watcher in self._of_source(source, opened)]
        found += [watcher for source in pages for watcher in self._of_page(source)]
        for watcher in found:
            watchers.setdefault((watcher.kind, watcher.target, watcher.patient), watcher)
        for watcher in self._of_recordings(recordings, alone=len(recordings) == 1 and not found):
            watchers[watcher.kind, watcher.target, f"{watcher.patient} {len(watchers)}"] = watcher
        patients = {watcher.patient for watcher in watchers.values()}
        if logs:
            # With one server beside it, the log is that server's.
            log = self._of_logs(logs, patients.pop() if len(patients) == 1 else "")
            kept = {key: w for key, w in watchers.items() if w.kind != "log" or w.recording is not None}
            watchers = kept | {("log", "", ""): log}
            if all(watcher.kind != "gpu" for watcher in kept.values()):
                watchers |= {(w.kind, w.target, w.patient): w for w in self._of_file(log.patient, command)}
        return list(watchers.values())

    def _with_command(self, given: str, sources: Sequence[str], opened: ExitStack) -> list[Watcher]:
        """The sources with the command of their server; without any, each command in the text is a patient."""
        from vllm_doctor.launch import source as start_source

        if given == start_source.STDIN and start_source.STDIN in sources:
            raise UsageError("--command - and a log of - both read standard input: give one of them as a file")
        found = start_source.open_command(given)
        if not sources:
            return [
                watcher
                for start in found.starts
                for watcher in (
                    self._of_start_alone(found, start),
                    *self._of_file(found.target(start), start.command),
                )
            ]
        only = found.starts[0].command if len(found.starts) == 1 else None
        watchers = self._of_sources(sources, opened, only)
        patients = {watcher.patient for watcher in watchers}
        if len(patients) != 1:
            raise UsageError(f"--command is of one server, and {len(patients)} are examined: give one of them")
        if len(found.starts) != 1:
            places = ", ".join(start.place for start in found.starts[:4])
            raise UsageError(f"--command holds {len(found.starts)} commands of vLLM ({places}): give the server's own")
        return [*watchers, self._of_start(found, found.starts[0], patients.pop())]

    def _of_start_alone(self, found: StartSource, start: Start) -> Watcher:
        """A start without a server, with what this machine has of its model."""
        target = found.target(start)
        return Watcher("command", target, target, lambda: found.examine(start, target, self.kernel))

    def _of_start(self, found: StartSource, start: Start, patient: str) -> Watcher:
        return Watcher("command", found.target(start), patient, lambda: found.examine(start, patient))

    def _of_logs(self, names: Sequence[str], patient: str) -> Watcher:
        from vllm_doctor.rules import log_lines, rule
        from vllm_doctor.sources.log import source

        paths = [None if name == source.STDIN else Path(name) for name in dict.fromkeys(names)]
        log = source.Log(
            paths,
            log_lines.load(rule.shipped(), *self.folders),
            *self._between(),
            self.seconds if patient else None,
        )
        of_server, patient = bool(patient), patient or log.target
        follow = (lambda: source.Followed(paths, log.table, patient)) if of_server else None
        return Watcher(
            "log",
            log.target,
            patient,
            lambda: log.examine(patient),
            lambda: log.bytes_read,
            follow,
            logs=tuple(paths),
        )

    def _between(self) -> tuple[Period | None, Period | None]:
        """--since and --until."""
        from vllm_doctor.sources.log import source

        return source.period(self.since) if self.since else None, source.period(self.until) if self.until else None

    def _of_recordings(self, names: Sequence[str], alone: bool) -> Iterator[Watcher]:
        """The sources that recordings hold, each as what it was. `alone`: nothing else is examined with it."""
        if not names:
            return
        from vllm_doctor.recording import bundle

        for name in names:
            yield from self.of_recording(bundle.read(Path(name)), alone)

    def of_recording(self, found: Recording, alone: bool = True) -> Iterator[Watcher]:
        """The sources of one recording."""
        from vllm_doctor.recording.bundle import Replayed

        seen = found.seen(self.rules())
        for one in found.sources:
            patient = one.patient if alone else f"{found.name} {one.patient or one.target}"
            look = partial(self._recorded, one, patient, seen)
            replay = None if one.logs else partial(Replayed, one, patient, self.wanted)
            yield Watcher(one.kind, one.target, patient, look, recording=found, replay=replay)

    def _recorded(self, one: Recorded, patient: str, seen: RecordingSeen) -> Observation:
        """One source of a recording."""
        if not one.logs:
            return replace(one.observation(self.wanted), patient=patient, recording=seen)
        from vllm_doctor.rules import log_lines, rule
        from vllm_doctor.sources.log import source
        from vllm_doctor.sources.log.bytes_stream import Held

        held = [Held(name, text, one.log_written or 0.0) for name, text in one.logs]
        table = log_lines.load(rule.shipped(), *self.folders)
        told = source.Log(held, table, *self._between(), age=one.log_age).examine(patient)
        lacking = (f"the recording lacks {', '.join(one.lacks)}",) if one.lacks else ()
        return replace(told, target=one.target, notes=(*one.notes, *told.notes, *lacking), recording=seen)

    def _of_source(self, source: str, opened: ExitStack) -> list[Watcher]:
        if source.isascii() and source.isdigit() and len(source) < 20:
            from vllm_doctor.sources.host import process

            return self._of_server(process.of_pid(self.kernel, int(source)), opened)
        if source.startswith("prom+"):
            return [self._of_prometheus(source, opened)]
        if "://" not in source and ":" not in source:
            raise UsageError(f"{source!r} is neither a file nor a folder, nor a URL (http://host:8000), nor a pid")
        server = self._client(source, opened)
        return [self._of_url(server), *self._of_its_host(server, source)]

    def _of_page(self, source: str) -> list[Watcher]:
        """A saved page of /metrics."""
        from vllm_doctor.sources.server import saved_scrape

        page = Watcher(saved_scrape.KIND, source, source, partial(saved_scrape.examine, Path(source), self.wanted))
        return [page, *self._of_file(source)]

    def _of_prometheus(self, source: str, opened: ExitStack) -> Watcher:
        """A server whose signals a Prometheus tells."""
        from vllm_doctor.prometheus import api, survey
        from vllm_doctor.sources.server.server import shown

        if self.signals is None:
            raise UsageError(f"{source!r}: a Prometheus is not asked here")
        matchers = survey.chosen(source)
        asked = opened.enter_context(closing(survey.Prometheus(source, self.access)))
        server = survey.OneServer(asked, self.signals, matchers, shown(source))
        return Watcher(
            api.ORIGIN,
            server.target,
            server.target,
            lambda: server.examine(self.asked, self.deadline),
            follow=lambda: survey.Followed(server, self.asked),
        )

    def _client(self, url: str, opened: ExitStack) -> Server:
        from vllm_doctor.sources.server.server import Server

        return opened.enter_context(closing(Server(url, self.wanted, self.access)))

    def _of_url(self, server: Server) -> Watcher:
        from vllm_doctor.sources.server.server import Followed

        return Watcher(
            "server",
            server.target,
            server.target,
            lambda: server.examine(self.seconds, self.deadline, self.state),
            follow=lambda: Followed(server, keep=self.keep),
            server=server,
        )

    def _of_its_host(self, server: Server, source: str) -> list[Watcher]:
        """The host of a server that was named by its URL: this one, if its port is a vLLM's here."""
        from vllm_doctor.sources.server.server import base_of

        parts = urlsplit(base_of(source))
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if _is_here(parts.hostname or ""):
            from vllm_doctor.sources.host import process

            match process.listening_on(self.kernel, port):
                case process.ServerProcess() as found:
                    return self._of_processes(found, server.target)
                case process.Listener(pid=pid, name=name) if pid != os.getpid():  # the demo is served by ourselves
                    note = f"port {port} is {name} (pid {pid}), not vLLM itself: for its host, name the vLLM behind it"
                    return [_said(server.target, "host", f"port {port}", note), *self._of_file(server.target)]
                case _:
                    pass
        return self._of_file(server.target)

    def _of_file(self, patient: str, command: Command | None = None) -> list[Watcher]:
        """The GPUs of a server whose processes cannot be seen, from --nvidia-smi; `command`: as it is written."""
        if self.smi is None:
            return []
        from vllm_doctor.session.local import Local
        from vllm_doctor.sources.host.process import ServerProcess

        server = ServerProcess.unseen() if command is None else ServerProcess(root=0, command=command)
        nobody = Local(server, patient, self.kernel, self.smi)
        return [Watcher("gpu", str(self.smi), patient, lambda: nobody.examine_gpus(0, self.deadline))]

    def _of_server(self, found: ServerProcess, opened: ExitStack) -> list[Watcher]:
        """A server found by its processes: its URL and its host."""
        if found.url is None:
            patient = f"pid {found.root}"
            problem = Problem(
                "no-url",
                f"{patient} is a vLLM, but no port of it can be reached from here"
                f" ({'; '.join(found.notes) or 'permission denied?'}): give its URL too, if it has one",
            )
            nowhere = Observation("server", patient, error=problem, patient=patient)
            return [Watcher("server", patient, patient, lambda: nowhere), *self._of_processes(found, patient)]
        server = self._client(found.url, opened)
        return [self._of_url(server), *self._of_processes(found, server.target)]

    def _of_processes(self, found: ServerProcess, patient: str) -> list[Watcher]:
        from vllm_doctor.session.local import FollowedGpus, FollowedHost, Local

        local = Local(found, patient, self.kernel, self.smi)
        log = [self._of_logs([str(found.log)], patient)] if found.log else []
        return [
            *log,
            Watcher(
                "host",
                local.target,
                patient,
                lambda: local.examine_host(self._host_seconds, self.deadline),
                follow=lambda: FollowedHost(local),
            ),
            Watcher(
                "gpu",
                str(self.smi or "NVIDIA driver"),
                patient,
                lambda: local.examine_gpus(self._host_seconds, self.deadline),
                follow=lambda: FollowedGpus(local),
            ),
        ]


def choices(kernel: Kernel | None = None) -> list[Choice]:
    """The vLLM servers of this host, for a person to choose from."""
    from vllm_doctor.session.view_model import Choice
    from vllm_doctor.sources.host import process

    return [
        Choice(
            (str(found.root),),
            redact.text(found.command.model or found.url or f"pid {found.root}", Counter()),
            redact.text(
                " · ".join(
                    part
                    for part in (
                        found.url.removeprefix("http://") if found.url else "no port that can be reached",
                        f"pid {found.root}",
                        f"vLLM {found.version}" if found.version else "",
                        found.user,
                    )
                    if part
                ),
                Counter(),
            ),
        )
        for found in process.find(kernel or Kernel())
    ]


def _of_named(named: NamedGpu, watchers: Sequence[Watcher]) -> Iterator[Watcher]:
    """The GPU that was named, for each patient."""
    from vllm_doctor.sources.gpu.gpu_name import KIND

    for patient in dict.fromkeys(watcher.patient for watcher in watchers):
        yield Watcher(KIND, named.target, patient, partial(named.examine, patient))


def _is_file(source: str) -> bool:
    """Whether the word names a log: a file, or `-`. A number is a pid, unless it is written as ./123."""
    return source == "-" or ("://" not in source and not source.isdigit() and os.path.exists(source))


def _is_page(source: str) -> bool:
    """Whether the word names a file that holds a page of /metrics."""
    if source == "-" or not _is_file(source):
        return False
    from vllm_doctor.sources.server import saved_scrape

    return saved_scrape.is_page(Path(source))


def is_recording(source: str) -> bool:
    """Whether the word names a folder or a .tar.gz."""
    if source in ("", "-") or "://" in source or source.isdigit():
        return False
    from vllm_doctor.recording import archive

    return archive.is_recording(Path(source))


def _said(patient: str, kind: str, target: str, note: str) -> Watcher:
    said = Observation(kind, target, notes=(note,), patient=patient)
    return Watcher(kind, target, patient, lambda: said)


def _is_here(host: str) -> bool:
    """Whether the host's name or address is this machine's; names are not looked up beyond its own."""
    if host in ("localhost", "127.0.0.1", "0.0.0.0", "::1", socket.gethostname().lower()):
        return True
    import psutil  # late: a URL of another machine needs no psutil

    return any(host == address.address for addresses in psutil.net_if_addrs().values() for address in addresses)
