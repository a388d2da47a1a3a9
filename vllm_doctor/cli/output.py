"""Where the output goes, and what it says to the shell."""

from __future__ import annotations

import os
import sys

from vllm_doctor.model.errors import UsageError

TYPE_CHECKING = False  # as in options.py
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from pathlib import Path

    from vllm_doctor.fleet.fleet import FleetReport
    from vllm_doctor.fleet.view_model import FleetSeen
    from vllm_doctor.model.report import Report


def is_interactive(options: argparse.Namespace) -> bool:
    """Whether a person sits at a terminal that can be drawn on. Where it cannot, one line says why."""
    asked = options.text or options.json or options.format or options.output or options.state
    if asked or not sys.stdout.isatty():
        return False
    why = None
    if os.environ.get("TERM", "") in ("", "dumb"):
        why = f"TERM is {os.environ.get('TERM') or 'not set'}"
    elif not sys.stdin.isatty():
        why = "the input is no terminal, so no key could be read"
    elif "utf" not in (sys.stdout.encoding or "").lower():
        why = f"it shows {sys.stdout.encoding}, not UTF-8"
    if why is not None:
        print(f"vllm-doctor: text, as this terminal cannot be drawn on: {why}", file=sys.stderr)
    return why is None


def is_coloured(options: argparse.Namespace) -> bool:
    """Whether text may have colours."""
    return (
        not options.output
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def exit_code(report: Report | FleetReport | FleetSeen, fail_on: str) -> int:
    """What the shell is told."""
    from vllm_doctor.model.report import (  # loaded by whoever has one; the lists of rules and flags have none
        Report,
        Verdict,
    )

    if fail_on == "never" and not (isinstance(report, Report) and report.error is not None):
        return 0
    if fail_on == "critical" and report.verdict is Verdict.WARNING:
        return 0
    return report.verdict.exit_code


def write(text: str, options: argparse.Namespace) -> None:
    """Write to the file that was asked for, or to stdout."""
    if options.output:
        from pathlib import Path

        write_whole(Path(options.output), [text.encode()])
    else:
        say(text)


def say(text: str) -> None:
    """Write to stdout; a terminal without UTF-8 gets "?", not a crash."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def write_whole(path: Path, pieces: Iterable[bytes], is_private: bool = False) -> None:
    """Write beside the file and rename: a reader sees the old one or the new one, never a half.

    Private: for its owner only; else the umask decides, also where a file was there. A .prom can be read by all: its
    reader is node_exporter, another user. A device or a pipe (/dev/null, /dev/stdout) is written to, not replaced.
    """
    temporary = ""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                device.writelines(pieces)
            return
        beside = str(path.with_name(f".{path.name}.{os.urandom(4).hex()}"))
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if is_private else 0o666)
        temporary = beside
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            if path.suffix == ".prom" and not is_private:
                os.fchmod(handle, 0o644)
        os.replace(temporary, path)
        temporary = ""
    except OSError as error:
        raise UsageError(f"-o {path}: cannot be written ({error.strerror})") from None
    finally:
        if temporary:
            os.unlink(temporary)


def write_folder(path: Path, files: dict[str, str]) -> None:
    """Write beside the folder and rename: it has all files or is as it was. A folder with other files is left alone."""
    import shutil  # imported here: most output goes to stdout
    import tempfile

    temporary = ""
    try:
        if path.exists() and (others := sorted({entry.name for entry in path.iterdir()} - files.keys())):
            raise UsageError(f"-o {path}: holds other files ({others[0]}): name a new folder")
        temporary = tempfile.mkdtemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        new, old = os.path.join(temporary, "new"), os.path.join(temporary, "old")
        os.mkdir(new)
        for name, text in files.items():
            with open(os.path.join(new, name), "w", encoding="utf-8") as file:
                file.write(text)
        if path.exists():
            os.rename(path, old)
        os.rename(new, path)
    except OSError as error:
        raise UsageError(f"-o {path}: cannot be written ({error.strerror})") from None
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
