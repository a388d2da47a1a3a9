"""Which exceptions' messages a recording may keep: those that no client can have a word in.

An exception quotes what it stumbled over, and in a server that is often a prompt: `TemplateError: …`, a body that is
no JSON, a question that was taken for a path. So a message is kept by what is known of it, else only its type is:

- the rules know the line, or
- the type is one that the machine raises (memory, files, sockets, imports, CUDA, NCCL, Ray), or
- its traceback goes through vLLM's engine, its start and libraries below alone, through no code that reads requests, or
- it goes through code that makes the engine: before there is one, nobody has asked it anything.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from vllm_doctor.rules.log_lines import LogLines
from vllm_doctor.sources.log import entry
from vllm_doctor.sources.log.entry import Record
from vllm_doctor.sources.log.entry_clock import Stamp
from vllm_doctor.text.redact import MASK

_RAISED = re.compile(r"((?:Error|Exception))(?:\([\w.]{1,80}\))?: (?!\[masked\])")
_END = re.compile(r"([\w.]{1,200}+)(?:\([\w.]{1,80}\))?(?::(?: |$)|$)")
"""The last line of a traceback, of any type."""
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above", "The above exception was")
_FRAME = re.compile(r'File \\{0,3}"(?P<path>[^"\\]{1,400})\\{0,3}", line \d{1,9}(?:, in (?P<function>[\w<>.]{1,200}))?')
_OF_NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."
_STRING = re.compile(r'(?:[^"\\]|\\.)*+')
_UVICORN = re.compile(r"(?:INFO|WARNING|ERROR|CRITICAL|DEBUG): ")
_SEEN = 40
_MOST = 4000
_MARGIN = re.compile(r"\s{0,40}[|+](?:-[+-]{0,99})?(?: \d{1,4} -+)? ?")
"""Of an ExceptionGroup."""
_MACHINE = re.compile(
    r"(?:torch|triton|ray|cupy|huggingface_hub|safetensors|requests|urllib3|zmq|multiprocessing|concurrent|subprocess"
    r"|socket|ssl|vllm\.v1\.engine\.exceptions)\.[\w.]+"
    r"|(?:[\w.]+\.)?(?:OS|IO|FileNotFound|FileExists|Permission|NotADirectory|IsADirectory|Connection\w*|BrokenPipe|Timeout"
    r"|Interrupted|ProcessLookup|ChildProcess|BlockingIO|Import|ModuleNotFound|Memory|OutOfMemory|Name|UnboundLocal"
    r"|Attribute|Index|ZeroDivision|Overflow|FloatingPoint|Recursion|NotImplemented|Buffer|EOF|System|Cancelled|Syntax"
    r"|\w*EngineDead|EngineGenerate|Accelerator|DistBackend|DistNetwork|DistStore|NCCL|Cuda\w*|CUDA\w*|Hip\w*|Inductor"
    r"|Broken\w*|HfHubHTTP|RepositoryNotFound|GatedRepo|LocalEntryNotFound|EntryNotFound|RevisionNotFound|Safetensor)Error"
    r"|KeyboardInterrupt|SystemExit|\w*Warning"
)
_SENTENCE = re.compile(r"""(["'])(?:(?!\1)[^\s\\]){1,200}(?: (?:(?!\1)[^\s\\]){1,200}){3,}\1?""")
"""A quoted text of four words or more: no file is called so, but a prompt that was taken for a path."""
_OF_FILES = re.compile(r"(?:OS|IO|FileNotFound|FileExists|Permission|NotADirectory|IsADirectory)Error")
_VLLM = re.compile(
    r"(?:attention|compilation|config|core|device_allocator|distributed|env_override|envs|executor|forward_context|kernels"
    r"|lora|model_executor/(?!guided)|models?|platforms|plugins|profiler|ray|scripts|tracing|triton_utils|usage|utils|worker"
    r"|transformers_utils/(?!tokeniz|detokeniz|process)|engine/arg_utils|entrypoints/(?:cli/|openai/cli_args)|_\w+"
    r"|v1/(?:attention|core|cudagraph\w*|engine/(?:core|coordinator|utils)|executor|kv_\w+|metrics|pool|sample|serial_utils"
    r"|spec_decode|utils|worker))[\w/]*(?:\.py)?"
)
"""Folders and files of vLLM's in which nobody reads a request."""
_STARTS = re.compile(r"(?:(?:v1/)?engine/[\w/]+|entrypoints/(?:launcher|openai/api_server))\.py")
_START = re.compile(
    r"__init__|<module>|from_\w+|run_\w+|build_\w+|init_\w+|setup_\w+|main|\w*make_client|_?create_engine\w*|engine_step"
    r"|step\w*|execute_\w+|_log_task_completion"
)
"""Functions of other files, in which it starts or runs a step."""
_MAKES = re.compile(
    r"(?:v1/)?engine/(?:async_llm|llm_engine|async_llm_engine|core|core_client)\.py|entrypoints/llm\.py"
)
_MAKING = re.compile(r"__init__|from_vllm_config|from_engine_args")
"""Files and functions in which the engine is made, whatever is called from there."""
_PACKAGE = re.compile(
    r"(?:torch|triton|ray|flashinfer|flash_attn|xformers|bitsandbytes|huggingface_hub|safetensors|pydantic|uvloop|cupy"
    r"|deep_gemm|torch_\w+|neuronx\w*|vllm_\w+|amdsmi|pynvml|cloudpickle|msgspec|zmq"
    r"|transformers/(?!tokeniz|process|image|audio|video|generation|chat))[\w/.]*"
)
_STDLIB = re.compile(r"/lib/python3\.\d{1,2}/(?!(?:site|dist)-packages|json|urllib|http|html|email|ast)")
_SCRIPT = re.compile(r"(?:.*/)?bin/(?:vllm|ray)|<frozen [\w.]+>|<string>|uvloop/\w+\.pyx")
_OF_THE_MACHINE = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|NCCL|RCCL|cuBLAS|cuDNN)\b[\w ]{0,20}[Ee]rror|PassManager::run|Engine (?:core|process)\b"
    r"|Server exited|unhandled errors in a TaskGroup"
)
"""How the messages of such begin, whatever type they came with."""
_PATIENCE = 1.0
"""Seconds within which the lines of one message are written."""


