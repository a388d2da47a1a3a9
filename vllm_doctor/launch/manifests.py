"""Where manifests hold a server's start: compose, Kubernetes and what is built on it, Helm values, --config YAML.

The form is told by structure: a pod's containers are found wherever they stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.launch import budget, docker, machine, shell, shellwords
from vllm_doctor.launch.start import Fault, Flaw, Form, Holder, Launch, Resources, Word, Written
from vllm_doctor.launch.unexpanded import is_marked, mark
from vllm_doctor.launch.unwrap import SAYS, of_script, of_words
from vllm_doctor.launch.yaml_tree import Documents, Node
from vllm_doctor.text.secret_names import is_secret
from vllm_doctor.vllm import flags as catalogue

_GPU = re.compile(r"(nvidia\.com/(gpu|mig-.+)|(amd|google)\.com/[gt]pu|habana\.ai/gaudi|gpu\.intel\.com/\w+)")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_INTERPOLATED = re.compile(r"\$\$|\$\{([A-Za-z_]\w*+)[^{}]*+\}|\$([A-Za-z_]\w*)")
_CONFIG_SHARE = 0.5
_STEPS_OF_A_CONTAINER = 50
_STACK_FLAGS = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
}
_STACK_SWITCHES = {"enablePrefixCaching": "--enable-prefix-caching", "enableChunkedPrefill": "--enable-chunked-prefill"}
_LINE_END = (
    "a backslash at the end of the line: compose is no shell, and makes the line's end an argument, which vLLM refuses:"
    " leave it out"
)
_KSERVE_OWN = ("--model_", "--model-", "--http_", "--http-", "--backend", "--predictor", "--enable_docs_url")


def starts(documents: Documents, name: str) -> list[Written] | None:
    """The servers that the documents start; None where they are of no known form. `name`: of the file, if it is one."""
    known = False
    found: list[Written] = []
    for root in documents.roots:
        if root["services"].kind == "map":
            known = True
            found += _compose(root)
        elif root.at("servingEngineSpec", "modelSpec").kind == "seq":
            known = True
            found += _stack(root)
        elif root.at("image", "repository").is_scalar and root.at("image", "command").kind == "seq":
            known = True
            found += _chart(root).starts()
        elif root["run"].is_scalar and root["resources"].kind == "map":
            known = True
            found += _sky(root)
        elif _is_config(root):
            known = True
            found.append(_config(root, name))
        else:
            pods = list(_pods(root, "", root))
            known = known or bool(pods) or (bool(root["kind"]) and bool(root["apiVersion"]))
            found += [written for pod in pods for written in _of_pod(pod)]
    if documents.is_open:
        found = [replace(written, is_open=True) for written in found]
    return found if known else None


# ---- what all containers have


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

    def starts(self) -> Iterator[Written]:
        budget.spend(_STEPS_OF_A_CONTAINER)
        argv, guessed = docker.argv(self.image, self.entrypoint, self.arguments)
        faults = self.faults
        launches = self.launches()
        if not launches and self.entrypoint and len(argv) == 1 and re.search(r"\s", argv[0].text):
            launches = of_words(shell.words(argv[0].text, argv[0].line)[0], self.form, self.environment)
            says = "the whole command is one text: the container looks for a program of that name; write it as a list"
            faults = (*faults, Fault(Flaw.JOINED_WORDS, argv[0].line, says))
        for launch in launches:
            yield self._written(launch, faults, guessed)

    def launches(self) -> list[Launch]:
        """What its words start, without their environment."""
        return of_words(docker.argv(self.image, self.entrypoint, self.arguments)[0], self.form, self.environment)

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
            notes=(*self.notes, *guessed, *launch.notes),
            holder=self,
        )


def _texts(node: Node) -> tuple[Word, ...]:
    """The texts of a list, or the one text."""
    items = node.items if node.kind == "seq" else (node,) if node.is_scalar else ()
    return tuple(
        Word(item.text, item.text_line, start=place, end=place + 1)
        for place, item in enumerate(items)
        if item.is_scalar
    )


def _text(node: Node) -> str | None:
    return node.text if node.is_scalar else None


# ---- compose


def _compose(root: Node) -> Iterator[Written]:
    for name, service in root["services"].fields.items():
        if service.kind == "map":
            part = next((key for key in ("command", "entrypoint") if service[key]), "image")
            yield from _service(f"services.{name}.{part}", root, name).starts()


def _service(place: str, root: Node, name: str) -> Container:
    service = root["services"][name]
    entrypoint, faults = _compose_words(service["entrypoint"])
    arguments, more = _compose_words(service["command"])
    image = _text(service["image"])
    return Container(
        root,
        ("services", name),
        service,
        Form.COMPOSE,
        place,
        None if image is None else _interpolated(image),
        entrypoint if service["entrypoint"] else None,
        arguments,
        _compose_environment(service["environment"]),
        _compose_resources(service),
        (*faults, *more),
        ("an env_file is not read: what it sets is not known",) if service["env_file"] else (),
    )


def _compose_words(node: Node) -> tuple[tuple[Word, ...], tuple[Fault, ...]]:
    if node.kind == "seq":
        return tuple(replace(word, text=_interpolated(word.text)) for word in _texts(node)), ()
    if not node.is_scalar:
        return (), ()
    words, broken = shellwords.words(_interpolated(node.text), node.text_line)
    faults = [] if broken is None else [Fault(broken.kind, broken.line, SAYS[broken.kind])]
    line_end = next((word for word in words if word.text == shellwords.LINE_END), None)
    if line_end is not None:
        faults.append(Fault(Flaw.STRAY_WORD, line_end.line, _LINE_END))
    return tuple(word for word in words if word.text != shellwords.LINE_END), tuple(faults)


def _interpolated(text: str) -> str:
    """With compose's variables marked: they come from where compose runs. `$$` is a dollar."""
    return _INTERPOLATED.sub(lambda m: "$" if m[0] == "$$" else mark(f"${{{m[1] or m[2]}}}"), text)


