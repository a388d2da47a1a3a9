"""What a Slurm job is given: by the `#SBATCH` lines of its script, and by the options of `srun`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_doctor.launch import docker
from vllm_doctor.launch.start import Resources

_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(--?\S[^\n#]{0,300})", re.MULTILINE)
_SHORT = {"-c": "--cpus-per-task", "-G": "--gpus", "-n": "--ntasks", "-N": "--nodes"}
_GPUS = ("--gpus-per-node", "--gres", "--gpus", "--gpus-per-task")
"""In the order in which they are believed: of one node, where that is told."""
_COUNTED = re.compile(
    r"(?:gres[:/])?(?:gpu:)?(?:(?P<name>[A-Za-z][\w.-]{0,60})[:=])?(?P<count>\d{1,4})(?:\([^()]{0,80}\))?"
)


def is_batch(text: str) -> bool:
    return _DIRECTIVE.search(text) is not None


def asked(text: str) -> Resources:
    """What its #SBATCH lines ask for; where one stands twice, the last."""
    return of_options([word for match in _DIRECTIVE.finditer(text) for word in match[1].split()])


def of_options(words: Iterable[str]) -> Resources:
    """What these options of sbatch or srun ask for."""
    given = dict(_options(list(words)))
    cores = docker.number(given.get("--cpus-per-task", ""))
    tasks = docker.number(given.get("--ntasks-per-node", "")) or 1.0
    gpus, gpu = None, None
    for name in _GPUS:
        for part in given.get(name, "").split(","):
            if name == "--gres" and not part.startswith(("gpu", "gres")):
                continue
            match = _COUNTED.fullmatch(part)
            if match and gpus is None:
                gpus, gpu = float(match["count"]), match["name"]
                gpu = None if gpu == "gpu" else gpu
    return Resources(gpus=gpus or None, gpu=gpu, cpu_limit=cores * tasks if cores else None)


def granted(resources: Resources, by_job: Resources) -> Resources:
    """What a start asks for, and, where it asks for nothing, what the job has."""
    return replace(
        resources,
        gpus=resources.gpus or by_job.gpus,
        gpu=resources.gpu or by_job.gpu,
        cpu_limit=resources.cpu_limit or by_job.cpu_limit,
    )


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        following = words[place + 1] if place + 1 < len(words) else ""
        if name.startswith("--"):
            yield name, value if equals else following
        elif name[:2] in _SHORT:
            yield _SHORT[name[:2]], word[2:] or following