_MOST_STREAMS = 1000


@dataclass(slots=True)
class _Stream:
    """One process's part of a log. `is_traced`: a traceback is open. `is_engine`: so far all its frames are the
    engine's; None without a frame. `is_start`: one of them makes the engine.

    `hides`: the source and the time of the record whose message goes on in the next lines, and is not kept.
    """

    is_traced: bool = False
    is_engine: bool | None = None
    is_start: bool = False
    hides: tuple[str, Stamp | None] | None = None


class Raised:
    """Reads a log line by line. `known`: the lines that the rules know."""

    def __init__(self, known: LogLines) -> None:
        self._known = known
        self._streams: dict[tuple[str, str, int | None], _Stream] = {}
        self._is_open = False

    def kept(self, line: str) -> str:
        """The line as it may be kept: without the message of an exception in which a client may have a word."""
        if not (self._is_open or "Error" in line or "Exception" in line or "Traceback" in line):
            return line
        clean = line
        for this in entry.records(line.encode()):
            stream = self._streams.setdefault((this.origin, this.process, this.pid), _Stream())
            cut = self._cut(this, stream)
            if cut is not None:
                clean = _without(clean, this.message, cut)
        if len(self._streams) > _MOST_STREAMS:
            self._streams.clear()
        self._is_open = any(stream.is_traced or stream.hides is not None for stream in self._streams.values())
        return self._without_fields(clean) if clean.lstrip()[:1] == "{" else clean

    def _cut(self, this: Record, stream: _Stream) -> int | None:
        """From where on the record's message is not kept; None: it stays."""
        margin = _MARGIN.match(this.message)
        begin = margin.end() if margin else 0
        text = this.message[begin:]
        words = text.lstrip()
        if stream.hides is not None:
            if words and not _ends(this, words, stream.hides):
                return 0
            stream.hides = stream.hides if not words else None
        if _TRACEBACK in words or words.startswith(_CHAINED):
            stream.is_traced, stream.is_engine, stream.is_start = _TRACEBACK in words, None, False
            return None
        if stream.is_traced and (frame := _FRAME.match(words)) is not None:
            stream.is_engine = stream.is_engine is not False and is_of_engine(frame)
            stream.is_start = stream.is_start or is_of_start(frame)
            return None
        if stream.is_traced and (text[:1] in ("", " ", "\t") or this.level in ("INFO", "WARNING", "DEBUG")):
            return None
        end = _END.match(text) if stream.is_traced else None
        is_engine = stream.is_traced and (stream.is_engine is True or stream.is_start)
        if end is not None:
            stream.is_traced = False
            if _is_kept(end[1], text, is_engine, self._known) or not text[end.end() :].strip():
                return None
            stream.hides = this.source, this.stamp
            return begin + end.end()
        for found in _RAISED.finditer(text):
            name = _name(text, found)
            if not _is_kept(name, text[found.start() - len(name) + len(found[1]) :], is_engine, self._known):
                if knows(text, self._known):
                    return None
                stream.hides = this.source, this.stamp
                return begin + found.end()
            if name != found[1]:
                break  # what a kept one quotes is kept
        return None

    def _without_fields(self, line: str) -> str:
        """One whose JSON holds exceptions beside the message, with their tracebacks."""
        at = 0
        while (found := _RAISED.search(line, at)) is not None:
            at = found.end()
            name = _name(line, found)
            start = max(line.rfind(': "', 0, at), line.rfind(':"', 0, at))
            frames = list(_FRAME.finditer(line, start, at))
            end = _STRING.match(line, at).end()  # type: ignore[union-attr]
            text = line[found.start() - len(name) + len(found[1]) : end]
            is_engine = bool(frames) and (all(map(is_of_engine, frames)) or any(map(is_of_start, frames)))
            if frames and not _is_kept(name, text, is_engine, self._known):
                line = f"{line[:at]}{MASK}{line[end:]}"
        return line


