"""The text of collect-env, taken apart: what it says of the machine, its packages, and the variables of the shell.

Two forms: lines of "name: value" (to 2025), and the same in sections under lines of "=". Lines that fit nowhere are
what the program's imports printed, or other people's words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from io import StringIO

_MAX_LINES = 20_000
_MAX_LINE = 4000
_QUOTED = " \t>"

NAMES = frozenset(
    {
        "os", "pytorch version", "is debug build", "cuda used to build pytorch", "rocm used to build pytorch",
        "python version", "is cuda available", "cuda runtime version", "cuda_module_loading set to",
        "gpu models and configuration", "nvidia driver version", "hip runtime version", "miopen runtime version",
        "rocm version", "neuron sdk version", "vllm version", "vllm ascend version", "vllm build flags", "gpu topology",
    }
)  # fmt: skip
"""The names of what it tells, in lower case, as far as they tell it apart from other texts."""
_MARK = re.compile(
    rb"^[> \t]{0,8}(" + b"|".join(re.escape(name).encode() for name in sorted(NAMES - {"os"})) + rb")[ \t]{0,40}:",
    re.MULTILINE | re.IGNORECASE,
)
_LEAST = 3
"""Of these names stand in every printout, also in one that was shortened."""
_FIRST = ("os", "pytorch version")
"""What each printout tells once, near its beginning."""

_CPU_ROWS = {
    "on-line cpu(s) list": "online", "在线 cpu 列表": "online",
    "thread(s) per core": "threads", "每个核的线程数": "threads",
}  # fmt: skip
"""The rows of lscpu that are of use, in the languages in which people have posted them."""
_NODE = re.compile(r"numa (?:node|节点)\d{1,4} cpu(?:\(s\))?")

_PACKAGE = re.compile(r"\[(?:pip3?|conda)\] ([\w.-]{1,80})(?:==| {1,80})(\d\S{0,80})")
_VARIABLE = re.compile(r"([A-Z_][A-Z0-9_]{1,80})=(.*)")
_COMMAND = re.compile(r" (?:-|vllm\b|python)")
"""In the value of what stands before a command, and is no line of a printout."""
_PLATFORM = re.compile(r"Automatically detected platform (\w{1,20})")
_END = ("```", "~~~", "</details>", "#")
_ROCM_GPU = re.compile(r"GPU\d{1,3}")
_ROCM_LINKS = frozenset({"XGMI", "PCIE", "0", "N/A"})
_UNTOLD = frozenset({"", "N/A", "None", "No CUDA", "Could not collect"})


@dataclass
class CollectEnv:
    """One printout. The names in `fields` and `packages` are in lower case."""

    fields: dict[str, str] = field(default_factory=dict)
    cpu: dict[str, str] = field(default_factory=dict)
    """online, threads: as lscpu wrote them."""
    nodes: int = 0
    """NUMA nodes that have CPUs; a GPU's memory may be one, too."""
    packages: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    platform: str = ""
    """As vLLM detected it: cuda, rocm, cpu, tpu."""
    rocm_links: list[list[str]] = field(default_factory=list)
    """By the table of rocm-smi: how each GPU reaches the others (XGMI, PCIE)."""
    lines: list[str] = field(default_factory=list)
    others: int = 0
    """Further printouts in the text, which are not read."""

    def told(self, name: str) -> str:
        """What it says under this name; "" where it says that it could not tell."""
        value = self.fields.get(name, "")
        return "" if value in _UNTOLD else value


def holds(text: bytes) -> bool:
    """Whether a printout stands in the text: some of the names that it alone writes."""
    found: set[bytes] = set()
    for match in _MARK.finditer(text):
        found.add(match[1].lower())
        if len(found) == _LEAST:
            return True
    return False


def read(text: str) -> CollectEnv:
    """The first printout in the text; an empty one where there is none."""
    reader = _Reader()
    for number, line in enumerate(StringIO(text, newline=None)):
        if number > _MAX_LINES:
            break
        reader.read(line[:_MAX_LINE].strip(_QUOTED + "\n"))
    return reader.found


class _Reader:
    """Reads line by line: words before the printout, the printout, and what comes after it."""

    def __init__(self) -> None:
        self.found = CollectEnv()
        self._has_ended = False
        self._table = ""

    def read(self, line: str) -> None:
        found, (name, value) = self.found, _pair(line)
        if name in _FIRST and (self._has_ended or name in found.fields):
            self._has_ended = True
            found.others += name == "pytorch version"
        if self._has_ended:
            return
        if not found.lines and name not in NAMES:
            detected = _PLATFORM.search(line)
            found.platform = detected[1].lower() if detected else found.platform
        elif found.lines and line.startswith(_END):
            self._has_ended = True
        else:
            found.lines.append(line)
            self._told(line, name, value)

    def _told(self, line: str, name: str, value: str) -> None:
        found = self.found
        if (variable := _VARIABLE.fullmatch(line)) and "vllm version" in found.fields:
            if not _COMMAND.search(variable[2]):
                found.variables.setdefault(variable[1], variable[2])
        elif name in NAMES:
            found.fields.setdefault(name, value)
        elif name in _CPU_ROWS:
            found.cpu.setdefault(_CPU_ROWS[name], value)
        elif _NODE.fullmatch(name):
            found.nodes += bool(value)
        elif package := _PACKAGE.match(line):
            found.packages.setdefault(package[1].lower(), package[2])
        else:
            self._linked(line)

    def _linked(self, line: str) -> None:
        """A line of the tables of rocm-smi --showtopo, of which one says by what the GPUs are linked."""
        if "between two GPUs" in line:
            self._table = line
        words = line.split()
        is_row = len(words) > 1 and _ROCM_GPU.fullmatch(words[0]) is not None and _ROCM_LINKS.issuperset(words[1:])
        if is_row and "Link Type" in self._table:
            self.found.rocm_links.append(words[1:])


def _pair(line: str) -> tuple[str, str]:
    """ "Name : value" with the name in lower case; ("", "") of a line that is none. lscpu in Chinese writes "："."""
    place = re.search("[:：]", line[:80])
    return ("", "") if place is None else (line[: place.start()].rstrip().lower(), line[place.end() :].strip())
