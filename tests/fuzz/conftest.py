"""The folder that the harnesses write in ends with the session: pytest's workers end without Python's own end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.fuzz.harness import all_folders


@pytest.fixture(scope="session", autouse=True)
def _no_folder_stays() -> Iterator[None]:
    yield
    shutil.rmtree(all_folders(), ignore_errors=True)
