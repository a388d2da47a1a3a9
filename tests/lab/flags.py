"""The flag catalogue: what every released vLLM takes and tells, read from its own sources.

usage: flags.py --fetch FOLDER [RELEASE...]   unpack the sources of these releases (all since 0.8.0) in FOLDER/RELEASE,
                                              from the package index that pip is set up for
       flags.py --read FOLDER [RELEASE...]    FOLDER/RELEASE.json: its parser, environment variables, metrics
       flags.py --write FOLDER                these into vllm/data/{flags,environment,metrics}.tsv; what is there
                                              of releases that are not in FOLDER stays
       flags.py --check                       the catalogue, and each flag that a rule can print, against the real vLLM
                                              of the lab; 1 where they differ

A new release: `flags.py --fetch DIR 0.34.0 && flags.py --read DIR 0.34.0 && flags.py --write DIR`, then look at the
diff, and say in data/replaced.tsv what becomes of each flag that has ended (tests/vllm/test_flags.py asks for it).

--read runs each release's own command line, from its sources, up to the moment where its parser is ready (see
vllm/parser_dump.py). It needs a Python with vLLM's dependencies, and takes the lab's (tests/lab/install.sh):
a module of an old vLLM that the newer dependencies break becomes a dummy, and is named. What came from a dummy is
"not known" in the data; a module that makes the parser may not be one.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import itertools
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import types
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DATA = ROOT / "vllm_doctor" / "vllm" / "data"
PARSER = ROOT / "vllm_doctor" / "vllm" / "parser_dump.py"
LAB_PYTHON = ROOT / ".lab" / "vllm" / "bin" / "python"
FIRST = (0, 8, 0)
DEVICE = "cuda"
"""What the sources are read for: parser_dump.py names it where vLLM finds no device."""
READ_SECONDS = 300
TRY = """
import contextlib, io, json, runpy, sys
parser, refused = runpy.run_path(sys.argv[1])["serve_parser"](), []
for words in json.load(sys.stdin):
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            parser.parse_args(["model", *words])
    except SystemExit:
        refused.append(f"{' '.join(words)}: {errors.getvalue().strip().splitlines()[-1]}")
