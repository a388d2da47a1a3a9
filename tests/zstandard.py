"""The module zstd, from where this Python has it."""

from __future__ import annotations

import sys
from collections.abc import Mapping

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd


def texts_of(parts: Mapping[str, bytes]) -> dict[str, str]:
    """The files of a recording as text, unpacked: what somebody who opens it can read."""
    return {name: (zstd.decompress(body) if name.endswith(".zst") else body).decode() for name, body in parts.items()}
