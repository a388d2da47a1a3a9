"""Two real releases of vLLM side by side: is the release read from each source, and an entry said of the right one?

usage: python -m tests.lab.two_releases

Starts each release of two_releases.yaml for a few seconds, one after the other, and asks `vllm-doctor regressions` of
its URL (/version and /metrics), of the first fifty lines of its log, and of its recording; then what the upgrade from
one to the other brings, and `compare` of the two. The entry must speak with certainty of the one release, be silent on
the other, and be quoted as fixed between them; the table that ships must be silent on both. Needs tests/lab/install.sh,
and with tests/lab/install.sh VERSION the other release. Ends with 1 where an answer is another.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.lab.server import LAB, OUT, loaded, must_be_installed, vllm

CASE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
LINES = 50
FOLDER = OUT / "two-releases"
LOAD = {"clients": 2, "prompt": 32, "out": 32}


def doctor(*words: str) -> str:
    """What it answers."""
    done = subprocess.run([sys.executable, "-m", "vllm_doctor", *words], text=True, stdout=subprocess.PIPE)
    return done.stdout


def told(rules: str | None, *words: str) -> dict[str, Any]:
    """`regressions`, with the lab's entry or with the table that ships alone."""
    more = ["--rules", rules] if rules else []
    document: dict[str, Any] = json.loads(doctor("regressions", *words, *more, "--json"))
    return document


def certain(faults: list[dict[str, Any]]) -> set[str]:
    return {fault["id"] for fault in faults if fault["held"] == "certain"}


def sources(side: str) -> Iterator[tuple[str, str]]:
    """What names the server of that side, while it runs and after."""
    release = CASE[side]
    log = OUT / f"two-releases-{side}.log"
    executable = LAB / release["python"] / "bin" / "vllm"
    with vllm(CASE["args"], log.stem, executable=executable) as url, loaded(url, LOAD):
        yield "/version", url
        recording = FOLDER / f"{side}.tar.gz"
        doctor("record", url, "-o", str(recording), "--duration", str(CASE["seconds"]))
    head = FOLDER / f"{side}-head.log"
    head.write_text("".join(log.read_text().splitlines(keepends=True)[:LINES]))
    yield f"{LINES} lines of its log", str(head)
    yield "its recording", str(recording)


def main() -> None:
    must_be_installed()
    FOLDER.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        (tables := Path(folder) / "regressions").mkdir()
        (tables / "lab.yaml").write_text(yaml.safe_dump({"regressions": CASE["regressions"]}, sort_keys=False))
        (entry,) = (fault["id"] for fault in CASE["regressions"])

        def check(what: str, is_right: bool) -> None:
            nonlocal wrong
            wrong += not is_right
            print(f"{'ok   ' if is_right else 'WRONG'} {what}", flush=True)

        for side, should_speak in (("before", True), ("after", False)):
            version, began = CASE[side]["version"], time.monotonic()
            for name, source in sources(side):
                answer = told(folder, source)
                spoke = entry in certain(answer["faults"])
                check(f"{version} by {name}: {answer['version']}", answer["version"] == version)
                check(f"{version} by {name}: the entry {'speaks' if spoke else 'is silent'}", spoke is should_speak)
                shipped = certain(told(None, source)["faults"])
                check(f"{version} by {name}: the table that ships is silent", not shipped)
            print(f"      {time.monotonic() - began:.0f} s", flush=True)
        before, after = (str(FOLDER / f"{side}.tar.gz") for side in ("before", "after"))
        upgrade = told(folder, before, CASE["after"]["version"])
        check("the upgrade fixes the entry", certain(upgrade["fixes"]) == {entry})
        compared = doctor("compare", before, after, "--rules", folder, "--json")
        check("compare quotes it", "fixes: The lab's own entry" in compared)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
