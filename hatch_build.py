"""Brings the shipped YAML files into the wheel as they are after parsing too (vllm_doctor/rules/compiled.py)."""

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
from vllm_doctor.rules import compiled, document, folders
shipped = folders.shipped()
for path in folders.rules(shipped):
    document.read(path, until="examples")
measures = Path("vllm_doctor/compare/measures.yaml").absolute()
for path in [*folders.signals(shipped), *folders.log_lines(shipped), shipped / folders.DIAGNOSIS, measures]:
    document.read(path)
compiled.write(Path(sys.argv[1]))
"""


class Compiled(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "compiled.json"
        subprocess.run([sys.executable, "-B", "-c", PROGRAM, str(path)], cwd=self.root, check=True)
        build_data["force_include"][str(path)] = "vllm_doctor/rules/compiled.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()