def _compose_environment(node: Node) -> dict[str, str | None]:
    if node.kind == "seq":
        pairs = [word.text.partition("=") for word in _texts(node)]
        given = {name: value if equals else None for name, equals, value in pairs}
    else:
        given = {name: _text(value) for name, value in node.fields.items()}
    return {name: None if value is None else _interpolated(value) for name, value in given.items()}


def _compose_resources(service: Node) -> Resources:
    devices = service.at("deploy", "resources", "reservations", "devices")
    counts = [gpus for device in devices.items if (gpus := _device(device)) is not None]
    if service["gpus"].is_scalar:
        counts.append(docker.gpus_in(service["gpus"].text) or 0.0)
    limits = [
        docker.number(service.at("deploy", "resources", "limits", "cpus").text),
        docker.number(service["cpus"].text),
        docker.cpus_in(service["cpuset"].text) if service["cpuset"].text else None,
    ]
    files = service.at("ulimits", "nofile")
    return Resources(
        gpus=sum(counts) or None,
        cpu_limit=min((limit for limit in limits if limit is not None), default=None),
        cpu_request=docker.number(service.at("deploy", "resources", "reservations", "cpus").text),
        shm_bytes=docker.size(service["shm_size"].text),
        host_ipc=service["ipc"].text == "host",
        other_shm=service["ipc"].text not in ("", "private", "host")
        or _mounts_shm(service["volumes"], service["tmpfs"])
        or (bool(service["shm_size"]) and docker.size(service["shm_size"].text) is None),
        open_files=docker.number(files["soft"].text if files.kind == "map" else files.text),
    )


def _mounts_shm(*lists: Node) -> bool:
    """Whether a volume of compose is mounted at /dev/shm."""
    items = [item for node in lists for item in (node.items or (node,))]
    return any("/dev/shm" in (item["target"].text or item.text) for item in items)


