"""What tests/test_secrets.py plants, where, and what of it left: as a table.

usage: python -m tests.secrets_table

Each source is examined in every format, recorded, recorded with --share, and both recordings are read again; all of
that is searched. "planted in": of how many sources it stood in the files, the process, the answers or the arguments, by
the same search. Ends with 1 where anything left.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.planted import SECRETS, SOURCES, found_in
from tests.zstandard import texts_of
from vllm_doctor.cli.main import main
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.recording import archive


def planted(folder: Path, words: Sequence[str | Path]) -> set[str]:
    """The kinds of secrets that a source holds."""
    texts = [" ".join(map(str, words))]
    texts += [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]
    for word in map(str, words):
        if word.isdigit():
            for name in ("cmdline", "environ"):
                texts.append(Path(f"/proc/{word}/{name}").read_bytes().decode(errors="replace"))
        elif word.startswith("http") and "@" not in word:
            for path in ("/metrics", "/v1/models", "/version"):
                with contextlib.suppress(OSError), urllib.request.urlopen(word + path, timeout=30) as answer:
                    texts.append(answer.read().decode())
    return set(found_in("\n".join(texts)))


def said(*words: str | Path) -> str:
    """All that the doctor says to a command line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main([str(word) for word in words])
    return out.getvalue() + err.getvalue()


def left(folder: Path, words: Sequence[str | Path]) -> tuple[int, set[str]]:
    """How many outputs were searched, and which kinds of secrets stood in one."""
    outputs = [said(*words, "--format", form, "--window", "0") for form in FORMATS]
    for share in ((), ("--share",)):
        path = folder / f"r{len(share)}.tar.gz"
        outputs.append(said("record", *words, *share, "-o", path, "--duration", "0.2"))
        if path.exists():
            outputs += [f"{name}\n{text}" for name, text in texts_of(archive.read(path)).items()]
            outputs += [said(path, "--json"), said(path, "--text")]
    return len(outputs), {kind for output in outputs for kind in found_in(output)}


def table() -> bool:
    """Print it; whether nothing left."""
    there: dict[str, list[str]] = {kind: [] for kind in SECRETS}
    out: dict[str, list[str]] = {kind: [] for kind in SECRETS}
    searched = 0
    for source, plant in SOURCES.items():
        with tempfile.TemporaryDirectory() as name, plant(Path(name)) as words:
            holds = planted(Path(name), words)
            count, found = left(Path(name), words)
        searched += count
        for kind in SECRETS:
            if kind in holds:
                there[kind].append(source)
            if kind in found:
                out[kind].append(source)
    print("| secret | planted in | left |\n| --- | --- | --- |")
    for kind in SECRETS:
        print(f"| {kind} | {len(there[kind])} | {', '.join(out[kind]) or 'nowhere'} |")
    print(f"\n{len(SECRETS)} kinds in {len(SOURCES)} sources, {searched} outputs searched")
    return not any(out.values())


if __name__ == "__main__":
    sys.exit(0 if table() else 1)
