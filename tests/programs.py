"""Programs of the system that tests run: a compiler, tmux, a browser, a Prometheus.

Where one is not installed its tests are skipped, and say how to get it; in CI (CI=true) they fail: nothing is skipped.
"""

from __future__ import annotations

import os
import shutil

import pytest


def needed(package: str, *names: str) -> str:
    """The path of the first of these names that is there; `package`: Debian's, without names the program's as well."""
    for name in names or (package,):
        if found := shutil.which(name):
            return found
    line = f"{(names or (package,))[0]} is not installed: apt-get install --no-install-recommends {package}"
    if os.environ.get("CI"):
        pytest.fail(line, pytrace=False)
    pytest.skip(line)
