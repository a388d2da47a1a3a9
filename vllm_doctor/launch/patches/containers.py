"""The words and variables of a container with changes, in Kubernetes and in compose."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.launch import (
    rewrite,
    shellwords,
)
from vllm_doctor.launch.manifests import Container
from vllm_doctor.launch.rewrite import UnwritableError, Wanted
from vllm_doctor.launch.start import Form, Launch, Word
from vllm_doctor.launch.unexpanded import is_marked, mark
from vllm_doctor.launch.yaml_tree import Node

REFERENCE = re.compile(r"\$\$|\$\([A-Za-z_][\w.-]*\)")
_INTERPOLATED = re.compile(r"\$\$|\$\{[^{}]*\}|\$[A-Za-z_]\w*")


@dataclass(frozen=True)
class New:
    """What of a container changes: its words by key, and its variables. `hidden`: texts that may be secrets."""

    parts: Mapping[str, str | list[str]]
    environment: Mapping[str, str]
    hidden: frozenset[str]

    @property
    def tells(self) -> bool:
        return any(
            text in self.hidden for part in self.parts.values() for text in ([part] if isinstance(part, str) else part)
        )


class Holes:
    """Pieces that only the document's own reader expands, taken out and put back as they were."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._pieces: list[str] = []

    def out(self, text: str) -> str:
        def hole(match: re.Match[str]) -> str:
            self._pieces.append(match[0])
            return mark(str(len(self._pieces) - 1))

        return self._pattern.sub(hole, text)

    def back(self, text: str) -> str:
        return re.sub(mark(r"(\d+)"), lambda match: self._pieces[int(match[1])], text)


@dataclass
class _Part:
    """`command`, `args` or `entrypoint`: a list of words, or (of compose) one text, with its holes."""

    text: str | None
    words: list[Word]


def of_container(holder: Container, wanted: Wanted) -> New:
    """Its words with the changes. Raises UnwritableError."""
    is_compose = holder.form is Form.COMPOSE
    first, second = ("entrypoint", "command") if is_compose else ("command", "args")
    escape = of_compose_text if is_compose else of_kubernetes_text
    holes = Holes(_INTERPOLATED if is_compose else REFERENCE)
    parts = {key: _part(holder.node[key], holes, is_compose) for key in (first, second) if holder.node[key]}
    raw = replace(
        holder,
        entrypoint=tuple(parts[first].words) if first in parts else None,
        arguments=tuple(parts[second].words) if second in parts else (),
        environment=dict.fromkeys(holder.environment),
    )
    launches = raw.launches()
    if len(launches) != 1:
        raise UnwritableError("its words do not start one server by themselves")
    launch = launches[0]
    within = {name: escape(value) for name, value in wanted.environment.items() if rewrite.has(launch, name)}
    escaped = Wanted({name: tuple(map(escape, words)) for name, words in wanted.set.items()}, wanted.unset, within)
    rewritten = _Rewritten(launch, parts, escaped)
    if launch.inside:
        rewritten.in_script()
    else:
        rewritten.in_words(otherwise=second)
    back = {
        key: holes.back(it) if isinstance(it, str) else [holes.back(text) for text in it]
        for key, it in rewritten.new.items()
    }
    others = {name: value for name, value in wanted.environment.items() if name not in within}
    return New(back, others, frozenset(map(holes.back, rewritten.hidden)))


class _Rewritten:
    """The parts of a container that change, in `new`; `hidden`: texts of them that may be secrets."""

    def __init__(self, launch: Launch, parts: Mapping[str, _Part], wanted: Wanted) -> None:
        self._launch, self._parts, self._wanted = launch, parts, wanted
        self._owners = {id(word): key for key, part in parts.items() for word in part.words}
        self.new: dict[str, str | list[str]] = {}
        self.hidden: set[str] = set()

    def in_script(self) -> None:
        """A shell's script among the words starts the server."""
        launch, script = self._launch, self._launch.inside[0]
        key = self._owners[id(script)]
        text = self._parts[key].text
        if text is not None:
            changed = rewrite.in_text(text, launch, self._wanted)
            self.new[key] = changed
            may_tell = rewrite.may_tell(text, launch)
        else:
            one = replace(launch, inside=launch.inside[1:])
            changed = rewrite.in_text(script.text, one, self._wanted)
            self.new[key] = [changed if word is script else word.text for word in self._parts[key].words]
            may_tell = rewrite.may_tell(script.text, one)
        if may_tell:
            self.hidden.add(changed)

    def in_words(self, otherwise: str) -> None:
        """The words themselves start it. `otherwise`: the part that takes what stands beside no word."""
        launch = self._launch
        self.hidden |= {launch.words[place].text for place in rewrite.hides(launch)}
        found: dict[str, list[rewrite.Splice]] = {}
        splices = (*rewrite.splices(launch, self._wanted), *_of_assignments(launch, self._wanted.environment))
        for splice in splices:
            found.setdefault(self._owners.get(id(splice.beside), otherwise), []).append(splice)
        for key, mine in found.items():
            part = self._parts.get(key, _Part(None, []))
            self.new[key] = _items(part, mine) if part.text is None else self._in_text(key, part, part.text, mine)

    def _in_text(self, key: str, part: _Part, text: str, splices: Sequence[rewrite.Splice]) -> str:
        own = [word for word in self._launch.words if self._owners.get(id(word)) == key]
        changed = rewrite.spliced(text, own, splices, shlex.quote)
        rest = [word.text for word in part.words if word not in own]
        if self.hidden & {word.text for word in own} or rewrite.tells(" ".join(rest), self._launch):
            self.hidden.add(changed)
        return changed


def _part(node: Node, holes: Holes, is_compose: bool) -> _Part:
    if has_marks(node):
        raise UnwritableError("it is a chart's template")
    if node.kind == "seq" and all(item.is_scalar for item in node.items):
        words = [Word(holes.out(n.text), n.text_line, False, at, at + 1) for at, n in enumerate(node.items)]
        return _Part(None, words)
    if node.is_scalar and is_compose:
        text = holes.out(node.text)
        return _Part(text, [word for word in shellwords.words(text)[0] if word.text != shellwords.LINE_END])
    raise UnwritableError("its words are no list")


def _of_assignments(launch: Launch, environment: Mapping[str, str]) -> Iterator[rewrite.Splice]:
    for name, value in environment.items():
        word = launch.assignments[name]
        yield rewrite.Splice(word.start, word.end, (f"{name}={value}",), word)


def _items(part: _Part, splices: Sequence[rewrite.Splice]) -> list[str]:
    items = [word.text for word in part.words]
    added = [word for splice in splices if splice.is_new for word in splice.words]
    at = max([splice.end for splice in splices if splice.is_new], default=0)
    if added:
        items[max(at, 0) : max(at, 0)] = added
    for splice in sorted((s for s in splices if not s.is_new), key=lambda splice: splice.start, reverse=True):
        items[splice.start : splice.end] = splice.words
    return items


def of_compose_text(text: str) -> str:
    return text.replace("$", "$$")


def of_kubernetes_text(text: str) -> str:
    return text.replace("$(", "$$(")


def has_marks(node: Node) -> bool:
    return is_marked(node.text) or any(map(has_marks, (*node.fields.values(), *node.items)))
