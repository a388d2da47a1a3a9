"""The log of a server that was found: the file that its standard output is, however it is called by now.

Its name is only shown. A server writes on to the file that it has open when that is renamed, and another that gets the
name may be anybody's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import threading

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.host.process_files import ProcessFiles, reopened


class ProcessLog:
    """To be closed. It stays open meanwhile, so that the last lines of a server that has ended can be read."""

    def __init__(self, files: ProcessFiles, name: str) -> None:
        self._files, self._name = files, name
        self._kept: int | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        with contextlib.suppress(OSError):
            os.close(self._opened())

    def __str__(self) -> str:
        return self._name

    def descriptor(self) -> int:
        """To read it from its start, wherever the server writes now. Raises OSError, and SourceError: denied."""
        try:
            return self._opened()
        except PermissionError:
            if not self._files.is_of_another_user:
                raise
            raise SourceError(
                "denied",
                f"{self._name} is not read: the server's own user may not read it; if it is the log, name it:"
                f" vllm-doctor {self._files.pid} {shlex.quote(self._name)}",
            ) from None

    def stat(self) -> os.stat_result:
        """Raises OSError."""
        descriptor = self._opened()
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._keep(None)

    def _opened(self) -> int:
        with self._lock:
            try:
                now = self._files.output()
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                if self._kept is None:
                    raise
                return reopened(self._kept)
            if not self._is_closed and (self._kept is None or not os.path.sameopenfile(self._kept, now)):
                self._keep(os.dup(now))
            return now

    def _keep(self, descriptor: int | None) -> None:
        if self._kept is not None:
            os.close(self._kept)
        self._kept = descriptor
