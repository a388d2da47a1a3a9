"""The model of a written command, where its files are on this machine too."""

from __future__ import annotations

import os
from collections.abc import Mapping

from vllm_doctor.launch.start import Form, Start, printed
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import adapter_files, model_files, process_files
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.process import ServerProcess

_CACHES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME")
_HERE = frozenset({Form.SHELL, Form.SYSTEMD, Form.CONFIG})
"""Where a path is one of the machine, not of a container."""
_NAMED = 3


def facts(kernel: Kernel, start: Start) -> tuple[dict[str, Reading], tuple[str, ...]]:
    """What the model's files say, as model_files has it, and its adapters', as far as they do; and notes on those that
    cannot be used.

    A folder, or a name on the Hub that is in the user's cache; nothing is downloaded.
    """
    name = start.command.model
    if name is None:
        return {}, ()
    path = os.path.expanduser(name)
    is_path = path.startswith(("/", "./", "../"))
    is_there = start.form in _HERE and os.path.exists(path)
    if is_path and not is_there:
        says = f"the model {printed(name)} is not on this machine: its config.json is unknown"
        return {}, (says,) if start.form in _HERE else ()
    environ: dict[str, str] = {key: os.environ[key] for key in _CACHES if key in os.environ}
    if start.form in _HERE:
        environ |= {key: value for key, value in start.environment.items() if value is not None}
    here = ServerProcess(
        os.getpid(),
        command=start.command,
        environ=environ,
        model_path=os.path.abspath(path) if is_there else None,
        files=process_files.own(kernel),
    )
    found = model_files.facts(kernel, here)
    beside = adapter_files.facts(here) if start.form in _HERE else {}
    known = ((fact, reading) for fact, reading in (found | beside).items() if isinstance(reading, Known))
    return dict(known), _lies(name, found)


def _lies(name: str, found: Mapping[str, Reading]) -> tuple[str, ...]:
    """A note where config.json holds something that cannot be so."""
    wrong = [fact.replace("_", " ") for fact, reading in found.items() if reading == Unknown(Reason.INVALID)]
    if not wrong:
        return ()
    more = ", …" if len(wrong) > _NAMED else ""
    told = ", ".join(wrong[:_NAMED]) + more
    return (f"the config.json of {printed(name)} cannot be right: what it says of {told} was not used",)
