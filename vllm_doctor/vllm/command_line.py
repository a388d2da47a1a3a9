"""A vLLM server's command line, read as vLLM's own parser reads it: flags, model, and its --config file.

Pure but for the given way to read that file. Secrets are masked before anything else is done with the words.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.text import redact, secret_names
from vllm_doctor.vllm import flags as catalogue
from vllm_doctor.vllm import nested_flags

MASK = redact.MASK
MAX_CONFIG = 1_000_000  # characters of a --config file

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?(-dbg)?")
_PYTHON_TAKES_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_API_SERVER = re.compile(r"vllm\.entrypoints\.(([\w.]+\.)?api_server(\.entry)?|grpc_server)")
_COMMANDS = frozenset({"vllm", "vllm.entrypoints.cli.main", "vllm.scripts"})
_SCRIPT = re.compile(
    r"(?:^|/)(vllm/entrypoints/(?:[\w/]{1,200}/)?api_server|vllm/entrypoints/cli/main|vllm/scripts)\.py$"
)
_CONSOLE_SCRIPTS = frozenset({"vllm", ".vllm-wrapped"})


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHORT: Mapping[str, str] = {
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-dc": "--diffusion-config",
    "-dcp": "--decode-context-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpa": "--data-parallel-address",
    "-dpb": "--data-parallel-backend",
    "-dpe": "--data-parallel-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dpn": "--data-parallel-rank",
    "-dpp": "--data-parallel-rpc-port",
    "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-pcp": "--prefill-context-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-r": "--node-rank",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
}
_OPTIMIZE = "-O"
_ALIASES: Mapping[str, str] = {"--device-memory-utilization": "--gpu-memory-utilization"}

_SWITCH_PREFIXES = ("--enable-", "--disable-", "--return-", "--trust-")
_NO_SWITCHES = frozenset({"--disable-access-log-for-endpoints"})
_SWITCHES = _names("""
    --aggregate-engine-logging --allow-credentials --allow-deprecated-quantization --async-scheduling
    --calculate-kv-scales --cohere-is-reasoning-model --cudagraph-metrics --data-parallel-external-lb
    --data-parallel-hybrid-lb --data-parallel-multi-port-external-lb --dcp-q-replicate --dry-run --enforce-eager
    --engine-use-ray --eplb-log-balancedness --exclude-tools-when-tool-choice-none
    --expand-tools-even-if-tool-choice-none --fail-on-environ-validation --fully-sharded-loras --grpc
    --guided-decoding-disable-additional-properties --guided-decoding-disable-any-whitespace
    --guided-decoding-disable-fallback --headless --interleave-mm-strings --jit-monitor-verbose --kv-cache-metrics
    --kv-sharing-fast-prefill --language-model-only --log-error-stack --long-prefill-token-threshold-adaptive
    --monokernel --sleep-mode-offload-cudagraph
    --mm-device-do-normalize --mm-encoder-only --multi-step-stream-outputs --numa-bind --ray-workers-use-nsight
    --scheduler-reserve-full-isl --skip-mm-profiling --skip-tokenizer-init --specialize-active-lora
    --swa-bounded-replay --tokens-only --use-fp64-gumbel
    --use-gpu-for-pooling-score --use-replayssm --use-tqdm-on-load --use-v2-block-manager
    --worker-use-ray --omni
""")  # what takes no value: the shipped list of flags knows names only, and a model may come after one
_LISTS = _names("""
    --allowed-media-domains --api-key --collect-detailed-traces --cpu-offload-params --cuda-graph-sizes
    --cudagraph-capture-sizes --ignore-patterns --kv-cache-dtype-skip-layers --logits-processors
    --long-lora-scaling-factors --lora-modules --lora-target-modules --numa-bind-cpus --numa-bind-nodes
    --offload-params --prompt-adapters --served-model-name --sleep-preserve-parameter-names
""")
_TEXTS = _LISTS | _names("""
    --code-revision --device-ids --download-dir --fingerprint-value --hf-config-path --host --model --revision
    --root-path --spec-model --speculative-model --tokenizer --tokenizer-revision --uds
""")  # names, also where a name looks like a number
_HUMAN = _names("""
    --kv-cache-memory-bytes --max-model-len --max-num-batched-tokens --max-num-queued-tokens
    --max-num-scheduled-tokens --safetensors-prefetch-block-size
