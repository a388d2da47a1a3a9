"""A Podman quadlet (`vllm.container`): a unit whose `[Container]` tells the image, its arguments and its devices."""

from __future__ import annotations

import re
from dataclasses import replace

from vllm_doctor.launch import docker, region, shell, systemd
from vllm_doctor.launch.region import Region, Wording
from vllm_doctor.launch.start import Fault, Form, Resources, Word, Written
from vllm_doctor.launch.unexpanded import is_marked
from vllm_doctor.launch.unwrap import SAYS, of_words

_CONTAINER = re.compile(r"^\[Container\][ \t]*$|^Exec=[^\n]{0,2000}--[a-z]", re.MULTILINE)
_EXEC = re.compile(r"[ \t]{0,16}Exec[ \t]{0,16}=[ \t]{0,16}")
_CDI = re.compile(r"nvidia\.com/gpu=(?P<which>[\w:-]{1,80})")
_VLLM = "vllm"
"""Stands for the image of a quadlet of which only a part is given, and which sets variables of vLLM's."""
_OUTSIDE = "EnvironmentFile= is not read: what it sets is not known"


def is_it(text: str) -> bool:
    return _CONTAINER.search(text) is not None


def starts(text: str, line: int = 1) -> list[Written]:
    """The server that the container starts: none, or one; the text begins in this line."""
    given: dict[str, list[systemd.Setting]] = {}
    for setting in systemd.settings(text, line, ("ExecStart", "Exec")):
        given.setdefault(setting.name, []).append(setting)
    run = _podman(given)
    environment: dict[str, str | None] = dict(run.environment)
    for setting in given.get("Environment", []):
        for word in shell.words(setting.value, setting.line)[0]:
            name, equals, value = systemd.specified(word.text).partition("=")
            environment[name] = value if equals and not is_marked(value) else None
    files = _OUTSIDE if "EnvironmentFile" in given else ""
    image = next((systemd.specified(setting.value) for setting in reversed(given.get("Image", []))), None)
    entrypoint, _, at = _words(given, "Entrypoint")
    arguments, faults, at = _words(given, "Exec")
    known_as = image or (_VLLM if any(name.startswith("VLLM_") for name in environment) else None)
    argv, guessed = docker.argv(known_as, entrypoint or None, arguments)
    return [
        Written.of(
            launch,
            form=Form.QUADLET,
            place=f"Exec, line {at}" if at else "[Container]",
            environment={**environment, **launch.environment},
            is_environment_whole=docker.is_vllm(image) and not files,
            image=image,
            resources=_resources(given, run.resources),
            faults=(*faults, *launch.faults),
            notes=(*launch.notes, *guessed, *([files] if files else ())),
            holder=_region(text, at - line + 1) if at else None,
        )
        for launch in of_words(argv, Form.QUADLET, environment)
    ]


def _region(text: str, number: int) -> Region:
    """Where Exec= of this line has its words."""
    place = region.behind(text, region.continued(text, number), _EXEC)
    return Region(text, *place, Wording.WORDS, starts, quote=systemd.quoted)


def _words(given: dict[str, list[systemd.Setting]], name: str) -> tuple[list[Word], list[Fault], int]:
    """The words of the last of these settings, what is wrong there, and its line."""
    if name not in given:
        return [], [], 0
    setting = given[name][-1]
    words, broken = shell.words(setting.value, setting.line)
    faults = [] if broken is None else [Fault(broken.kind, broken.line, SAYS[broken.kind])]
    faults += [setting.fault] if setting.fault is not None else []
    return list(systemd.expanded(words, {})), faults, setting.line


def _podman(given: dict[str, list[systemd.Setting]]) -> docker.Run:
    """What PodmanArgs= ask for, as `podman run` takes them."""
    words = [word for setting in given.get("PodmanArgs", []) for word in shell.words(setting.value, setting.line)[0]]
    ulimits = [Word(f"--ulimit={setting.value}", setting.line) for setting in given.get("Ulimit", [])]
    run = docker.parse([Word("podman", 1), Word("run", 1), *ulimits, *words, Word("--", 1), Word(_VLLM, 1)])
    return run or docker.Run(_VLLM, None, (), {}, Resources(), (), Word(_VLLM, 1), {})


def _resources(given: dict[str, list[systemd.Setting]], asked: Resources) -> Resources:
    devices = [match["which"] for setting in given.get("AddDevice", []) if (match := _CDI.search(setting.value))]
    named = {which for which in devices if which != "all"}
    shm = [size for setting in given.get("ShmSize", []) if (size := docker.size(setting.value)) is not None]
    return replace(
        asked,
        gpus=asked.gpus or (float(len(named)) if named and "all" not in devices else None),
        shm_bytes=shm[-1] if shm else asked.shm_bytes,
    )