def _device(device: Node) -> float | None:
    """How many GPUs a reservation asks for; None of all, and of a variable."""
    listed = device["device_ids"].items
    return float(len(listed)) if listed else docker.number(device["count"].text)


# ---- Kubernetes


@dataclass(frozen=True)
class _Pod:
    """A mapping with containers, or with KServe's `model`, and the object that it stands in."""

    owner: str
    object: Node
    keys: tuple[str | int, ...]
    spec: Node


def _pods(node: Node, owner: str, object: Node, keys: tuple[str | int, ...] = ()) -> Iterator[_Pod]:
    if node.kind == "map":
        if node["kind"].is_scalar:
            owner = "/".join(text for text in (node["kind"].text, node.at("metadata", "name").text) if text)
        if node["kind"].is_scalar and node["apiVersion"].is_scalar:
            object, keys = node, ()
        is_bare = not node.path and not node["apiVersion"] and (node["args"] or node["command"])
        if node["containers"].kind == "seq" or node["model"]["modelFormat"] or is_bare:
            yield _Pod(owner, object, keys, node)
        for key, value in node.fields.items():
            yield from _pods(value, owner, object, (*keys, key))
    for place, item in enumerate(node.items):
        yield from _pods(item, owner, object, (*keys, place))


def _of_pod(pod: _Pod) -> Iterator[Written]:
    containers = pod.spec["containers"].items
    if pod.spec["model"]["modelFormat"]:
        yield from _of_kserve(pod, pod.spec["model"])
    elif not containers and pod.spec["command"].is_scalar and not pod.spec["args"]:
        yield from _of_recipe(pod.spec)
    elif not containers:
        yield from _of_container(pod, pod.keys, pod.spec).starts()
    for place, container in enumerate(containers):
        if container.kind == "map":
            yield from _of_container(pod, (*pod.keys, "containers", place), container).starts()


def _of_recipe(recipe: Node) -> Iterator[Written]:
    """A mapping of nobody's form whose `command` is one text: it is for a shell."""
    for written in of_script(recipe["command"].text, recipe["command"].text_line):
        yield replace(written, place="command")


def _sky(task: Node) -> Iterator[Written]:
    """A task of SkyPilot: `run` is for a shell, on the GPUs of `resources`."""
    gpu, count = machine.accelerators(task["resources"]) or (None, None)
    for written in of_script(task["run"].text, task["run"].text_line):
        asked = written.resources
        yield replace(written, place="run", resources=replace(asked, gpus=asked.gpus or count, gpu=gpu))


def _of_container(pod: _Pod, keys: tuple[str | int, ...], container: Node) -> Container:
    environment = _kubernetes_environment(container["env"])
    command, arguments = container["command"], container["args"]
    part = container["args"] if arguments else container["command"]
    outside = "envFrom is not read: what it sets is not known"
    return Container(
        pod.object,
        keys,
        container,
        Form.KUBERNETES,
        f"{pod.owner} {part.path}".strip(),
        _text(container["image"]),
        tuple(_referenced(_texts(command), environment)) if command else None,
        tuple(_referenced(_texts(arguments), environment)),
        environment,
        _pod_resources(pod.spec, container),
        tuple(_not_text(command, arguments)),
        (outside,) if container["envFrom"] else (),
    )


def _kubernetes_environment(node: Node) -> dict[str, str | None]:
    """`env`: None for a value that is taken from elsewhere."""
    return {item["name"].text: _text(item["value"]) for item in node.items if item["name"].is_scalar}