""")  # vLLM reads "2k" there
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_HUMAN_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_BYTES = re.compile(r"(\d+(?:\.\d+)?) ?([kKmMgGtT])(i?)[bB]")
"""As people write it ("16GiB"), which vLLM's parser does not take."""
_FACTOR = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

ReadConfig = Callable[[str], str | Reason]


@dataclass(frozen=True)
class Command:
    """How a server was started, without its secrets.

    `program` is "vllm serve" or "python -m MODULE", "" for a program that is not vLLM's own. `flags`: long names in
    kebab case; a number as float, a switch as True or False, a list joined by spaces, JSON as text; a dotted name
    ("--compilation-config.mode") stays as it is. The command line wins over the --config file.
    """

    argv: tuple[str, ...]
    program: str = ""
    model: str | None = None
    flags: Mapping[str, Value] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    config: str | None = None
    """The --config file that was read."""
    config_keys: Mapping[str, str] = field(default_factory=dict)
    """The flags that stand in that file and count, with their keys there."""
    strange_keys: tuple[str, ...] = ()
    """Keys of that file that are flags of no vLLM. What they hold is not kept: the file may be of another program."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The words from `start` to before `end` become these; `name`: of the setting they are about."""

    start: int
    end: int
    words: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class _Word:
    """A flag with the text after its "=", or, where `flag` is "", a text of its own."""

    flag: str
    text: str | None


def is_python(argv: Sequence[str]) -> bool:
    """Whether the command is a Python interpreter."""
    return bool(argv) and _PYTHON.fullmatch(posixpath.basename(argv[0])) is not None


def program_of(argv: Sequence[str]) -> tuple[str, int] | None:
    """The vLLM server program that this command runs, and where its own arguments begin; None for any other.

    Told by structure: a shell, an editor or `docker run` with "vllm serve" among its arguments is no server.
    """
    at = _script_at(argv) if is_python(argv) else 0
    if at is None or at >= len(argv):
        return None
    if argv[at] == "-m":
        module = argv[at + 1] if at + 1 < len(argv) else ""
        if _API_SERVER.fullmatch(module):
            return f"python -m {module}", at + 2
        return _serve(argv, at + 2) if module in _COMMANDS else None
    script = _SCRIPT.search(argv[at])
    if script and script[1].endswith("api_server"):
        return f"python -m {script[1].replace('/', '.')}", at + 1
    if script or posixpath.basename(argv[at]) in _CONSOLE_SCRIPTS:
        return _serve(argv, at + 1)
    return None


def parse(argv: Sequence[str], read_config: ReadConfig) -> Command:
    """The command line with what its --config file adds. Never raises: what cannot be read becomes a note."""
    program = program_of(argv)
    clean = tuple(_without_secrets(argv))
    if program is None:
        return Command(clean)
    name, start = program
    found = _Settings()
    found.take(_words(clean[start:]))
    inline, path = found.config_inline, found.flags.get("--config")
    from_file = _Settings()
    if inline:
        found.notes.append("--config=FILE: vLLM reads the file only from `--config FILE`")
    elif isinstance(path, str):
        from_file.take_config(path, read_config)
    flags = {**from_file.flags, **found.flags}
    model = found.model or _text(found.flags.get("--model")) or _text(from_file.flags.get("--model"))
    keys = {flag: key for flag, key in from_file.keys.items() if flag not in found.flags}
    config = path if isinstance(path, str) and from_file.keys else None
    strange = tuple(from_file.strange_keys)
    return Command(clean, name, model, flags, tuple(found.notes + from_file.notes), config, keys, strange)


def changed(argv: Sequence[str], set: Mapping[str, Sequence[str]], unset: Collection[str]) -> tuple[str, ...]:
    """The command line with these flags set, each where it stood or at the end, and those left out.

    A dotted name (--speculative-config.num_speculative_tokens) is changed within the JSON that holds it.
    `set`: long name -> the words that set it (("--x", "7")). A command that is not vLLM's stays as it is.
    """
    now, at = [], 0
    for edit in edits(argv, set, unset):
        now += [*argv[at : edit.start], *edit.words]
        at = edit.end
    return (*now, *argv[at:])


