"""What can go wrong, each with one line a person can act on.

DoctorError
├── UsageError      the command line asks for what cannot be done
├── DocumentError   a YAML file (rule, signal catalogue) is not as it must be
└── SourceError     a source could not be read; `kind` is stable, for hooks
"""


class DoctorError(Exception):
    """Said to the user as one line on stderr; the exit code is 3."""


class UsageError(DoctorError):
    """The command line asks for what cannot be done."""


class DocumentError(DoctorError):
    """A YAML file is not as it must be: says file, line, what is wrong and what to do."""

    def __init__(self, path: object, line: int | None, problem: str) -> None:
        self.path, self.line, self.problem = path, line, problem
        self.is_consequence = False
        """Of a mistake that was noted already."""
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {problem}")


class SourceError(DoctorError):
    """A source could not be read.

    `kind` is one of: unreachable, timeout, starved (the doctor itself got no CPU), tls, denied, not-found,
    server-error, redirect, not-vllm, too-large, not-metrics, changed-server, not-a-log, empty, unreadable,
    not-installed, not-a-recording, newer-format; of a Prometheus besides: not-prometheus, no-vllm, collision, several,
    refused.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


OWN_FAULTS = ("no-memory", "internal")
"""The kinds of failures that are the doctor's own."""
_SCARCE = ("can't start new thread", "unable to allocate memory", "cannot allocate memory", "failed to map segment")
"""How Python, and the libraries beside it, say that the system gives no more."""


def told(error: Exception) -> tuple[str, str]:
    """Any failure as a kind and a line; what is no DoctorError is our own fault, or the system gives us no more."""
    if isinstance(error, DoctorError):
        return error.kind if isinstance(error, SourceError) else "usage", str(error)
    if isinstance(error, MemoryError) or any(said in str(error).lower() for said in _SCARCE):
        return "no-memory", "the system gives the doctor no more memory, or threads: raise its limit (ulimit -v, -u)"
    if isinstance(error, ImportError):
        return "internal", f"{error.name or 'a library'} cannot be loaded ({error}): install vllm-doctor again"
    what = f"{type(error).__name__}: {error}"
    return "internal", f"internal error: {what} (VLLM_DOCTOR_DEBUG=1 shows where; please report it)"
