"""What is appended to a log, also across its rotation: renamed with a new one in its place, or truncated."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.host.process_log import ProcessLog
from vllm_doctor.sources.log.bytes_unpacked import unreadable

MOST = 4 * 1024 * 1024


class Tail:
    """Follows a log from byte `position` on. It may not exist yet, and may come and go. A process's log is rotated when
    the process opens another file; a log that was named, when another file has the name.

    Nothing is waited for: ask again for more. What is written between truncation and the next read is lost if it is
    more than what was there before, and so is what two rotations between two reads put away.
    """

    def __init__(self, path: Path | ProcessLog, position: int = 0) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._position = position
        self._torn = self._restarted = False

    def read(self, most: int = MOST) -> bytes:
        """What came since, at most `most` bytes; empty if nothing did. Raises SourceError.

        A last line without its end gets one before another log begins, so that no line is made of two.
        """
        try:
            if self._descriptor is None and not self._open():
                return b""
            data = self._appended(most)
            if not data and self._is_replaced():
                data = self._appended(most)  # written between the two looks
                if not data:
                    self.close()
                    self._position, self._restarted = 0, True
                    data = self._appended(most) if self._open() else b""
        except OSError as error:
            raise unreadable(str(self._path), error) from None
        if not data:
            return b""
        ended = b"\n" if self._restarted and self._torn else b""
        self._torn, self._restarted = not data.endswith(b"\n"), False
        return ended + data

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> bool:
        try:
            if isinstance(self._path, ProcessLog):
                descriptor = self._path.descriptor()
            else:  # without O_NONBLOCK, opening a FIFO would wait for its writer
                descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise SourceError("not-a-log", f"{self._path} is no file that can be followed: give the log")
        self._descriptor = descriptor
        return True

    def _appended(self, most: int) -> bytes:
        assert self._descriptor is not None
        if os.fstat(self._descriptor).st_size < self._position:
            self._position, self._restarted = 0, True
        data = os.pread(self._descriptor, most, self._position)
        self._position += len(data)
        return data

    def _is_replaced(self) -> bool:
        """Whether another file has the name now. One that is only gone may still be written to."""
        assert self._descriptor is not None
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        return not os.path.samestat(now, os.fstat(self._descriptor))
