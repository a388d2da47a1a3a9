"""`vllm bench serve`, run against a server while it is recorded: the only thing in the doctor that makes load.

It runs only when it is asked for (`record --bench`), without a shell, in a session of its own, and ends with the
doctor. Its result is read from the file that it saves (--save-result).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from vllm_doctor.compare import vllm_bench
from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import process
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.server.exposition import Heads, parse
from vllm_doctor.sources.server.fetch import PATIENCE, base_of
from vllm_doctor.sources.server.server import Server

BOUND = 3600.0
"""Seconds, where nothing else is said: longer no benchmark runs."""
_NAME = ("vllm", "bench", "serve")
_OURS = ("--save-result", "--append-result", "--result-dir", "--result-filename")
_WHERE = ("--base-url", "--host", "--port")
_WORK = frozenset({"vllm:num_requests_running", "vllm:prompt_tokens_total"})
_MOST_RESULT = 256 << 20
_MOST_KEPT = 8 << 20
_MOST_OUTPUT = 64 << 10
_EVERY = 1.0
_MAX_PARTS = 200

Tell = Callable[[float], None]


def words(text: str) -> list[str]:
    """The arguments of --bench. Raises UsageError."""
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--bench: {str(error)[0].lower()}{str(error)[1:]}: quote it as for a shell") from None
    if tuple(found[:3]) == _NAME:
        found = found[3:]
    for word in found:
        if _flag(word) in _OURS:
            raise UsageError(f"--bench: leave {word.partition('=')[0]} out: the result goes into the recording")
    return found


def _flag(word: str) -> str:
    """As vLLM reads it: --base_url=x is --base-url."""
    return word.partition("=")[0].replace("_", "-")


def program(server: Server, is_local: bool) -> Path:
    """The `vllm` command: that of the PATH, else the one beside the server's own Python. Raises SourceError.

    What stands beside another user's server is run only where nobody but root, and who runs the doctor, can change it:
    whoever started that server may have put it there, and may put another there meanwhile.
    """
    if (named := shutil.which("vllm")) is not None:
        return Path(named)
    port = urlsplit(server.base).port
    found = process.listening_on(Kernel(), port) if is_local and port else None
    for word in _beginning(found) if isinstance(found, process.ServerProcess) else ():
        beside = Path(word).parent / "vllm"
        if beside.is_absolute() and os.access(beside, os.X_OK):
            if (part := _others_part(beside)) is not None:
                raise SourceError(
                    "denied",
                    f"--bench does not run {beside}, as other users may change {part}: run vllm-doctor as the server's"
                    " user, or have your own vllm on the PATH",
                )
            return beside.resolve()
    raise SourceError(
        "not-found", "--bench needs the vllm command, on the PATH or next to the server's Python: pip install vllm"
    )


def loaded(given: Sequence[str], server: Server) -> str:
    """The base of the server that it loads: as given, else the one that is recorded. Raises UsageError."""
    values = {
        _flag(word): word.partition("=")[2] or after for word, after in zip(given, (*given[1:], ""), strict=False)
    }
    if values.keys().isdisjoint(_WHERE):
        return server.base
    url = values.get("--base-url") or f"{values.get('--host', '127.0.0.1')}:{values.get('--port', '8000')}"
    return base_of(url)


def _beginning(server: process.ServerProcess) -> tuple[str, ...]:
    """The words of its command that may be programs here: a container's are its own."""
    is_apart = isinstance(server.apart, Reason) or "mnt" in server.apart
    return () if is_apart else server.command.argv[:2]


def _others_part(path: Path) -> Path | None:
    """The first folder or link on the way to a file, or the file, that others than root and oneself may change."""
    todo, here = [*path.parts], Path("/")
    for _ in range(_MAX_PARTS):
        if not todo:
            return None
        here = here.parent if todo[0] == ".." else here / todo[0]
        del todo[0]
        about = here.lstat()
        if about.st_uid not in (0, os.geteuid()):
            return here
        if stat.S_ISLNK(about.st_mode):
            todo = [*Path(os.readlink(here)).parts, *todo]
            here = here.parent
        elif about.st_mode & (stat.S_IWOTH | (stat.S_IWGRP if about.st_gid else 0)) and not (
            stat.S_ISDIR(about.st_mode)
            and about.st_mode & stat.S_ISVTX  # what others do not own there, they cannot replace
        ):
            return here
    return path


