"""Run by a Python that has vLLM's dependencies, not imported: what a release says when its own code is run.

Its command line is run, from its sources, up to the moment where its parser is ready (vllm/parser_dump.py); so are
vllm/envs.py, and the method that takes defaults by the device. A module of an old vLLM that newer dependencies break
becomes a dummy, and is named: what came from it is "not known". A module that makes the parser may not be one.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import inspect
import json
import os
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_PARSER = Path(__file__).resolve().parents[3] / "vllm_doctor" / "vllm" / "parser_dump.py"
_MAKES_THE_PARSER = r"vllm(\.engine(\.arg_utils)?|\.config(\..+)?|\.entrypoints\..*cli_args)"
_GIB = 1 << 30


def read(folder: Path, release: str) -> dict[str, Any]:
    """All that is read of a release, in this process, which is then good for nothing else."""
    with contextlib.redirect_stdout(sys.stderr):
        dummies: dict[str, str] = {}
        _pretend(folder, release, dummies)
        parser_module = types.ModuleType("parser_dump")
        exec(compile(_PARSER.read_text("utf-8"), _PARSER, "exec"), parser_module.__dict__)
        content: dict[str, Any] = json.loads(parser_module.dump())
        for module in sorted(dummies):
            if re.fullmatch(_MAKES_THE_PARSER, module):
                raise SystemExit(f"{module}, which makes the parser: {dummies[module]}")
        content["environment"] = environment_defaults()
        content["by_device"] = defaults_by_device()
    return content | {"version": release, "dummies": sorted(dummies)}


def _pretend(folder: Path, release: str, dummies: dict[str, str]) -> None:
    """Make `import vllm` take the sources, as an installed vLLM of that release on a CUDA device."""
    metadata: Any = importlib.metadata
    version, distribution = metadata.version, metadata.distribution

    def no_vllm(name: str) -> Any:
        if name == "vllm":
            raise importlib.metadata.PackageNotFoundError(name)
        return distribution(name)

    metadata.version = lambda name: release if name == "vllm" else version(name)
    metadata.distribution = no_vllm
    sys.path[0] = str(folder)
    sys.meta_path.insert(0, _Finder(dummies))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds vLLM's modules; one that fails becomes a dummy, and so does all that is in it."""

    def __init__(self, dummies: dict[str, str]) -> None:
        self.dummies = dummies

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "vllm":
            return None
        if isinstance(sys.modules.get(name.rpartition(".")[0]), _DummyModule):
            return importlib.machinery.ModuleSpec(name, _DummyLoader(), is_package=True)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.dummies)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: Any, dummies: dict[str, str]) -> None:
        self.inner = inner
        self.dummies = dummies

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create_module(self, spec: Any) -> Any:
        return self.inner.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        try:
            self.inner.exec_module(module)
        except Exception as error:
            self.dummies[module.__name__] = f"{type(error).__name__}: {error}"
            dummy = _DummyModule(module.__name__)
            dummy.__spec__, dummy.__path__ = module.__spec__, getattr(module, "__path__", [])
            sys.modules[module.__name__] = dummy


class _DummyLoader(importlib.abc.Loader):
    def create_module(self, spec: Any) -> types.ModuleType:
        return _DummyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _DummyModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _dummy(name)


class _Dummy(type):
    """A class that can be derived from, called, subscripted, or-ed and gone through."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _dummy(name)

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __bool__(cls) -> bool:
        return False

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        is_decorated = len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type))
        return args[0] if is_decorated else _dummy("result")


def _dummy(name: str) -> Any:
    return _Dummy(name, (), {})


def environment_defaults() -> dict[str, str | None]:
    """What each variable of vllm/envs.py has where none is set; None where it depends on the machine.

    Found by asking twice, on two machines as unlike as can be pretended; a home of "~" stays "~".
    """
    variables = importlib.import_module("vllm.envs").environment_variables
    os.cpu_count = lambda: 64
    first = {name: _default(getter) for name, getter in variables.items()}
    os.cpu_count = lambda: 1
    for name, module in list(sys.modules.items()):
        newer = vars(module).get("is_torch_equal_or_newer") if name.startswith("vllm.") else None
        if newer is not None:
            vars(module)["is_torch_equal_or_newer"] = lambda *a, newer=newer: not newer(*a)
    again = {name: _default(getter) for name, getter in variables.items()}
    return {name: value if value == again[name] else None for name, value in first.items()}


def _default(getter: Callable[[], Any]) -> str | None:
    kept = dict(os.environ)
    for name in kept:
        if name not in ("PATH", "HOME"):
            del os.environ[name]
    try:
        value = getter()
    except Exception:
        return None
    finally:
        os.environ.clear()
        os.environ.update(kept)
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    return str(value) if value is None or isinstance(value, (bool, int, float, str, list, dict)) else None


def defaults_by_device() -> list[dict[str, Any]] | None:
    """What the API server takes for --max-num-seqs and --max-num-batched-tokens on devices that are pretended: each
    name and each size of memory that the method compares with, just there and just below. None: no such method."""
    arg_utils: Any = importlib.import_module("vllm.engine.arg_utils")
    method = getattr(arg_utils.EngineArgs, "get_batch_defaults", None)
    if method is None:
        return None
    server = importlib.import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
    constants = {
        node.value
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method))))
        if isinstance(node, ast.Constant)
    }
    sizes = {size for size in constants if type(size) is int and 8 <= size <= 1000}
    names = {"", "gb10", *(name for name in constants if isinstance(name, str) and re.fullmatch(r"[a-z]+\d+\w*", name))}
    found = []
    for memory in sorted({*(size * _GIB for size in sizes), *(size * _GIB - 1 for size in sizes)}):
        for name in sorted(names):
            arg_utils.current_platform = _Device(memory, name)
            tokens, seqs = method(1)
            found.append({"memory": memory, "name": name, "seqs": seqs[server], "tokens": tokens[server]})
    arg_utils.current_platform = _Device(None, "")
    tokens, seqs = method(1)
    return [*found, {"memory": None, "name": "", "seqs": seqs[server], "tokens": tokens[server]}]


class _Device:
    """A platform as vLLM asks it: a CUDA GPU, or the CPU where `memory` (bytes) is None."""

    def __init__(self, memory: int | None, name: str) -> None:
        self.memory = memory
        self.name = name

    def get_device_total_memory(self) -> int:
        return self.memory or 0

    def get_device_name(self) -> str:
        return self.name

    def is_device_capability(self, capability: object) -> bool:
        return self.name == "gb10" and capability in ((12, 1), 121)

    def is_cpu(self) -> bool:
        return self.memory is None

    def is_cuda(self) -> bool:
        return self.memory is not None

    def __getattr__(self, name: str) -> Callable[..., bool]:
        if name.startswith("is_"):
            return lambda *_: False
        raise AttributeError(name)


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), sys.argv[2])), flush=True)
    os._exit(0)  # vLLM's threads are not waited for
