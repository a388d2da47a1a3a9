"""Follows a text in Python from statement to statement, and notes which engines and processes it would start.

Nothing is executed or imported: names are bound to what python_values knows, a call of a function of the text is
followed with its arguments, and what the text does not tell stays open. A branch that is not decided by constants
is followed as one that may be taken.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from vllm_doctor.launch import budget, docker
from vllm_doctor.launch.python_values import (
    MAX_TEXT,
    Class,
    Default,
    Function,
    Instance,
    Joined,
    Listed,
    Mapped,
    Maybe,
    Name,
    Open,
    Parser,
    Path,
    Scalar,
    Value,
    as_json,
    combined,
    compared,
    defaults_in,
    dotted,
    is_true,
    known,
    of,
    same,
    text,
)
from vllm_doctor.launch.start import Resources
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
_GPU_COUNTS = ("num_gpus", "gpus")
_DEEPEST_CALL = 8
_MOST_CALLS = 12
"""Of one function."""
_DEEPEST = 60
_MOST_ROUNDS = 64
_MOST_ENGINES = 256
_PIECE = re.compile(r"\{([^{}\n]{1,200})\}")


@dataclass(eq=False)
class Engine:
    """A call that makes an engine, or its arguments. `is_part`: another was made of its arguments."""

    name: str
    arguments: Mapped
    node: ast.Call
    place: str
    resources: Resources
    is_part: bool = False
    of_command_line: bool = False
    """Its arguments are those of the script, which may hold any flag."""


@dataclass(eq=False)
class Process:
    """A text that a shell runs."""

    text: str
    line: int
    place: str
    environment: Mapped | None
    resources: Resources


@dataclass(eq=False)
class _Frame:
    outer: _Frame | None = None
    names: dict[str, tuple[Value, Path]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    """The names that are the module's."""
    returns: list[Value] = field(default_factory=list)


_NOTHING = object()
_TOO_DEEP = Open("…")


