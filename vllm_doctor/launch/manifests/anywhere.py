"""A document of nobody's form: commands, lists of arguments and mappings of flags are found by what they look like.

What such keys do is known only to the program that reads the document, which a note says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.launch import budget, docker, machine, shell
from vllm_doctor.launch.manifests import flag_map, script
from vllm_doctor.launch.manifests.container import texts
from vllm_doctor.launch.manifests.pod import environment_of, resources_of
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.unwrap import of_script, of_words
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.model.errors import SourceError

_STARTS = re.compile(r"\bvllm[ \t]+serve\b|\bvllm\.entrypoints\b|/vllm-openai\b")
_COMMAND = re.compile(
    r"(?:.*[_-])?(?:run|cmd|commands?|scripts?|entrypoint|exec|start|launch|shell|serve)", re.IGNORECASE
)
_MODEL = re.compile(r"(?:hf|huggingface|base|vllm|llm|default)?model(?:name|id|uri|url|path|repo|repoid|handle)?")
_MODEL_PARTS = ("huggingfaceName", "huggingfaceId", "repo_id", "repoId", "id", "uri", "url", "path", "name")
_REPO = re.compile(r"(?:hf|huggingface)?(?:repoid|modelid|modelname|modelhandle)")
_PREFIX = re.compile(r"(?:hf|huggingface|huggingface\.co)(?::/{0,2}|/)")
_ENVIRONMENTS = ("env", "envs", "environment", "extraEnv", "extraEnvVars")
_ROLES = ("prefill", "decode", "encode")
_ENGINE = re.compile(r"(?:^|\.)engine[_-]?(?:args|config|kwargs)$", re.IGNORECASE)
"""Keys under which programs hand a mapping on to vLLM's EngineArgs."""
_ARGUMENTS = re.compile(r"(?:.*[_-])?(?:args|arguments|flags|options|params|parameters)", re.IGNORECASE)
_LEAST = 2
_LEAST_UNNAMED = 3
_SHARE = 0.5
_NOT_OWN = frozenset(
    {
        "--host", "--port", "--model", "--api-key", "--config", "--seed", "--device", "--dtype", "--revision",
        "--tokenizer", "--trust-remote-code", "--root-path", "--middleware", "--task", "--quantization", "--verbose",
        "--image", "--replicas", "--version", "--help", "--enable-lora", "--download-dir", "--load-format",
    }
)  # fmt: skip
"""Names that mean something in many programs: alone, they are no sign of vLLM."""
_NAMED = 8
_LITELLM = "this is a configuration of LiteLLM, which starts no engine: give the command of the server behind it"


@dataclass(frozen=True)
class _Found:
    """Flags that stand together at `node`; `above`: the mappings around, the nearest first."""

    node: Node
    words: tuple[Word, ...]
    above: tuple[Node, ...]
    group: str
    others: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        last = self.group.rpartition(".")[2]
        return last if last in _ROLES else ""

    @property
    def flags(self) -> frozenset[str]:
        return frozenset(word.text.partition("=")[0] for word in self.words if word.text.startswith("--"))


def starts(root: Node, name: str) -> Iterable[Written] | None:
    if root["model_list"].kind == "seq" and any(item["litellm_params"] for item in root["model_list"].items):
        raise SourceError("not-vllm", _LITELLM)
    found = [*_commands(root, ())]
    if not found:
        found = [_written(parts) for parts in _servers(list(_flags(root, (), "")))]
    return found or None


# ---- commands


def _commands(node: Node, above: tuple[Node, ...]) -> Iterator[Written]:
    budget.spend()
    if node.kind == "map":
        for key, value in node.fields.items():
            if _COMMAND.fullmatch(key) and (given := list(_started(value, (node, *above)))):
                yield from given
            else:
                yield from _commands(value, (node, *above))
    for item in node.items:
        yield from _commands(item, above)


