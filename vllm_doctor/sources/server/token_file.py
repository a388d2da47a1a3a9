"""The file that holds a server's token, as the user names it."""

from __future__ import annotations

from vllm_doctor.model.errors import UsageError
from vllm_doctor.text import files

_MOST = 64 << 10


def read(option: str, path: str) -> str:
    """The token, for an Authorization header. `option` is how it was given. Raises UsageError, without it."""
    try:
        content = files.read(path, _MOST)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{option} {path}: cannot be read ({why})") from None
    found = content.decode("latin-1").strip()
    if len(content) > _MOST or not found or not found.isascii() or not found.isprintable():
        raise UsageError(f"{option} {path}: must hold one token, on one line")
    return found
