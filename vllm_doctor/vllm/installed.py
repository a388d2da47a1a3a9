"""What the parser of an installed vLLM takes: asked of itself, in a process of its own, and kept for the next time.

vLLM's console script is run up to the moment where its parser is ready (parser_dump.py, by vLLM's own Python). That
takes ten seconds and more, so the answer is kept in the user's cache, under a name made of the path, vLLM's version,
and the times of both files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError
from vllm_doctor.vllm import flags
from vllm_doctor.vllm.flags import Flag, Parser

TIMEOUT = 180.0  # seconds; a cold import of torch from a slow disk takes a minute
_VERSION_TIMEOUT = 20.0
_MAX_ANSWER = 10_000_000  # bytes
_FORMAT = 1
_PARSER = Path(__file__).with_name("parser_dump.py")
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")  # of our environment
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
_WHICH = (
    "import importlib.metadata as m, os; d = m.distribution('vllm'); print(d.version, os.stat(d._path).st_mtime_ns)"
)
_PYTHON = re.compile(r"(python|pypy)[\d.]*t?(-dbg)?(\.exe)?")


def ask(path: str | Path | None = None, timeout: float = TIMEOUT) -> Parser:
    """The parser of the vLLM that this python, `vllm` script or virtual environment has; none named: that on the PATH.

    Raises SourceError: not-found, not-vllm, timeout (seconds), unreadable.
    """
    python, asked = _python(path)
    version, changed = _installed(python, asked)
    kept = _cache() / f"parser-{_digest(python, version, changed, asked.stat().st_mtime_ns)}.json"
    with contextlib.suppress(OSError, SourceError):
        return _understood(kept.read_bytes(), asked)
    answer = _run(python, asked, timeout)
    parser = _understood(answer, asked)
    _keep(kept, answer)
    return parser


def _python(path: str | Path | None) -> tuple[Path, Path]:
    """The Python that runs a vLLM, and the file that named it."""
    if path is None:
        found = shutil.which("vllm")
        if found is None:
            raise SourceError("not-found", "no vllm on the PATH: name its python, --ask-vllm PATH")
        path = found
    asked = Path(path)
    if asked.is_dir():
        asked = asked / "bin" / "python"
    if not asked.is_file():
        raise SourceError("not-found", f"{asked}: no such file; name a python that has vLLM, or its vllm script")
    if not os.access(asked, os.X_OK):
        raise SourceError("denied", f"{asked}: cannot be run")
    if _PYTHON.fullmatch(asked.name):
        return asked.absolute(), asked
    python = _interpreter(asked)
    if python is None:
        raise SourceError("not-vllm", f"{asked}: neither a python nor a script of one")
    return python, asked


def _interpreter(script: Path) -> Path | None:
    """The Python in a script's first line; also through env, and through the shell where the path is long."""
    with script.open("rb") as file:
        head = file.read(4096).decode("utf-8", "replace")
    if not head.startswith("#!"):
        return None
    words = head[2:].partition("\n")[0].split()
    through_shell = re.search(r"^'''exec' [\"']?([^\"'\n]+?)[\"']? \"\$0\"", head, re.MULTILINE)
    if through_shell:
        words = [through_shell[1]]
    elif words and words[0].endswith("/env"):
        words = [found for word in words[1:] if not word.startswith("-") and (found := shutil.which(word))]
    return Path(words[0]) if words and _PYTHON.fullmatch(Path(words[0]).name) else None


def _installed(python: Path, asked: Path) -> tuple[str, str]:
    """The version of the vLLM that a Python has, and when it was installed."""
    try:
        ran = subprocess.run(
            [python, "-c", _WHICH],
            env=_environment(),
            cwd=os.sep,  # `python -c` imports from where it is started, first
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise SourceError("timeout", f"{asked}: did not say its version in {_VERSION_TIMEOUT:g} s") from None
    except OSError as error:
        raise SourceError("unreadable", f"{asked}: cannot be run ({error.strerror})") from None
    words = ran.stdout.decode("utf-8", "replace").split()
    if ran.returncode or len(words) != 2 or flags.release(words[0]) is None:
        raise SourceError("not-vllm", f"{asked}: has no vLLM")
    return words[0], words[1]


def _run(python: Path, asked: Path, timeout: float) -> bytes:
    with tempfile.TemporaryDirectory(prefix="vllm-doctor-") as folder:
        answer = Path(folder) / "answer.json"
        with (Path(folder) / "stderr").open("w+b") as errors:
            process = subprocess.Popen(
                [python, _PARSER, answer],
                env=_environment() | _QUIET,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,  # so that what it starts ends with it
            )
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise SourceError("timeout", f"{asked}: its vLLM gave no answer in {timeout:g} s") from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if code or not answer.exists():
                errors.seek(0)
                last = errors.read()[-2000:].decode("utf-8", "replace").strip().splitlines()[-1:]
                raise SourceError(
                    "unreadable", f"{asked}: its vLLM cannot be asked ({'; '.join(last) or f'exit {code}'})"
                )
        with answer.open("rb") as file:
            return file.read(_MAX_ANSWER + 1)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def _understood(answer: bytes, asked: Path) -> Parser:
    try:
        content = outside.json(answer[: _MAX_ANSWER + 1])
        if content["format"] != _FORMAT or flags.release(content["version"]) is None:
            raise ValueError
        version = str(content["version"])
        return Parser(
            version,
            tuple(_flag(version, told) for told in content["flags"]),
            frozenset(str(name) for name in content["syntax"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise SourceError("unreadable", f"{asked}: the answer of its vLLM is not understood") from None


def _flag(version: str, told: dict[str, Any]) -> Flag:
    spellings = [str(spelling) for spelling in told["spellings"]]
    known = flags.flag(version, spellings[0])
    return Flag(
        spellings[0],
        tuple(spellings),
        tuple(str(spelling) for spelling in told["off"]),
        told["kind"],
        tuple(str(choice) for choice in told["choices"] or ()),
        told["default"],
        bool(told["deprecated"]),
        known.since if known else None,
        known.until if known else None,
    )


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "vllm-doctor"


def _digest(*parts: object) -> str:
    code = _PARSER.read_text("utf-8")
    return hashlib.sha256("\0".join(map(str, (_FORMAT, code, *parts))).encode()).hexdigest()[:32]


def _keep(path: Path, answer: bytes) -> None:
    """Keep the answer; where that cannot be, it is asked again the next time."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(answer)
        os.replace(temporary, path)
