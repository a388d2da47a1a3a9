"""The model that a server runs, as its files tell: how large its weights are, and what its config.json says.

The files are read as the server sees them, from the folder it was given or from its Hugging Face cache; nothing is
downloaded, and no weights are opened.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from vllm_doctor.signal import Known, Reading, Reason, Unknown, Value
from vllm_doctor.sources.kernel import Kernel, table
from vllm_doctor.sources.process import ServerProcess
from vllm_doctor.sources.process_files import ProcessFiles

MAX_CONFIG = 1_000_000  # bytes of a config.json
ORIGIN = "model-files"

_WEIGHTS = (".safetensors", ".bin", ".gguf")  # the first kind that is there, as vLLM loads them
_NO_WEIGHTS = frozenset({"training_args.bin", "optimizer.bin", "scheduler.bin"})
_COPY = "consolidated"  # Mistral's second copy of the same weights

_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "attention_heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "hidden_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "model_context": ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length"),
}
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_QUANTIZATIONS = ("quantization_config", "compression_config")
_SENSES = frozenset(
    {"vision_config", "audio_config", "video_config", "visual", "vision_tower", "mm_vision_tower", "img_processor"}
)
_MULTIMODAL = re.compile(r"VL(?=[A-Z0-9]|Model|For|$)|Vision|Llava|Audio|Omni|Whisper|PaliGemma|Pixtral|MultiModal")

_FACTS = (*_NUMBERS, "kv_heads", "model_dtype", "model_quantization", "model_experts", "multimodal")


def facts(kernel: Kernel, server: ServerProcess) -> dict[str, Reading]:
    """What the model's files say.

    model_weights (bytes); attention_heads, kv_heads, hidden_layers, hidden_size, model_context (tokens),
    model_experts (0: none); model_dtype and model_quantization ("none") as text; multimodal (flag).
    """
    if not server.root:
        return dict.fromkeys(("model_weights", *_FACTS), Unknown(Reason.NOT_LOCAL))
    files = ProcessFiles(kernel, server.root)
    folder = _folder(kernel, files, server)
    if isinstance(folder, Reason):
        return dict.fromkeys(("model_weights", *_FACTS), Unknown(folder))
    given = server.command.flags.get("--hf-config-path")
    described = _described(files, given if isinstance(given, str) else _parent_of_file(folder))
    return {"model_weights": _weights(files, folder), **described}


def _folder(kernel: Kernel, files: ProcessFiles, server: ServerProcess) -> str | Reason:
    """Where the model's files are, as the server sees them: a folder, or one GGUF file."""
    if server.model_path is not None:
        return server.model_path
    model = server.command.model
    if model is None or "://" in model:  # s3://… is read from afar, and kept nowhere
        return Reason.ABSENT
    if model.endswith(".gguf"):
        return files.absolute(model)
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model):
        return Reason.ABSENT
    cache = _cache(kernel, files, server)
    if isinstance(cache, Reason):
        return cache
    return _snapshot(files, f"{cache}/models--{model.replace('/', '--')}", server.command.flags.get("--revision"))


def _cache(kernel: Kernel, files: ProcessFiles, server: ServerProcess) -> str | Reason:
    """The Hugging Face cache of the server: what huggingface_hub's own constants say, in their order."""
    given = server.command.flags.get("--download-dir")
    if isinstance(given, str):
        return given
    environ = server.environ
    if isinstance(environ, Reason):
        return environ
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "/hub"),
        ("XDG_CACHE_HOME", "/huggingface/hub"),
    ):
        if environ.get(name):
            return _expanded(environ[name], environ) + below
    home = environ.get("HOME") or _home(kernel, files, server)
    return home if isinstance(home, Reason) else f"{home}/.cache/huggingface/hub"


def _expanded(path: str, environ: Mapping[str, str]) -> str:
    return environ.get("HOME", "~") + path[1:] if path.startswith("~/") else path


def _home(kernel: Kernel, files: ProcessFiles, server: ServerProcess) -> str | Reason:
    """The home of the server's user, by the users that the server itself sees."""
    status = kernel.text(f"proc/{server.root}/status")
    if isinstance(status, Reason):
        return status
    users = files.text("/etc/passwd")
    if isinstance(users, Reason):
        return users
    uid = table(status).get("Uid", "").partition("\t")[0]
    entries = (line.split(":") for line in users.splitlines())
    return next((entry[5] for entry in entries if len(entry) > 5 and entry[2] == uid), Reason.ABSENT)