def edits(argv: Sequence[str], set: Mapping[str, Sequence[str]], unset: Collection[str]) -> list[Edit]:
    """What `changed` does, in the order of the places."""
    program = program_of(argv)
    if program is None:
        return []
    found: list[Edit] = []
    at, still = program[1], dict(set)
    for word, texts in _grouped(_words(argv[at:])):
        end = at + 1 + len(texts)
        text = word.text if word.text is not None else " ".join(texts)
        inner = [n for n in dict.fromkeys((*set, *unset)) if word.flag and n.startswith(f"{word.flag}.")]
        within = {n.removeprefix(f"{word.flag}."): set[n][-1] if n in set else None for n in inner}
        if within and (rewritten := nested_flags.rewritten(text, within)) is not None:
            flag = argv[at].partition("=")[0]
            found.append(Edit(at, end, (flag, rewritten) if rewritten != "{}" else (), inner[0]))
            found += [Edit(end, end, (), n) for n in inner[1:]]
            still = {n: words for n, words in still.items() if n not in inner}
            at = end
            continue
        name = _setting(word.flag, word.text if word.text is not None else " ".join(texts) or None)
        if name in set:  # where it stands twice, the last counts: one is enough
            found.append(Edit(at, end, tuple(still.pop(name, ())), name))
        elif word.flag and (name in unset or word.flag in unset):
            found.append(Edit(at, end, (), name if name in unset else word.flag))
        at = end
    return [*found, *(Edit(at, at, tuple(words), name) for name, words in still.items())]


def masked(text: str) -> str:
    """The text without what looks like a secret: credentials in a URL, keys in JSON, KEY=…, well-known tokens."""
    return redact.secrets(text, Counter())


def _script_at(argv: Sequence[str]) -> int | None:
    """Where the interpreter's own options end: at "-m" or the script; None for `python -c` and a prompt."""
    at = 1
    while at < len(argv):
        word = argv[at]
        if word == "-m" or not word.startswith("-"):
            return at
        if word == "-" or re.match(r"-[a-zA-Z]*c", word):
            return None
        at += 2 if word in _PYTHON_TAKES_VALUE else 1
    return None


def _serve(argv: Sequence[str], at: int) -> tuple[str, int] | None:
    return ("vllm serve", at + 1) if at < len(argv) and argv[at] == "serve" else None


def _word(text: str) -> _Word:
    if text.startswith("--") and len(text) > 2:
        name, equals, value = text.partition("=")
        return _Word(_long_name(name), value if equals else None)
    if text.startswith(_OPTIMIZE):
        rest = text[2:]
        if rest.startswith("."):  # -O.mode=3, as -cc.mode=3
            return _word("-cc" + rest)
        return _Word(_OPTIMIZE, rest.removeprefix("=") or None)
    name, equals, value = text.partition("=")
    short, dot, inner = name.partition(".")
    if short in _SHORT:
        return _Word(_SHORT[short] + dot + inner, value if equals else None)
    if text[:2] in _SHORT and text[2:]:  # -qawq
        return _Word(_SHORT[text[:2]], text[2:])
    return _Word("", text)


def _long_name(name: str) -> str:
    """The canonical name: dashes before the first dot, whole where the start of one known flag was written."""
    base, dot, inner = name.partition(".")
    base = base.replace("_", "-")
    if not catalogue.is_flag(base):
        longer = [flag for flag in catalogue.names() if flag.startswith(base)]
        base = longer[0] if len(longer) == 1 else base
    return _ALIASES.get(base, base) + dot + inner


def _words(argv: Sequence[str]) -> list[_Word]:
    return [_word(text) for text in argv]


def without_secrets(argv: Sequence[str]) -> list[str]:
    """The words, with secrets masked."""
    return list(_without_secrets(argv))


def flag_of_key(key: str) -> str:
    """The flag that a key of a --config file sets."""
    return _long_name(f"--{key}")


def _without_secrets(argv: Sequence[str]) -> Iterator[str]:
    hide, all_of_it = False, False
    for text in argv:
        word = _word(text)
        if word.flag:
            hide = is_secret(word.flag)
            all_of_it = word.flag == "--api-key"
            if hide and word.text is not None:
                yield text.partition("=")[0] + "=" + MASK
                hide = False
            else:
                yield masked(text)
        elif hide:
            yield MASK
            hide = all_of_it
        else:
            yield masked(text)


def is_secret(flag: str) -> bool:
    """Whether the flag's value is a secret."""
    return secret_names.is_secret(flag) and not _is_switch(flag)


def _is_switch(flag: str) -> bool:
    return flag in _SWITCHES or (flag.startswith(_SWITCH_PREFIXES) and flag not in _NO_SWITCHES)