class Flow:
    """`is_fragment`: the texts import nothing, so the names of vLLM's classes are vLLM's."""

    def __init__(self, is_fragment: bool = False) -> None:
        self.engines: list[Engine] = []
        self.lists: list[tuple[Listed, Resources]] = []
        self.processes: list[Process] = []
        self.environment = Mapped(is_open=True)
        self.gpu_defaults: list[str] = []
        """What may be given in the place of the GPU that is asked for."""
        self._is_fragment = is_fragment
        self._module = _Frame(names={"__name__": ("__main__", ())})
        self._path: Path = ()
        self._branches = 0
        self._depth = self._calls = 0
        self._place = ""
        self._resources = Resources()
        self._functions: list[tuple[Function, _Frame]] = []
        self._classes: list[Class] = []
        self._instances: list[Instance] = []
        self._called: dict[ast.AST, int] = {}

    def follow(self, tree: ast.Module, place: str = "") -> None:
        """One text; several in a row share their names, as the cells of a notebook do."""
        self._place = place
        self._block(tree.body, self._module)

    def finish(self) -> None:
        """What no other part of the text calls is called from elsewhere, with arguments that are not told."""
        for one in list(self._classes):
            if not any(instance.kind is one for instance in self._instances):
                self._made(one, [], Mapped(is_open=True))
        for instance in list(self._instances):
            for function in instance.kind.methods.values() if instance.kind else ():
                if function.node not in self._called:
                    self._inlined(replace(function, owner=instance), [], Mapped(is_open=True))
        for function, _ in list(self._functions):
            if function.node not in self._called:
                self._inlined(function, [], Mapped(is_open=True))

    # ---- statements

    def _block(self, body: Sequence[ast.stmt], frame: _Frame) -> bool:
        """Whether it ends the function, or the round of a loop."""
        return any(self._statement(statement, frame) for statement in body)

    def _statement(self, node: ast.stmt, frame: _Frame) -> bool:
        budget.spend()
        if self._depth > _DEEPEST:
            return False
        self._depth += 1
        try:
            return self._followed(node, frame)
        finally:
            self._depth -= 1

    def _followed(self, node: ast.stmt, frame: _Frame) -> bool:
        match node:
            case ast.Expr():
                self._value(node.value, frame)
            case ast.Assign():
                value = self._value(node.value, frame)
                for target in node.targets:
                    self._assign(target, value, frame)
            case ast.AnnAssign(value=ast.expr() as given):
                self._assign(node.target, self._value(given, frame), frame)
            case ast.AugAssign():
                self._augmented(node, frame)
            case ast.Import():
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self._bind(bound, Name(alias.name if alias.asname else bound), frame)
            case ast.ImportFrom():
                for alias in node.names:
                    for name in sorted(ENGINES) if alias.name == "*" else [alias.name]:
                        self._bind(alias.asname or name, Name(f"{node.module or ''}.{name}"), frame)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                function = Function(node, frame, self._place)
                self._functions.append((function, frame))
                self._bind(node.name, function, frame)
            case ast.ClassDef():
                self._class(node, frame)
            case ast.Return():
                frame.returns.append(self._value(node.value, frame) if node.value else None)
                return True
            case ast.Raise() | ast.Continue() | ast.Break():
                return True
            case ast.Global() | ast.Nonlocal():
                frame.whole |= set(node.names)
            case ast.If():
                return self._if(node, frame)
            case ast.For() | ast.AsyncFor():
                self._for(node, frame)
            case ast.While():
                with self._maybe():
                    self._block(node.body, frame)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self._value(item.context_expr, frame)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, value, frame)
                return self._block(node.body, frame)
            case ast.Try() | ast.TryStar():
                is_ended = self._block([*node.body, *node.orelse], frame)
                for handler in node.handlers:
                    with self._maybe():
                        self._block(handler.body, frame)
                return self._block(node.finalbody, frame) or is_ended
            case ast.Match():
                self._value(node.subject, frame)
                for case in node.cases:
                    with self._maybe():
                        self._block(case.body, frame)
        return False

    def _if(self, node: ast.If, frame: _Frame) -> bool:
        condition = self._value(node.test, frame)
        decided = is_true(condition)
        if decided is False and isinstance(condition, Default) and not node.orelse:
            decided = None  # what may be given may turn it on
        if decided is not None:
            return self._block(node.body if decided else node.orelse, frame)
        ended = []
        for body in (node.body, node.orelse):
            with self._maybe():
                ended.append(self._block(body, frame))
        return all(ended)

    def _for(self, node: ast.For | ast.AsyncFor, frame: _Frame) -> None:
        for item in self._rounds(self._value(node.iter, frame)):
            if item is _NOTHING:
                with self._maybe():
                    self._assign(node.target, Open(dotted(node.target)), frame)
                    self._block(node.body, frame)
            else:
                self._assign(node.target, item, frame)
                self._block(node.body, frame)
        self._block(node.orelse, frame)

    def _rounds(self, value: Value) -> Iterator[Value]:
        """The items in their order; where they are not told, _NOTHING once."""
        if isinstance(value, Mapped) and not value.is_open:
            value = Listed(list(value.fields))
        if isinstance(value, Listed) and len(value.items) <= _MOST_ROUNDS:
            for item in list(value.items):
                yield _NOTHING if isinstance(item, Maybe) else item
        else:
            yield _NOTHING

    @contextmanager
    def _maybe(self) -> Iterator[None]:
        """Within, something happens in some cases only."""
        self._branches += 1
        before = self._path
        self._path = (*before, self._branches)
        try:
            yield
        finally:
            self._path = before

    def _is_sure(self, made: Path) -> bool:
        """Whether what happens here always happens to what was made there."""
        return made[: len(self._path)] == self._path

    # ---- names

    def _bind(self, name: str, value: Value, frame: _Frame) -> None:
        frame = self._module if name in frame.whole else frame
        path = self._path
        if name in frame.names:
            before, made = frame.names[name]
            if not self._is_sure(made) and not same(before, value):
                path = made
                if isinstance(before, Listed) and isinstance(value, Listed):
                    value = _either(before, value)
                elif not isinstance(before, (Function, Class)) and before is not None:
                    value = Open(name)
        frame.names[name] = (value, path)

    def _assign(self, target: ast.expr, value: Value, frame: _Frame) -> None:
        match target:
            case ast.Name():
                self._bind(target.id, value, frame)
            case ast.Tuple() | ast.List():
                items = value.items if isinstance(value, Listed) and len(value.items) == len(target.elts) else []
                for place, element in enumerate(target.elts):
                    inner = element.value if isinstance(element, ast.Starred) else element
                    self._assign(inner, items[place] if items else Open(dotted(inner)), frame)
            case ast.Attribute():
                base = self._value(target.value, frame)
                if isinstance(base, Instance):
                    self._put(base.fields, target.attr, value)
                elif isinstance(base, Engine):
                    self._put(base.arguments, target.attr, value)
                elif isinstance(base, Class):
                    base.fields[target.attr] = value
            case ast.Subscript():
                base, (_is_known, key) = self._value(target.value, frame), known(self._value(target.slice, frame))
                if isinstance(base, Mapped):
                    if isinstance(key, str):
                        self._put(base, key, value)
                    else:
                        base.is_open = True

    def _put(self, mapped: Mapped, key: str, value: Value, node: ast.expr | None = None) -> None:
        if key in mapped.fields and not self._is_sure(mapped.path) and not same(mapped.fields[key], value):
            value = Open(key)
        elif key not in mapped.fields and not self._is_sure(mapped.path):
            value = Open("…")  # it may not be given at all
        mapped.fields[key] = value
        mapped.nodes.pop(key, None)

    def _augmented(self, node: ast.AugAssign, frame: _Frame) -> None:
        value, before = self._value(node.value, frame), self._value(node.target, frame)
        if isinstance(before, Listed) and isinstance(node.op, ast.Add):
            self._extend(before, value)
        elif isinstance(before, Mapped) and isinstance(node.op, ast.BitOr):
            self._update(before, value)
        else:
            made = combined(node.op, before, value)
            self._assign(node.target, Open(dotted(node.target)) if made is None else made, frame)

    def _class(self, node: ast.ClassDef, frame: _Frame) -> None:
        inner = _Frame(frame)
        methods = [one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
        self._block([one for one in node.body if one not in methods], inner)
        fields = {name: value for name, (value, _) in inner.names.items()}
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                name = one.target.id
                is_known, scalar = known(fields.get(name, Open(name)))
                fields[name] = Default(scalar, f"{name}=") if is_known else fields.get(name, Open(name))
        made = Class(node, {one.name: Function(one, frame, self._place) for one in methods}, fields)
        self._classes.append(made)
        self._bind(node.name, made, frame)

    # ---- expressions

    def _value(self, node: ast.expr, frame: _Frame) -> Value:
        budget.spend()
        if self._depth > _DEEPEST:
            return _TOO_DEEP
        self._depth += 1
        try:
            return self._evaluated(node, frame)
        finally:
            self._depth -= 1

    def _evaluated(self, node: ast.expr, frame: _Frame) -> Value:
        match node:
            case ast.Constant():
                if isinstance(node.value, str):
                    budget.spend_on(node.value)
                is_scalar = node.value is None or isinstance(node.value, (str, bool, int, float))
                return node.value if is_scalar else Open("…")
            case ast.Name():
                return self._named(node.id, frame)
            case ast.Attribute():
                return self._attribute(self._value(node.value, frame), node.attr, node)
            case ast.List() | ast.Tuple() | ast.Set():
                return self._list(node.elts, node.lineno, frame)
            case ast.Dict():
                return self._dict(node, frame)
            case ast.JoinedStr():
                return self._formatted(node, frame)
            case ast.Call():
                return self._call(node, frame)
            case ast.BinOp():
                left, right = self._value(node.left, frame), self._value(node.right, frame)
                if isinstance(left, Listed) and isinstance(right, Listed) and isinstance(node.op, ast.Add):
                    return self._joined_lists(left, right, node.lineno)
                if isinstance(left, Mapped) and isinstance(right, Mapped) and isinstance(node.op, ast.BitOr):
                    return self._merged(left, right)
                made = combined(node.op, left, right)
                return Open(dotted(node)) if made is None else made
            case ast.UnaryOp():
                return self._unary(node, frame)
            case ast.BoolOp():
                return self._either_of(node, frame)
            case ast.Compare(ops=[sign], comparators=[right]):
                return compared(sign, self._value(node.left, frame), self._value(right, frame))
            case ast.IfExp():
                decided = is_true(self._value(node.test, frame))
                values = [self._value(one, frame) for one in (node.body, node.orelse)]
                if decided is None:
                    return values[0] if same(*values) else _flag_of_either(values) or Open(dotted(node.test))
                return values[0 if decided else 1]
            case ast.Subscript():
                return self._item(node, frame)
            case ast.NamedExpr():
                value = self._value(node.value, frame)
                self._assign(node.target, value, frame)
                return value
            case ast.Await() | ast.Starred():
                return self._value(node.value, frame)
            case ast.ListComp() | ast.GeneratorExp() if len(node.generators) == 1:
                return self._comprehended(node, frame)
        return Open(dotted(node))

    def _named(self, name: str, frame: _Frame) -> Value:
        at: _Frame | None = frame
        while at is not None:
            if name in at.names:
                return at.names[name][0]
            at = at.outer
        if self._is_fragment and name in ENGINES:
            return Name(f"vllm.{name}")
        return Open(name)

    def _attribute(self, base: Value, attribute: str, node: ast.Attribute) -> Value:
        if isinstance(base, Name):
            path = f"{base.path}.{attribute}"
            return self.environment if path == "os.environ" else "python" if path == "sys.executable" else Name(path)
        if isinstance(base, Instance):
            if attribute in base.fields.fields:
                return base.fields.fields[attribute]
            if base.kind is not None and attribute in base.kind.methods:
                method = base.kind.methods[attribute]
                is_property = any(dotted(one) == "property" for one in method.node.decorator_list)
                bound = replace(method, owner=base)
                return self._inlined(bound, [], Mapped()) if is_property else bound
            if base.kind is not None and attribute in base.kind.fields:
                return base.kind.fields[attribute]
        if isinstance(base, Class):
            if attribute in base.fields:
                return base.fields[attribute]
            if attribute in base.methods:
                return base.methods[attribute]
        if isinstance(base, Engine):
            return base.arguments.fields.get(attribute, Open(dotted(node)))
        return Open(dotted(node))

    def _list(self, nodes: Sequence[ast.expr], line: int, frame: _Frame) -> Listed:
        made = Listed([], line, self._path, place=self._place)
        for node in nodes:
            value = self._value(node, frame)
            if isinstance(node, ast.Starred):
                self._extend(made, value)
            else:
                made.items.append(value)
        self.lists.append((made, self._resources))
        return made

    def _joined_lists(self, left: Listed, right: Listed, line: int) -> Listed:
        left.is_part = right.is_part = True
        budget.spend(len(left.items) + len(right.items))
        made = Listed([*left.items, *right.items], line, self._path, place=self._place, environment=left.environment)
        self.lists.append((made, self._resources))
        return made

    def _extend(self, listed: Listed, value: Value) -> None:
        items: list[Value] = [Open("…")]
        if isinstance(value, Listed):
            items = value.items
            value.is_part = value.is_part or value is not listed
        elif isinstance(value, Open):
            items = [value]
        budget.spend(len(items))
        for one in (listed, *listed.twins):
            one.items += [*items] if self._is_sure(one.path) else [Maybe(item, "…") for item in items]

    def _dict(self, node: ast.Dict, frame: _Frame) -> Mapped:
        made = Mapped(path=self._path)
        for key, given in zip(node.keys, node.values, strict=True):
            value = self._value(given, frame)
            if key is None:
                self._update(made, value)
                continue
            is_known, name = known(self._value(key, frame))
            if is_known and isinstance(name, (str, int, float)):
                made.fields[str(name)] = value
                made.nodes[str(name)] = given
            else:
                made.is_open = True
        return made

    def _update(self, mapped: Mapped, value: Value) -> None:
        if isinstance(value, Engine):
            value.is_part = True
            value = value.arguments
        if isinstance(value, Mapped):
            budget.spend(len(value.fields))
            for key, item in value.fields.items():
                self._put(mapped, key, item)
            mapped.is_open = mapped.is_open or value.is_open
        else:
            mapped.is_open = True

    def _merged(self, *parts: Mapped) -> Mapped:
        made = Mapped(path=self._path)
        for part in parts:
            self._update(made, part)
        return made

    def _formatted(self, node: ast.JoinedStr, frame: _Frame) -> Value:
        values = [self._value(one.value if isinstance(one, ast.FormattedValue) else one, frame) for one in node.values]
        told = "".join(
            mark(dotted(one.value)) if isinstance(one, ast.FormattedValue) and isinstance(value, Open) else text(value)
            for one, value in zip(node.values, values, strict=True)
        )
        budget.spend_on(told)
        return of(values, told) if len(told) <= MAX_TEXT else Open("…")

    def _unary(self, node: ast.UnaryOp, frame: _Frame) -> Value:
        value = self._value(node.operand, frame)
        if isinstance(node.op, ast.Not):
            decided = is_true(value)
            return Open(dotted(node.operand)) if decided is None else of([value], not decided)
        is_known, scalar = known(value)
        if is_known and isinstance(node.op, (ast.USub, ast.UAdd)) and isinstance(scalar, (int, float)):
            return of([value], -scalar if isinstance(node.op, ast.USub) else scalar)
        return Open(dotted(node))

    def _either_of(self, node: ast.BoolOp, frame: _Frame) -> Value:
        """`a or b`, `a and b`: the value that decides."""
        before: list[Value] = []
        value: Value = None
        for one in node.values:
            value = self._value(one, frame)
            decided = is_true(value)
            if decided is None and not (is_last := one is node.values[-1]):
                return Open(dotted(one)) if not is_last else value
            if decided is isinstance(node.op, ast.Or):
                break
            before.append(value)
        is_known, scalar = known(value)
        return of([*before, value], scalar) if is_known else value

    def _item(self, node: ast.Subscript, frame: _Frame) -> Value:
        base = self._value(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            return Open(dotted(node))
        is_known, key = known(self._value(node.slice, frame))
        if isinstance(base, Mapped) and is_known:
            if str(key) in base.fields:
                return base.fields[str(key)]
            return Open(f"${key}") if base is self.environment else Open(dotted(node))
        if isinstance(base, Listed) and isinstance(key, int) and -len(base.items) <= key < len(base.items):
            item = base.items[key]
            return Open(dotted(node)) if isinstance(item, Maybe) else item
        return Open(dotted(node))

    def _comprehended(self, node: ast.ListComp | ast.GeneratorExp, frame: _Frame) -> Listed:
        [generator] = node.generators
        made = Listed([], node.lineno, self._path, place=self._place)
        for item in self._rounds(self._value(generator.iter, frame)):
            if item is _NOTHING:
                made.items.append(Open("…"))
                continue
            inner = _Frame(frame)
            self._assign(generator.target, item, inner)
            decided = [is_true(self._value(one, inner)) for one in generator.ifs]
            if all(one is not False for one in decided):
                value = self._value(node.elt, inner)
                made.items.append(value if None not in decided else Maybe(value, "…"))
        return made

    # ---- calls

    def _call(self, node: ast.Call, frame: _Frame) -> Value:
        base: Value = _NOTHING
        if isinstance(node.func, ast.Attribute):
            base = self._value(node.func.value, frame)
            callee = self._attribute(base, node.func.attr, node.func)
        else:
            callee = self._value(node.func, frame)
        args: list[Value] = []
        named = Mapped(path=self._path)
        for one in node.args:
            if isinstance(one, ast.Constant) and one.value is Ellipsis:  # as people leave out what does not matter
                named.is_open = True
                continue
            value = self._value(one, frame)
            if isinstance(one, ast.Starred):
                args += value.items if isinstance(value, Listed) else [Open("…")]
            else:
                args.append(value)
        for keyword in node.keywords:
            value = self._value(keyword.value, frame)
            if keyword.arg is None:
                self._update(named, value)
            else:
                named.fields[keyword.arg] = value
                named.nodes[keyword.arg] = keyword.value
        name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
        if base is not _NOTHING and (made := self._method(base, name, args, named, node)) is not _NOTHING:
            return made
        if isinstance(callee, Function):
            return self._inlined(callee, args, named)
        if isinstance(callee, Class):
            return self._made(callee, args, named)
        if isinstance(callee, Name):
            return self._imported(callee.path, args, named, node)
        if isinstance(callee, Open) and not isinstance(node.func, ast.Attribute):
            return self._built_in(name, args, named, node)
        self._ran(name, args, named, node)
        return Open(dotted(node))

    def _imported(self, path: str, args: list[Value], named: Mapped, node: ast.Call) -> Value:
        module, _, name = path.rpartition(".")
        parts = module.split(".")
        if name in ENGINES and "vllm" in parts:
            return self._engine(name, args, named, node)
        if name in RAY_ENGINES and parts[0] == "ray":
            return self._of_ray(name, named, node)
        if name == "from_cli_args" and parts[-1] in ENGINES:
            given = args[0] if args and isinstance(args[0], Instance) else Instance(None, Mapped(is_open=True))
            engine = self._engine(parts[-1], [], given.fields, node)
            engine.of_command_line = engine.arguments.is_open = True
            return engine
        if name in _TAKE_ENGINE and args and isinstance(args[0], Engine):
            if name in ("asdict", "vars"):
                return self._merged_of(args[0])
            return Open(dotted(node))
        if name == "from_engine_args" and "engine_args" in named.fields:
            return Open(dotted(node))
        if name in ("ArgumentParser", "FlexibleArgumentParser"):
            return Parser(Instance(None, Mapped(path=self._path)))
        if name in ("add_cli_args", "make_arg_parser") and args and isinstance(args[0], Parser):
            args[0].takes_flags = args[0].arguments.fields.is_open = True
            return args[0]
        if path in ("os.getenv", "os.environ.get"):
            return self._of_environment(args)
        if path == "os.putenv" and len(args) == 2 and isinstance(args[0], str):
            self._put(self.environment, args[0], args[1])
        if path in ("json.dumps",) and args and isinstance(args[0], (Mapped, Listed)):
            return as_json(args[0]) or Open("json.dumps()")
        if path == "shlex.split" and args and isinstance(args[0], str) and not isinstance(args[0], Joined):
            self._ran("run", args, named, node)
            return Open("shlex.split()")
        if path == "shlex.join" and args and isinstance(args[0], Listed):
            return self._as_line(args[0])
        if path == "shlex.quote" and args:
            return args[0]
        if name in ("Path", "PurePath") or path in ("os.path.expanduser", "os.path.abspath", "os.path.expandvars"):
            return args[0] if args else Open(path)
        if path == "os.path.join" and args:
            return of(args, "/".join(text(one).rstrip("/") for one in args)[:MAX_TEXT])
        if path in ("copy.copy", "copy.deepcopy") and args:
            return self._copied(args[0])
        if name == "Field" and (args or "default" in named.fields):  # of pydantic and dataclasses
            return named.fields.get("default", args[0] if args else None)
        if name == "field" and "default" in named.fields:
            return named.fields["default"]
        if name == "partial" and args and isinstance(args[0], Name) and args[0].path.rpartition(".")[2] in ENGINES:
            return self._imported(args[0].path, args[1:], named, node)
        self._ran(name, args, named, node)
        return Open(dotted(node))

    def _engine(self, name: str, args: list[Value], named: Mapped, node: ast.Call) -> Engine:
        arguments = Mapped(dict(named.fields), named.is_open, self._path, dict(named.nodes))
        if name == "LLM" and args and isinstance(args[0], Engine):
            args[0].is_part = True
            arguments = args[0].arguments
        else:
            for key, value in zip(("model", "tokenizer"), args, strict=False):
                arguments.fields.setdefault(key, value)
            for key, one in zip(("model", "tokenizer"), node.args, strict=False):
                arguments.nodes.setdefault(key, one)
        return self._noted(Engine(name, arguments, node, self._place, self._resources))

    def _noted(self, engine: Engine) -> Engine:
        if len(self.engines) < _MOST_ENGINES:
            self.engines.append(engine)
        return engine

    def _of_ray(self, name: str, named: Mapped, node: ast.Call) -> Engine:
        """Ray's own description of an engine: vLLM's arguments are in `engine_kwargs`."""
        inner = named.fields.get("engine_kwargs")
        arguments = Mapped(path=self._path)
        if inner is not None:
            self._update(arguments, inner)
            arguments.nodes.update(inner.nodes if isinstance(inner, Mapped) else {})
        loading = named.fields.get("model_loading_config")
        of_model = loading.fields if isinstance(loading, Mapped) else named.fields
        for key in ("model_source", "model_id"):
            if key in of_model:
                arguments.fields.setdefault("model", of_model[key])
        runtime = named.fields.get("runtime_env")
        variables = runtime.fields.get("env_vars") if isinstance(runtime, Mapped) else None
        if isinstance(variables, Mapped):
            self._update(self.environment, variables)
        resources = self._resources
        is_known, gpu = known(named.fields.get("accelerator_type"))
        if is_known and isinstance(gpu, str):
            resources = replace(resources, gpu=gpu)
        return self._noted(Engine(name, arguments, node, self._place, resources))

    def _merged_of(self, engine: Engine) -> Mapped:
        engine.is_part = True
        return Mapped(dict(engine.arguments.fields), engine.arguments.is_open, self._path)

    def _of_environment(self, args: Sequence[Value]) -> Value:
        is_known, name = known(args[0]) if args else (False, None)
        if not is_known or not isinstance(name, str):
            return Open("os.environ")
        if name in self.environment.fields:
            return self.environment.fields[name]
        default = args[1] if len(args) > 1 else None
        is_known, scalar = known(default)
        return Default(scalar, f"${name}") if is_known else Open(f"${name}")

    def _built_in(self, name: str, args: list[Value], named: Mapped, node: ast.Call) -> Value:
        first = args[0] if args else None
        is_known, scalar = known(first)
        if name in ("str", "repr") and args:
            return of(args, text(first)) if not isinstance(first, Open) else first
        if name in ("int", "float") and args and is_known and isinstance(scalar, (str, int, float)):
            try:
                return of(args, int(scalar) if name == "int" else float(scalar)) if len(str(scalar)) < 40 else _TOO_DEEP
            except (ValueError, OverflowError):
                return Open(dotted(node))
        if name == "bool" and args:
            decided = is_true(first)
            return Open(dotted(node)) if decided is None else of(args, decided)
        if name in ("min", "max") and len(args) > 1:
            numbers = [known(one)[1] for one in args]
            if all(isinstance(one, (int, float)) for one in numbers):
                return of(
                    args, (min if name == "min" else max)(one for one in numbers if isinstance(one, (int, float)))
                )
        if name == "len" and isinstance(first, Listed) and not any(isinstance(i, (Open, Maybe)) for i in first.items):
            return len(first.items)
        if name == "dict":
            made = self._merged(*[one for one in args if isinstance(one, Mapped)], named)
            made.nodes = dict(named.nodes)
            made.is_open = made.is_open or any(not isinstance(one, Mapped) for one in args)
            return made
        if name in ("list", "tuple") and isinstance(first, Listed):
            return self._copied(first)
        if name == "vars" and isinstance(first, Engine):
            return self._merged_of(first)
        if name == "vars" and isinstance(first, Instance):
            return first.fields
        if name == "getattr" and len(args) > 1 and isinstance(args[1], str) and isinstance(node.args[0], ast.expr):
            found = self._attribute(first, args[1], ast.Attribute(node.args[0], args[1]))
            return args[2] if isinstance(found, Open) and len(args) > 2 and known(args[2])[1] is not None else found
        if name == "setattr" and len(args) == 3 and isinstance(args[1], str):
            if isinstance(first, Engine):
                self._put(first.arguments, args[1], args[2])
            return None
        if name == "enumerate" and isinstance(first, Listed):
            return Listed([Listed([place, item]) for place, item in enumerate(first.items)])
        if name != "print":
            self._ran(name, args, named, node)
        return Open(dotted(node))

    def _copied(self, value: Value) -> Value:
        if isinstance(value, Listed):
            value.is_part = True
            return self._joined_lists(value, Listed([]), value.line)
        if isinstance(value, Mapped):
            return Mapped(dict(value.fields), value.is_open and value is not self.environment, self._path)
        return value

    def _as_line(self, listed: Listed) -> Joined:
        budget.spend(len(listed.items))
        joined = Joined(" ".join(text(item.item if isinstance(item, Maybe) else item) for item in listed.items))
        joined.parts = listed
        return joined

    def _method(self, base: Value, name: str, args: list[Value], named: Mapped, node: ast.Call) -> Value:
        """What a method of a list, a dictionary, a text or a parser gives; _NOTHING where it is none of them."""
        if isinstance(base, Listed):
            if name == "append" and args:
                self._extend(base, Listed(args[:1]))
                return None
            if name == "extend" and args:
                self._extend(base, args[0])
                return None
            if name == "insert" and len(args) == 2 and self._is_sure(base.path):
                base.items.insert(args[0] if isinstance(args[0], int) else 0, args[1])
                return None
            return self._copied(base) if name == "copy" else Open(dotted(node))
        if isinstance(base, Mapped):
            return self._of_mapped(base, name, args, named, node)
        if isinstance(base, Parser):
            return self._of_parser(base, name, args, named)
        if isinstance(base, Engine):
            return self._merged_of(base) if name in ("dict", "model_dump") else Open(dotted(node))
        _is_known, scalar = known(base)
        if isinstance(scalar, str):
            return self._of_text(base, scalar, name, args, named, node)
        if name == "system" and args and dotted(node.func) == "get_ipython().system":
            self._ran(name, [self._filled(text(args[0]))], named, node)
            return None
        if name == "env" and args and isinstance(args[0], Mapped):  # of the image that a cloud builds
            for key, value in args[0].fields.items():
                self.environment.fields.setdefault(key, value)
            return base
        if isinstance(base, Class) and name in ("bind", "remote"):
            return self._made(base, args, named)
        if isinstance(base, Class) and name == "options":
            return base
        if isinstance(base, Function) and name in ("remote", "spawn", "local", "options", "aio"):
            return base if name == "options" else self._inlined(base, args, named)
        return _NOTHING

    def _of_mapped(self, base: Mapped, name: str, args: list[Value], named: Mapped, node: ast.Call) -> Value:
        is_known, key = known(args[0]) if args else (False, None)
        if name in ("get", "pop", "setdefault") and isinstance(key, str):
            if base is self.environment and name == "get":
                return self._of_environment(args)
            if key in base.fields:
                return base.fields[key]
            default = args[1] if len(args) > 1 else None
            if name == "setdefault":
                self._put(base, key, default)
                is_known, scalar = known(default)
                return Default(scalar, f"${key}") if is_known and base is self.environment else default
            return Open(dotted(node)) if base.is_open else default
        if name == "update":
            for part in (*args, named):
                self._update(base, part)
            return None
        if name == "copy":
            return self._copied(base)
        if name in ("items", "keys", "values") and not base.is_open:
            pairs: list[Value] = [Listed([key, value]) for key, value in base.fields.items()]
            return Listed(pairs if name == "items" else list(base.fields if name == "keys" else base.fields.values()))
        return Open(dotted(node))

    def _of_text(self, base: Value, scalar: str, name: str, args: list[Value], named: Mapped, node: ast.Call) -> Value:
        if name == "join" and args and isinstance(args[0], Listed):
            return self._as_line(args[0]) if scalar in (" ", " \\\n") else self._between(scalar, args[0])
        if name in _TEXT_METHODS and all(isinstance(one, str) for one in args):
            return of([base], str(getattr(str, name)(scalar, *map(str, args))))
        if name in ("startswith", "endswith") and args and isinstance(args[0], str):
            return of([base], bool(getattr(str, name)(scalar, args[0])))
        if name == "replace" and len(args) == 2 and all(isinstance(one, str) for one in args):
            old, new = map(str, args)
            made = scalar.replace(old, new) if old and len(scalar) * max(1, len(new)) <= MAX_TEXT else None
            return Open(dotted(node)) if made is None else of([base], made)
        if name == "format":
            return self._filled_in(scalar, args, named)
        if name == "split" and not args and scalar.strip():
            listed = Listed([*scalar.split()], node.lineno, self._path, place=self._place)
            self.lists.append((listed, self._resources))
            return listed
        return Open(dotted(node))

    def _between(self, sign: str, listed: Listed) -> str:
        return sign.join(text(item) for item in listed.items)[:MAX_TEXT]

    def _filled_in(self, scalar: str, args: Sequence[Value], named: Mapped) -> Value:
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

    def _filled(self, line: str) -> str:
        """A line for a shell as IPython hands it on: `{name}` and `$name` are Python's, where it has them."""

        def piece(match: re.Match[str]) -> str:
            try:
                node = ast.parse(match[1].strip(), mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return match[0]
            value = self._value(node, self._module)
            return mark(dotted(node)) if isinstance(value, Open) else text(value)

        def variable(match: re.Match[str]) -> str:
            value = self._named(match[1], self._module)
            return match[0] if isinstance(value, Open) else text(value)

        filled = re.sub(r"(?<![\\$])\$([A-Za-z_]\w*)", variable, line)
        return re.sub(r"(?<![\\$'\"{])\{([A-Za-z_][^{}\n:]{0,200})\}", piece, filled)[:MAX_TEXT]

    def _of_parser(self, parser: Parser, name: str, args: list[Value], named: Mapped) -> Value:
        fields = parser.arguments.fields
        if name == "add_argument":
            flags = [one for one in args if isinstance(one, str)]
            long = next((one for one in flags if one.startswith("--")), flags[0] if flags else "")
            is_known, dest = known(named.fields.get("dest"))
            key = dest if isinstance(dest, str) else long.lstrip("-").replace("-", "_")
            if key:
                fields.fields[key] = self._argument(long or key, named)
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

    def _argument(self, flag: str, named: Mapped) -> Value:
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

    # ---- calls of what the text defines

    def _made(self, kind: Class, args: list[Value], named: Mapped) -> Instance:
        instance = Instance(kind, Mapped(path=self._path))
        self._instances.append(instance)
        with self._with(kind.node.decorator_list):
            if "__init__" in kind.methods:
                self._inlined(replace(kind.methods["__init__"], owner=instance), args, named)
            else:  # a dataclass, or a settings class: its fields may be given
                for key, value in named.fields.items():
                    instance.fields.fields[key] = value
            for name, method in kind.methods.items():  # modal.enter, and what a framework calls by itself
                if name != "__init__" and any("enter" in dotted(one) for one in method.node.decorator_list):
                    self._inlined(replace(method, owner=instance), [], Mapped(is_open=True))
        return instance

    def _inlined(self, function: Function, args: list[Value], named: Mapped) -> Value:
        """What a function of the text returns for these arguments."""
        count = self._called.get(function.node, 0)
        if count >= _MOST_CALLS or self._calls >= _DEEPEST_CALL:
            return Open(f"{function.node.name}()")
        self._called[function.node] = count + 1
        outer = function.scope if isinstance(function.scope, _Frame) else self._module
        frame = _Frame(outer)
        self._parameters(function, args, named, frame)
        place, depth = self._place, self._depth
        self._place, self._depth = function.place, 0
        self._calls += 1
        kind = function.owner.kind if function.owner is not None else None
        try:
            with self._with([*function.node.decorator_list, *(kind.node.decorator_list if kind else [])]):
                self._block(function.node.body, frame)
        finally:
            self._calls -= 1
            self._place, self._depth = place, depth
        told = [value for value in frame.returns if value is not None]
        if not told:
            return None
        lists = [value for value in told if isinstance(value, Listed)]
        if len(told) == len(lists) > 1:
            return _either(lists[0], *lists[1:])
        return told[0] if all(same(told[0], value) for value in told[1:]) else Open(f"{function.node.name}()")

    def _parameters(self, function: Function, args: list[Value], named: Mapped, frame: _Frame) -> None:
        given = function.node.args
        names = [one.arg for one in (*given.posonlyargs, *given.args)]
        if (
            function.owner is not None
            and names
            and not any(dotted(one) == "staticmethod" for one in function.node.decorator_list)
        ):
            frame.names[names.pop(0)] = (function.owner, self._path)
        count = len(names)
        defaults: dict[str, ast.expr] = dict(zip(names[count - len(given.defaults) :], given.defaults, strict=False))
        defaults |= {
            one.arg: default for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default
        }
        named = Mapped(dict(named.fields), named.is_open, self._path, dict(named.nodes))
        if given.vararg is not None:
            frame.names[given.vararg.arg] = (Listed(args[count:], path=self._path), self._path)
        for place, name in enumerate([*names, *(one.arg for one in given.kwonlyargs)]):
            if place < min(count, len(args)):
                value = args[place]
            elif name in named.fields:
                value = named.fields.pop(name)
            elif name in defaults:
                value = self._value(defaults[name], frame.outer or self._module)
                is_known, scalar = known(value)
                if named.is_open and is_known and not isinstance(value, Default):
                    value = Default(scalar, f"{name}=")
            else:
                value = Open(name)
            frame.names[name] = (value, self._path)
        if given.kwarg is not None:
            frame.names[given.kwarg.arg] = (named, self._path)

    @contextmanager
    def _with(self, decorators: Sequence[ast.expr]) -> Iterator[None]:
        """Within, what the decorators ask of the machine holds."""
        before = self._resources
        for one in decorators:
            if isinstance(one, ast.Call):
                given = {keyword.arg or "": self._value(keyword.value, self._module) for keyword in one.keywords}
                self._resources = _asked(self._resources, given)
                self.gpu_defaults += defaults_in(given.get("gpu"))
        try:
            yield
        finally:
            self._resources = before

    # ---- processes

    def _ran(self, name: str, args: list[Value], named: Mapped, node: ast.Call) -> None:
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
            self._container(first, args[1:], named, node)
        elif len(args) > 1 and first in _PROGRAMS:
            self.lists.append(
                (Listed(args, node.lineno, self._path, place=self._place, environment=environment), self._resources)
            )
        elif name in _RUNS:
            for listed, _ in self.lists:
                if len(listed.items) > 2 and not listed.is_part and self._as_line(listed) in first:
                    listed.is_part = True
            self.processes.append(Process(first, node.lineno, self._place, environment, self._resources))

    def _container(self, image: str, args: list[Value], named: Mapped, node: ast.Call) -> None:
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
        self.lists.append((Listed(words, node.lineno, self._path, place=self._place), self._resources))


def _either(first: Listed, *others: Listed) -> Listed:
    """One of several lists: what is added to it is added to each."""
    first.twins += [other for other in others if other is not first]
    return first


def _flag_of_either(values: Sequence[Value]) -> Value:
    """Of `"--a" if x else "--no-a"`: the flag, which may be there."""
    told: Sequence[Scalar] = [known(value)[1] for value in values]
    flag = next((one for one in told if isinstance(one, str) and one.startswith("--")), None)
    return Maybe(flag, "…") if flag is not None else None


def _asked(resources: Resources, given: Mapping[str, Value]) -> Resources:
    """With what a decorator of Modal or Ray asks for: `gpu="H100:2"`, `num_gpus=1`, `ray_actor_options={…}`."""
    options = given.get("ray_actor_options")
    if isinstance(options, Mapped):
        given = dict(given) | options.fields
    gpu = given.get("gpu")
    if isinstance(gpu, Listed) and gpu.items:
        gpu = gpu.items[0]
    is_known, named = known(gpu)
    if is_known and isinstance(named, str) and named:
        kind, _, count = named.partition(":")
        resources = replace(resources, gpu=kind or None, gpus=float(count) if count.isdigit() and len(count) < 4 else 1)
    for key in _GPU_COUNTS:
        is_known, number = known(given.get(key))
        if isinstance(number, (int, float)) and not isinstance(number, bool) and number > 0:
            resources = replace(resources, gpus=float(number))
    is_known, kind_of_gpu = known(given.get("accelerator_type"))
    return replace(resources, gpu=kind_of_gpu) if isinstance(kind_of_gpu, str) else resources