def _snapshot(files: ProcessFiles, folder: str, revision: Value | None) -> str | Reason:
    """The snapshot in use: of the revision asked for, of `main`, or the newest."""
    wanted = revision if isinstance(revision, str) else "main"
    snapshots = f"{folder}/snapshots"
    names = files.names(snapshots)
    if isinstance(names, Reason):
        return names
    if ".." in wanted:
        return Reason.ABSENT
    commit = files.text(f"{folder}/refs/{wanted}", 1000)
    found = wanted if isinstance(commit, Reason) else commit.strip()
    if found in names:
        return f"{snapshots}/{found}"
    if isinstance(revision, str) or not names:
        return Reason.ABSENT
    return max((f"{snapshots}/{name}" for name in names), key=files.changed)


def _parent_of_file(path: str) -> str:
    return path.rpartition("/")[0] if path.endswith(".gguf") else path


def _weights(files: ProcessFiles, place: str) -> Reading:
    """Bytes of the files that vLLM loads."""
    if place.endswith(".gguf"):
        return _total([files.size(place)])
    names = files.names(place)
    if isinstance(names, Reason):
        return Unknown(names)
    for ending in _WEIGHTS:
        found = [name for name in names if name.endswith(ending) and name not in _NO_WEIGHTS]
        shards = [name for name in found if not name.startswith(_COPY)] or found
        if shards:
            return _total(files.size(f"{place}/{name}") for name in shards)
    return Unknown(Reason.ABSENT)


def _total(sizes: Iterable[int | Reason]) -> Reading:
    total = 0
    for size in sizes:
        if isinstance(size, Reason):
            return Unknown(size)  # half a model's size would be worse than none
        total += size
    return Known(float(total), origin=ORIGIN)


def _described(files: ProcessFiles, folder: str) -> dict[str, Reading]:
    """What config.json says."""
    config = _json(files, f"{folder}/config.json")
    if isinstance(config, Reason):
        return dict.fromkeys(_FACTS, Unknown(config))
    text = _text_part(config)
    found = {name: _number(text, keys) for name, keys in _NUMBERS.items()}
    kv_heads = _number(text, _KV_HEADS)
    if kv_heads == Unknown(Reason.ABSENT):
        kv_heads = Known(1.0, origin=ORIGIN) if text.get("multi_query") is True else found["attention_heads"]
    experts = _number(text, _EXPERTS)
    return found | {
        "kv_heads": kv_heads,
        "model_dtype": _word(_first((text, config), ("torch_dtype", "dtype"))),
        "model_quantization": _quantization(files, folder, (text, config)),
        "model_experts": Known(0.0, origin=ORIGIN) if experts == Unknown(Reason.ABSENT) else experts,
        "multimodal": Known(_is_multimodal(config), origin=ORIGIN),
    }


def _json(files: ProcessFiles, path: str) -> dict[str, Any] | Reason:
    text = files.text(path, MAX_CONFIG)
    if isinstance(text, Reason):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return Reason.INVALID
    return found if isinstance(found, dict) else Reason.INVALID


def _text_part(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of the config, with what only the whole says."""
    found = config
    for _ in range(2):  # thinker_config has a text_config of its own
        inner = next((found[key] for key in _TEXT_PARTS if isinstance(found.get(key), dict)), None)
        if inner is None:
            break
        found = found | inner
        for key in _TEXT_PARTS:
            if key not in inner:
                found.pop(key, None)
    return found


def _first(configs: Iterable[Mapping[str, Any]], keys: Iterable[str]) -> Any:
    return next((config[key] for config in configs for key in keys if config.get(key) is not None), None)


def _number(config: Mapping[str, Any], keys: Iterable[str]) -> Reading:
    value = _first((config,), keys)
    if value is None:
        return Unknown(Reason.ABSENT)
    if type(value) not in (int, float) or not 0 <= value < 2**53 or not math.isfinite(value):
        return Unknown(Reason.INVALID)
    return Known(float(value), origin=ORIGIN)


def _word(value: Any) -> Reading:
    if value is None:
        return Unknown(Reason.ABSENT)
    if not isinstance(value, str) or not value.isprintable():
        return Unknown(Reason.INVALID)
    return Known(value.removeprefix("torch.")[:100], origin=ORIGIN)


def _quantization(files: ProcessFiles, folder: str, configs: Iterable[Mapping[str, Any]]) -> Reading:
    """How the weights are stored: quant_method of config.json, or ModelOpt's own file; "none"."""
    found = _first(configs, _QUANTIZATIONS)
    if isinstance(found, dict):
        return _word(found.get("quant_method"))
    other = _json(files, f"{folder}/hf_quant_config.json")
    is_modelopt = not isinstance(other, Reason) and isinstance(other.get("quantization"), dict)
    return Known("modelopt" if is_modelopt else "none", origin=ORIGIN)


def _is_multimodal(config: Mapping[str, Any]) -> bool:
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    parts = [config, *(part for key in _TEXT_PARTS if isinstance(part := config.get(key), dict))]
    return any(part.get(sense) for part in parts for sense in _SENSES) or any(
        isinstance(name, str) and _MULTIMODAL.search(name) is not None for name in names
    )
