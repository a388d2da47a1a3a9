"""Ray Serve's applications: files for `serve deploy`, KubeRay's RayService, which holds one as a text, and LLMConfigs.

Ray Serve LLM gives vLLM what `engine_kwargs` hold. An application of somebody's own is not read; what its variables
name as vLLM's flags do is taken for these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.launch import budget, docker, machine, shell
from vllm_doctor.launch.manifests import flag_map
from vllm_doctor.launch.manifests.container import text, texts
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.launch.yaml_tree import Node, read
from vllm_doctor.text.secret_names import is_secret

_STEPS_OF_A_TEXT = 100
_STEPS_OF_A_NAME = 5
_BUILDERS = "ray.serve.llm:"
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*+)[^{}]*+\}|\$([A-Za-z_]\w*+)")
_READ = frozenset(
    {"model_loading_config", "engine_kwargs", "accelerator_type", "deployment_config", "runtime_env", "llm_engine"}
)
_ROLES = {"prefill_config": "prefill", "decode_config": "decode"}
_MODELS = ("MODEL_ID", "MODEL_NAME", "MODEL", "MODEL_PATH", "HF_MODEL_ID")
_MEANT = {
    "TENSOR_PARALLELISM": "--tensor-parallel-size",
    "PIPELINE_PARALLELISM": "--pipeline-parallel-size",
    "MAX_NUM_SEQ": "--max-num-seqs",
}
_ARGUMENTS = ("ENGINE_ARGS", "VLLM_ARGS", "VLLM_ENGINE_ARGS")
_NOT_MEANT = frozenset({"--config", "--host", "--port", "--model"})
_INSTALLED = re.compile(r"vllm(?:\[[\w,-]{0,40}\])?==([\w.]{1,20})")


@dataclass(frozen=True)
class _Place:
    """Where an application stands, and what its cluster has."""

    owner: str = ""
    image: str | None = None
    gpu: str | None = None


def starts(root: Node, name: str) -> Iterable[Written] | None:
    """A file for `serve deploy`, or an LLMConfig alone."""
    if root["model_loading_config"].kind == "map":
        return [_configured(root, _Place(), {}, "")]
    if root["applications"].kind == "seq" and any(item["import_path"] for item in root["applications"].items):
        return _applications(root, _Place())
    return None


def of_service(owner: str, service: Node) -> Iterator[Written]:
    """KubeRay's RayService."""
    held = service.at("spec", "serveConfigV2")
    groups = service.at("spec", "rayClusterConfig", "workerGroupSpecs").items
    head = service.at("spec", "rayClusterConfig", "headGroupSpec")
    specs = [group.at("template", "spec") for group in (*groups, head)]
    images = [text(container["image"]) for spec in specs for container in spec["containers"].items]
    place = _Place(f"{owner} {held.path}", next(filter(None, images), None), machine.gpu(*specs))
    if held.is_scalar:
        budget.spend(_STEPS_OF_A_TEXT)
        for root in read(held.text, held.text_line).roots:
            yield from _applications(root, place)


def _applications(root: Node, place: _Place) -> Iterator[Written]:
    for application in root["applications"].items:
        environment = _variables(application)
        found = list(_configs(application["args"]))
        for config, role in found:
            yield _configured(config, place, environment, role)
        if not found and not application["import_path"].text.startswith(_BUILDERS):
            yield from _own(application, place, environment)


def _configs(args: Node, role: str = "") -> Iterator[tuple[Node, str]]:
    """The LLMConfigs among an application's arguments, also those that are a file of their own."""
    if args["model_loading_config"].kind == "map":
        yield args, role
        return
    for key, value in args.fields.items():
        for one in value.items if key == "llm_configs" else (value,):
            if one.is_scalar and key in ("llm_config", "llm_configs", *_ROLES):
                yield one, _ROLES.get(key, role)
            else:
                yield from _configs(one, _ROLES.get(key, role))