def _started(node: Node, above: tuple[Node, ...]) -> Iterator[Written]:
    """What a command's text, a list of commands, or a list of words starts."""
    listed = texts(node)
    if not any(_STARTS.search(word.text) for word in listed) and "vllm" not in {word.text for word in listed}:
        return
    environment = _environment(above)
    if node.kind == "seq" and (launches := of_words([*listed, *texts(above[0]["args"])], Form.VALUES, environment)):
        for launch in launches:
            yield Written.of(launch, place=node.path, resources=_resources(above), image=_image(above), holder=Values())
        return
    joined = script.joined(listed)
    if joined is not None:
        for written in of_script(joined.text, joined.line, environment):
            asked = written.resources if written.resources != Resources() else _resources(above)
            image = written.image or _image(above)
            form = Form.VALUES if written.form is Form.SHELL and image else written.form
            yield replace(written, form=form, place=node.path, resources=asked, image=image)


# ---- flags


def _flags(node: Node, above: tuple[Node, ...], group: str) -> Iterator[_Found]:
    budget.spend()
    if node.kind == "seq":
        if listed := _arguments(node, above):
            yield _Found(node, listed, above, group)
            return
        for item in node.items:
            yield from _flags(item, above, item.path if item.kind == "map" else group)
    elif node.kind == "map":
        if _is_off(node):
            return
        known = {key: flag for key, value in node.fields.items() if (flag := _flag(key, value)) is not None}
        if _is_map(node, known, above):
            fields = {key: value for key, value in node.fields.items() if key in known}
            others = tuple(key for key, value in node.fields.items() if key not in known and _is_unread(key, value))
            told = Node(node.path, node.line, "map", fields=fields)
            yield _Found(node, tuple(flag_map.words(told)), (node, *above), group, others)
        for key, value in node.fields.items():
            if value.is_scalar and _ARGUMENTS.fullmatch(key) and (listed := _arguments(value, (node, *above))):
                yield _Found(value, listed, (node, *above), group)
            elif key not in known or value.kind == "map":
                role = next((role for role in _ROLES if role in key.lower()), None)
                yield from _flags(value, (node, *above), f"{group}.{role}" if role else group)


def _is_unread(key: str, value: Node) -> bool:
    return value.kind != "map" and not (value.is_scalar and _ARGUMENTS.fullmatch(key))


def _is_off(node: Node) -> bool:
    return node["enabled"].plain is False or node["create"].plain is False


def _flag(key: str, value: Node) -> str | None:
    """The flag that a key means, where its value may be one's: `resources: {…}` and `model: {…}` are none."""
    flag = flag_map.known(key) if value and (value.kind != "map" or key.lower().endswith("config")) else None
    return None if flag is None or (value.kind == "seq" and any(not item.is_scalar for item in value.items)) else flag


def _is_map(node: Node, known: Mapping[str, str], above: tuple[Node, ...]) -> bool:
    own = [flag for flag in known.values() if flag not in _NOT_OWN]
    scalars = [key for key, value in node.fields.items() if value.kind != "map"]
    if not own or _is_of_compose(node):
        return False
    if _is_named(node):
        return len(own) >= _LEAST or len(known) >= _SHARE * len(scalars)
    is_told = _is_vllm(node, (node, *above))
    return len(own) >= (_LEAST if is_told else _LEAST_UNNAMED) and (is_told or len(known) >= _SHARE * len(scalars))


def _is_of_compose(node: Node) -> bool:
    """Whether it is what compose reserves of the host: its `device_ids` are no flag."""
    return ".deploy.resources" in f".{node.path}" or (node["driver"].is_scalar and bool(node["capabilities"]))


def _arguments(node: Node, above: tuple[Node, ...]) -> tuple[Word, ...]:
    """The words of a list, or of a text, of arguments for vLLM."""
    listed = tuple(shell.words(node.text, node.text_line)[0]) if node.is_scalar else texts(node)
    if not listed or (node.kind == "seq" and len(listed) != len(node.items)):
        return ()
    flags = {word.text.partition("=")[0].partition(" ")[0] for word in listed if word.text.startswith("--")}
    known = {flag for text in flags if (flag := flag_map.known(text)) is not None}
    own = known - _NOT_OWN
    is_enough = len(own) >= _LEAST or (bool(own) and _is_vllm(node, above))
    if not is_enough or len(known) < _SHARE * len(flags):
        return ()
    return tuple(word for one in listed for word in _parted(one))


def _parted(word: Word) -> list[Word]:
    """`--max-model-len 8192` as one item is two words: a template puts such items into one command line."""
    if word.text.startswith("--") and len(parts := word.text.split(None, 1)) > 1:
        return [replace(word, text=part) for part in parts]
    return [word]


