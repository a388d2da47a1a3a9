"""Which variables of a server's environment may be told: what vLLM and its libraries read, and nothing secret."""

from __future__ import annotations

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Value
from vllm_doctor.text.secret_names import is_secret

_NAMES = frozenset(
    {
        "NVIDIA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "LD_PRELOAD",
        "HF_HOME", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HOME",
    }
)  # fmt: skip
_PREFIXES = (
    "VLLM_", "NCCL_", "OMP_", "MKL_", "TORCH", "PYTORCH_", "CUDA_", "HIP_", "ROCR_", "NUMEXPR_", "RAY_",
)  # fmt: skip
_MAX_TEXT = 1000


def is_shown(name: str) -> bool:
    """Whether the variable's value may be told; it is masked all the same."""
    return name in _NAMES or (name.startswith(_PREFIXES) and not is_secret(name))


def number_or_text(text: str) -> Value:
    """A variable's value as conditions compare it."""
    number = outside.number(text)
    return text[:_MAX_TEXT] if number is None else number
