"""What holds a start in a document of values, out of which another program makes the command: said in words how it
changes, as only that program knows."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_doctor.launch.start import Holder
from vllm_doctor.launch.yaml_tree import Node


@dataclass(frozen=True)
class Values(Holder):
    """`arguments`: the list of words that ends the command; `flags`: the mapping whose keys are its flags.

    Neither, where the command is made of values of another kind.
    """

    arguments: Node | None = None
    flags: Node | None = None
