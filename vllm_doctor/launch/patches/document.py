"""Corrections of written commands, each in the form its command came in: what to apply to the document."""

from __future__ import annotations

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
    manifests,
    python_edit,
    rewrite,
    systemd,
    yaml_tree,
)
from vllm_doctor.launch import unwrap as launching
from vllm_doctor.launch.manifests import ConfigFile, Container, Pool, Runtime, StackModel, Values
from vllm_doctor.launch.patches.chart import has_secrets, of_keys
from vllm_doctor.launch.patches.containers import has_marks, of_compose_text, of_container
from vllm_doctor.launch.patches.in_force import not_in_force
from vllm_doctor.launch.patches.kubernetes import as_list, is_merged, json_patch, strategic
from vllm_doctor.launch.patches.lines import diff_of_command, diff_of_file
from vllm_doctor.launch.patches.pool import json_patch_of_pool
from vllm_doctor.launch.patches.regions import in_regions
from vllm_doctor.launch.patches.tree import put, value_at
from vllm_doctor.launch.patches.unit import drop_in
from vllm_doctor.launch.patches.values import arguments
from vllm_doctor.launch.python_calls import Call
from vllm_doctor.launch.region import Region
from vllm_doctor.launch.rewrite import UnwritableError
from vllm_doctor.launch.start import Form, Start, Written
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.report import Change, Patch
from vllm_doctor.text import yaml
from vllm_doctor.vllm import command_line

_PARTED = re.compile(r"\S\s{0,999}\n---")
_IN_WORDS = "change it in place; the command, with all filled in that the text holds:"
_STEPS = 2 * budget.STEPS
"""For all changes of one text, which is read anew for each of them."""
_FROZEN = frozenset({"Pod", "Job"})
"""Kinds whose command cannot be changed while they exist."""


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
        if of_lines := [number for number, holder in holders.items() if isinstance(holder, Region)]:
            yield from self._of_regions({number: changes[number] for number in of_lines})
            holders = {number: holder for number, holder in holders.items() if number not in of_lines}
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
                shown = diff_of_command(holder, self.written[number], new)
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
        return diff_of_file(self.text, text, [self.written[number] for number in changes], self.path)

    # ---- lines of another language

    def _of_regions(self, changes: Mapping[int, Sequence[Change]]) -> Iterator[Patch]:
        """A diff of the file; else each command in words, with why it is none."""
        try:
            with budget.limited(_STEPS):
                lines = in_regions(self.text, self.path if self.is_exact else None, self.written, changes)
        except (UnwritableError, SourceError) as error:
            for number, given in changes.items():
                words = diff.of_words(self.starts[number].argv, given, "").lines
                yield self._patch([number], changes, lines=words, apply=(f"not in place ({error}): {_IN_WORDS}",))
            return
        root = "-d / " if os.path.isabs(self.path or "") else ""
        yield self._patch(changes, changes, lines=lines, apply=(f"patch {root}-p1 < PATCH",))

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
                new = of_container(holder, wanted)
            except UnwritableError as error:
                yield self._patch([number], changes, problem=f"{error}: change it by hand")
                continue
            if new.tells:
                yield self._patch([number], changes, problem=rewrite.SECRET)
                continue
            service: dict[str, Any] = dict(new.parts)
            if new.environment:
                service["environment"] = {name: of_compose_text(text) for name, text in new.environment.items()}
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
                    new = of_container(holder, rewrite.wanted(changes[number]))
                    if is_merged(holder) and not new.tells:
                        merged.append((number, strategic(holder, new)))
                        continue
                    operations = list(json_patch(holder, new))
                except UnwritableError as error:
                    yield self._patch([number], changes, problem=f"{error}: change it by hand")
                    continue
                if not (holder.object["kind"] and holder.object["apiVersion"]):
                    if new.tells:
                        yield self._patch([number], changes, problem=rewrite.SECRET)
                        continue
                    env = {"env": variables} if (variables := as_list(holder, new)) else {}
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
                    value_at(whole, first.keys[:-1]).extend(value_at(another, first.keys[:-1]))
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
            for keys, value in of_keys(holder, rewrite.wanted(changes)).items():
                put(spec, keys, value, keeps_null=True)
        except UnwritableError as error:
            return self._patch([number], {number: changes}, problem=f"{error}: change it by hand")
        if has_marks(holder.node) or has_secrets(spec):
            return self._patch([number], {number: changes}, problem=rewrite.SECRET)
        apply = tuple(self._kubectl(holder.object, "merge"))
        object = holder.object
        metadata = {key: node.text for key, node in object["metadata"].fields.items() if key in ("name", "namespace")}
        whole = {"apiVersion": object["apiVersion"].text, "kind": object["kind"].text, "metadata": metadata}
        lines = tuple(yaml.dump({**whole, "spec": spec}))
        return self._patch([number], {number: changes}, apply=apply, lines=lines)

    def _of_pool(self, number: int, holder: Pool, changes: Sequence[Change]) -> Patch:
        """Of KServe's LLMInferenceService, as a JSON patch."""
        try:
            operations = list(json_patch_of_pool(holder, rewrite.wanted(changes)))
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
                for key, value in of_keys(holder, rewrite.wanted(changes[number])).items():
                    put(models[holder.number], key, value)
                    path = f"servingEngineSpec.modelSpec[{holder.number}].{'.'.join(key)}"
                    sets.append(f"{path}={json.dumps(value)}")
        except UnwritableError as error:
            return self._patch(holders, changes, problem=f"{error}: change it by hand")
        if has_marks(node):
            return self._patch(holders, changes, problem="it is a chart's template: change it by hand")
        if has_secrets(models):
            by = " ".join(f"--set-json {shlex.quote(text)}" for text in sets)
            is_short = not has_secrets(by.split()) and not any(text.endswith("=null") for text in sets)
            hand = (f"or: helm upgrade RELEASE CHART -f {self._file} {by}",) if is_short else ()
            return self._patch(holders, changes, problem=rewrite.SECRET, apply=hand)
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
            where, new = arguments(holder, rewrite.wanted(changes[number]))
        except UnwritableError as error:
            return self._patch([number], changes, problem=f"{error}: change it by hand")
        return self._patch([number], changes, apply=(f"put this in the place of {where}",), lines=tuple(yaml.dump(new)))

    # ---- systemd

    def _of_units(self, changes: Mapping[int, Sequence[Change]]) -> Iterator[Patch]:
        for text in dict.fromkeys(self._unit(number).text for number in changes):
            here = [n for n in changes if self._unit(n).text == text]
            try:
                lines = list(drop_in(text, {self._unit(n).number: rewrite.wanted(changes[n]) for n in here}))
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
