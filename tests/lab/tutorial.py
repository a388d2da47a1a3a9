"""The recordings of docs/tutorial.md: a real vLLM with a fault, and the same under the same load after the printed fix.

usage: python -m tests.lab.tutorial

Writes docs/tutorial/before.tar.gz and after.tar.gz, with pseudonyms (`--share`). Needs tests/lab/install.sh.
"""

from __future__ import annotations

from tests.lab import compare
from tests.lab.server import loaded, must_be_installed, started, vllm
from tests.paths import ROOT

SICK = ("--max-model-len", "2048", "--max-num-seqs", "2")
LOAD = {"clients": 24, "prompt": 128, "out": 100, "vary": True}
HOW = ("--duration", "60", "--share")
FOLDER = ROOT / "docs" / "tutorial"


def main() -> None:
    """Make both."""
    must_be_installed()
    compare.FOLDER = FOLDER
    FOLDER.mkdir(exist_ok=True)
    with vllm(SICK, "tutorial-sick") as url, loaded(url, LOAD):
        compare.record(url, "before", *HOW)
        report = compare.record(url, "unshared", *HOW[:2])  # with pseudonyms for its paths no command starts
    fix = compare.cure_of(report)
    report.unlink()
    with started(fix, int(url.rsplit(":", 1)[1]), "tutorial-fixed") as url, loaded(url, LOAD):
        compare.record(url, "after", *HOW)
    compare.doctor("compare", str(FOLDER / "before.tar.gz"), str(FOLDER / "after.tar.gz"))


if __name__ == "__main__":
    main()
