"""A container as a manifest tells it, and the servers that its words start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vllm_doctor.launch import budget, docker, shell
from vllm_doctor.launch.manifests import worker_vllm
from vllm_doctor.launch.start import Fault, Flaw, Form, Holder, Launch, Resources, Word, Written
from vllm_doctor.launch.unwrap import of_script_with, of_words
from vllm_doctor.launch.yaml_tree import Node

_STEPS_OF_A_CONTAINER = 50
_MOST_BEFORE = 8
"""Words before the script that a container starts: `/bin/bash -x /scripts/start.sh`."""


@dataclass(frozen=True)
class Container(Holder):
    """One container as its manifest tells it.

    `node`: it, at `keys` of `object`: of the whole Kubernetes object, or of the compose file. Words are read with the
    manifest's own variables expanded.
    """

    object: Node
    keys: tuple[str | int, ...]
    node: Node
    form: Form
    place: str
    image: str | None
    entrypoint: tuple[Word, ...] | None
    arguments: tuple[Word, ...]
    environment: Mapping[str, str | None]
    resources: Resources
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    """Of what may be in its environment as well."""
    files: Mapping[str, Word] = field(default_factory=dict)
    """What the manifest itself puts into it, by the paths there."""
    said: tuple[str, ...] = ()
    """Notes of another kind."""
    is_environment_a_map: bool = False

    def starts(self) -> Iterator[Written]:
        budget.spend(_STEPS_OF_A_CONTAINER)
        argv, guessed = docker.argv(self.image, self.entrypoint, self.arguments)
        faults = self.faults
        launches = self.launches()
        if not launches and self.entrypoint and len(argv) == 1 and re.search(r"\s", argv[0].text):
            launches = of_words(shell.words(argv[0].text, argv[0].line)[0], self.form, self.environment)
            says = "the whole command is one text: the container looks for a program of that name; write it as a list"
            faults = (*faults, Fault(Flaw.JOINED_WORDS, argv[0].line, says))
        launches = launches or self._of_file(argv)
        if not launches and worker_vllm.is_worker(self.image):
            words = worker_vllm.words(self.environment, self.node.line)
            launches, guessed = [Launch(words, self.form)], (worker_vllm.NOTE,)
        for launch in launches:
            yield self._written(launch, faults, guessed)

    def _of_file(self, argv: Sequence[Word]) -> list[Launch]:
        """What a script among its files starts, which gets the words after it."""
        for place, word in enumerate(argv[:_MOST_BEFORE]):
            script = self.files.get(word.text)
            if script is not None:
                return of_script_with(script, argv[place + 1 :], self.form, self.environment)
        return []

    def launches(self) -> list[Launch]:
        """What its words start, without their environment."""
        return of_words(docker.argv(self.image, self.entrypoint, self.arguments)[0], self.form, self.environment)

    def _config(self, launch: Launch) -> str | None:
        """The text of the --config file, where the manifest holds it."""
        texts = [word.text for word in launch.words]
        at = texts.index("--config") + 1 if "--config" in texts else len(texts)
        file = self.files.get(texts[at]) if at < len(texts) else None
        return None if file is None else file.text

    def _written(self, launch: Launch, faults: tuple[Fault, ...], guessed: tuple[str, ...]) -> Written:
        return Written.of(
            launch,
            form=self.form,
            place=self.place,
            environment={**self.environment, **launch.environment},
            is_environment_whole=docker.is_vllm(self.image) and not self.notes,
            image=self.image,
            resources=self.resources,
            faults=(*faults, *launch.faults),
            notes=(*self.notes, *self.said, *guessed, *launch.notes),
            config=self._config(launch),
            holder=self,
        )


def texts(node: Node) -> tuple[Word, ...]:
    """The texts of a list, or the one text."""
    items = node.items if node.kind == "seq" else (node,) if node.is_scalar else ()
    return tuple(
        Word(item.text, item.text_line, start=place, end=place + 1)
        for place, item in enumerate(items)
        if item.is_scalar
    )


def text(node: Node) -> str | None:
    return node.text if node.is_scalar else None
