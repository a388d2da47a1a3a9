"""Corrections of written commands, each in the form its command came in: what to apply to the document."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from vllm_doctor.launch import (
    budget,
    diff,
    docker,
    manifests,
    python_edit,
    rewrite,
    shell,
    shellwords,
    systemd,
    yaml_tree,
)
from vllm_doctor.launch import unwrap as launching
from vllm_doctor.launch.manifests import ConfigFile, Container, Pool, Runtime, StackModel, Values, flag_map
from vllm_doctor.launch.manifests.llm_inference_service import ADDITIONAL, PARALLELISM
from vllm_doctor.launch.manifests.production_stack import SWITCHES
from vllm_doctor.launch.python_calls import Call
from vllm_doctor.launch.rewrite import UnwritableError, Wanted
from vllm_doctor.launch.start import Form, Launch, Start, Word, Written
from vllm_doctor.launch.unexpanded import as_written, is_marked, mark
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.report import Change, Patch
from vllm_doctor.text import words as wording
from vllm_doctor.text import yaml
from vllm_doctor.text.secret_names import is_secret
from vllm_doctor.vllm import command_line, flags
from vllm_doctor.vllm.command_line import MASK, masked
from vllm_doctor.vllm.environment import is_shown

_SECRET = "the text to change may hold a secret, which is not printed: change it by hand"
_REFERENCE = re.compile(r"\$\$|\$\([A-Za-z_][\w.-]*\)")
_INTERPOLATED = re.compile(r"\$\$|\$\{[^{}]*\}|\$[A-Za-z_]\w*")
_PARTED = re.compile(r"\S\s{0,999}\n---")
_ASSIGNED = re.compile(r"((?:-e|--env=)?([A-Za-z_]\w*)=).+", re.DOTALL)
_HIDDEN = "\0"
_IN_WORDS = "change it in place; the command, with all filled in that the text holds:"
_MOST_LINES = 2000
_STEPS = 2 * budget.STEPS
"""For all changes of one text, which is read anew for each of them."""
_MERGED = {
    "v1": {"Pod", "ReplicationController"},
    "apps/v1": {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"},
    "batch/v1": {"Job", "CronJob"},
}
"""Kubernetes' own kinds, which take a strategic merge patch; of others the server does not know how lists merge."""
_FROZEN = frozenset({"Pod", "Job"})
"""Kinds whose command cannot be changed while they exist."""

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class WrittenDocument:
    """A text with its commands; observation.Document. `path`: of its file, `is_exact`: the text is the file's own."""

    name: str
    path: str | None
    text: str = field(repr=False)
    written: tuple[Written, ...] = field(repr=False)
    starts: tuple[Start, ...]
    is_exact: bool = True

    def patched(self, changes: Mapping[int, Sequence[Change]]) -> tuple[Patch, ...]:
        left = {n: kept for n, given in changes.items() if (kept := not_in_force(self.starts[n], given))}
        of_forms: dict[Form | None, list[int]] = {}
        for number in sorted(left):
            of_forms.setdefault(self._form(number), []).append(number)
        return tuple(
            patch for form, numbers in of_forms.items() for patch in self._of_form(form, {n: left[n] for n in numbers})
        )

    def _form(self, number: int) -> Form | None:
        """The form of its patch; None where that is told in words."""
        form = self.starts[number].form
        if self.written[number].holder is None and not self.starts[number].is_engine:
            return None
        return Form.SHELL if isinstance(self.written[number].holder, launching.Script) else form

    def _of_form(self, form: Form | None, changes: Mapping[int, Sequence[Change]]) -> Iterator[Patch]:
        holders = {number: self.written[number].holder for number in changes}
        for number, holder in list(holders.items()):
            if isinstance(holder, Values):
                yield self._of_values(number, holder, changes)
                del holders[number]
        changes = {number: changes[number] for number in holders}
        if not changes:
            return
        if form is None:
            for number, given in changes.items():
                lines = diff.of_words(self.starts[number].argv, given, "").lines
                yield self._patch([number], changes, lines=lines, apply=(_IN_WORDS,))
        elif form is Form.CONFIG:
            for number, holder in holders.items():
                if isinstance(holder, ConfigFile):
                    yield self._of_config(number, holder, changes[number])
        elif form is Form.SHELL:
            with budget.limited(_STEPS):
                patches = list(self._of_scripts(changes))
            yield from patches
        elif form is Form.HELM:
            yield self._of_stack({n: h for n, h in holders.items() if isinstance(h, StackModel)}, changes)
        elif form is Form.COMPOSE:
            yield from self._of_compose({n: h for n, h in holders.items() if isinstance(h, Container)}, changes)
        elif form is Form.KUBERNETES:
            yield from self._of_objects({n: h for n, h in holders.items() if isinstance(h, Container)}, changes)
            for number, holder in holders.items():
                if isinstance(holder, Runtime):
                    yield self._of_runtime(number, holder, changes[number])
                elif isinstance(holder, Pool):
                    yield self._of_pool(number, holder, changes[number])
        elif form is Form.PYTHON:
            for number, given in changes.items():
                yield self._of_call(number, given)
        else:
            yield from self._of_units(changes)

    def _patch(self, numbers: Iterable[int], changes: Mapping[int, Sequence[Change]], **more: Any) -> Patch:
        numbers = list(numbers)
        of_places: dict[str, tuple[Change, ...]] = {}
        for number in numbers:
            place = self.starts[number].place
            of_places[place] = (*of_places.get(place, ()), *changes[number])
        return replace(Patch(str(self.starts[numbers[0]].form), self.path, of_places), **more)

    @property
    def _file(self) -> str:
        return shlex.quote(self.path or "FILE") if self._is_yaml else "FILE"

    @cached_property
    def _is_yaml(self) -> bool:
        """Whether the text is YAML as a whole, no script or page that holds some."""
        try:
            return any(root.kind == "map" for root in yaml_tree.read(self.text).roots)
        except SourceError:
            return False

    # ---- a shell

    def _of_scripts(self, changes: Mapping[int, Sequence[Change]]) -> Iterator[Patch]:
        lines = self._of_file(changes)
        if lines:
            root = "-d / " if os.path.isabs(self.path or "") else ""
            yield self._patch(changes, changes, lines=lines, apply=(f"patch {root}-p1 < PATCH",))
            return
        for number, given in changes.items():
            holder = self.written[number].holder
            assert isinstance(holder, launching.Script)
            apply = "start it with the lines of +"
            try:
                new = rewrite.in_text(holder.text, self.written[number], rewrite.wanted(given))
                shown = _of_words(holder, self.written[number], new)
            except (UnwritableError, budget.ExhaustedError) as error:
                apply = f"not in place ({error}); with all filled in that the text holds:"
                shown = diff.of_words(self.starts[number].argv, given, "").lines
            yield self._patch([number], changes, lines=shown, apply=(apply,))

    def _of_file(self, changes: Mapping[int, Sequence[Change]]) -> tuple[str, ...]:
        """A diff of the whole file; nothing where it is no script, or its lines cannot be printed."""
        holders = [self.written[number].holder for number in changes]
        if not (
            self.path
            and self.is_exact
            and all(isinstance(h, launching.Script) and h.text == self.text for h in holders)
        ):
            return ()
        text = self.text
        try:
            for number, given in changes.items():  # as many servers start in it as before
                text = rewrite.in_text(text, launching.of_script(text)[number], rewrite.wanted(given))
        except (UnwritableError, budget.ExhaustedError):
            return ()
        return _of_lines(self.text, text, [self.written[number] for number in changes], self.path)

    # ---- Python

    def _of_call(self, number: int, changes: Sequence[Change]) -> Patch:
        """A diff of the file where the keywords stand in the call; else what to change there."""
        holder, place = self.written[number].holder, {number: changes}
        try:
            if not (isinstance(holder, Call) and self.path and self.is_exact and holder.text == self.text):
                raise UnwritableError("it is no file of its own")
            new = python_edit.edited(self.text, holder.node, changes)
            lines = python_edit.diff(self.text, new, self.path.lstrip("/").removeprefix("./"))
        except UnwritableError as error:
            apply = f"not in place ({error}): in Python flags are keyword arguments of the call; change there:"
            return self._patch([number], place, lines=python_edit.settings(changes), apply=(apply,))
        root = "-d / " if os.path.isabs(self.path) else ""
        return self._patch([number], place, lines=lines, apply=(f"patch {root}-p1 < PATCH",))

    # ---- vLLM's own file

    def _of_config(self, number: int, holder: ConfigFile, changes: Sequence[Change]) -> Patch:
        keys = {command_line.flag_of_key(key): key for key in holder.root.fields}
        return diff.of_config(keys, changes, self.path or "config.yaml", self.starts[number].place)

    # ---- compose

    def _of_compose(self, holders: Mapping[int, Container], changes: Mapping[int, Sequence[Change]]) -> Iterator[Patch]:
        services: dict[str, Any] = {}
        told = []
        for number, holder in holders.items():
            wanted = rewrite.wanted(changes[number])
            try:
                new = _of_container(holder, wanted)
            except UnwritableError as error:
                yield self._patch([number], changes, problem=f"{error}: change it by hand")
                continue
            if new.tells:
                yield self._patch([number], changes, problem=_SECRET)
                continue
            service: dict[str, Any] = dict(new.parts)
            if new.environment:
                service["environment"] = {name: _of_compose_text(text) for name, text in new.environment.items()}
            services[str(holder.keys[-1])] = service
            told.append(number)
        if told:
            apply = f"docker compose -f {self._file} -f PATCH up -d"
            yield self._patch(told, changes, apply=(apply,), lines=tuple(yaml.dump({"services": services})))

    # ---- Kubernetes

    def _of_objects(self, holders: Mapping[int, Container], changes: Mapping[int, Sequence[Change]]) -> Iterator[Patch]:
        of_objects: dict[int, list[int]] = {}
        for number, holder in holders.items():
            of_objects.setdefault(id(holder.object), []).append(number)
        for numbers in of_objects.values():
            merged: list[tuple[int, dict[str, Any]]] = []
            for number in numbers:
                holder = holders[number]
                try:
                    new = _of_container(holder, rewrite.wanted(changes[number]))
                    if _is_merged(holder) and not new.tells:
                        merged.append((number, _strategic(holder, new)))
                        continue
                    operations = list(_operations(holder, new))
                except UnwritableError as error:
                    yield self._patch([number], changes, problem=f"{error}: change it by hand")
                    continue
                if not (holder.object["kind"] and holder.object["apiVersion"]):
                    if new.tells:
                        yield self._patch([number], changes, problem=_SECRET)
                        continue
                    env = {"env": variables} if (variables := _variables(holder, new)) else {}
                    of_chart = holder.keys == manifests.CHART_KEYS and not env
                    apply = f"helm upgrade RELEASE CHART -f {self._file} -f PATCH"
                    yield self._patch(
                        [number],
                        changes,
                        apply=(apply if of_chart else "put these in the place of the container's own",),
                        lines=tuple(yaml.dump({"image": new.parts} if of_chart else {**new.parts, **env})),
                    )
                else:
                    yield self._patch(
                        [number],
                        changes,
                        apply=tuple(self._kubectl(holder.object, "json")),
                        lines=tuple(yaml.dump(operations)),
                    )
            if merged:
                first = holders[merged[0][0]]
                whole = merged[0][1]
                for _, another in merged[1:]:
                    _at(whole, first.keys[:-1]).extend(_at(another, first.keys[:-1]))
                yield self._patch(
                    [number for number, _ in merged],
                    changes,
                    apply=tuple(self._kubectl(first.object, "strategic")),
                    lines=tuple(yaml.dump(whole)),
                )

    def _kubectl(self, object: Node, kind: str) -> Iterator[str]:
        group = object["apiVersion"].text.rpartition("/")[0]
        is_own = group in ("", "apps", "batch")
        named = object["kind"].text.lower() if is_own else f"{object['kind'].text.lower()}.{group}"
        space = object.at("metadata", "namespace")
        target = f"{named}/{object.at('metadata', 'name').text}"
        options = f" -n {shlex.quote(space.text)}" if space.is_scalar else ""
        how = "" if kind == "strategic" else f" --type {kind}"
        is_alone = not object.path and _PARTED.search(self.text) is None and self._is_yaml
        if object["kind"].text in _FROZEN and is_own and is_alone:
            yield (
                f"kubectl patch --local -f {self._file}{how} --patch-file PATCH -o yaml | kubectl replace --force -f -"
            )
            yield f"a {object['kind'].text} that exists keeps its command: it is deleted and made again"
            return
        if not object.at("metadata", "name").is_scalar:
            target = f"{named}/NAME"
        yield f"kubectl patch {shlex.quote(target)}{options}{how} --patch-file PATCH"
        if is_own and is_alone:
            yield f"for the file itself: kubectl patch --local -f {self._file}{how} --patch-file PATCH -o yaml"

    def _of_runtime(self, number: int, holder: Runtime, changes: Sequence[Change]) -> Patch:
        """Of the production stack's operator, as a merge patch (RFC 7396)."""
        spec: dict[str, Any] = {}
        try:
            for keys, value in _of_keys(holder, rewrite.wanted(changes)).items():
                _put(spec, keys, value, keeps_null=True)
        except UnwritableError as error:
            return self._patch([number], {number: changes}, problem=f"{error}: change it by hand")
        if _has_marks(holder.node) or _has_secrets(spec):
            return self._patch([number], {number: changes}, problem=_SECRET)
        apply = tuple(self._kubectl(holder.object, "merge"))
        object = holder.object
        metadata = {key: node.text for key, node in object["metadata"].fields.items() if key in ("name", "namespace")}
        whole = {"apiVersion": object["apiVersion"].text, "kind": object["kind"].text, "metadata": metadata}
        lines = tuple(yaml.dump({**whole, "spec": spec}))
        return self._patch([number], {number: changes}, apply=apply, lines=lines)

    def _of_pool(self, number: int, holder: Pool, changes: Sequence[Change]) -> Patch:
        """Of KServe's LLMInferenceService, as a JSON patch."""
        try:
            operations = list(_of_pool(holder, rewrite.wanted(changes)))
        except UnwritableError as error:
            return self._patch([number], {number: changes}, problem=f"{error}: change it by hand")
        apply = tuple(self._kubectl(holder.object, "json"))
        return self._patch([number], {number: changes}, apply=apply, lines=tuple(yaml.dump(operations)))

    # ---- Helm values of the production stack

    def _of_stack(self, holders: Mapping[int, StackModel], changes: Mapping[int, Sequence[Change]]) -> Patch:
        first = next(iter(holders.values()))
        node = first.values.at("servingEngineSpec", "modelSpec")
        models = node.plain
        sets: list[str] = []
        try:
            for number, holder in holders.items():
                for key, value in _of_keys(holder, rewrite.wanted(changes[number])).items():
                    _put(models[holder.number], key, value)
                    path = f"servingEngineSpec.modelSpec[{holder.number}].{'.'.join(key)}"
                    sets.append(f"{path}={json.dumps(value)}")
        except UnwritableError as error:
            return self._patch(holders, changes, problem=f"{error}: change it by hand")
        if _has_marks(node):
            return self._patch(holders, changes, problem="it is a chart's template: change it by hand")
        if _has_secrets(models):
            by = " ".join(f"--set-json {shlex.quote(text)}" for text in sets)
            is_short = not _has_secrets(by.split()) and not any(text.endswith("=null") for text in sets)
            hand = (f"or: helm upgrade RELEASE CHART -f {self._file} {by}",) if is_short else ()
            return self._patch(holders, changes, problem=_SECRET, apply=hand)
        return self._patch(
            holders,
            changes,
            apply=(
                f"helm upgrade RELEASE CHART -f {self._file} -f PATCH",
                "Helm replaces a list as a whole: all models stand here",
            ),
            lines=tuple(yaml.dump({"servingEngineSpec": {"modelSpec": models}})),
        )

    # ---- values of a program that makes the command

    def _of_values(self, number: int, holder: Values, changes: Mapping[int, Sequence[Change]]) -> Patch:
        try:
            where, new = _of_arguments(holder, rewrite.wanted(changes[number]))
        except UnwritableError as error:
            return self._patch([number], changes, problem=f"{error}: change it by hand")
        return self._patch([number], changes, apply=(f"put this in the place of {where}",), lines=tuple(yaml.dump(new)))

    # ---- systemd

    def _of_units(self, changes: Mapping[int, Sequence[Change]]) -> Iterator[Patch]:
        for text in dict.fromkeys(self._unit(number).text for number in changes):
            here = [n for n in changes if self._unit(n).text == text]
            try:
                lines = list(_of_unit(text, {self._unit(n).number: rewrite.wanted(changes[n]) for n in here}))
            except UnwritableError as error:
                yield self._patch(here, changes, problem=f"{error}: change it by hand")
                continue
            base = os.path.basename(self.path or "")
            unit = base if base.endswith(".service") else "UNIT.service"
            apply = [
                f"put it into /etc/systemd/system/{unit}.d/override.conf (systemctl edit {shlex.quote(unit)}), then:",
                f"systemctl daemon-reload && systemctl restart {shlex.quote(unit)}",
            ]
            if systemd.reads_files(text) and any(
                not change.name.startswith("-") for n in here for change in changes[n]
            ):
                apply.append("the unit's EnvironmentFile= goes over Environment=: look there for the same variable")
            yield self._patch(here, changes, apply=tuple(apply), lines=tuple(lines))

    def _unit(self, number: int) -> systemd.Unit:
        holder = self.written[number].holder
        assert isinstance(holder, systemd.Unit)
        return holder