class _Settings:
    """Flags and model, taken word by word."""

    def __init__(self) -> None:
        self.flags: dict[str, Value] = {}
        self.model: str | None = None
        self.config_inline = False
        self.notes: list[str] = []
        self.keys: dict[str, str] = {}
        """Flag -> its key in the --config file."""
        self.strange_keys: list[str] = []

    def take(self, words: Sequence[_Word]) -> None:
        for word, texts in _grouped(words):
            if not word.flag:
                self.model = self.model or word.text
            elif word.text is not None:
                self.config_inline |= word.flag == "--config"
                self._set(word.flag, word.text)
            else:
                self._set(word.flag, " ".join(texts) if texts else None)

    def take_config(self, path: str, read_config: ReadConfig) -> None:
        """The flags of a --config file; a note where it cannot be read."""
        text = read_config(path)
        if isinstance(text, Reason):
            self.notes.append(f"--config {path}: not read ({text}), so its flags are not known")
            return
        from vllm_doctor.vllm import config_file  # late: YAML takes a while to import

        try:
            if len(text) > MAX_CONFIG:
                raise ValueError("larger than 1 MB")
            config = config_file.parsed(text)
        except ValueError as error:
            self.notes.append(f"--config {path}: not read ({error}), so its flags are not known")
            return
        for key, value in config.items():
            flag = flag_of_key(key)
            if not catalogue.is_flag(flag.partition(".")[0]):
                self.strange_keys.append(key)
                continue
            self.keys[flag] = key
            self._set_from_config(flag, value)

    def _set_from_config(self, flag: str, value: object) -> None:
        if value is None or value == []:
            return
        if isinstance(value, bool):
            self.flags[flag] = value
            return
        if isinstance(value, dict):
            text = json.dumps(value, default=str)
        else:
            text = " ".join(str(item) for item in value) if isinstance(value, list) else str(value)
        self._set(flag, MASK if is_secret(flag) else masked(text))

    def _set(self, flag: str, text: str | None) -> None:
        name = _setting(flag, text)
        self.flags[name] = name == flag if text is None else _value(name, text)


def _setting(flag: str, text: str | None) -> str:
    """The name of what a flag sets: --x of --no-x, and of --disable-y, where that only turns --enable-y off."""
    if flag == _OPTIMIZE:
        return "--compilation-config" if (text or "").lstrip().startswith("{") else "--optimization-level"
    if text is None and flag.startswith("--no-"):
        return "--" + flag.removeprefix("--no-")
    if text is None and flag.startswith(("--disable-", "--enable-")):
        turned = catalogue.flag(catalogue.newest(), flag)
        return turned.name if turned and flag in turned.off else flag
    return flag


def _grouped(words: Sequence[_Word]) -> Iterator[tuple[_Word, list[str]]]:
    """Each flag with the texts that are its values; a text that belongs to no flag comes alone."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        texts: list[str] = []
        if word.flag and word.text is None and not word.flag.startswith("--no-"):
            texts = [_plain(word) for word in _texts(words[at:])]
            if _is_switch(word.flag):
                texts = texts[:1] if texts and texts[0].lower() in ("true", "false") else []
            elif word.flag not in _LISTS:
                texts = texts[:1]
        at += len(texts)
        yield word, texts


def _texts(words: Sequence[_Word]) -> Iterator[_Word]:
    for word in words:
        if word.flag:
            return
        yield word


def _plain(word: _Word) -> str:
    return word.text or ""


def _text(value: Value | None) -> str | None:
    return value if isinstance(value, str) else None


def _value(flag: str, text: str) -> Value:
    dotted = "." in flag
    if flag in _TEXTS:
        return text
    if (dotted or _is_switch(flag)) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if flag == "--max-model-len" and text.lower() == "auto":
        return -1.0
    if dotted or flag in _HUMAN:
        number = _human(text)
        if number is not None:
            return number
    given = outside.number(text) if _NUMBER.fullmatch(text) else None
    return text if given is None else given


def _human(text: str) -> float | None:
    """ "2k" is 2000 and "2K" is 2048; "2.5k" is 2500, and "2.5K" is nothing that vLLM would take."""
    match = _HUMAN_NUMBER.fullmatch(text)
    if match is None and (said := _BYTES.fullmatch(text)) is not None:
        return _human(said[1] + (said[2].upper() if said[3] else said[2].lower()))
    if match is None or (match[2].isupper() and "." in match[1]):
        return None
    number = outside.number(match[1])
    return None if number is None else float(int(number * _FACTOR[match[2]]))
