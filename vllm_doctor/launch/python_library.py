"""What calls of Python's own, of vLLM's, Ray's, Docker's and of argparse give, as far as python_flow follows them.

A call that is not known here gives what is open; none is made.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from vllm_doctor.launch import docker
from vllm_doctor.launch.python_state import Engine, Process, State
from vllm_doctor.launch.python_values import (
    MAX_TEXT,
    Default,
    Instance,
    Joined,
    Listed,
    Mapped,
    Maybe,
    Name,
    Open,
    Parser,
    Value,
    as_json,
    dotted,
    is_true,
    known,
    of,
    text,
)
from vllm_doctor.launch.unexpanded import mark

ENGINES = frozenset({"LLM", "EngineArgs", "AsyncEngineArgs"})
RAY_ENGINES = frozenset({"LLMConfig", "vLLMEngineProcessorConfig"})
_TAKE_ENGINE = frozenset({"from_engine_args", "from_vllm_config", "asdict", "vars"})
_RUNS = frozenset(
    {
        "run", "Popen", "call", "check_call", "check_output", "system", "popen", "spawn", "exec", "exec_command",
        "create_subprocess_shell", "getoutput", "getstatusoutput", "run_command", "sh", "shell", "sudo",
    }
)  # fmt: skip
"""How calls are named that start a process with a text."""
_PROGRAMS = frozenset({"vllm", "python", "python3", "docker", "podman", "bash", "sh", "nohup", "env", "uv", "numactl"})
_TEXT_METHODS = frozenset({"strip", "lstrip", "rstrip", "lower", "upper", "removeprefix", "removesuffix"})
_PIECE = re.compile(r"\{([^{}\n]{1,200})\}")


def imported(state: State, path: str, args: list[Value], named: Mapped, node: ast.Call) -> Value:
    module, _, name = path.rpartition(".")
    parts = module.split(".")
    if name in ENGINES and "vllm" in parts:
        return _engine(state, name, args, named, node)
    if name in RAY_ENGINES and parts[0] == "ray":
        return _of_ray(state, name, named, node)
    if name == "from_cli_args" and parts[-1] in ENGINES:
        given = args[0] if args and isinstance(args[0], Instance) else Instance(None, Mapped(is_open=True))
        engine = _engine(state, parts[-1], [], given.fields, node)
        engine.of_command_line = engine.arguments.is_open = True
        return engine
    if name in _TAKE_ENGINE and args and isinstance(args[0], Engine):
        if name in ("asdict", "vars"):
            return state.merged_of(args[0])
        return Open(dotted(node))
    if name == "from_engine_args" and "engine_args" in named.fields:
        return Open(dotted(node))
    if name in ("ArgumentParser", "FlexibleArgumentParser"):
        return Parser(Instance(None, Mapped(path=state.path)))
    if name in ("add_cli_args", "make_arg_parser") and args and isinstance(args[0], Parser):
        args[0].arguments.fields.is_open = True
        return args[0]
    if path in ("os.getenv", "os.environ.get"):
        return _of_environment(state, args)
    if path == "os.putenv" and len(args) == 2 and isinstance(args[0], str):
        state.put(state.environment, args[0], args[1])
    if path in ("json.dumps",) and args and isinstance(args[0], (Mapped, Listed)):
        return as_json(args[0]) or Open("json.dumps()")
    if path == "shlex.split" and args and isinstance(args[0], str) and not isinstance(args[0], Joined):
        ran(state, "run", args, named, node)
        return Open("shlex.split()")
    if path == "shlex.join" and args and isinstance(args[0], Listed):
        return state.as_line(args[0])
    if path == "shlex.quote" and args:
        return args[0]
    if name in ("Path", "PurePath") or path in ("os.path.expanduser", "os.path.abspath", "os.path.expandvars"):
        return args[0] if args else Open(path)
    if path == "os.path.join" and args:
        return of(args, "/".join(text(one).rstrip("/") for one in args)[:MAX_TEXT])
    if path in ("copy.copy", "copy.deepcopy") and args:
        return state.copied(args[0])
    if name == "Field" and (args or "default" in named.fields):  # of pydantic and dataclasses
        return named.fields.get("default", args[0] if args else None)
    if name == "field" and "default" in named.fields:
        return named.fields["default"]
    if name == "partial" and args and isinstance(args[0], Name) and args[0].path.rpartition(".")[2] in ENGINES:
        return imported(state, args[0].path, args[1:], named, node)
    ran(state, name, args, named, node)
    return Open(dotted(node))


def _engine(state: State, name: str, args: list[Value], named: Mapped, node: ast.Call) -> Engine:
    arguments = Mapped(dict(named.fields), named.is_open, state.path, dict(named.nodes))
    if name == "LLM" and args and isinstance(args[0], Engine):
        args[0].is_part = True
        arguments = args[0].arguments
    else:
        for key, value in zip(("model", "tokenizer"), args, strict=False):
            arguments.fields.setdefault(key, value)
        for key, one in zip(("model", "tokenizer"), node.args, strict=False):
            arguments.nodes.setdefault(key, one)
    return state.noted(Engine(name, arguments, node, state.place, state.resources))


def _of_ray(state: State, name: str, named: Mapped, node: ast.Call) -> Engine:
    """Ray's own description of an engine: vLLM's arguments are in `engine_kwargs`."""
    inner = named.fields.get("engine_kwargs")
    arguments = Mapped(path=state.path)
    if inner is not None:
        state.update(arguments, inner)
        arguments.nodes.update(inner.nodes if isinstance(inner, Mapped) else {})
    loading = named.fields.get("model_loading_config")
    of_model = loading.fields if isinstance(loading, Mapped) else named.fields
    for key in ("model_source", "model_id"):
        if key in of_model:
            arguments.fields.setdefault("model", of_model[key])
    runtime = named.fields.get("runtime_env")
    variables = runtime.fields.get("env_vars") if isinstance(runtime, Mapped) else None
    if isinstance(variables, Mapped):
        state.update(state.environment, variables)
    resources = state.resources
    is_known, gpu = known(named.fields.get("accelerator_type"))
    if is_known and isinstance(gpu, str):
        resources = replace(resources, gpu=gpu)
    return state.noted(Engine(name, arguments, node, state.place, resources))


def _of_environment(state: State, args: Sequence[Value]) -> Value:
    is_known, name = known(args[0]) if args else (False, None)
    if not is_known or not isinstance(name, str):
        return Open("os.environ")
    if name in state.environment.fields:
        return state.environment.fields[name]
    default = args[1] if len(args) > 1 else None
    is_known, scalar = known(default)
    return Default(scalar, f"${name}") if is_known else Open(f"${name}")


def built_in(state: State, name: str, args: list[Value], named: Mapped, node: ast.Call) -> Value:
    first = args[0] if args else None
    is_known, scalar = known(first)
    if name in ("str", "repr") and args:
        return of(args, text(first)) if not isinstance(first, Open) else first
    if name in ("int", "float") and args and is_known and isinstance(scalar, (str, int, float)):
        try:
            return of(args, int(scalar) if name == "int" else float(scalar)) if len(str(scalar)) < 40 else Open("…")
        except (ValueError, OverflowError):
            return Open(dotted(node))
    if name == "bool" and args:
        decided = is_true(first)
        return Open(dotted(node)) if decided is None else of(args, decided)
    if name in ("min", "max") and len(args) > 1:
        numbers = [known(one)[1] for one in args]
        if all(isinstance(one, (int, float)) for one in numbers):
            return of(args, (min if name == "min" else max)(one for one in numbers if isinstance(one, (int, float))))
    if name == "len" and isinstance(first, Listed) and not any(isinstance(i, (Open, Maybe)) for i in first.items):
        return len(first.items)
    if name == "dict":
        made = state.merged(*[one for one in args if isinstance(one, Mapped)], named)
        made.nodes = dict(named.nodes)
        made.is_open = made.is_open or any(not isinstance(one, Mapped) for one in args)
        return made
    if name in ("list", "tuple") and isinstance(first, Listed):
        return state.copied(first)
    if name == "vars" and isinstance(first, Engine):
        return state.merged_of(first)
    if name == "vars" and isinstance(first, Instance):
        return first.fields
    if name == "setattr" and len(args) == 3 and isinstance(args[1], str):
        if isinstance(first, Engine):
            state.put(first.arguments, args[1], args[2])
        return None
    if name == "enumerate" and isinstance(first, Listed):
        return Listed([Listed([place, item]) for place, item in enumerate(first.items)])
    if name != "print":
        ran(state, name, args, named, node)
    return Open(dotted(node))


def of_mapped(state: State, base: Mapped, name: str, args: list[Value], named: Mapped, node: ast.Call) -> Value:
    is_known, key = known(args[0]) if args else (False, None)
    if name in ("get", "pop", "setdefault") and isinstance(key, str):
        if base is state.environment and name == "get":
            return _of_environment(state, args)
        if key in base.fields:
            return base.fields[key]
        default = args[1] if len(args) > 1 else None
        if name == "setdefault":
            state.put(base, key, default)
            is_known, scalar = known(default)
            return Default(scalar, f"${key}") if is_known and base is state.environment else default
        return Open(dotted(node)) if base.is_open else default
    if name == "update":
        for part in (*args, named):
            state.update(base, part)
        return None
    if name == "copy":
        return state.copied(base)
    if name in ("items", "keys", "values") and not base.is_open:
        pairs: list[Value] = [Listed([key, value]) for key, value in base.fields.items()]
        return Listed(pairs if name == "items" else list(base.fields if name == "keys" else base.fields.values()))
    return Open(dotted(node))


def of_text(
    state: State, base: Value, scalar: str, name: str, args: list[Value], named: Mapped, node: ast.Call
) -> Value:
    if name == "join" and args and isinstance(args[0], Listed):
        return state.as_line(args[0]) if scalar in (" ", " \\\n") else _between(state, scalar, args[0])
    if name in _TEXT_METHODS and all(isinstance(one, str) for one in args):
        return of([base], str(getattr(str, name)(scalar, *map(str, args))))
    if name in ("startswith", "endswith") and args and isinstance(args[0], str):
        return of([base], bool(getattr(str, name)(scalar, args[0])))
    if name == "replace" and len(args) == 2 and all(isinstance(one, str) for one in args):
        old, new = map(str, args)
        made = scalar.replace(old, new) if old and len(scalar) * max(1, len(new)) <= MAX_TEXT else None
        return Open(dotted(node)) if made is None else of([base], made)
    if name == "format":
        return _filled_in(state, scalar, args, named)
    if name == "split" and not args and scalar.strip():
        listed = Listed([*scalar.split()], node.lineno, state.path, place=state.place)
        state.lists.append((listed, state.resources))
        return listed
    return Open(dotted(node))


def _between(state: State, sign: str, listed: Listed) -> str:
    return sign.join(text(item) for item in listed.items)[:MAX_TEXT]


def _filled_in(state: State, scalar: str, args: Sequence[Value], named: Mapped) -> Value:
    """`"… {}".format(x)`: our own way to fill it, as Python's reads attributes."""
    left = list(args)

    def piece(match: re.Match[str]) -> str:
        key = match[1].strip()
        if key in named.fields:
            return text(named.fields[key])
        if key.isdigit() and int(key[:3]) < len(args):
            return text(args[int(key[:3])])
        return mark(key)

    told = re.sub(r"\{\}", lambda _: text(left.pop(0)) if left else mark("…"), scalar)
    told = _PIECE.sub(piece, told)
    return of([*args, *named.fields.values()], told) if len(told) <= MAX_TEXT else Open("…")


