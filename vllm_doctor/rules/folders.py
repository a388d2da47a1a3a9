"""What lies where in a folder of rules, the shipped one or one's own.

    signals.yaml, signals/*.yaml   signals
    log-lines/*.yaml               lines of vLLM's log
    regressions/*.yaml             known faults by version
    profile/*.yaml                 what the names in a trace or a profile belong to: shipped only
    overrides.yaml                 what is changed in shipped rules
    diagnosis.yaml                 what is no signal, but made of signals: shipped only
    any other *.yaml               a rule

Each may lie in a folder of the folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vllm_doctor.model.errors import UsageError
from vllm_doctor.text import near

SIGNALS = "signals"
LOG_LINES = "log-lines"
REGRESSIONS = "regressions"
PROFILE = "profile"
OVERRIDES = "overrides.yaml"
DIAGNOSIS = "diagnosis.yaml"


def shipped() -> Path:
    """The folder of the shipped rules: in the package when installed, beside it in a checkout."""
    folder = Path(__file__).parent
    inside, beside = folder / "shipped", folder.parents[1] / "rules"
    return inside if inside.is_dir() else beside


def check(folders: Iterable[Path]) -> None:
    """Raises UsageError where one is none."""
    for folder in folders:
        if not folder.is_dir():
            meant = near.path(str(folder))
            raise UsageError(f"no such folder of rules: {folder}" + (f"; did you mean {meant!r}?" if meant else ""))
        if not any(folder.rglob("*.yaml")):
            raise UsageError(f"the folder of rules {folder} holds no .yaml file: no rule, signal or override")


def rules(folder: Path) -> list[Path]:
    return [path for path in _all(folder) if _kind(path) == "rule"]


def signals(folder: Path) -> list[Path]:
    return [path for path in _all(folder) if _kind(path) == SIGNALS]


def log_lines(folder: Path) -> list[Path]:
    return [path for path in _all(folder) if _kind(path) == LOG_LINES]


def regressions(folder: Path) -> list[Path]:
    return [path for path in _all(folder) if _kind(path) == REGRESSIONS]


def overrides(folder: Path) -> list[Path]:
    return [path for path in _all(folder) if _kind(path) == OVERRIDES]


def _all(folder: Path) -> Iterable[Path]:
    return sorted(folder.rglob("*.yaml"))


def _kind(path: Path) -> str:
    if path.name == OVERRIDES:
        return OVERRIDES
    if path.name == DIAGNOSIS and path.parent.resolve() == shipped().resolve():
        return DIAGNOSIS
    if path.parent.name in (LOG_LINES, REGRESSIONS):
        return path.parent.name
    if path.parent.name == PROFILE and path.parent.parent.resolve() == shipped().resolve():
        return PROFILE
    return SIGNALS if path.parent.name == SIGNALS or path.name == f"{SIGNALS}.yaml" else "rule"
