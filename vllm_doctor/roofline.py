"""How fast the hardware could be: the time of a step if memory bandwidth, or computing, were its only limit. Pure.

Lower bounds. What they leave out makes a real step longer: communication between GPUs, attention's own computation,
sampling, launches, and the part of a data sheet's figure that no kernel reaches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "data" / "gpus.tsv"
_GIGA, _TERA = 1e9, 1e12
_GIB = 1024.0**3
_MEMORY_FITS = 0.1
"""How far a GPU's memory may be from its data sheet's: ECC and the driver keep some."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One line of data/gpus.tsv: bytes and operations a second, not GB and TFLOPS."""

    pattern: str
    bandwidth: float
    bf16: float | None
    """Dense, accumulated in FP32; FP16 for a GPU without BF16."""
    fp8: float | None
    memory: float | None
    """Bytes; a data sheet's GB are GiB."""
    capability: str | None
    source: str


def gpu(name: str, memory: float | None = None) -> Gpu | None:
    """The GPU that the driver calls this, of this many bytes; None where we do not know it, or it is a part of one."""
    for known in gpus():
        fits = memory is None or known.memory is None or abs(memory / known.memory - 1) <= _MEMORY_FITS
        if fits and re.search(known.pattern, name, re.IGNORECASE):
            return known
    return None


@cache
def gpus() -> tuple[Gpu, ...]:
    """All that data/gpus.tsv knows."""
    lines = _FILE.read_text("utf-8").splitlines()
    return tuple(_gpu(line) for line in lines if not line.startswith("#"))


def _gpu(line: str) -> Gpu:
    pattern, bandwidth, bf16, fp8, memory, capability, source = line.split("\t")
    return Gpu(
        pattern,
        float(bandwidth) * _GIGA,
        _number(bf16, _TERA),
        _number(fp8, _TERA),
        _number(memory, _GIB),
        None if capability == "-" else capability,
        source,
    )


def _number(text: str, factor: float) -> float | None:
    return None if text == "-" else float(text) * factor


def experts_read(experts: int, per_token: int, tokens: float) -> float:
    """How many of a layer's experts a step of so many tokens reads, if each token chooses evenly and by itself.

    Real routers are uneven and read fewer; a batch of one reads `per_token`.
    """
    if experts < 1 or not 0 <= per_token <= experts:
        raise ValueError(f"{per_token} of {experts} experts")
    missed: float = (1 - per_token / experts) ** tokens
    return experts * (1 - missed)


def weights_read(weights: float, expert_share: float = 0.0, experts_share_read: float = 1.0) -> float:
    """Bytes of weights that a step reads: all but the experts that no token chose.

    `weights`: bytes of all; `expert_share`: the share of them that are routed experts'; `experts_share_read`: the share
    of the experts that are read. An embedding table that is only looked up counts as read: a few per cent too much.
    """
    return weights * (1 - expert_share * (1 - experts_share_read))


def decode_seconds(weights: float, kv: float, bandwidth: float, tensor_parallel: int = 1) -> float:
    """The least time of a step that gives each running request a token: all is read once, at full bandwidth.

    `weights`: bytes that the step reads of the weights (`weights_read`), which tensor parallelism divides evenly; `kv`:
    bytes of KV cache on one GPU that the running requests hold, of which attention reads all (of windowed layers, what
    is in the window); `bandwidth`: bytes a second of one GPU.
    """
    return (weights / tensor_parallel + kv) / bandwidth


def prefill_seconds(parameters: float, tokens: float, flops: float, tensor_parallel: int = 1) -> float:
    """The least time to compute prompt tokens: a multiplication and an addition for each parameter and token.

    `parameters`: those that a token uses (with experts, the chosen ones); `flops`: dense operations a second of one GPU
    in the type that the weights are computed in. Attention's part, which grows with a prompt's square, is left out.
    """
    return 2 * parameters * tokens / (flops * tensor_parallel)
