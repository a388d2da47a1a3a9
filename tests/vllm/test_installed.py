from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_doctor.model.errors import SourceError
from vllm_doctor.vllm import installed as ask_vllm

MAIN = """
import argparse, json, os, sys, time

class FlexibleArgumentParser(argparse.ArgumentParser):
    def parse_args(self, args=None, namespace=None):
        words = []
        for word in sys.argv[1:] if args is None else args:
            words.append("--" + word[2:].replace("_", "-") if word.startswith("--") else word)
        return super().parse_args(words, namespace)

class EnableDisable(argparse.BooleanOptionalAction):  # as from 0.33.0 on
    def __init__(self, option_strings, dest, **kwargs):
        super().__init__(option_strings, dest, **kwargs)
        self.option_strings = [*self.option_strings, "--disable-it"]

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, option_string == "--enable-it")

def main():
    print("a line on stdout, as libraries write it")
    if "SECRET_TOKEN" in os.environ:
        raise RuntimeError("the environment came along")
    with open(COUNT, "a") as file:
        file.write("asked ")
    EXTRA
    parser = FlexibleArgumentParser()
    serve = parser.add_subparsers(dest="subparser").add_parser("serve")
    serve.add_argument("model_tag", nargs="?")
    serve.add_argument("--max-num-seqs", type=int)
    serve.add_argument("--brand-new", "-bn", choices=["a", "b"], default="a", help="[DEPRECATED] no more")
    serve.add_argument("--enable-it", action=EnableDisable, default=None)
    serve.add_argument("--thing-config", type=json.loads, default={"x": 1})
    serve.add_argument("--names", nargs="+", default=["n"])
    serve.add_argument("--switch-it", action="store_true")
    serve.add_argument("--share", type=float, default=0.5)
    serve.add_argument("--odd", type=lambda text: object(), default=object())
    parser.parse_args()
    raise SystemExit("served!")
"""
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
ENTRY = "[console_scripts]\nvllm = vllm.entrypoints.cli.main:main\n"

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A virtual environment with something that behaves like vLLM; gives its bin folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def installed(extra: str = "pass", version: str = "0.32.0", python: str = "") -> Path:
        library = tmp_path / "lib"
        package = library / "vllm" / "entrypoints" / "cli"
        shutil.rmtree(library, ignore_errors=True)
        package.mkdir(parents=True)
        for folder in (package, package.parent, package.parent.parent):
            (folder / "__init__.py").write_text("")
        main = MAIN.replace("COUNT", repr(str(tmp_path / "count"))).replace("EXTRA", extra)
        (package / "main.py").write_text(main)
        info = library / f"vllm-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(METADATA.format(version=version))
        (info / "entry_points.txt").write_text(ENTRY)
        bin = tmp_path / "venv" / "bin"
        bin.mkdir(parents=True, exist_ok=True)
        script = python or f'#!/bin/sh\nPYTHONPATH="{library}" exec "{sys.executable}" "$@"\n'
        _executable(bin / "python3", script)
        _executable(bin / "vllm", f"#!{bin / 'python3'}\nfrom vllm.entrypoints.cli.main import main\nmain()\n")
        return bin

    return installed


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _asked(tmp_path: Path) -> int:
    return (tmp_path / "count").read_text().count("asked")


