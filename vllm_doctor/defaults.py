"""vLLM's own defaults where they depend on the device: engine/arg_utils.py, get_batch_defaults, 0.28 to 0.33."""

from __future__ import annotations

from vllm_doctor.flags import release

_SINCE, _UNTIL = (0, 28, 0), (0, 33, 0)
_GIB = 1024**3
_LARGE, _MEDIUM = 160 * _GIB, 70 * _GIB


def max_num_seqs(version: str, memory: float | None, name: str, world_size: int) -> int | None:
    """The --max-num-seqs of a server that was not told; None where this version's rule is not known.

    `memory`: bytes of a GPU, None on the CPU backend. `name`: the GPU's. `world_size`: tensor times pipeline parallel.
    """
    asked = release(version)
    if asked is None or not _SINCE <= asked <= _UNTIL:
        return None
    if memory is None:
        return 128 * world_size
    is_large = memory >= _LARGE or (memory >= _MEDIUM and "a100" not in name.lower())
    return 1024 if is_large else 256