def shown(text: str, is_engine: bool, known: LogLines) -> str:
    """The last line of a traceback as it may be kept; `is_engine`: no client can have a word in it."""
    end = _END.match(text)
    if end is None or not text[end.end() :].strip() or _is_kept(end[1], text, is_engine, known):
        return text
    return f"{text[: end.end()].rstrip()} {MASK}"


def frame_of(text: str) -> re.Match[str] | None:
    """A line of a traceback that names a file."""
    return _FRAME.match(text)


def _is_kept(name: str, text: str, is_engine: bool, known: LogLines) -> bool:
    if _MACHINE.fullmatch(name):
        return not (_OF_FILES.search(name) and _SENTENCE.search(text))
    said = text.partition(": ")[2]
    return is_engine or _OF_THE_MACHINE.match(said) is not None or knows(text, known)


def knows(text: str, known: LogLines) -> bool:
    """Whether it is a line that the rules know."""
    text = text[:_MOST]
    raw = text.encode()
    for place, find in enumerate(known.finds):
        if find in raw:
            for line in known.of_find[place]:
                with suppress(TimeoutError):
                    if line.values(text) is not None:
                        return True
    return False


def _name(text: str, found: re.Match[str]) -> str:
    """The whole name of the type of which the end was found."""
    before = text[max(0, found.start() - 200) : found.start()]
    return before[len(before.rstrip(_OF_NAMES)) :] + found[1]


def _ends(this: Record, words: str, hides: tuple[str, Stamp | None]) -> bool:
    """Whether the record is another than the one whose message is hidden."""
    if _TRACEBACK in words or words.startswith(_CHAINED):
        return True
    source, began = hides
    if this.stamp is not None and began is not None and abs(_of_day(this.stamp) - _of_day(began)) > _PATIENCE:
        return True
    return this.source != source if this.level else _UVICORN.match(this.message) is not None


def _of_day(stamp: Stamp) -> float:
    return stamp.hour * 3600 + stamp.minute * 60 + stamp.second


def is_of_engine(frame: re.Match[str]) -> bool:
    """Whether it is code in which nobody reads a request."""
    path, function = frame["path"], frame["function"] or ""
    ours = path.rpartition("/vllm/")[2] if "/vllm/" in path else None
    if ours is not None:
        ours = re.sub(r"^vllm_\w+/", "", ours)  # a platform's plugin
        return _VLLM.fullmatch(ours) is not None or (
            _STARTS.fullmatch(ours) is not None and _START.fullmatch(function) is not None
        )
    package = re.split(r"/(?:site|dist)-packages/", path)
    if len(package) > 1:
        return _PACKAGE.match(package[-1]) is not None
    return _STDLIB.search(path) is not None or _SCRIPT.fullmatch(path) is not None


def is_of_start(frame: re.Match[str]) -> bool:
    """Whether it is code that makes the engine: there is no request yet."""
    ours = frame["path"].rpartition("/vllm/")[2] if "/vllm/" in frame["path"] else ""
    return _MAKES.fullmatch(ours) is not None and _MAKING.fullmatch(frame["function"] or "") is not None


def _without(line: str, message: str, cut: int) -> str:
    """The line without what follows the first `cut` characters of its message; what wraps it stays whole."""
    if cut == 0:
        begin = message[:_SEEN].strip()
        at = line.find(begin) if begin else -1
    else:
        kept = message[max(0, cut - _SEEN) : cut].rstrip()
        at = line.find(kept)
        at += len(kept) if at >= 0 else 0
    if at < 0:  # as its wrapper writes it, it is not found
        return MASK
    is_json = line.lstrip()[:1] == "{" and line.strip() != message.strip()
    end = _STRING.match(line, at).end() if is_json else len(line)  # type: ignore[union-attr]
    space = " " if cut else ""
    newline = "\\n" if is_json and line[:end].endswith("\\n") else ""
    return f"{line[:at]}{space}{MASK}{newline}{line[end:]}"
