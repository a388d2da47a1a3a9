"""What an optional part of the doctor needs beside it, and how to get that today: the package is on no index yet."""

from __future__ import annotations

_PACKAGES = {
    "completion": ("shtab>=1.13",),
    "k8s": ("lightkube>=1.0,<2",),
    "kv-events": ("pyzmq>=26", "msgpack>=1"),
    "mcp": ("mcp>=2",),
    "profile": ("py-spy>=0.4",),
}
"""Extra -> what it installs: pyproject.toml has the same (a test compares them)."""


def missing(extra: str, what: str) -> str:
    """One line for a person who lacks it: by the packages, which are on the index, and by a clone's extra."""
    packages = " ".join(package.partition(">=")[0] for package in _PACKAGES[extra])
    return f"{what}: pip install {packages} where vllm-doctor is installed (in a clone: pip install '.[{extra}]')"
