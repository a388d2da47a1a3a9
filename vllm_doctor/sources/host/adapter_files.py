"""The LoRA adapters that a server is started with, as their files tell: the rank of the largest.

Their adapter_config.json is read as the server sees it, from the folders that its command names; no weights are opened.
"""

from __future__ import annotations

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.process import ServerProcess
from vllm_doctor.sources.host.process_files import ProcessFiles
from vllm_doctor.vllm import adapters, model_config


def facts(server: ServerProcess) -> dict[str, Reading]:
    """lora_rank_largest, where the command names adapters; unknown as a whole where one of them cannot be read."""
    given = server.command.flags.get(adapters.FLAG)
    if not isinstance(given, str) or not adapters.paths(given):
        return {}
    if server.files is None:
        return {"lora_rank_largest": Unknown(Reason.NOT_LOCAL)}
    return {"lora_rank_largest": _largest(server.files, adapters.paths(given))}


def _largest(files: ProcessFiles, paths: tuple[str, ...]) -> Reading:
    largest = 0.0
    for path in paths:
        text = files.text(f"{path}/{adapters.FILE}", model_config.MAX_SIZE)
        config = text if isinstance(text, Reason) else model_config.parse(text)
        if isinstance(config, Reason):
            return Unknown(config)
        rank = adapters.rank(config)
        if rank is None:
            return Unknown(Reason.INVALID)
        largest = max(largest, rank)
    return Known(largest, origin=model_config.ORIGIN)