def _referenced(words: Iterable[Word], environment: Mapping[str, str | None]) -> Iterator[Word]:
    """With $(NAME) replaced, as Kubernetes does; a name that `env` does not have stays as it is written."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        found = environment.get(match[1], match[0])
        budget.spend()
        budget.spend_on(found or "")
        return mark(match[0]) if found is None or is_secret(match[1]) else found

    for word in words:
        yield replace(word, text=_REFERENCE.sub(value, word.text))


def _not_text(*lists: Node) -> Iterator[Fault]:
    for item in (item for node in lists for item in node.items):
        if item.kind in ("int", "float", "bool"):
            says = f"{item.path} is no text, and Kubernetes takes nothing else there: put it in quotes"
            yield Fault(Flaw.NOT_TEXT, item.line, says)


def _pod_resources(spec: Node, container: Node) -> Resources:
    limits, requests = container.at("resources", "limits"), container.at("resources", "requests")
    gpus = [docker.number(n.text) for key, n in {**requests.fields, **limits.fields}.items() if _GPU.fullmatch(key)]
    shm = _shm(spec, container)
    mounted = any(m["mountPath"].text.rstrip("/") == "/dev/shm" for m in container["volumeMounts"].items)
    return Resources(
        gpus=sum(count for count in gpus if count) or None,
        cpu_limit=docker.number(limits["cpu"].text),
        cpu_request=docker.number(requests["cpu"].text),
        shm_bytes=shm,
        host_ipc=spec["hostIPC"].plain is True,
        other_shm=mounted and shm is None,
        gpu=machine.gpu(spec),
    )


def _shm(spec: Node, container: Node) -> float | None:
    """The size of an emptyDir at /dev/shm; None without a sizeLimit: then the memory's own limit holds."""
    mounted = {m["name"].text for m in container["volumeMounts"].items if m["mountPath"].text.rstrip("/") == "/dev/shm"}
    for volume in spec["volumes"].items:
        if volume["name"].text in mounted and volume["emptyDir"]["medium"].text == "Memory":
            return docker.quantity(volume["emptyDir"]["sizeLimit"].text)
    return None


KSERVE = "kserve/vllm"
"""Stands for the image of KServe's own server: its arguments are vLLM's."""


def _of_kserve(pod: _Pod, model: Node) -> Iterator[Written]:
    """KServe's Hugging Face server, which gives vLLM those arguments that are not its own."""
    environment = _kubernetes_environment(model["env"])
    words = list(_referenced(_texts(model["args"]), environment))
    named = _kserve_model(words) or _text(model["storageUri"])
    line = model["args"].line
    argv = [Word("vllm", line), Word("serve", line), *([Word(named, line)] if named else []), *_of_vllm(words)]
    place = f"{pod.owner} {model['args'].path}".strip()
    yield Written(
        argv,
        Form.KUBERNETES,
        environment,
        place=place,
        holder=Container(
            pod.object,
            (*pod.keys, "model"),
            model,
            Form.KUBERNETES,
            place,
            KSERVE,
            None,
            tuple(words),
            environment,
            Resources(),
        ),
        image=_text(model["image"]),
        resources=_pod_resources(pod.spec, model),
        faults=tuple(_not_text(model["args"])),
        notes=("KServe's own server starts vLLM: it was read as `vllm serve` with the same flags",),
    )


def _kserve_model(words: Iterable[Word]) -> str | None:
    texts = [word.text for word in words]
    for place, text in enumerate(texts):
        name, equals, _ = text.replace("-", "_").partition("=")
        if name == "__model_id":
            return text.partition("=")[2] if equals else next(iter(texts[place + 1 :]), None)
    return None


def _of_vllm(words: Iterable[Word]) -> Iterator[Word]:
    skips = False
    for word in words:
        if word.text.startswith("-"):
            skips = word.text.startswith(_KSERVE_OWN)
        if not skips:
            yield word
        skips = skips and word.text.startswith("-") and "=" not in word.text


# ---- Helm values of vLLM's production stack


@dataclass(frozen=True)
class StackModel(Holder):
    """One of the production stack's models; `values`: the whole document."""

    values: Node
    number: int

    @property
    def node(self) -> Node:
        return self.values.at("servingEngineSpec", "modelSpec").items[self.number]


