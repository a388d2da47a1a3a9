"""Brings the shipped YAML files into the wheel as they are after parsing too (vllm_doctor/rules/compiled.py), and the
rules, signals and log lines as the objects that they become (vllm_doctor/rules/pickled.py)."""

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
from vllm_doctor.rules import compiled, document, folders, log_lines, pickled, rule_set
folder = Path(sys.argv[1])
shipped = folders.shipped()
for path in folders.rules(shipped):
    document.read(path, until="examples")
measures = Path("vllm_doctor/compare/measures.yaml").absolute()
for path in [*folders.signals(shipped), *folders.log_lines(shipped), shipped / folders.DIAGNOSIS, measures]:
    document.read(path)
compiled.write(folder / compiled.NAME)
pickled.write(folder, pickled.RULES, rule_set.load(()))
pickled.write(folder, pickled.LOG_LINES, log_lines.load(shipped))
"""


class Compiled(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        subprocess.run([sys.executable, "-B", "-c", PROGRAM, self._folder.name], cwd=self.root, check=True)
        for path in Path(self._folder.name).iterdir():
            place = "kept/" if path.suffix == ".pickle" else ""
            build_data["force_include"][str(path)] = f"vllm_doctor/rules/{place}{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()
