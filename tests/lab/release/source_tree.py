"""The Python files of a release, from its wheel, which pip downloads from the package index that it is set up for."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_PLATFORMS = ("1", "2014", "_2_28", "_2_31", "_2_35")
"""The manylinux tags that vLLM has had: its wheel is wanted whatever machine this is."""


def fetch(release: str, into: Path) -> int:
    """Unpack vllm/**/*.py of the release in a folder; how many files. The wheel, some 400 MB, is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"),
                *("--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--dest", folder),
                *(f"--platform=manylinux{tag}_x86_64" for tag in _PLATFORMS),
                f"vllm=={release}",
            ],
            check=True,
        )
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith("vllm/") and name.endswith(".py")]
            archive.extractall(into, names)
    return len(names)
