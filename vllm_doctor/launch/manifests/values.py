"""What holds a start in a document of values, out of which another program makes the command: said in words how it
changes, as only that program knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_doctor.launch.start import Holder, Word
from vllm_doctor.launch.yaml_tree import Node


@dataclass(frozen=True)
class Values(Holder):
    """`arguments`: the list of words in the document that ends the command; `before`: the words that stand before.

    `flags`: the mapping whose keys are its flags. Either, or none where the values are neither.
    """

    arguments: Node | None = None
    before: Sequence[Word] = ()
    flags: Node | None = None
