"""Brings the shipped rules, signals, log lines and measures into the wheel as the objects that they become
(vllm_doctor/rules/pickled.py), and of the fixtures the recordings, which are the demos: the others are for tests."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, "")  # pipx takes it away from what it starts (PYTHONSAFEPATH)
from vllm_doctor.compare import measure
from vllm_doctor.rules import folders, log_lines, pickled, rule_set
folder = Path(sys.argv[1])
pickled.write(folder, pickled.RULES, rule_set.load(()))
pickled.write(folder, pickled.LOG_LINES, log_lines.load(folders.shipped()))
pickled.write(folder, pickled.MEASURES, dict(measure.definitions()))
"""


class Kept(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        subprocess.run([sys.executable, "-B", "-c", PROGRAM, self._folder.name], cwd=self.root, check=True)
        for path in Path(self._folder.name).iterdir():
            build_data["force_include"][str(path)] = f"vllm_doctor/rules/kept/{path.name}"
        for recording in Path(self.root, "fixtures").glob("*/recording.json"):
            place = f"vllm_doctor/recording/shipped/{recording.parent.name}"
            build_data["force_include"][str(recording.parent)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()
