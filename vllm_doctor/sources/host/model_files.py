"""The model that a server runs, as its files tell: how large its weights are, and what its config.json says.

The files are read as the server sees them, from the folder it was given or from its Hugging Face cache; nothing is
downloaded, and no weights are opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel, table
from vllm_doctor.sources.host.process import ServerProcess
from vllm_doctor.sources.host.process_files import ProcessFiles
from vllm_doctor.vllm import kv_cache, model_config, parameters
from vllm_doctor.vllm.model_config import ORIGIN

_WEIGHTS = (".safetensors", ".bin", ".gguf")  # the first kind that is there, as vLLM loads them
_NO_WEIGHTS = frozenset({"training_args.bin", "optimizer.bin", "scheduler.bin"})
_COPY = "consolidated"  # Mistral's second copy of the same weights

_FACTS = (*model_config.FACTS, *kv_cache.FACTS, *parameters.FACTS)


def facts(kernel: Kernel, server: ServerProcess) -> dict[str, Reading]:
    """What the model's files say: model_weights (bytes), and the facts of model_config, kv_cache and parameters."""
    files = server.files
    if files is None:
        return dict.fromkeys(("model_weights", *_FACTS), Unknown(Reason.NOT_LOCAL))
    folder = _folder(kernel, files, server)
    if isinstance(folder, Reason):
        return dict.fromkeys(("model_weights", *_FACTS), Unknown(folder))
    given = server.command.flags.get("--hf-config-path")
    described = _described(files, given if isinstance(given, str) else _parent_of_file(folder), server.command.flags)
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


def _described(files: ProcessFiles, folder: str, flags: Mapping[str, Value]) -> dict[str, Reading]:
    """What config.json says, and what follows from it for the KV cache with these flags."""
    config = _json(files, f"{folder}/config.json")
    if isinstance(config, Reason):
        return dict.fromkeys(_FACTS, Unknown(config))
    modelopt = _json(files, f"{folder}/hf_quant_config.json")
    config = model_config.overridden(config, flags.get("--hf-overrides"))
    told = model_config.facts(config, None if isinstance(modelopt, Reason) else modelopt)
    return told | kv_cache.facts(config, flags) | parameters.facts(config)


def _json(files: ProcessFiles, path: str) -> dict[str, Any] | Reason:
    text = files.text(path, model_config.MAX_SIZE)
    return text if isinstance(text, Reason) else model_config.parse(text)