def _configured(config: Node, place: _Place, environment: Mapping[str, str | None], role: str) -> Written:
    """What Ray Serve LLM makes of one LLMConfig."""
    kwargs, loading, line = config["engine_kwargs"], config["model_loading_config"], config.line
    named, source = loading["model_id"], loading["model_source"]
    if config.is_scalar:
        model: Word | None = Word(mark(config.text), line)
    else:
        told = next((node for node in (source, source["bucket_uri"], named) if node.is_scalar), None)
        model = None if told is None else Word(told.text, told.line)
    words = [*(Word(word, line) for word in docker.SERVE), *([model] if model else [])]
    if named.is_scalar and model is not None and named.text != model.text:
        words += [Word("--served-model-name", named.line), Word(named.text, named.line)]
    words += flag_map.words(kwargs)
    return Written(
        [replace(word, text=_expanded(word.text)) for word in words],
        Form.VALUES,
        {**environment, **_variables(config)},
        place=f"{place.owner} {config.path}".strip(),
        holder=Values(flags=kwargs),
        image=place.image,
        resources=Resources(gpu=text(config["accelerator_type"]) or place.gpu),
        notes=tuple(_notes(config)),
        is_open=config.is_scalar,
        role=role,
    )


def _notes(config: Node) -> Iterator[str]:
    yield "Ray Serve starts vLLM's engine: it was read as `vllm serve` with the same flags"
    if config.is_scalar:
        yield f"its LLMConfig is another file: give {config.text} as well"
    deployment = config["deployment_config"]
    scaling = deployment["autoscaling_config"]
    least, most = (scaling[key].text for key in ("min_replicas", "max_replicas"))
    if most and least != most:
        yield f"replicas: {least or '1'} to {most}"
    elif (count := most or deployment["num_replicas"].text) and count != "1":
        yield f"replicas: {count}"
    engine = config["llm_engine"].text
    if engine and engine.lower() != "vllm":
        yield f"its engine is {engine}, not vLLM"
    others = [key for key in config.fields if key not in _READ]
    if others:
        yield f"not read of LLMConfig: {', '.join(others)}"


def _own(application: Node, place: _Place, environment: Mapping[str, str | None]) -> Iterator[Written]:
    """An application of somebody's own, where its text names vLLM."""
    path = application["import_path"]
    runtime = application["runtime_env"]
    installed = [match[1] for item in _texts(runtime["pip"]) if (match := _INSTALLED.match(item))]
    told = [*_texts(application), place.owner, place.image or ""]
    if not any("vllm" in each.lower() for each in told):
        return
    settings = {**_fields(application["args"]), **_fields(runtime["env_vars"])}
    for deployment in application["deployments"].items:
        settings = {**_fields(deployment["user_config"]), **settings}
    line = runtime["env_vars"].line
    budget.spend(_STEPS_OF_A_NAME * len(settings))
    by_name = {name.upper(): node for name, node in settings.items() if not is_secret(name)}
    model = next((by_name[name] for name in _MODELS if name in by_name), None)
    words = [Word(word, line) for word in docker.SERVE]
    words.append(Word(mark("the model"), line) if model is None else Word(model.text, model.line))
    for name, node in by_name.items():
        flag = _MEANT.get(name) or flag_map.known(name)
        if name in _ARGUMENTS:
            words += shell.words(node.text, node.text_line)[0]
        elif flag is not None and flag not in _NOT_MEANT and name not in _MODELS:
            words += flag_map.words(Node(node.path, node.line, "map", fields={flag: node}))
    actor = next((one["ray_actor_options"] for one in application["deployments"].items), Node("", line))
    yield Written(
        [replace(word, text=_expanded(word.text)) for word in words],
        Form.VALUES,
        environment,
        place=f"{place.owner} {application.path}".strip(),
        holder=Values(),
        image=place.image,
        version=next(iter(installed), None),
        resources=Resources(gpus=docker.number(actor["num_gpus"].text), gpu=place.gpu),
        notes=(
            f"the application {path.text} is not read: what its variables name as vLLM's flags do was taken for these",
        ),
        is_open=True,
    )


def _variables(node: Node) -> dict[str, str | None]:
    return {name: text(value) for name, value in node.at("runtime_env", "env_vars").fields.items()}


def _fields(node: Node) -> dict[str, Node]:
    return {name: value for name, value in node.fields.items() if value.is_scalar}


def _texts(node: Node) -> Iterator[str]:
    yield from (word.text for word in texts(node))
    for name, value in node.fields.items():
        yield name
        yield from _texts(value)
    for item in node.items:
        if not item.is_scalar:
            yield from _texts(item)


def _expanded(given: str) -> str:
    """With the variables marked that are filled in before Ray reads the text."""
    return _VARIABLE.sub(lambda match: mark(f"${{{match[1] or match[2]}}}"), given)
