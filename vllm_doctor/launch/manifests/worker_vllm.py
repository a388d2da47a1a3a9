"""RunPod's worker-vllm: an image that makes vLLM's flags of its environment variables (MAX_MODEL_LEN=8192)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vllm_doctor.launch import docker, shell
from vllm_doctor.launch.manifests import flag_map
from vllm_doctor.launch.start import Word
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.text.secret_names import is_secret
from vllm_doctor.vllm import flags as catalogue

_IMAGE = re.compile(r"(?:^|/)worker(?:-v1)?-vllm(?:[:@]|$)")
_NAMED = {
    "MODEL_NAME": "--model",
    "MODEL_REVISION": "--revision",
    "TOKENIZER_NAME": "--tokenizer",
    "OPENAI_SERVED_MODEL_NAME_OVERRIDE": "--served-model-name",
    "CUSTOM_CHAT_TEMPLATE": "--chat-template",
    "VLLM_CONFIG_FILE": "--config",
}
"""Variables whose names are not those of their flags."""
_EXTRA = "VLLM_EXTRA_ARGS"
_OWN = frozenset({"HOST", "PORT", "API_KEY", "UVICORN_LOG_LEVEL"})
"""What the worker sets itself."""
NOTE = "worker-vllm makes the flags of its environment: those of the variables in the text were read"


def is_worker(image: str | None) -> bool:
    return image is not None and _IMAGE.search(image) is not None


def _is_flag(name: str) -> bool:
    return name.isupper() and name not in _OWN and not is_secret(name)


def words(environment: Mapping[str, str | None], line: int) -> list[Word]:
    """The command that the worker makes of its environment."""
    found = list(docker.SERVE)
    for name, value in environment.items():
        flag = _NAMED.get(name) or (flag_map.known(name) if _is_flag(name) else None)
        if flag is None:
            continue
        if value is None:
            found += [flag, mark(f"${name}")]
        elif value.lower() == "true":
            found.append(flag)
        elif value.lower() == "false":
            off = "--no-" + flag.removeprefix("--")
            found += [off] if catalogue.is_flag(off) else []
        elif value:
            found += [flag, value]
    extra = shell.words(environment.get(_EXTRA) or "", line)[0]
    return [*(Word(text, line) for text in found), *extra]
