"""The starts of a file among the commands of the tests."""

from __future__ import annotations

from tests.paths import COMMANDS
from vllm_doctor.launch.source import open_command
from vllm_doctor.launch.start import Start


def of_file(name: str) -> list[Start]:
    starts = list(open_command(str(COMMANDS / name)).starts)
    assert "S3CRET" not in repr(starts)
    assert "s3cret" not in repr(starts)
    return starts