print(json.dumps(refused))
"""
GAP = 300_000
"""Bytes between two files of a wheel, up to which both are fetched at once."""

Cells = tuple[str, ...]
Table = dict[str, dict[str, Cells]]
"""By release, by name: the cells of the row."""


def main() -> int:
    options = _options()
    folder = Path(options.folder) if options.folder else Path()
    if options.check:
        return check()
    if options.source:
        print(json.dumps(read_source(Path(options.source))), flush=True)
        os._exit(0)  # vLLM's threads are not waited for
    if options.fetch:
        fetch(folder, options.release)
    elif options.read:
        read(folder, options.release)
    else:
        write(folder)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    task = parser.add_mutually_exclusive_group(required=True)
    for name in ("fetch", "read", "write", "check"):
        task.add_argument(f"--{name}", action="store_true")
    task.add_argument("--source", metavar="FOLDER", help=argparse.SUPPRESS)  # one release, in a process of its own
    parser.add_argument("folder", nargs="?")
    parser.add_argument("release", nargs="*")
    options = parser.parse_args()
    if not (options.folder or options.check or options.source):
        parser.error("FOLDER is missing")
    return options


# --- fetch


def fetch(folder: Path, releases: Sequence[str]) -> None:
    """Unpack the Python files of these releases (none named: all since 0.8.0); what is there stays.

    From the source distribution; of a release that has none, from its wheel, and of that only the parts with Python.
    """
    from pip._internal.cli.cmdoptions import make_target_python
    from pip._internal.commands import create_command

    def found(*arguments: str) -> dict[str, Any]:
        options, _ = command.parse_args([*arguments, "vllm"])
        finder = command._build_package_finder(
            options, session, target_python=make_target_python(options), ignore_requires_python=True
        )
        newest: dict[str, Any] = {}
        for candidate in finder.find_all_candidates("vllm"):
            if candidate.version.release >= FIRST and not candidate.version.is_prerelease:
                newest[str(candidate.version)] = candidate.link
        return newest

    command: Any = create_command("download")
    with command.main_context():
        session = command.get_default_session(command.parse_args(["vllm"])[0])
        sources = found("--no-binary=:all:")
        wheels = found(
            "--only-binary=:all:",
            *(f"--platform=manylinux{tag}_x86_64" for tag in ("1", "2014", "_2_28", "_2_31", "_2_35")),
        )
        for release in sorted(releases or {*sources, *wheels}, key=_order):
            if (folder / release).exists():
                continue
            link = sources.get(release) or wheels[release]
            unpack = _unpack_source if release in sources else _unpack_wheel
            count = unpack(session, link.url_without_fragment, folder / release)
            print(f"{release}: {count} files of {link.filename}")


def _unpack_source(session: Any, url: str, into: Path) -> int:
    count = 0
    with tempfile.TemporaryFile() as file:
        with session.get(url, stream=True, headers={"Accept-Encoding": "identity"}) as answer:
            answer.raise_for_status()
            for chunk in answer.iter_content(1 << 20):
                file.write(chunk)
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:gz") as archive:
            for member in archive:
                _, _, name = member.name.partition("/")
                content = archive.extractfile(member) if member.isfile() and _is_wanted(name) else None
                if content is not None:
                    _put(into, name, content.read())
                    count += 1
    return count


def _unpack_wheel(session: Any, url: str, into: Path) -> int:
    from pip._internal.network.lazy_wheel import LazyZipOverHTTP

    with LazyZipOverHTTP(url, session) as remote, zipfile.ZipFile(remote) as archive:
        inside = sorted(archive.infolist(), key=lambda info: info.header_offset)
        parts: list[tuple[int, int]] = []
        for info, after in itertools.pairwise(inside):
            if _is_wanted(info.filename):
                start, end = info.header_offset, after.header_offset - 1
                if parts and start - parts[-1][1] < GAP:
                    start = parts.pop()[0]
                parts.append((start, end))
        for start, end in parts:
            with remote._stay():
                remote._download(start, end)
        names = [info.filename for info in inside if _is_wanted(info.filename)]
        for name in names:
            _put(into, name, archive.read(name))
    return len(names)


def _is_wanted(name: str) -> bool:
    return name.startswith("vllm/") and name.endswith(".py") and ".." not in name


def _put(into: Path, name: str, content: bytes) -> None:
    path = into / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


# --- read


def read(folder: Path, releases: Sequence[str]) -> None:
    """FOLDER/RELEASE.json of each unpacked release; what is there stays. Each in a process of its own."""
    unpacked = [path.name for path in folder.iterdir() if (path / "vllm").is_dir()]
    for release in sorted(releases or unpacked, key=_order):
        target = folder / f"{release}.json"
        if target.exists():
            continue
        environment = {"PATH": os.environ["PATH"], "HOME": "~", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_PLUGINS": ""}
        with tempfile.TemporaryDirectory() as home:  # "~", left as it is, is a folder in it
            ran = subprocess.run(
                [LAB_PYTHON, "-B", __file__, "--source", (folder / release).absolute()],
                env=environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=READ_SECONDS,
            )
        if ran.returncode:
            raise SystemExit(f"{release} cannot be read:\n{ran.stderr[-3000:]}")
        content = json.loads(ran.stdout) | {"metrics": metrics_of(folder / release)}
        print(f"{release}: {len(content['flags'])} flags, dummies: {content['dummies'] or 'none'}", flush=True)
        target.write_text(json.dumps(content))


def read_source(folder: Path) -> dict[str, Any]:
    """All that is read of a release, in this process, which is then good for nothing else."""
    with contextlib.redirect_stdout(sys.stderr):
        dummies: dict[str, str] = {}
        _pretend(folder, dummies)
        parser_module = types.ModuleType("parser_dump")
        exec(compile(PARSER.read_text("utf-8"), PARSER, "exec"), parser_module.__dict__)
        content: dict[str, Any] = json.loads(parser_module.dump())
        for module in sorted(dummies):
            if re.fullmatch(r"vllm(\.engine(\.arg_utils)?|\.config(\..+)?|\.entrypoints\..*cli_args)", module):
                raise SystemExit(f"{module}, which makes the parser: {dummies[module]}")
        content["environment"] = environment_defaults()
    return content | {"version": folder.name, "dummies": sorted(dummies)}


def _pretend(folder: Path, dummies: dict[str, str]) -> None:
    """Make `import vllm` take the sources, as an installed vLLM of that release on a CUDA device."""
    metadata: Any = importlib.metadata
    version, distribution = metadata.version, metadata.distribution

    def no_vllm(name: str) -> Any:
        if name == "vllm":
            raise importlib.metadata.PackageNotFoundError(name)
        return distribution(name)

    metadata.version = lambda name: folder.name if name == "vllm" else version(name)
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

    Told by asking twice, on two machines as unlike as can be pretended; a home of "~" stays "~".
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


_METRIC = re.compile(r"vllm:[a-z][a-z0-9_]*[a-z0-9]")
_SPEAKS_OF_METRICS = re.compile(r"[\"']vllm:\w|(Counter|Gauge|Histogram)Metadata")
_NO_METRICS = ("vllm/benchmarks/", "vllm/v1/metrics/reader.py", "orca_metrics.py", "vllm/compilation/")
_KINDS = ("counter", "gauge", "histogram", "summary")


def metrics_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The metrics that a release's sources define, as its /metrics shows them: a counter ends in _total.

    Each with its kind ("" where the sources do not tell it), and whether it is shown only on demand.
    """
    modules: dict[str, ast.Module] = {}
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder).as_posix()
        text = path.read_text("utf-8")
        if _SPEAKS_OF_METRICS.search(text) and not any(part in place for part in _NO_METRICS):
            modules[place] = ast.parse(text)
    constants = {name: text for module in modules.values() for name, text in _constants(module, "")}
    kinds = {name: kind for module in modules.values() for name, kind in _told_kinds(module, constants)}
    metrics: dict[str, dict[str, Any]] = {}
    for place, module in modules.items():
        engine = "V0" if place == "vllm/engine/metrics.py" else "V1"
        for name, kind, is_hidden in _metrics_in(module, kinds):
            shown = name + "_total" if kind == "counter" and not name.endswith("_total") else name
            found = metrics.setdefault(shown, {"kind": kind, "hidden": is_hidden, "engines": []})
            if engine in found["engines"]:
                found["hidden"] = found["hidden"] and is_hidden
            elif engine == "V1":
                found["hidden"] = is_hidden  # what V0 shows, nobody runs where both are
            found["kind"] = found["kind"] or kind
            found["engines"] = sorted({*found["engines"], engine})
    return metrics


