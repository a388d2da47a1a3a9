"""YAML files, read strictly (strict_yaml.py), as tables that know their lines: every mistake is told with its own."""

from __future__ import annotations

import re
from pathlib import Path

from vllm_doctor.model.errors import DocumentError
from vllm_doctor.rules.table import Problems, Table
from vllm_doctor.text import files

MAX_BYTES = 1_000_000
_NEXT_KEY = re.compile(r"^[^\s#-]", re.MULTILINE)


def read(path: Path, until: str | None = None, problems: Problems | None = None) -> Table:
    """The mapping in a YAML file. Raises DocumentError with the line; with `problems`, only where it cannot go on.

    `until`: a key that is left out, with all below it, where it is the file's last: what is not needed costs no time.
    """
    try:
        raw = files.read(path, MAX_BYTES)
    except OSError as error:
        raise DocumentError(path, None, f"cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise DocumentError(path, None, f"larger than {MAX_BYTES:,} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise DocumentError(path, None, "is not UTF-8 text") from None
    if until is not None:
        head, _, rest = text.partition(f"\n{until}:\n")
        text = text if _NEXT_KEY.search(rest) else f"{head}\n"
    from vllm_doctor.rules import strict_yaml  # late: it takes a while to import, and most starts parse nothing

    return strict_yaml.parsed(text, path, problems)