def of_parser(state: State, parser: Parser, name: str, args: list[Value], named: Mapped) -> Value:
    fields = parser.arguments.fields
    if name == "add_argument":
        flags = [one for one in args if isinstance(one, str)]
        long = next((one for one in flags if one.startswith("--")), flags[0] if flags else "")
        is_known, dest = known(named.fields.get("dest"))
        key = dest if isinstance(dest, str) else long.lstrip("-").replace("-", "_")
        if key:
            fields.fields[key] = _argument(state, long or key, named)
        return None
    if name == "set_defaults":
        for key, value in named.fields.items():
            is_known, scalar = known(value)
            fields.fields[key] = Default(scalar, f"--{key.replace('_', '-')}") if is_known else value
        return None
    if name == "parse_known_args":
        return Listed([parser.arguments, Open("…")])
    if name == "parse_args":
        return parser.arguments
    return parser if name.startswith("add_") else Open(name)


def _argument(state: State, flag: str, named: Mapped) -> Value:
    _is_told, action = known(named.fields.get("action"))
    if action in ("store_true", "store_false"):
        return Default(action == "store_false", flag)
    if "default" not in named.fields:
        is_needed = not flag.startswith("-") or is_true(named.fields.get("required")) is not False
        return (
            Open(flag)
            if is_needed and (not flag.startswith("-") or "required" in named.fields)
            else Default(None, flag)
        )
    default = named.fields["default"]
    is_known, scalar = known(default)
    return Default(scalar, flag) if is_known else default