def _constants(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, str]]:
    """Names that stand for a metric's: NAME, or Class.NAME."""
    for inner in node.body:
        if isinstance(inner, ast.ClassDef):
            yield from _constants(inner, inner.name + ".")
        elif isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
            text = _metric(inner.value, {})
            if text:
                yield prefix + inner.targets[0].id, text


def _metric(node: ast.AST | None, constants: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) and _METRIC.fullmatch(node.value) else None
    return constants.get(ast.unparse(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None


def _told_kinds(module: ast.Module, constants: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The kind of each metric that is an argument of what makes one, or its key in a table of such."""
    for node in ast.walk(module):
        pairs: list[tuple[ast.AST | None, ast.AST]] = []
        if isinstance(node, ast.Call):
            pairs = [(argument, node) for argument in [*node.args, *(keyword.value for keyword in node.keywords)]]
        elif isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            pairs = [(node.targets[0].slice, node.value)]
        for name, maker in pairs:
            text, kind = _metric(name, constants), _kind_of(maker)
            if text and kind:
                yield text, kind


def _metrics_in(module: ast.Module, kinds: Mapping[str, str]) -> Iterator[tuple[str, str, bool]]:
    parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}
    for node in parents:
        name = _metric(node, {})
        if name is None:
            continue
        above: list[ast.AST] = [node]
        while above[-1] in parents:
            above.append(parents[above[-1]])
        if any(isinstance(parent, (ast.Compare, ast.JoinedStr)) for parent in above):
            continue
        function = next((parent for parent in above if isinstance(parent, ast.FunctionDef)), None)
        is_hidden = any(isinstance(p, ast.If) and "show_hidden" in ast.unparse(p.test) for p in above)
        yield name, kinds.get(name) or _only_kind(function), is_hidden


def _kind_of(node: ast.AST) -> str:
    function = ast.unparse(node.func).lower() if isinstance(node, ast.Call) else ""
    return next((kind for kind in _KINDS if kind in function), "")


def _only_kind(function: ast.FunctionDef | None) -> str:
    """The kind of a name out of a list: the one that the function makes of names it does not spell out."""
    kinds = {
        _kind_of(node)
        for node in ast.walk(function or ast.Module([], []))
        if isinstance(node, ast.Call)
        and any(keyword.arg == "name" and not isinstance(keyword.value, ast.Constant) for keyword in node.keywords)
    } - {""}
    return kinds.pop() if len(kinds) == 1 else ""


# --- write


def write(folder: Path) -> None:
    """The three tables, from FOLDER and from what they hold of other releases."""
    read = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    _write_table(
        "flags.tsv",
        ["spellings", "releases", "kind", "choices", "default", "note"],
        {release: _flag_rows(content) for release, content in read.items()},
    )
    _write_table(
        "environment.tsv",
        ["name", "releases", "default"],
        {
            release: {name: (_cell(default),) for name, default in content["environment"].items()}
            for release, content in read.items()
        },
    )
    _write_table(
        "metrics.tsv",
        ["name", "releases", "kind", "engines", "note"],
        {
            release: {
                name: (found["kind"], " ".join(found["engines"]), "hidden" if found["hidden"] else "")
                for name, found in content["metrics"].items()
            }
            for release, content in read.items()
        },
    )


def _flag_rows(content: Mapping[str, Any]) -> dict[str, Cells]:
    rows: dict[str, Cells] = {}
    for flag in content["flags"]:
        long_names = [name for name in flag["spellings"] if name.startswith("--") and flag["kind"] == "on-off"]
        negatives = {"--no-" + name.removeprefix("--") for name in long_names}
        odd = negatives - {*flag["off"]}
        if odd:
            raise SystemExit(f"{odd}: an on-off switch without its --no- form")
        spellings = " ".join([*flag["spellings"], *(f"!{name}" for name in flag["off"] if name not in negatives)])
        if any("|" in choice for choice in flag["choices"] or ()):
            raise SystemExit(f"{spellings}: a choice holds the separator")
        rows[spellings] = (
            flag["kind"] or "",
            "|".join(flag["choices"] or ()),
            _cell(flag["default"]),
            "deprecated" if flag["deprecated"] else "",
        )
    return rows | {f":{name}": () for name in content["syntax"]}


def _cell(text: str | None) -> str:
    if text is None:
        return ""
    return '""' if text == "" else text.replace("\t", " ").replace("\n", " ")


def _write_table(name: str, columns: Sequence[str], new: Table) -> None:
    path = DATA / name
    old, samples, listed = _read_table(path)
    table = {**{release: rows for release, rows in old.items() if release not in samples}, **new}
    releases = sorted(table, key=_order)
    all_of = {**{release: old.get(release, {}) for release in samples}, **table}
    order = [*samples, *releases]
    rows: dict[tuple[str, Cells], list[int]] = {}
    for at, release in enumerate(order):
        for key, cells in all_of[release].items():
            rows.setdefault((key, cells), []).append(at)
    lines = [
        f"# {listed}" if listed else f"# vLLM by release: {', '.join(columns)}. Made by tests/lab/flags.py --write.",
        f"# samples: {' '.join(samples)}",
        f"# releases: {' '.join(releases)}",
    ]
    for (key, cells), ats in sorted(rows.items(), key=lambda item: (item[0][0], item[1])):
        lines.append("\t".join([key, _spans(ats, order), *cells]).rstrip("\t"))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{path.name}: {len(rows)} rows of {len(releases)} releases, {path.stat().st_size} bytes")


def _read_table(path: Path) -> tuple[Table, list[str], str]:
    """A table as it is: by release the rows, the samples among the releases, and its first line."""
    if not path.exists():
        return {}, [], ""
    first, samples, releases, *lines = path.read_text("utf-8").splitlines()
    sampled = samples.partition(":")[2].split()
    order = [*sampled, *releases.partition(":")[2].split()]
    table: Table = {release: {} for release in order}
    for line in lines:
        key, spans, *cells = line.split("\t")
        for span in spans.split(";"):
            start, _, end = span.partition("..")
            for release in order[order.index(start) : order.index(end or start) + 1]:
                table[release][key] = tuple(cells)
    return table, sampled, first.removeprefix("# ")


def _spans(ats: Iterable[int], order: Sequence[str]) -> str:
    spans: list[list[int]] = []
    for at in ats:
        if spans and spans[-1][1] == at - 1:
            spans[-1][1] = at
        else:
            spans.append([at, at])
    return ";".join(order[a] if a == b else f"{order[a]}..{order[b]}" for a, b in spans)


def _order(release: str) -> tuple[list[int], int]:
    numbers, _, post = release.partition(".post")
    return [int(part) for part in numbers.split(".")], int(post or 0)


# --- check


def check() -> int:
    """Print where the catalogue and the lab's real vLLM differ; 1 if they do."""
    from tests.making import settings_of_rules
    from vllm_doctor.vllm import flags, installed

    real = installed.ask(LAB_PYTHON)
    release = real.version.partition("+")[0]
    ours = flags.parser(release)
    if ours is None or ours.version != release:
        raise SystemExit(f"the catalogue has no {release}")
    known = {flag.name: flag for flag in ours.flags}
    differences = [f"{name}: vLLM has it not" for name in known.keys() - {flag.name for flag in real.flags}]
    if real.syntax != ours.syntax:
        differences.append(f"syntax: the catalogue has {sorted(ours.syntax)}, vLLM {sorted(real.syntax)}")
    for flag in real.flags:
        for aspect in ("spellings", "off", "kind", "choices", "default", "is_deprecated"):
            said, meant = getattr(known.get(flag.name), aspect, None), getattr(flag, aspect)
            if aspect == "off":
                said, meant = sorted(said or ()), sorted(meant)
            if aspect == "choices" and said and DEVICE not in meant:
                said = tuple(choice for choice in said if choice != DEVICE)  # the lab's vLLM is a CPU build
            if said != meant:
                differences.append(f"{flag.name}: {aspect}: the catalogue has {said!r}, vLLM {meant!r}")
    printed = [words for words in settings_of_rules() if flags.has(release, words[0])]
    refused = _refused(printed)
    print("\n".join(sorted([*differences, *refused])))
    print(f"vLLM {real.version}: {len(real.flags)} flags, {len(differences)} differences;", end=" ")
    print(f"{len(printed)} settings of rules, {len(refused)} refused")
    return 1 if differences or refused else 0


def _refused(printed: Sequence[Sequence[str]]) -> list[str]:
    """What the lab's vLLM refuses of these, and why."""
    asked = subprocess.run(
        [LAB_PYTHON, "-c", TRY, PARSER], input=json.dumps(printed), stdout=subprocess.PIPE, text=True, check=True
    )
    answers: list[str] = json.loads(asked.stdout.splitlines()[-1])
    return answers


if __name__ == "__main__":
    sys.exit(main())
