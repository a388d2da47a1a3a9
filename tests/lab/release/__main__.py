"""A vLLM release becomes data: what its `vllm serve` takes, its environment variables, metrics and log calls.

Written: vllm_doctor/vllm/data/{flags,environment,metrics}.tsv and tests/data/functions.tsv.gz; of the newest release
tests/data/log_calls.tsv.gz and docs/guides.md too. Printed: what has changed, and what is left to be done by hand.
docs/releases.md is the recipe.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.lab.release import functions, log_calls, metrics, source_tree, tables
from tests.paths import DATA as TESTS_DATA
from tests.paths import PACKAGE, ROOT

DATA = PACKAGE / "vllm" / "data"
LOG_CALLS = TESTS_DATA / "log_calls.tsv.gz"
FUNCTIONS = TESTS_DATA / "functions.tsv.gz"
LAB_PYTHON = ROOT / ".lab" / "vllm" / "bin" / "python"
_PARSER = Path(__file__).with_name("parser.py")
_READ_SECONDS = 300
TASKS = {
    "add": "read a release, and write it into the data",
    "functions": "only which functions it defines, by which parts of a profile are checked",
    "remove": "take it out again",
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.release", description=__doc__)
    tasks = parser.add_subparsers(dest="task", required=True)
    for task, says in TASKS.items():
        sub = tasks.add_parser(task, help=says, description=says)
        sub.add_argument("release", help="as the package index has it: 0.34.0")
        sub.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help="a copy of the tables")
        if task != "remove":
            sub.add_argument("--sources", type=Path, metavar="FOLDER", help="its sources (vllm/…): no download")
        if task == "add":
            sub.add_argument(
                "--python", type=Path, default=LAB_PYTHON, help="one with vLLM's dependencies (tests/lab/install.sh)"
            )
    options = parser.parse_args(arguments)
    if options.task == "remove":
        remove(options.release, options.data)
    elif options.task == "functions":
        add_functions(options.release, options.sources)
    else:
        add(options.release, options.data, options.sources, options.python)
    return 0


def add(release: str, data: Path, sources: Path | None, python: Path) -> None:
    if not python.exists():
        raise SystemExit(f"{python}: no such Python; tests/lab/install.sh makes it, or name another, --python PYTHON")
    with tempfile.TemporaryDirectory() as folder:
        sources = sources or _fetched(release, Path(folder))
        content = read(sources, release, python)
        calls = log_calls.log_calls(sources)
        if data == DATA:
            add_functions(release, sources)
    print(f"{len(content['flags'])} flags; modules that cannot be run here: {content['dummies'] or 'none'}")
    rows = tables.rows_of(content)
    for name in tables.TABLES:
        before = tables.read(data / name)
        after = before.with_release(release, rows[name])
        tables.write(data / name, after)
        print(f"{name}: {len(rows[name])} rows", *_changes(after, release), sep="\n  ")
    is_newest = max(before.with_release(release, {}).rows, key=tables.order_of) == release
    print("device_defaults.tsv:", *_wrong_by_device(content, release), sep="\n  ")
    if is_newest and data == DATA:
        log_calls.write(LOG_CALLS, release, calls)
        print(f"{LOG_CALLS.name}: {len(calls)} calls")
        guides = subprocess.run([sys.executable, "-m", "tests.guides"], cwd=ROOT, capture_output=True, check=True)
        (ROOT / "docs" / "guides.md").write_bytes(guides.stdout)
        print("docs/guides.md is written anew")
    if is_newest:
        print("replaced.tsv:", *_without_replacement(data), sep="\n  ")


def add_functions(release: str, sources: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = functions.functions(sources or _fetched(release, Path(folder)))
    functions.write(FUNCTIONS, {**functions.read(FUNCTIONS), release: found})
    print(f"{FUNCTIONS.name}: {len(found)} modules; tests/rules/test_parts_by_release.py names those without a part")


def _fetched(release: str, folder: Path) -> Path:
    print(f"vLLM {release}: {source_tree.fetch(release, folder)} files of its wheel", flush=True)
    return folder


def remove(release: str, data: Path) -> None:
    for name in tables.TABLES:
        tables.write(data / name, tables.read(data / name).without(release))


def read(sources: Path, release: str, python: Path) -> dict[str, Any]:
    """What parser.py and metrics.py say of the release; in a process of its own, in an empty home."""
    environment = {"PATH": os.environ["PATH"], "HOME": "~", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_PLUGINS": ""}
    with tempfile.TemporaryDirectory() as home:  # "~", left as it is, is a folder in it
        ran = subprocess.run(
            [python.absolute(), "-B", _PARSER, sources.absolute(), release],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_READ_SECONDS,
        )
    if ran.returncode:
        raise SystemExit(f"{release} cannot be read:\n{ran.stderr[-3000:]}")
    content: dict[str, Any] = json.loads(ran.stdout)
    return content | {"metrics": metrics.metrics_of(sources)}


def _changes(table: tables.Table, release: str) -> Iterator[str]:
    """What the release has that the one before it has not, and the other way round."""
    order = sorted(table.rows, key=tables.order_of)
    place = order.index(release)
    if place == 0:
        return
    before, after = (_by_name(table.rows[name]) for name in (order[place - 1], release))
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    changed = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    for title, names in (("new", new), ("gone", gone), ("changed", changed)):
        if names:
            yield f"{title} since {order[place - 1]}: {', '.join(names)}"


def _by_name(rows: tables.Rows) -> dict[str, tuple[str, tables.Cells]]:
    """Each row by its first name, with its other spellings."""
    return {key.partition(" ")[0]: (key, cells) for key, cells in rows.items()}


def _wrong_by_device(content: dict[str, Any], release: str) -> list[str]:
    """Where the table has another default for a device than the release takes."""
    from vllm_doctor.vllm import defaults  # reads the tables that were just written

    if content["by_device"] is None:
        return ["EngineArgs.get_batch_defaults is gone: what vLLM takes by device must be looked up by hand"]
    wrong = []
    for found in content["by_device"]:
        memory, name = found["memory"], found["name"]
        device = "the CPU" if memory is None else f"{name or 'a GPU'} of {memory / (1 << 30):.4g} GiB"
        for flag, value in ((defaults.MAX_NUM_SEQS, found["seqs"]), (defaults.MAX_NUM_BATCHED_TOKENS, found["tokens"])):
            said = defaults.by_device(release, flag, memory, name, 1)
            if said != value:
                wrong.append(f"{flag} on {device}: vLLM takes {value}, the table has {said}")
    return wrong or [f"as vLLM has it, on {len(content['by_device'])} devices"]


def _without_replacement(data: Path) -> list[str]:
    """The flags that have ended, and of which nothing says what becomes of them."""
    table = tables.read(data / "flags.tsv")
    releases = sorted(table.rows, key=tables.order_of)
    names = {
        release: {name for key in rows for name in key.split(" ") if name.startswith("--")}
        for release, rows in table.rows.items()
    }
    lines = (data / "replaced.tsv").read_text("utf-8").splitlines()
    said = {line.partition("\t")[0] for line in lines}
    missing = sorted(set[str]().union(*names.values()) - names[releases[-1]] - said)
    if not missing:
        return ["every flag that has ended has an entry"]
    return [f"{name} has ended: say what to write instead" for name in missing]


if __name__ == "__main__":
    sys.exit(main())
