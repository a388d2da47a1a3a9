"""Asks the real vLLM of the lab whether it agrees with the flag catalogue, and takes each flag that a rule can print.

    python -m tests.lab.flags --check      1 where they differ

What makes the catalogue is tests/lab/release.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence

from tests.lab.release.__main__ import LAB_PYTHON
from tests.making import settings_of_rules
from tests.paths import PACKAGE
from vllm_doctor.vllm import flags, installed

PARSER = PACKAGE / "vllm" / "parser_dump.py"
DEVICE = "cuda"
"""What the sources are read for: parser_dump.py names it where vLLM finds no device."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", required=True)
    parser.parse_args()
    return check()


def check() -> int:
    """Print where the catalogue and the lab's real vLLM differ; 1 if they do."""
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