@pytest.mark.parametrize("name", ["python3", "vllm"])
def test_its_own_parser_is_asked(install: Install, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hf_secret")
    parser = ask_vllm.ask(install() / name)
    assert parser.version == "0.32.0"
    assert [(flag.spellings, flag.kind, flag.choices, flag.default) for flag in parser.flags] == [
        (("--help", "-h"), "help", (), None),
        (("--max-num-seqs",), "int", (), "None"),
        (("--brand-new", "-bn"), "text", ("a", "b"), "a"),
        (("--enable-it",), "on-off", (), "None"),
        (("--thing-config",), "json", (), '{"x": 1}'),
        (("--names",), "list of text", (), '["n"]'),
        (("--switch-it",), "switch", (), "False"),
        (("--share",), "float", (), "0.5"),
        (("--odd",), None, (), None),
    ]
    assert [flag.off for flag in parser.flags if flag.off] == [("--no-enable-it", "--disable-it")]
    assert [flag.name for flag in parser.flags if flag.is_deprecated] == ["--brand-new"]
    assert parser.syntax == {"underscore", "abbreviation"}


def test_the_catalogue_adds_since_when(install: Install) -> None:
    parser = ask_vllm.ask(install() / "vllm")
    known, new = parser.flag("--max_num_seqs"), parser.flag("-bn")
    assert known is not None
    assert new is not None
    assert (known.since, known.until) == ("0.4.3", None)
    assert new.since is None


def test_a_virtual_environment_may_be_named(install: Install) -> None:
    bin = install()
    (bin / "python").symlink_to(bin / "python3")
    assert ask_vllm.ask(bin.parent).version == "0.32.0"


def test_the_answer_is_kept_until_the_installation_changes(install: Install, tmp_path: Path) -> None:
    bin = install()
    first = ask_vllm.ask(bin / "vllm")
    assert ask_vllm.ask(bin / "vllm") == first
    assert _asked(tmp_path) == 1
    install(version="0.33.0")
    assert ask_vllm.ask(bin / "vllm").version == "0.33.0"
    assert _asked(tmp_path) == 2


def test_a_kept_answer_that_is_broken_is_asked_anew(install: Install, tmp_path: Path) -> None:
    bin = install()
    first = ask_vllm.ask(bin / "vllm")
    (kept,) = (tmp_path / "cache" / "vllm-doctor").iterdir()
    kept.write_text('{"format": 1')
    assert ask_vllm.ask(bin / "vllm") == first
    assert _asked(tmp_path) == 2


def test_a_cache_that_cannot_be_written_is_done_without(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    bin = install()
    assert ask_vllm.ask(bin / "vllm") == ask_vllm.ask(bin / "vllm")
    assert _asked(tmp_path) == 2


def test_one_that_hangs_is_given_up_with_all_it_started(install: Install, tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    child = f"import time; time.sleep(2); open({str(mark)!r}, 'w')"
    bin = install(f"import subprocess; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)")
    begin = time.monotonic()
    with pytest.raises(SourceError, match="no answer in 1 s") as raised:
        ask_vllm.ask(bin / "vllm", timeout=1.0)
    assert raised.value.kind == "timeout"
    assert time.monotonic() - begin < 10
    time.sleep(2.5)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        pytest.param("raise ImportError('no torch here')", "ImportError: no torch here", id="raises"),
        pytest.param("os._exit(7)", "a line on stdout|exit 7", id="ends"),
        pytest.param("return", "asks no argparse parser", id="asks no parser"),
        pytest.param("argparse.ArgumentParser().parse_args()", "no serve command", id="another parser"),
        pytest.param(
            "open(sys.modules['__main__'].sys.orig_argv[-1], 'w').write('garbage'); os._exit(0)",
            "not understood",
            id="garbage",
        ),
    ],
)
def test_one_that_cannot_be_asked(install: Install, extra: str, says: str) -> None:
    with pytest.raises(SourceError, match=says) as raised:
        ask_vllm.ask(install(extra) / "vllm")
    assert raised.value.kind == "unreadable"
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        pytest.param("gone", None, "not-found", id="does not exist"),
        pytest.param("vllm", "\x7fELF", "not-vllm", id="no script"),
        pytest.param("vllm", "", "not-vllm", id="empty"),
        pytest.param("vllm", "#!/bin/sh\necho hello\n", "not-vllm", id="a script of the shell"),
        pytest.param("python3", "#!/bin/sh\necho 'garbage'\n", "not-vllm", id="a python that says garbage"),
        pytest.param("python3", "#!/bin/sh\nexit 1\n", "not-vllm", id="a python without vLLM"),
        pytest.param("python3", "\x7fELF", "unreadable", id="a python that is none"),
    ],
)
def test_what_is_no_vllm(tmp_path: Path, name: str, text: str | None, kind: str) -> None:
    path = tmp_path / name
    if text is not None:
        _executable(path, text)
    with pytest.raises(SourceError) as raised:
        ask_vllm.ask(path)
    assert raised.value.kind == kind


def test_a_file_that_may_not_be_run(tmp_path: Path) -> None:
    (tmp_path / "vllm").write_text("#!/usr/bin/python3\n")
    with pytest.raises(SourceError, match="cannot be run"):
        ask_vllm.ask(tmp_path / "vllm")


def test_a_script_that_finds_its_python_through_env_or_the_shell(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin = install()
    monkeypatch.setenv("PATH", f"{bin}:/usr/bin:/bin")
    _executable(bin / "vllm", "#!/usr/bin/env python3\n")
    assert ask_vllm.ask(bin / "vllm").version == "0.32.0"
    _executable(bin / "vllm", f"#!/bin/sh\n'''exec' \"{bin / 'python3'}\" \"$0\" \"$@\"\n' '''\n")
    assert ask_vllm.ask(bin / "vllm").version == "0.32.0"
    assert ask_vllm.ask().version == "0.32.0"


def test_none_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="no vllm on the PATH"):
        ask_vllm.ask()


def test_nothing_is_imported_from_the_folder_that_one_stands_in(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "elses"
    here.mkdir()
    for name in ("csv", "json", "email", "zipfile", "argparse"):
        (here / f"{name}.py").write_text(f"open({str(here / 'ran')!r}, 'w')\nraise SystemExit(9)\n")
    monkeypatch.chdir(here)
    assert ask_vllm.ask(install() / "vllm").version == "0.32.0"
    assert not (here / "ran").exists()
