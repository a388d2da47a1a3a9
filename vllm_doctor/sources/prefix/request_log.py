"""The prompts of requests that a server logs (--enable-log-requests), as tokens, else as characters.

0.32 has a line of DEBUG: "Request ID details: prompt: '…', prompt_token_ids: [1, 2], prompt_embeds shape: None."
Earlier releases have one of INFO: "Received request ID: prompt: '…', params: …, prompt_token_ids: [1, 2] or None, …".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from vllm_doctor.model import prefix
from vllm_doctor.model.prefix import Comparison, Numbers, Prefixes, Prompt, Unit
from vllm_doctor.sources.log import bytes_stream, entry
from vllm_doctor.sources.log.bytes_stream import Origin
from vllm_doctor.sources.log.bytes_unpacked import read

MOST_BYTES = 256 * 1024 * 1024
"""Of a log are read again for its prompts."""
MOST_OF_A_LINE = 16 * 1024 * 1024
_MARK = b"prompt: "
_REQUEST = re.compile(r"(?:Received request \S{1,200}:|Request \S{1,200} details:) prompt: ")
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"
_TEXT = re.compile(rf"'(?:[^'\\]|{_ESCAPE})*+'|\"(?:[^\"\\]|{_ESCAPE})*+\"|None")
"""As Python's repr writes it."""
_TOKENS = re.compile(r"prompt_token_ids: \[([0-9, ]*+)\]")
_TOKEN = re.compile(r"[0-9]{1,10}")
_ADAPTER = re.compile(r"lora_request: LoRARequest\(lora_name='([^']{0,1000})'")
_TOOLS = re.compile(r"<tools>|# Tools|\[AVAILABLE_TOOLS\]|\"type\": ?\"function\"")
_LAST_TOOL = re.compile(r"</tools>|\[/AVAILABLE_TOOLS\]|\"type\": ?\"function\"")


@dataclass(frozen=True)
class Logged:
    """A request as a line tells it."""

    text: str | None
    tokens: tuple[int, ...] | None
    adapter: str = ""

    @property
    def cut(self) -> int | None:
        """At which length --max-log-len cut it: as many tokens as characters."""
        is_cut = self.text is not None and self.tokens is not None and len(self.text) == len(self.tokens) > 0
        return len(self.tokens) if is_cut and self.tokens is not None else None


class RequestLog:
    """Compares the prompts in a log; `notes` says what was odd of them."""

    def __init__(self, target: str, show_text: bool = False) -> None:
        self._target = target
        self._numbers = {unit: Numbers() for unit in Unit}
        self._adapters = Numbers()
        self._compared = {
            unit: Comparison(unit, _shown(unit, self._numbers[unit]) if show_text else None) for unit in Unit
        }
        self._broken = 0
        self._cuts: set[int] = set()

    def add(self, line: bytes) -> None:
        """A line of the log, whatever it is."""
        text = _unwrapped(line)
        found = _REQUEST.search(text)
        if found is None:
            return
        logged = _logged(text, found.end())
        if logged is None:
            self._broken += 1
            return
        if logged.cut:
            self._cuts.add(logged.cut)
        keys = ((0, self._adapters[logged.adapter]),) if logged.adapter else ()
        if logged.tokens:
            self._compared[Unit.TOKEN].add(Prompt(self._numbers[Unit.TOKEN].of(logged.tokens), keys))
        elif logged.text:
            units = self._numbers[Unit.CHARACTER].of(logged.text)
            self._compared[Unit.CHARACTER].add(Prompt(units, keys, _tools(logged.text)))

    @property
    def is_full(self) -> bool:
        return any(compared.is_full for compared in self._compared.values())

    def prefixes(self) -> Prefixes | None:
        """Of its prompts as tokens, or as characters, whichever are more; None where there are no two."""
        unit, most = max(self._compared.items(), key=lambda each: len(each[1].prompts))
        return prefix.summed(self._target, unit, [most]) if len(most.prompts) > 1 else None

    @property
    def notes(self) -> tuple[str, ...]:
        cut = f"prompts are logged up to {max(self._cuts):,} tokens (--max-log-len)" if self._cuts else ""
        broken = f"{self._broken:,} requests are not logged on one line: their prompts were not compared"
        return tuple(note for note in (cut, broken if self._broken else "") if note)


def examine(
    paths: Sequence[Origin], target: str, show_text: bool = False, is_over: Callable[[], bool] = bool
) -> tuple[Prefixes | None, tuple[str, ...]]:
    """The prompts in these files, and what must be said of them. Raises SourceError."""
    requests = RequestLog(target, show_text)
    for path in paths:
        for line in _lines(read(bytes_stream.blocks(path, [], None, may_be_empty=True))):
            if requests.is_full or is_over():
                return requests.prefixes(), requests.notes
            requests.add(line)
    return requests.prefixes(), requests.notes


def _lines(blocks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Lines that may hold a prompt; of one that is too long nothing."""
    rest, left, is_skipped = b"", MOST_BYTES, False
    for block in blocks:
        left -= len(block)
        if left < 0:
            return
        whole, newline, rest_of_block = bytes(block).rpartition(b"\n")
        if newline:
            whole = b"" if is_skipped else rest + whole
            if is_skipped:  # its end is in this block
                whole = bytes(block).partition(b"\n")[2].rpartition(b"\n")[0]
            if _MARK in whole:
                yield from (line for line in whole.split(b"\n") if _MARK in line)
            rest, is_skipped = rest_of_block, False
        elif not is_skipped:
            rest += rest_of_block
        if len(rest) > MOST_OF_A_LINE:
            rest, is_skipped = b"", True
    if _MARK in rest:
        yield rest


def _unwrapped(line: bytes) -> str:
    """The line without docker's JSON around it, which escapes what is in it."""
    if line.lstrip().startswith(b"{"):
        return next((record.message for record in entry.records(line) if "prompt: " in record.message), "")
    return line.decode("utf-8", "replace")


def _logged(text: str, start: int) -> Logged | None:
    """What stands behind "prompt: "; None where the line ends within it."""
    prompt = _TEXT.match(text, start)
    if prompt is None:
        return None
    try:
        said = ast.literal_eval(prompt[0])
    except (ValueError, SyntaxError):
        return None
    behind = text[prompt.end() :]
    tokens = _TOKENS.search(behind)
    if tokens is None and "prompt_token_ids: [" in behind:
        return None
    adapter = _ADAPTER.search(behind)
    ids = tuple(map(int, _TOKEN.findall(tokens[1]))) if tokens is not None else None
    return Logged(said, ids, adapter[1] if adapter is not None else "")


def _tools(text: str) -> tuple[int, int] | None:
    """Where the list of tools stands in a prompt."""
    first = _TOOLS.search(text)
    if first is None:
        return None
    ends = [found.end() for found in _LAST_TOOL.finditer(text, first.end())]
    return first.start(), max(ends, default=first.end())


def _shown(unit: Unit, numbers: Numbers) -> Callable[[Iterable[int]], str]:
    def show(units: Iterable[int]) -> str:
        values = numbers.values_of(units)
        return "".join(map(str, values)) if unit is Unit.CHARACTER else " ".join(map(str, values))

    return show
