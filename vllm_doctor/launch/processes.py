"""The processes that a written command starts, and the cores that they want: what host.py counts where they run."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_doctor.launch import dated
from vllm_doctor.launch.start import Start
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import flags

_TENSOR, _PIPELINE, _DATA = "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"
_API_SERVERS = "--api-server-count"
_COUNTS = (_TENSOR, _PIPELINE, _DATA, "--nnodes")
_ELSEWHERE = frozenset(
    {
        "--data-parallel-backend",
        "--data-parallel-address", "--data-parallel-external-lb", "--data-parallel-hybrid-lb",
        "--data-parallel-multi-port-external-lb", "--data-parallel-rank", "--data-parallel-rpc-port",
        "--data-parallel-size-local", "--data-parallel-start-rank", "--headless", "--node-rank",
    }
)  # fmt: skip
"""With one of these the engines of a start are shared with other starts."""
_MOST = 10_000


def facts(start: Start) -> dict[str, Reading]:
    """api_servers, engine_cores, workers, coordinators and cores_terms as host.py has them, of a start on one host;
    data_parallel_elsewhere; cores_usable, where the text limits or asks for CPUs. What cannot be told is left out."""
    found: dict[str, Value] = {}
    granted = start.resources.cpu_limit or start.resources.cpu_request
    if granted is not None:
        found["cores_usable"] = granted
    given = start.command.flags
    named = {*given, *start.unknown_flags}
    if not start.is_open:
        found["data_parallel_elsewhere"] = bool(_ELSEWHERE & named)
    counts = None if start.is_open else _counts(start)
    if counts is not None and not _ELSEWHERE & named and given.get("--distributed-executor-backend") != "ray":
        found |= counts
    origins = {"cores_usable": "manifest"}
    return {name: Known(value, origin=origins.get(name, "cmdline")) for name, value in found.items()}


def _counts(start: Start) -> dict[str, Value] | None:
    sizes = [_size(start, flag) for flag in _COUNTS]
    asked = _size(start, _API_SERVERS)
    if None in sizes or asked is None:
        return None
    tensor, pipeline, data, hosts = (size or 1 for size in sizes)
    if hosts > 1:
        return None
    # From 0.15 on there are as many API servers as engines.
    version = flags.release(dated.version(start))
    is_one = version is not None and version < (0, 15, 0)
    servers = asked if _API_SERVERS in start.command.flags or is_one else data
    workers = tensor * pipeline * data
    coordinators = 1 if data > 1 else 0
    return {
        "api_servers": float(servers),
        "engine_cores": float(data),
        "workers": float(workers),
        "coordinators": float(coordinators),
        "cores_terms": _terms(servers, data, workers, coordinators),
    }


def _size(start: Start, flag: str) -> int | None:
    """The whole number given with the flag, 1 where it is not; None where it is none, or not in the text."""
    value = start.command.flags.get(flag, 1.0)
    is_size = type(value) is float and 1 <= value <= _MOST and value == int(value)
    return int(value) if is_size and isinstance(value, float) and flag not in start.unknown_flags else None


def _terms(servers: int, engines: int, workers: int, coordinators: int) -> str:
    named: Mapping[str, int] = {"API server": servers, "engine core": engines, "worker": workers}
    terms = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in named.items()]
    return " + ".join([*terms, *(["1 coordinator"] if coordinators else [])])