def command(program: Path, given: Sequence[str], server: Server, models: Any, result: Path) -> list[str]:
    """The whole command line: what was given, and the server and its model where they were not. Last is what is ours.

    `models`: the answer of /v1/models, whose `root` is the model's name or folder, and `id` what it is served as.
    """
    flags = {_flag(word) for word in given}
    added: list[str] = []
    if flags.isdisjoint(_WHERE):
        if urlsplit(server.base).username is not None:
            raise UsageError("--bench: a password in a URL would stand on its command line: give it with --header")
        added += ["--base-url", server.base]
    listed = models.get("data") if isinstance(models, dict) else None
    first: Any = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    name, root = _name(first.get("id")), _name(first.get("root"))
    if "--model" not in flags and name is not None:
        added += ["--model", root or name]
        if root not in (None, name) and "--served-model-name" not in flags:
            added += ["--served-model-name", name]
    own = ["--save-result", "--result-dir", str(result.parent), "--result-filename", result.name]
    return [str(program), *_NAME[1:], *given, *added, *own]


def _name(told: Any) -> str | None:
    """What a server calls its model, where a command line can hold it; it is no flag."""
    return told if isinstance(told, str) and told and told.isprintable() and not told.startswith("-") else None


class Run:
    """A benchmark while it runs. `clock` must not step."""

    def __init__(
        self, started: subprocess.Popen[bytes], output: IO[bytes], result: Path, clock: Callable[[], float]
    ) -> None:
        self._process, self._output, self._result, self._clock = started, output, result, clock
        self._began = clock()

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return self._clock() - self._began

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def await_load(self, server: Server, seconds: float, tell: Tell = lambda seconds: None) -> None:
        """Wait until the server works for it: before that it reads its model and makes its prompts.

        Raises SourceError where it ends before, or takes longer than `seconds`.
        """
        heads: Heads = {}
        pause = threading.Event()
        idle: float | None = None
        while True:
            _, page, _ = server.answer(self._clock() + PATIENCE)
            figures = dict.fromkeys(_WORK, 0.0)
            for sample in parse(page, _WORK, heads).samples:
                figures[sample.name] += sample.value
            idle = figures["vllm:prompt_tokens_total"] if idle is None else idle
            if figures["vllm:num_requests_running"] > 0 or figures["vllm:prompt_tokens_total"] > idle:
                return
            if self.is_over():
                self.result(Counter())  # tells why, where it failed
                raise SourceError(
                    "empty", f"{_told()} ended, and {server.target} had no work from it: is --base-url another server?"
                )
            if self.seconds > seconds:
                raise SourceError("timeout", f"{_told()} sent nothing in {seconds:.0f} s")
            tell(self.seconds)
            pause.wait(_EVERY)

    def result(self, masked: Counter[str]) -> dict[str, Any]:
        """What it saved, without texts; what was taken out is counted. Raises SourceError where it failed."""
        code = self._process.poll()
        if code is None:
            raise SourceError(
                "timeout",
                f"{_told()} was still running after {self.seconds:.0f} s: fewer --num-prompts, or more --duration",
            )
        if code:
            raise SourceError("failed", f"{_told()} ended with exit code {code}: {self._last_line()}")
        try:
            if self._result.stat().st_size > _MOST_RESULT:
                raise SourceError(
                    "too-large", f"{_told()} saved more than {_MOST_RESULT >> 20} MiB: not --save-detailed"
                )
            told = outside.json(self._result.read_bytes())
        except (OSError, ValueError):
            raise SourceError("unreadable", f"{_told()} saved no result: {self._last_line()}") from None
        if not vllm_bench.is_result(told):
            raise SourceError("unreadable", f"{_told()} saved a result of an unknown form: of another vLLM?")
        kept = {}
        for name, value in told.items():
            if isinstance(value, list) and (texts := [text for text in value if isinstance(text, str)]):
                masked["prompt"] += sum(map(bool, texts))  # of --save-detailed: answers, and what errors quote
            else:
                kept[name] = _finite(value)
        if len(json.dumps(kept)) > _MOST_KEPT:
            kept = {name: value for name, value in kept.items() if not isinstance(value, list)}
        return kept

    def _last_line(self) -> str:
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - _MOST_OUTPUT))
        lines = self._output.read().decode("utf-8", "replace").splitlines()
        return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "it printed nothing")


def _told() -> str:
    return " ".join(_NAME)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_finite(item) for item in value] if isinstance(value, list) else value


@contextlib.contextmanager
def running(vllm: Path, given: Sequence[str], server: Server, models: Any, key: str | None = None) -> Iterator[Run]:
    """Start it; whatever happens, at the end of this it is gone. `key`: the server's, given by the environment."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="vllm-doctor-")))
        output = opened.enter_context((folder / "output").open("w+b"))
        result = folder / "bench.json"
        environment: Mapping[str, str] = os.environ | ({"OPENAI_API_KEY": key} if key else {})
        line = command(vllm, given, server, models, result)
        if (setpriv := shutil.which("setpriv")) is not None:  # it ends with the doctor, also where that is killed
            line = [setpriv, "--pdeathsig", "KILL", *line]
        try:
            started = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # so that what it starts ends with it
            )
        except OSError as error:
            raise SourceError("denied", f"{vllm} cannot be run ({error.strerror})") from None
        try:
            yield Run(started, output, result, time.monotonic)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
