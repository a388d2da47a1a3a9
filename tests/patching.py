"""What the tools do that apply a patch: by their documented rules, and by the tools themselves where they are here."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml


def apply(form: str, text: str, patch: str, path: Path) -> str:
    """The text of a file with a patch of it applied."""
    match form:
        case "shell":
            return _lines(text, patch, path)
        case "config":
            return _dump([_without_nulls(_merged(_first(text), _first(patch)))])
        case "helm":
            return _dump([_merged(_first(text), _first(patch))])
        case "compose":
            return _dump([_compose(_first(text), _first(patch))])
        case "systemd":
            return _unit(text, patch)
        case _:
            return _dump(_kubernetes(list(yaml.safe_load_all(text)), patch, text, path))


def _first(text: str) -> Any:
    [document] = [document for document in yaml.safe_load_all(text) if document is not None]
    return document


def _dump(documents: list[Any]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


def _merged(tree: Any, patch: Any) -> Any:
    """RFC 7396, but for nulls, which stay; as Helm and yq merge."""
    if not isinstance(tree, dict) or not isinstance(patch, dict):
        return copy.deepcopy(patch)
    return {**tree, **{key: _merged(tree.get(key), value) for key, value in patch.items()}}


def _without_nulls(tree: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if value is not None}


def _compose(tree: Any, patch: Any) -> Any:
    """Services merge; of one the command is replaced, and the environment merges by name."""
    tree = copy.deepcopy(tree)
    for name, service in patch["services"].items():
        old = tree["services"][name]
        environment = old.get("environment") or {}
        if isinstance(environment, list):
            environment = dict(item.partition("=")[::2] for item in environment)
        old |= {key: value for key, value in service.items() if key != "environment"}
        if "environment" in service:
            old["environment"] = environment | service["environment"]
    return tree


def _kubernetes(documents: list[Any], patch: str, text: str, path: Path) -> list[Any]:
    objects = [item for d in documents if d for item in (d["items"] if d.get("kind") == "List" else [d])]
    for part in yaml.safe_load_all(patch):
        if isinstance(part, list):
            [named] = re.findall(r"kubectl patch (?:--local|([\w./-]+))", patch)[:1]
            name = named.partition("/")[2] if named else objects[-1]["metadata"]["name"]
            target = next(o for o in objects if o["metadata"]["name"] == name)
            for operation in part:
                _operate(target, operation)
        else:
            target = next(
                o for o in objects if (o["kind"], o["metadata"]["name"]) == (part["kind"], part["metadata"]["name"])
            )
            _strategic(target, part)
    if len(objects) == 1 and shutil.which("kubectl") and objects[0]["apiVersion"] in ("v1", "apps/v1", "batch/v1"):
        _assert_kubectl_says_so(objects[0], patch, text, path)
    return objects


def _assert_kubectl_says_so(patched: Any, patch: str, text: str, path: Path) -> None:
    source, file = path.with_suffix(".was.yaml"), path.with_suffix(".patch.yaml")
    source.write_text(text)
    file.write_text(patch)
    kind = "json" if isinstance(yaml.safe_load(patch), list) else "strategic"
    command = [
        "kubectl",
        "patch",
        "--local",
        "-f",
        str(source),
        "--type",
        kind,
        "--patch-file",
        str(file),
        "-o",
        "yaml",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert yaml.safe_load(ran.stdout) == patched


_KEYS = {"containers": "name", "env": "name"}
"""Lists that merge by a key of their items."""


def _strategic(tree: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            tree.pop(key, None)
        elif isinstance(value, dict) and isinstance(tree.get(key), dict):
            _strategic(tree[key], value)
        elif key in _KEYS and isinstance(tree.get(key), list):
            for item in value:
                old = next((old for old in tree[key] if old[_KEYS[key]] == item[_KEYS[key]]), None)
                if old is None:
                    tree[key].append({name: it for name, it in item.items() if it is not None})
                else:
                    _strategic(old, item)
        else:
            tree[key] = copy.deepcopy(value)


def _operate(tree: Any, operation: dict[str, Any]) -> None:
    """RFC 6902."""
    *keys, last = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")[1:]]
    for key in keys:
        tree = tree[int(key)] if isinstance(tree, list) else tree[key]
    place: Any = (len(tree) if last == "-" else int(last)) if isinstance(tree, list) else last
    match operation["op"]:
        case "test":
            assert tree[place] == operation["value"]
        case "remove":
            del tree[place]
        case "replace":
            assert place in tree if isinstance(tree, dict) else place < len(tree)
            tree[place] = operation["value"]
        case "add" if isinstance(tree, list):
            tree.insert(place, operation["value"])
        case "add":
            tree[place] = operation["value"]


def _unit(text: str, dropin: str) -> str:
    """A unit with a drop-in after it: an empty ExecStart= takes away those before; a variable's last value counts."""
    settings = "\n".join(line for line in dropin.splitlines() if not line.startswith("#"))
    body = settings.removeprefix("[Service]\n")
    variables, empty, commands = body.partition("ExecStart=\n")
    assert empty
    kept: list[str] = []
    skips = False
    for line in text.splitlines():
        starts = line.startswith("ExecStart=")
        goes_on = skips and kept is not None
        skips = (starts or goes_on) and (line.endswith("\\") or line.lstrip().startswith("#"))
        if not (starts or goes_on):
            kept.append(line)
    service = kept.index("[Service]") + 1
    end = next((n for n in range(service, len(kept)) if kept[n].startswith("[")), len(kept))
    return "\n".join([*kept[:end], variables, commands, *kept[end:]]) + "\n"


def _lines(text: str, patch: str, path: Path) -> str:
    """A unified diff without context, by hand; and by `patch`, where that is here."""
    lines = text.split("\n")
    shift = 0
    hunks = re.split(r"^(?=@@)", patch, flags=re.MULTILINE)[1:]
    for hunk in hunks:
        head, *body = hunk.splitlines()
        numbers = re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", head)
        assert numbers
        start, count = int(numbers[1]), int(numbers[2])
        at = start - (count > 0) + shift
        assert lines[at : at + count] == [line[1:] for line in body if line.startswith("-")]
        new = [line[1:] for line in body if line.startswith("+")]
        lines[at : at + count] = new
        shift += len(new) - count
    done = "\n".join(lines)
    if shutil.which("patch"):
        root = re.search(r"^# patch (-d / )?-p1", patch, re.MULTILINE)
        assert root
        (path.parent / "p.diff").write_text(patch)
        target = path.with_suffix(".patched")
        command = ["patch", "-p1", "--fuzz=0", "-i", str(path.parent / "p.diff"), "-o", str(target)]
        subprocess.run(command, cwd="/" if root[1] else path.parent, check=True, capture_output=True, timeout=60)
        assert target.read_text() == done
    return done