def _is_named(node: Node) -> bool:
    return "vllm" in node.path.lower() or _ENGINE.search(node.path) is not None


def _is_vllm(node: Node, above: tuple[Node, ...]) -> bool:
    """Whether a key, an image or a word around names vLLM."""
    if _is_named(node):
        return True
    said = ("engine", "backend", "image", "runtime", "framework", "type", "inference_engine", "imageName")
    return any("vllm" in _said(place[key]).lower() for place in above for key in said if key in place.fields)


def _said(node: Node) -> str:
    return node.text or node["repository"].text or node["name"].text or node["type"].text


# ---- servers


def _servers(found: list[_Found]) -> list[list[_Found]]:
    """Those that belong to one server: of one group, none of whose flags is set twice."""
    servers: list[list[_Found]] = []
    for part in found:
        last = servers[-1] if servers else []
        taken = {flag for one in last for flag in one.flags}
        if last and last[-1].group == part.group and not taken & part.flags:
            last.append(part)
        else:
            servers.append([part])
    return servers


def _written(parts: list[_Found]) -> Written:
    first = parts[0]
    line = first.node.line
    words = [Word(word, line) for word in docker.SERVE]
    above = tuple({id(place): place for part in parts for place in part.above}.values())
    given = {flag for part in parts for flag in part.flags}
    if "--model" not in given and (model := _model(above)) is not None:
        words.append(model)
    others = [name for part in parts for name in part.others if not _is_around(name)]
    note = "found by its keys' names: what the program that reads this document makes of them is not known"
    unread = f"not read of {first.node.path or 'the document'}: {', '.join(others[:_NAMED])}"
    holder = Values(flags=first.node) if first.node.kind == "map" else Values(arguments=first.node)
    return Written(
        [*words, *(word for part in parts for word in part.words)],
        Form.VALUES,
        _environment(above),
        place=" + ".join(part.node.path or "document" for part in parts),
        holder=holder if len(parts) == 1 else Values(),
        image=_image(above),
        resources=_resources(above),
        notes=(note, *((unread + (", …" if len(others) > _NAMED else ""),) if others else ())),
        role=first.role,
    )


_AROUND = frozenset({"name", "image", "env", "replicas", "enabled", "command", "args", "engine", "backend", "type"})


def _is_around(key: str) -> bool:
    return key in _AROUND or _MODEL.fullmatch(_letters(key)) is not None


def _letters(key: str) -> str:
    return re.sub(r"[-_]", "", key).lower()


def _model(above: Iterable[Node]) -> Word | None:
    """The model that the nearest mapping names; a repository on the Hub before a name of its own."""
    for place in above:
        named: list[Node] = []
        for key, value in place.fields.items():
            letters = _letters(key)
            if _MODEL.fullmatch(letters) or _REPO.fullmatch(letters):
                named += [value] if value.is_scalar else [value[part] for part in _MODEL_PARTS]
        told = [node for node in named if node.is_scalar and node.kind == "str" and "\n" not in node.text]
        told.sort(key=lambda node: "/" not in node.text)
        if told:
            return Word(
                _PREFIX.sub("", told[0].text, count=1) if ":" in told[0].text[:12] else told[0].text, told[0].line
            )
    return None


def _environment(above: Iterable[Node]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for place in above:
        for key in ("env", "envs", "environment", "extraEnv", "extraEnvVars"):
            node = place[key]
            is_pairs = any(item.kind == "map" for item in node.items)
            given = (
                environment_of(node) if is_pairs else script.environment_of(node) if node.kind in ("map", "seq") else {}
            )
            found = {**given, **found}
    return found


def _image(above: Iterable[Node]) -> str | None:
    for place in above:
        image = place["image"] or place["imageName"] or place["docker_image"]
        told = image.text or ":".join(node.text for node in (image["repository"], image["tag"]) if node.is_scalar)
        if told:
            return told
    return None


def _resources(above: Iterable[Node]) -> Resources:
    for place in above:
        resources = place["resources"]
        if resources.kind == "map":
            asked = resources_of(place, place)
            told = machine.accelerators(resources) or machine.of_truss(resources["accelerator"])
            asked = replace(asked, gpu=asked.gpu or told[0], gpus=asked.gpus or told[1])
            if asked != Resources():
                return asked
    return Resources()
