"""What a server asks for before it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Access:
    """How to be let in. `ca_file`: PEM certificates to trust beside the system's."""

    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    insecure: bool = False