def ran(state: State, name: str, args: list[Value], named: Mapped, node: ast.Call) -> None:
    """A call that may start a process: with a list, with one text for a shell, or with the words themselves."""
    first = args[0] if args else named.fields.get("args", named.fields.get("command"))
    environment = named.fields.get("env")
    environment = environment if isinstance(environment, Mapped) else None
    if isinstance(first, Default) and isinstance(first.value, str):
        first = first.value
    if isinstance(first, Joined):
        first = first.parts
    if isinstance(first, Listed):
        first.environment = environment or first.environment
        return
    if not isinstance(first, str):
        return
    if docker.is_vllm(first) and name in ("run", "create"):
        _container(state, first, args[1:], named, node)
    elif len(args) > 1 and first in _PROGRAMS:
        state.lists.append(
            (Listed(args, node.lineno, state.path, place=state.place, environment=environment), state.resources)
        )
    elif name in _RUNS:
        for listed, _ in state.lists:
            if len(listed.items) > 2 and not listed.is_part and state.as_line(listed) in first:
                listed.is_part = True
        state.processes.append(Process(first, node.lineno, state.place, environment, state.resources))


def _container(state: State, image: str, args: list[Value], named: Mapped, node: ast.Call) -> None:
    """`client.containers.run(image, command, environment={…})` of Docker's library, as `docker run`."""
    command = args[0] if args else named.fields.get("command")
    words: list[Value] = ["docker", "run"]
    variables = named.fields.get("environment")
    for key, value in variables.fields.items() if isinstance(variables, Mapped) else ():
        words += ["-e", f"{key}={text(value)}"]
    for key, flag in (("shm_size", "--shm-size"), ("ipc_mode", "--ipc")):
        if key in named.fields:
            words += [flag, text(named.fields[key])]
    words.append(image)
    if isinstance(command, Listed):
        command.is_part = True
        words += command.items
    elif isinstance(command, str):
        words += command.split()
    state.lists.append((Listed(words, node.lineno, state.path, place=state.place), state.resources))
