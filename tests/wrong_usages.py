"""Forty ways to get the command wrong, and what stands there for the places that a usage names.

`tests/data/wrong-usages.yaml` has each usage with what was said to it before and what is said now, verbatim.
`python -m tests.wrong_usages before|after` writes that column anew, with the doctor that is imported.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import trustme
import yaml

from tests.paths import FIXTURES, ROOT
from tests.serving import Answer, Request, pages, raw, serving, vllm
from tests.trace_files import busy
from vllm_doctor.cli import main

FILE = ROOT / "tests/data/wrong-usages.yaml"
_HEAD = """\
# Wrong usages: what was said to each before issue 19, and what is said now. {places} stand for servers and files of
# tests/wrong_usages.py, which wrote this file; tests/cli/test_wrong_usages.py holds each of them to it.
"""


@contextlib.contextmanager
def places(folder: Path) -> Iterator[dict[str, str]]:
    """What the usages name, by placeholder."""
    (folder / "config").mkdir()
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("Call Anna on Monday\nPIN of the safe: 4711\n")
    (folder / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)
    (folder / "picture.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>\n')
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 40)
    (folder / "settings.toml").write_text('[server]\nname = "x"\n')
    log = "INFO 11-20 10:15:00 [loggers.py:248] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation"
    log += " throughput: 100.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit"
    (folder / "vllm.log").write_text(f"{log} rate: 0.0%\n" * 3)
    (folder / "token").write_text("hunter2\n")
    trustme.CA().cert_pem.write_to_path(str(folder / "ca.pem"))
    busy().write(folder / "trace.json")
    shutil.copytree(FIXTURES / "preemption", folder / "recording")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)

    def elsewhere(request: Request) -> Answer:
        return Answer(status=302, headers={"Location": "https://sso.example.com/login?next=/metrics"})

    def login(request: Request) -> Answer:
        return Answer(status=302, headers={"Location": "/login"})

    page = Answer(b"<!doctype html><title>Sign in</title>", headers={"Content-Type": "text/html"})
    with (
        serving(vllm(pages("healthy-busy"))) as plain,
        serving(vllm(pages("healthy-busy")), tls=tls) as secure,
        serving({"/metrics": elsewhere}) as redirecting,
        serving({"/metrics": login, "/login": lambda request: page}) as signing,
        raw(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as ssh,
    ):
        main.main([plain.url, "--json", "--window", "0", "--timeout", "60", "-o", str(folder / "before.json")])
        yield {
            "server": plain.url,
            "http-to-tls": secure.url.replace("https:", "http:"),
            "tls-to-http": plain.url.replace("http:", "https:"),
            "redirecting": redirecting.url,
            "signing-in": signing.url,
            "ssh": ssh,
        }


def said(usage: Mapping[str, Any], folder: Path, there: Mapping[str, str]) -> str:
    """What the doctor says to a usage, with the placeholders back in it; several lines as they are, help in short."""
    config = folder / "config" / "vllm-doctor"
    config.mkdir(exist_ok=True)
    (config / "config.toml").unlink(missing_ok=True)
    if "config" in usage:
        (config / "config.toml").write_text(usage["config"])
    words = [_with(word, there) for word in shlex.split(usage["usage"])]
    out, err = io.StringIO(), io.StringIO()
    before, environment = os.getcwd(), os.environ.get("XDG_CONFIG_HOME")
    os.chdir(folder)
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main.main(words)
    finally:
        os.chdir(before)
        os.environ.pop("XDG_CONFIG_HOME")
        if environment is not None:
            os.environ["XDG_CONFIG_HOME"] = environment
    shown = out.getvalue().splitlines()
    lines = [f"{shown[0]} … (more lines)"] if len(shown) > 1 else shown
    told = "\n".join([*err.getvalue().splitlines(), *lines, f"exit code {code}"]).replace(str(folder), "~")
    for name, real in there.items():
        told = told.replace(real, f"{{{name}}}").replace(real.partition("://")[2], f"{{{name}}}")
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", told)


def _with(word: str, there: Mapping[str, str]) -> str:
    for name, real in there.items():
        word = word.replace(f"{{{name}}}", real)
    return word


def usages() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))
    return found


def write(column: str) -> None:
    """This column of the file, anew."""
    table = usages()
    with tempfile.TemporaryDirectory() as name, places(Path(name)) as there:
        for usage in table:
            usage[column] = f"{said(usage, Path(name), there)}\n"
    FILE.write_text(_HEAD + "\n".join(_entry(usage) for usage in table), "utf-8")


def _entry(usage: Mapping[str, Any]) -> str:
    lines = []
    for key in ("usage", "config", "before", "after"):
        if key not in usage:
            continue
        text = usage[key]
        if "\n" in text:
            lines += [f"{key}: |", *(f"  {line}" for line in text.rstrip("\n").split("\n"))]
        else:
            lines.append(f"{key}: {json.dumps(text, ensure_ascii=False)}")
    return "- " + "\n  ".join(lines) + "\n"


if __name__ == "__main__":
    write(sys.argv[1])