def not_in_force(start: Start, changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes that this start does not have yet; `was` is its own."""
    found = []
    for change in changes:
        if not change.name.startswith("-"):
            was = start.environment.get(change.name)
            if change.now is None or was != str(wording.plain(change.now)):
                found.append(replace(change, was=was))
        elif change.now is not None:
            if not flags.is_same(start.command.flags.get(change.name), change.now):
                found.append(replace(change, was=start.command.flags.get(change.name)))
        elif change.name in start.command.flags or change.name in start.unknown_flags:
            found.append(replace(change, was=start.command.flags.get(change.name, change.was)))
    return tuple(found)


# ---- lines of a file


def _of_lines(text: str, new: str, launches: Sequence[Launch], path: str) -> tuple[str, ...]:
    """A unified diff of the file without context, which might hold a secret; none where a changed line might."""
    around = _around(text, launches)
    if around is None or not _can_be_named(path):
        return ()
    was, now, rest = text.split("\n"), new.split("\n"), around.split("\n")
    same = next((n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), 0)
    if len(was) - same > _MOST_LINES and was[same + _MOST_LINES :] != now[len(now) - len(was) + same + _MOST_LINES :]:
        return ()  # so many lines between two changes would take long to compare
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, was[same : same + _MOST_LINES], _but_end(was, now, same), autojunk=False)
    for tag, *places in matcher.get_opcodes():
        if tag == "equal":
            continue
        i, j, k, m = (place + same for place in places)
        if j == len(was) or m == len(now):
            return ()  # the file's last line has no end
        if _may_tell("\n".join(rest[i:j]), launches):
            return ()
        lines.append(f"@@ -{i + (j > i)},{j - i} +{k + (m > k)},{m - k} @@")
        lines += [f"-{line}" for line in was[i:j]] + [f"+{line}" for line in now[k:m]]
    name = path.lstrip("/").removeprefix("./")
    ending = "\t" if " " in name else ""
    return (f"--- a/{name}{ending}", f"+++ b/{name}{ending}", *lines) if lines else ()


def _can_be_named(path: str) -> bool:
    """Whether `patch` takes the path as it is written."""
    return path.isprintable() and ".." not in path.split("/") and not set(path) & set('"\\\t')


def _around(text: str, launches: Sequence[Launch]) -> str | None:
    """The text without the words of its commands: blanks in the place of those that may be shown, _HIDDEN in the place
    of the others. None where a script within it may tell a secret."""
    around = text
    for launch in launches:
        if launch.inside:
            if rewrite.may_tell(text, launch):
                return None
            continue
        hidden = set(rewrite.hides(launch))
        for place, word in enumerate(launch.words):
            if word.start >= 0:
                sign = _HIDDEN if place in hidden else " "
                blank = re.sub(r"[^\n]", sign, text[word.start : word.end])
                around = around[: word.start] + blank + around[word.end :]
    return around


def _may_tell(changed: str, launches: Sequence[Launch]) -> bool:
    """Whether these lines, without the words of the commands, may hold a secret."""
    return _HIDDEN in changed or any(not launch.inside and rewrite.tells(changed, launch) for launch in launches)


def _but_end(was: Sequence[str], now: Sequence[str], same: int) -> Sequence[str]:
    """The new lines that stand in the place of those that are compared."""
    return now[same : len(now) - max(0, len(was) - same - _MOST_LINES)]


def _of_words(holder: launching.Script, launch: Launch, new: str) -> tuple[str, ...]:
    """A diff of the command that starts the server, one flag a line, without secrets."""
    if launch.inside and rewrite.may_tell(holder.text, launch):
        raise UnwritableError("it may hold a secret")
    return diff.between(_lines_of(holder.text, holder.number), _lines_of(new, holder.number))


def _lines_of(text: str, number: int) -> list[str]:
    for simple in shell.commands(text):
        count = len(launching.of_words(simple.words, Form.SHELL, simple.environment))
        if number < count:
            before = list(simple.assignments.values())
            told = command_line.without_secrets([word.text for word in simple.words])
            words = [_shown(text, word, word.text) for word in before]
            words += [_shown(text, word, tells) for word, tells in zip(simple.words, told, strict=True)]
            return diff.lines(words)
        number -= count
    return []


def _shown(text: str, word: Word, tells: str) -> str:
    """The word as it was written, without what may be a secret."""
    match = _ASSIGNED.fullmatch(tells)
    if match and not is_shown(match[2]):
        return match[1] + MASK
    if word.start < 0 or masked(tells) != word.text:
        return shlex.quote(masked(as_written(tells)))
    return text[word.start : word.end]


# ---- containers


@dataclass(frozen=True)
class _New:
    """What of a container changes: its words by key, and its variables. `hidden`: texts that may be secrets."""

    parts: Mapping[str, str | list[str]]
    environment: Mapping[str, str]
    hidden: frozenset[str]

    @property
    def tells(self) -> bool:
        return any(
            text in self.hidden for part in self.parts.values() for text in ([part] if isinstance(part, str) else part)
        )


class _Holes:
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


def _of_container(holder: Container, wanted: Wanted) -> _New:
    """Its words with the changes. Raises UnwritableError."""
    is_compose = holder.form is Form.COMPOSE
    first, second = ("entrypoint", "command") if is_compose else ("command", "args")
    escape = _of_compose_text if is_compose else _of_kubernetes_text
    holes = _Holes(_INTERPOLATED if is_compose else _REFERENCE)
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
    return _New(back, others, frozenset(map(holes.back, rewritten.hidden)))


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


def _part(node: Node, holes: _Holes, is_compose: bool) -> _Part:
    if _has_marks(node):
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


def _of_compose_text(text: str) -> str:
    return text.replace("$", "$$")


def _of_kubernetes_text(text: str) -> str:
    return text.replace("$(", "$$(")


def _has_marks(node: Node) -> bool:
    return is_marked(node.text) or any(map(_has_marks, (*node.fields.values(), *node.items)))


# ---- Kubernetes' two kinds of patches


def _is_merged(holder: Container) -> bool:
    object, keys = holder.object, holder.keys
    return (
        object["kind"].text in _MERGED.get(object["apiVersion"].text, ())
        and object.at("metadata", "name").is_scalar
        and keys[-2:-1] == ("containers",)
        and not any(isinstance(key, int) for key in keys[:-1])
        and holder.node["name"].is_scalar
    )


def _strategic(holder: Container, new: _New) -> dict[str, Any]:
    """Containers merge by their names, variables as well; a list of words is replaced."""
    object = holder.object
    metadata = {
        key: object.at("metadata", key).text for key in ("name", "namespace") if object.at("metadata", key).is_scalar
    }
    patch: dict[str, Any] = {"apiVersion": object["apiVersion"].text, "kind": object["kind"].text, "metadata": metadata}
    container = {"name": holder.node["name"].text, **new.parts}
    variables = []
    for item in _variables(holder, new):
        taken = any(old["name"].text == item["name"] and old["valueFrom"] for old in holder.node["env"].items)
        variables.append({**item, **({"valueFrom": None} if taken else {})})
    _put(patch, [str(key) for key in holder.keys[:-1]], [{**container, **({"env": variables} if variables else {})}])
    return patch


def _variables(holder: Container, new: _New) -> list[dict[str, Any]]:
    return [{"name": name, "value": _of_kubernetes_text(value)} for name, value in new.environment.items()]


def _operations(holder: Container, new: _New) -> Iterator[dict[str, Any]]:
    """JSON Patch (RFC 6902): only the words that change, each told as it was. Raises UnwritableError."""
    at = "/" + "/".join(str(key).replace("~", "~0").replace("/", "~1") for key in holder.keys)
    at = at if holder.keys else ""
    for key, part in new.parts.items():
        assert not isinstance(part, str)
        node = holder.node[key]
        was = [item.text for item in node.items]
        if not node:
            yield {"op": "add", "path": f"{at}/{key}", "value": part}
            continue
        matcher = difflib.SequenceMatcher(None, was, part, autojunk=False)
        for tag, i, j, k, m in reversed(matcher.get_opcodes()):
            if tag == "equal":
                continue
            if new.hidden & set(part[k:m]):
                raise UnwritableError(_SECRET)
            for place in reversed(range(i, j)):
                if was[place] not in new.hidden:
                    yield {"op": "test", "path": f"{at}/{key}/{place}", "value": node.items[place].plain}
                yield {"op": "remove", "path": f"{at}/{key}/{place}"}
            for text in reversed(part[k:m]):
                yield {"op": "add", "path": f"{at}/{key}/{i}", "value": text}
    variables = _variables(holder, new)
    if holder.is_environment_a_map:
        told = {str(item["name"]): item["value"] for item in variables}
        if told and not holder.node["env"]:
            yield {"op": "add", "path": f"{at}/env", "value": told}
        elif told:
            yield from ({"op": "add", "path": f"{at}/env/{name}", "value": value} for name, value in told.items())
        return
    listed = [item["name"].text for item in holder.node["env"].items]
    if variables and not holder.node["env"]:
        yield {"op": "add", "path": f"{at}/env", "value": variables}
        return
    for variable in variables:
        if variable["name"] in listed:
            place = listed.index(variable["name"])
            yield {"op": "replace", "path": f"{at}/env/{place}", "value": variable}
        else:
            yield {"op": "add", "path": f"{at}/env/-", "value": variable}


def _of_pool(pool: Pool, wanted: Wanted) -> Iterator[dict[str, Any]]:
    """JSON Patch of the variable with vLLM's arguments, and of the parallel sizes. Raises UnwritableError."""
    sizes, container, at = pool.node["parallelism"], pool.container, "/" + "/".join(pool.keys)
    names = {flag: key for key, flag in PARALLELISM.items() if sizes[key]}
    for name in sorted(names.keys() & {*wanted.set, *wanted.unset}):
        path = f"{at}/parallelism/{names[name]}"
        if name in wanted.set:
            yield {"op": "replace", "path": path, "value": _stack_value(wanted.set[name])}
        else:
            yield {"op": "remove", "path": path}
    rest = Wanted(
        {name: words for name, words in wanted.set.items() if name not in names}, wanted.unset - names.keys(), {}
    )
    variables = {name: _of_kubernetes_text(text) for name, text in wanted.environment.items()}
    listed = [item["name"].text for item in container["env"].items]
    if rest.set or rest.unset:
        old = container["env"].items[listed.index(ADDITIONAL)]["value"] if ADDITIONAL in listed else container["none"]
        variables[ADDITIONAL] = _additional(old, rest)
    if pool.place is None:
        raise UnwritableError("no container of it has variables")
    at += f"/template/containers/{pool.place}/env"
    if variables and not listed:
        yield {"op": "add", "path": at, "value": [{"name": name, "value": text} for name, text in variables.items()]}
        return
    for name, text in variables.items():
        value = {"name": name, "value": text}
        if name in listed:
            yield {"op": "replace", "path": f"{at}/{listed.index(name)}", "value": value}
        else:
            yield {"op": "add", "path": f"{at}/-", "value": value}


def _additional(old: Node, wanted: Wanted) -> str:
    """The text of VLLM_ADDITIONAL_ARGS with the changes. Raises UnwritableError."""
    if _has_marks(old):
        raise UnwritableError("it is a chart's template")
    holes = _Holes(_REFERENCE)
    text = holes.out(old.text)
    escaped = {name: tuple(map(_of_kubernetes_text, words)) for name, words in wanted.set.items()}
    words = [*(Word(word, old.line) for word in (*docker.SERVE, "m")), *shell.words(text)[0]]
    launch = Launch(words, Form.KUBERNETES)
    if rewrite.may_tell(text, launch):
        raise UnwritableError(_SECRET)
    if not text.strip():
        return " ".join(shlex.join(added) for added in escaped.values())
    return holes.back(rewrite.in_text(text, launch, Wanted(escaped, wanted.unset, {})))


def _put(tree: Any, keys: Sequence[str], value: Any, keeps_null: bool = False) -> None:
    """`keeps_null`: of a merge patch, in which null takes a key out. Raises UnwritableError where one of the keys is of
    no mapping."""
    for place, key in enumerate(keys):
        if not isinstance(tree, dict):
            raise UnwritableError(f"what holds {'.'.join(keys[place:])} is no mapping")
        if place < len(keys) - 1:
            if tree.get(key) is None:  # not there, or there without a value
                tree[key] = {}
            tree = tree[key]
    if value is None and not keeps_null:
        tree.pop(keys[-1], None)
    else:
        tree[keys[-1]] = value


def _at(tree: Any, keys: Path) -> Any:
    for key in keys:
        tree = tree[key]
    return tree


# ---- Helm


def _of_keys(holder: StackModel | Runtime, wanted: Wanted) -> dict[tuple[str, ...], Any]:
    """What changes of the production stack's keys; None: the key goes. Raises UnwritableError."""
    node = holder.node
    found: dict[tuple[str, ...], Any] = {}
    extra = node.at(*holder.extra)
    if extra and not (extra.kind == "seq" and all(item.is_scalar for item in extra.items)):
        raise UnwritableError("its extraArgs are no list")
    words = ["vllm", "serve", "m", *(item.text for item in extra.items)]
    edits = command_line.edits(words, {}, {*wanted.set, *wanted.unset})
    extras = {edit.name for edit in edits}
    places = {name: holder.keys[name] for name in (*wanted.set, *wanted.unset) if name in holder.keys}
    of_keys = {name: place for name, place in places.items() if node.at(*place) or _is_switch(name, wanted)}
    if lost := wanted.unset - extras - of_keys.keys():
        raise UnwritableError(f"{', '.join(sorted(lost))} is set elsewhere")
    for name, place in of_keys.items():
        found[place] = _stack_value(wanted.set[name]) if name in wanted.set else None
    added = {name: text for name, text in wanted.set.items() if name not in of_keys}
    new = list(command_line.changed(words, added, wanted.unset | (extras & of_keys.keys())))[3:]
    if new != words[3:]:
        found[holder.extra] = new
    if wanted.environment:
        items = node.at(*holder.environment).items
        kept = [item.plain for item in items if item["name"].text not in wanted.environment]
        new_ones = ({"name": name, "value": value} for name, value in wanted.environment.items())
        found[holder.environment] = [*kept, *new_ones]
    return found


def _is_switch(name: str, wanted: Wanted) -> bool:
    """Whether a switch is to be set that the production stack turns off where it has no key."""
    return name in SWITCHES and name in wanted.set


def _stack_value(words: Sequence[str]) -> Any:
    """A flag's words as a value of the chart: a number, a text, or on and off."""
    if len(words) == 1:
        return not words[0].startswith("--no-")
    for kind in (int, float):
        try:
            return kind(words[1])
        except ValueError:
            continue
    return words[1]


def _has_secrets(tree: Any, name: str = "") -> bool:
    """Whether a value of the document may be secret, by its key or by its look."""
    if isinstance(tree, dict):
        named = str(tree.get("name", ""))
        return any(_has_secrets(value, named if key == "value" else str(key)) for key, value in tree.items())
    if isinstance(tree, list):
        texts = [str(item) for item in tree]
        return command_line.without_secrets(texts) != texts or any(_has_secrets(item, name) for item in tree)
    if not isinstance(tree, str):
        return False
    return masked(tree) != tree or (is_secret(name) and bool(tree))


# ---- values of a program that makes the command


def _of_arguments(holder: Values, wanted: Wanted) -> tuple[str, list[str] | dict[str, Any]]:
    """Where its words or its flags stand, and what is to stand there. Raises UnwritableError."""
    if wanted.environment:
        raise UnwritableError("its environment is made by the program that reads the document")
    node = holder.arguments or holder.flags
    if node is None or node.kind not in ("seq", "map"):
        raise UnwritableError("its command is made by the program that reads the document")
    if _has_marks(node):
        raise UnwritableError("it is a template")
    new = _of_flags(node, wanted) if holder.arguments is None else _of_list(node, wanted)
    if _has_secrets(new):
        raise UnwritableError(_SECRET)
    return node.path or "the document", new


def _of_list(node: Node, wanted: Wanted) -> list[str]:
    words = [*docker.SERVE, "m", *(item.text for item in node.items)]
    if lost := wanted.unset - {edit.name for edit in command_line.edits(words, {}, wanted.unset)}:
        raise UnwritableError(f"{', '.join(sorted(lost))} is set elsewhere")
    return list(command_line.changed(words, wanted.set, wanted.unset))[3:]


def _of_flags(node: Node, wanted: Wanted) -> dict[str, Any]:
    keys = {command_line.flag_of_key(flag_map.flag_of(key).removeprefix("--")): key for key in node.fields}
    new: dict[str, Any] = dict(node.plain)
    for name, words in wanted.set.items():
        off = "--no-" + name.removeprefix("--")
        if off in keys:
            new.pop(keys[off])
        new[keys.get(name) or name.removeprefix("--")] = _stack_value(words)
    for name in wanted.unset:
        off = "--no-" + name.removeprefix("--")
        key = keys.get(name) or keys.get(off)
        if key is None:
            raise UnwritableError(f"{name} is set elsewhere")
        new.pop(key)
    return new


# ---- systemd


def _of_unit(text: str, wanted: Mapping[int, Wanted]) -> Iterator[str]:
    """A drop-in: ExecStart= empty first, which takes away those that are there. Raises UnwritableError."""
    lines = []
    variables: dict[str, str] = {}
    for number, command in enumerate(systemd.commands(text)):
        sign = systemd.prefix(command)
        written = command[len(sign) :]
        launches = launching.of_words(shell.words(written)[0], Form.SYSTEMD, {})
        if any(rewrite.may_tell(written, launch) for launch in launches):
            raise UnwritableError("it may hold a secret, which is not printed")
        if not launches and rewrite.tells(written, Launch([], Form.SYSTEMD)):
            raise UnwritableError("another ExecStart= of it may hold a secret, which is not printed")
        if number in wanted:
            if len(launches) != 1:
                raise UnwritableError("its words do not start one server by themselves")
            [launch] = launches
            here = wanted[number]
            inner = {
                name: value
                for name, value in here.environment.items()
                if launch.image_at is not None or rewrite.has(launch, name)
            }
            variables |= {name: value for name, value in here.environment.items() if name not in inner}
            written = rewrite.in_text(written, launch, replace(here, environment=inner), _of_unit_text)
        lines += f"ExecStart={sign}{written}".split("\n")
    yield "[Service]"
    for name, value in variables.items():
        yield f"Environment={_of_unit_text(f'{name}={value}', False)}"
    yield "ExecStart="
    yield from lines


def _of_unit_text(text: str, is_command: bool = True) -> str:
    """A word as systemd reads it back: `%` and, in a command, `$` are signs of its own."""
    text = text.replace("%", "%%")
    text = text.replace("$", "$$") if is_command else text
    if re.fullmatch(r"[\w@%+=:,./$-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
