"""The command line: which command was asked for, and how its failures are told."""

from __future__ import annotations

import gc
import sys

from vllm_doctor.model.version import __version__

# typing's own costs a third of `vllm-doctor --version`; imports below are late for the same reason
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COULD_NOT_TELL = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code. Never raises: the user gets one line, hooks get an exit code."""
    arguments = ["--json" if a == "--json=v1" else a for a in (sys.argv[1:] if argv is None else argv)]
    if None in (sys.stdin, sys.stdout, sys.stderr):  # closed by the caller
        if sys.stdout is None:  # >&-
            return COULD_NOT_TELL
        _reopen()
    try:
        if argv is None and arguments != ["--version"]:
            from vllm_doctor.cli import ended

            ended.listen()
        code = _told(arguments)
        sys.stdout.flush()
        if argv is None:
            gc.freeze()  # the program ends: Python would look through all objects once more
        return code
    except OSError as error:  # the reader of our output has gone, or the disk is full
        _drop_stdout()
        if not isinstance(error, BrokenPipeError):
            import contextlib

            with contextlib.suppress(OSError):  # nor, perhaps, can this
                print(f"vllm-doctor: the output cannot be written ({error.strerror})", file=sys.stderr)
        return COULD_NOT_TELL


def _reopen() -> None:
    """Standard input and error, where they are closed (2>&-), as the null device: what is opened next would take their
    numbers, and be written to in their place."""
    import os

    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", errors="backslashreplace", closefd=False)


def _drop_stdout() -> None:
    """Let what is still buffered go nowhere: Python would complain about it at its end."""
    import contextlib
    import os

    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _told(arguments: Sequence[str]) -> int:
    """Run the command, and tell its failure where it fails; the exit code."""
    if arguments == ["--version"]:
        print(f"vllm-doctor {__version__}")
        return 0
    from vllm_doctor.model.errors import DoctorError, told

    try:
        return _dispatched(arguments)
    except DoctorError as error:
        return _failed(arguments, *told(error))
    except SystemExit as stop:  # argparse: --help
        return int(stop.code or 0)
    except KeyboardInterrupt as stop:
        return _failed(arguments, "interrupted", str(stop) or "interrupted")
    except OSError:
        raise
    except Exception as error:
        import os

        if os.environ.get("VLLM_DOCTOR_DEBUG"):
            raise
        return _failed(arguments, *told(error))


def _dispatched(arguments: Sequence[str]) -> int:
    """Run the command that the first word names; no other is imported."""
    gc.set_threshold(200_000)  # modules, rules and samples are many objects that live to the end: a tenth of the time
    match arguments[:1]:
        case ["rules"]:
            from vllm_doctor.cli import rules

            return rules.run(arguments[1:])
        case ["flags"]:
            from vllm_doctor.cli import flags

            return flags.run(arguments[1:])
        case ["alerts"]:
            from vllm_doctor.cli import alerts

            return alerts.run(arguments[1:])
        case ["fleet"]:
            from vllm_doctor.cli import fleet

            return fleet.run(arguments[1:])
        case ["compare"]:
            from vllm_doctor.cli import compare

            return compare.run(arguments[1:])
        case ["expect"]:
            from vllm_doctor.cli import expect

            return expect.run(arguments[1:])
        case ["regressions"]:
            from vllm_doctor.cli import regressions

            return regressions.run(arguments[1:])
        case ["recipe"]:
            from vllm_doctor.cli import recipe

            return recipe.run(arguments[1:])
        case ["profile"]:
            from vllm_doctor.cli import profile

            return profile.run(arguments[1:])
        case ["demo"]:
            from vllm_doctor.cli import demo

            return demo.run(arguments[1:])
        case ["record"]:
            from vllm_doctor.cli import record

            return record.run(arguments[1:])
        case ["mcp"]:
            from vllm_doctor.cli import mcp

            return mcp.run(arguments[1:])
        case _:
            from vllm_doctor.cli import examine

            return examine.run(arguments)


def _failed(arguments: Sequence[str], kind: str, message: str) -> int:
    """One line on stderr; where JSON was asked for, JSON on stdout all the same."""
    from collections import Counter

    from vllm_doctor.text import redact

    line = redact.text(message, Counter())
    print(f"vllm-doctor: {line}", file=sys.stderr)
    if any(a.startswith("--json") or a == "--format=json" for a in arguments) or "json" in arguments:
        from vllm_doctor.cli.output import say

        say(_failure(arguments[:1], kind, line))
    return COULD_NOT_TELL


def _failure(command: Sequence[str], kind: str, line: str) -> str:
    """A failure as this command's JSON tells it."""
    from datetime import UTC, datetime

    from vllm_doctor.model.report import Patient, Problem, Report, Verdict

    now = datetime.now(UTC)
    problem = Problem(kind, line)
    match command:
        case ["fleet"]:
            from vllm_doctor.render import fleet_json

            return fleet_json.failed(now, problem)
        case ["compare"]:
            from vllm_doctor.render import compare_json

            return compare_json.failed(kind, line, now)
        case ["expect"]:
            from vllm_doctor.render import expect_json

            return expect_json.failed(now, problem)
        case ["regressions"]:
            from vllm_doctor.render import regressions_json

            return regressions_json.failed(now, problem)
        case ["recipe"]:
            from vllm_doctor.render import recipe_json

            return recipe_json.failed(now, problem)
        case ["profile"]:
            from vllm_doctor.render import profile_json

            return profile_json.failed(now, problem)
        case _:
            from vllm_doctor.render import json_v1

            nobody = Patient(None, None, None)
            return json_v1.render(Report(now, Verdict.UNKNOWN, line, nobody, (), (), (), (), (), (), {}, problem))