STACK_KEYS: Mapping[str, str] = {flag: key for key, flag in (*_STACK_FLAGS.items(), *_STACK_SWITCHES.items())}
"""The keys of vllmConfig by their flags."""


def _stack(values: Node) -> Iterator[Written]:
    for number, model in enumerate(values.at("servingEngineSpec", "modelSpec").items):
        config = model["vllmConfig"]
        line = config.line
        words = [Word("vllm", line), Word("serve", line)]
        if model["modelURL"].is_scalar:
            words.append(Word(model["modelURL"].text, model["modelURL"].line))
        for key, node in config.fields.items():
            if key in _STACK_FLAGS and node.is_scalar:
                words += [Word(_STACK_FLAGS[key], node.line), Word(node.text, node.line)]
            elif key in _STACK_SWITCHES and node.kind == "bool":
                flag = _STACK_SWITCHES[key]
                words.append(Word(flag if node.plain else flag.replace("--", "--no-", 1), node.line))
        words += _texts(config["extraArgs"])
        others = [key for key in config.fields if key not in (*_STACK_FLAGS, *_STACK_SWITCHES, "extraArgs")]
        image = ":".join(node.text for node in (model["repository"], model["tag"]) if node.is_scalar)
        yield Written(
            words,
            Form.HELM,
            _kubernetes_environment(model["env"]),
            place=config.path if config else model.path,
            holder=StackModel(values, number),
            image=image or None,
            resources=Resources(
                gpus=docker.number(model["requestGPU"].text),
                cpu_limit=docker.number(model["limitCPU"].text),
                cpu_request=docker.number(model["requestCPU"].text),
                shm_bytes=docker.quantity(model["shmSize"].text),
                gpu=machine.gpu(model, values),
            ),
            notes=(f"not read of vllmConfig: {', '.join(others)}",) if others else (),
        )


# ---- Helm values of vLLM's own chart


CHART_KEYS = ("image",)


def _chart(values: Node) -> Container:
    """`image` holds its command as well, and the container's resources stand beside it."""
    image, shm = values["image"], values["shm"]
    resources = _pod_resources(values, values)
    if shm["enabled"].plain is True:
        size = docker.quantity(shm["size"].text)
        resources = replace(resources, shm_bytes=size, other_shm=size is None)
    return Container(
        values,
        CHART_KEYS,
        image,
        Form.KUBERNETES,
        image["command"].path,
        ":".join(node.text for node in (image["repository"], image["tag"]) if node.is_scalar),
        _texts(image["command"]),
        (),
        {},
        resources,
        tuple(_not_text(image["command"])),
    )


# ---- vLLM's own --config file


@dataclass(frozen=True)
class ConfigFile(Holder):
    """vLLM's own --config file."""

    root: Node


def _is_config(root: Node) -> bool:
    """A flat mapping whose keys are flags of vLLM, most of them."""
    keys = [key for key in root.fields if "." not in key]
    if not keys or (root["apiVersion"] and root["kind"]):
        return False
    known = [key for key in keys if catalogue.is_flag("--" + key.replace("_", "-"))]
    return len(known) >= max(1.0, len(keys) * _CONFIG_SHARE) and set(known) != {"model"}


def _config(root: Node, name: str) -> Written:
    words = [Word(text, root.line) for text in ("vllm", "serve", "--config", name or "config.yaml")]
    faults = [
        Fault(Flaw.UNEXPANDED, node.line, f"the value of --{key.replace('_', '-')} is a template: it is not known")
        for key, node in root.fields.items()
        if is_marked(node.text)
    ]
    return Written(
        words,
        Form.CONFIG,
        faults=tuple(faults),
        place=name,
        config=json.dumps(root.plain, ensure_ascii=False),
        holder=ConfigFile(root),
    )
