"""Root examines another user's server, which names files that its user may not read: none of them comes out."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests import other_user
from tests.cli.test_main import Doctor, doctor, one_line
from tests.other_user import UID, Home
from tests.programs import needed
from tests.zstandard import texts_of
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.recording import archive
from vllm_doctor.session.attach import attach
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.sources.server.access import Access

__all__ = ["doctor"]

pytestmark = pytest.mark.xdist_group("host")

PLANTED = "PLANTED-0123456789"


@pytest.fixture
def home() -> Iterator[Home]:
    with other_user.home() as found:
        yield found


@pytest.fixture
def secret() -> Iterator[Path]:
    """A file of root's, for root alone; its folder may be searched, so that nothing but its mode keeps it."""
    with tempfile.TemporaryDirectory(prefix="vllm-doctor-test-") as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "secret"
        path.write_text(f"root:$6${PLANTED}:1:::\n" * 3)
        path.chmod(0o600)
        yield path


def everything(doctor: Doctor, pid: int, folder: Path, *more: str) -> str:
    """All that the doctor says of a server, in every form, and all that a recording of it holds."""
    said = ""
    for form in FORMATS:
        ran = doctor(str(pid), "--window", "0", "--format", form, *more)
        said += ran.out + ran.err
    return said + recorded(doctor, pid, folder / "r.tar.gz")


def recorded(doctor: Doctor, pid: int, path: Path, duration: str = "1") -> str:
    """What a recording holds, and what is said while it is taken."""
    ran = doctor("record", str(pid), "--duration", duration, "-o", path)
    assert path.exists(), ran.err
    return ran.out + ran.err + "".join(texts_of(archive.read(path)).values())


def opened_for(user: int, path: Path, mode: int = 0o644) -> int:
    """A log as systemd's StandardOutput=append: opens it; `user`: whose it is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
    os.fchmod(descriptor, mode)
    os.fchown(descriptor, user, user)
    return descriptor


# ---- what it names on its command line ------------------------------------------------------------------------------


def test_a_config(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    secret.write_text(f"max-model-len: 4096\ndownload-dir: {PLANTED}\nusers:\n- user: {{client-key-data: {PLANTED}}}\n")
    with home.serving("--config", str(secret), "--max-num-seqs", "4") as pid:
        said = everything(doctor, pid, tmp_path)
    assert PLANTED not in said
    assert "client-key-data" not in said
    assert f"--config {secret}: not read (denied)" in said


def test_a_config_that_is_a_link(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    secret.write_text(f"download-dir: {PLANTED}\n")
    (home.path / "c.yaml").symlink_to(secret)
    with home.serving("--config", "c.yaml") as pid:
        said = everything(doctor, pid, tmp_path)
    assert PLANTED not in said
    assert "--config c.yaml: not read (denied)" in said


def test_a_config_of_a_group_that_only_root_is_in(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    secret.write_text(f"download-dir: {PLANTED}\n")
    secret.chmod(0o640)
    with home.serving("--config", str(secret)) as pid:
        assert PLANTED not in everything(doctor, pid, tmp_path)


def test_a_certificate(home: Home, secret: Path, doctor: Doctor) -> None:
    with home.serving("--ssl-certfile", str(secret)) as pid:  # its answer is no TLS, and is not waited for long
        ran = doctor(str(pid), "--window", "0", "--json", "--timeout", "2")
    said = ran.out + ran.err
    assert PLANTED not in said
    assert f"--ssl-certfile {secret}) cannot be read (denied)" in said


def test_what_its_user_may_read_counts(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    """Root's own file too, where all may read it; and of a file that is no vLLM's nothing is a fact."""
    secret.write_text(f"max-model-len: 4096\nusers: [{{client-key-data: {PLANTED}}}]\nport-of: {PLANTED}\n")
    secret.chmod(0o644)
    with home.serving("--config", str(secret)) as pid:
        said = everything(doctor, pid, tmp_path)
    assert '"--max-model-len": {' in said
    assert PLANTED not in said
    assert "client-key-data" not in said
    assert '"--users"' not in said
    assert f"--config {secret}: no vLLM has these of its keys: users, port-of" in said


def test_a_models_config(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    """It would show: how many layers it has is a fact."""
    secret.write_text('{"model_type": "llama", "num_hidden_layers": 31337, "hidden_size": 31337}')
    model = home.path / "model"
    model.mkdir()
    (model / "config.json").symlink_to(secret)
    with home.serving("--model", str(model)) as pid:
        assert "31337" not in everything(doctor, pid, tmp_path)
        secret.chmod(0o644)
        assert "31337" in recorded(doctor, pid, tmp_path / "s.tar.gz")


def test_a_socket(home: Home, secret: Path, doctor: Doctor) -> None:
    """Nobody connects to what --uds names, unless the server's own user may."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(secret.with_name("socket")))
        listener.listen()
        listener.settimeout(0)
        with home.serving("--uds", listener.getsockname()) as pid:
            ran = doctor(str(pid), "--window", "0", "--json")
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert f"unix:{secret.with_name('socket')} cannot be reached" in ran.out


def test_a_pipe_holds_nobody_up(home: Home, doctor: Doctor) -> None:
    os.mkfifo(home.path / "c.yaml")
    with home.serving("--config", "c.yaml") as pid:
        assert "--config c.yaml: not read (not-supported)" in doctor(str(pid), "--window", "0", "--json").out


def test_a_program_that_runs_as_root_for_anybody(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    """sudo that asks for the password is a process of root's, and its words are the user's: no race to win."""
    secret.write_text(f"download-dir: {PLANTED}\n")
    sudo = home.path / "sudo"
    shutil.copy(os.path.realpath(other_user.python()), sudo)
    sudo.chmod(0o4755)
    home.script("serve", "import os, time\nos.setresuid(0, 0, 0)\nprint('up', flush=True)\ntime.sleep(60)\n")
    command = ["vllm", "serve", "m", "--config", str(secret)]
    with other_user.as_user(command, executable=sudo, cwd=home.path, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            assert PLANTED not in everything(doctor, process.pid, tmp_path)
        finally:
            process.kill()


# ---- its log --------------------------------------------------------------------------------------------------------


def test_a_log_that_is_a_link_in_a_mount_namespace(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    """Its name leads to another file, in its namespace and on the host."""
    other_user.needs_namespaces()
    folder = home.path / "ns"
    before = f"""
        mkdir {folder}; exec >>{folder}/log
        mount -t tmpfs none {folder}; ln -s {secret} {folder}/log; cd {home.path}"""
    with home.serving(before=before) as pid:
        said = everything(doctor, pid, tmp_path)
    assert PLANTED not in said
    assert f"{folder}/log" in said


def test_a_folder_that_is_a_link_in_a_mount_namespace(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    other_user.needs_namespaces()
    secret.rename(secret.with_name("config.yaml"))
    secret.with_name("config.yaml").write_text(f"download-dir: {PLANTED}\n")
    folder = home.path / "ns"
    before = f"mkdir {folder}; mount -t tmpfs none {folder}; ln -s {secret.parent} {folder}/etc; cd {home.path}"
    with home.serving("--config", f"{folder}/etc/config.yaml", before=before) as pid:
        assert PLANTED not in everything(doctor, pid, tmp_path)


def test_a_log_that_is_swapped_while_it_is_recorded(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    log = home.path / "v.log"

    def swap() -> None:
        log.rename(log.with_name("v.log.1"))
        log.symlink_to(secret)

    with closing(os.fdopen(opened_for(UID, log, 0o600), "wb")) as stdout, home.serving(stdout=stdout) as pid:
        swapper = threading.Timer(1.5, swap)
        swapper.start()
        said = recorded(doctor, pid, tmp_path / "r.tar.gz", "4")
        swapper.join()
    assert log.is_symlink()
    assert PLANTED not in said
    assert "vLLM API server version 0.32.0" in said


def test_a_log_that_is_swapped_while_it_is_watched(home: Home, secret: Path) -> None:
    log = home.path / "v.log"
    with (
        closing(os.fdopen(opened_for(UID, log, 0o600), "wb")) as stdout,
        home.serving(stdout=stdout) as pid,
        ExitStack() as opened,
    ):
        how = Attachment(frozenset(), Access(), 1.0, time.monotonic() + 60)
        source = next(source for source in attach([str(pid)], how, opened) if source.kind is SourceKind.LOG)
        assert source.follow is not None
        followed = source.follow()
        assert followed.look(0.0).error is None
        log.rename(log.with_name("v.log.1"))
        log.symlink_to(secret)
        seen = followed.look(0.0)
    assert seen.error is None
    assert seen.lines is not None
    assert (seen.lines.read, seen.lines.recognised) == (1, 1)


def test_a_descriptor_that_is_no_permission(home: Home, secret: Path, tmp_path: Path, doctor: Doctor) -> None:
    """Anybody has O_PATH of a file that nobody lets him read, such as /etc/shadow."""
    descriptor = os.open(secret, os.O_PATH)
    try:
        with home.serving(stdout=descriptor) as pid:
            said = everything(doctor, pid, tmp_path)
    finally:
        os.close(descriptor)
    assert PLANTED not in said
    assert f"if it is the log, name it: vllm-doctor {pid} {secret}" in said


@pytest.mark.parametrize(
    ("owner", "mode"),
    [
        pytest.param(UID, 0o600, id="its own"),
        pytest.param(0, 0o644, id="of StandardOutput=append:"),
        pytest.param(0, 0o600, id="of root's shell with umask 077"),
    ],
)
def test_the_log_that_it_was_given_is_read(owner: int, mode: int, home: Home, tmp_path: Path, doctor: Doctor) -> None:
    """Where its name may not be looked up, too: what the server writes is what stands there."""
    folder = tmp_path / "log"
    folder.mkdir(mode=0o700)
    log = folder / "v.log"
    with closing(os.fdopen(opened_for(owner, log, mode), "wb")) as stdout, home.serving(stdout=stdout) as pid:
        said = recorded(doctor, pid, tmp_path / "r.tar.gz")
        ran = doctor(str(pid), "--window", "0", "--json")
    assert "vLLM API server version 0.32.0" in said
    source = next(source for source in ran.report["sources"] if source["kind"] == "log")
    assert (source["target"], source["error"]) == (str(log), None)


def test_a_log_of_something_else_is_not_quoted(home: Home, tmp_path: Path, doctor: Doctor) -> None:
    log = home.path / "v.log"
    with closing(os.fdopen(opened_for(UID, log), "wb")) as stdout, home.serving(stdout=stdout) as pid:
        log.write_text(f"diary: {PLANTED}\n")
        said = everything(doctor, pid, tmp_path)
        named = doctor(log, "--text")
    assert PLANTED not in said
    assert "0 of 1 lines recognised" in said
    assert "it is text (" in named.err
    assert PLANTED not in named.out + named.err  # who names the wrong file pastes what is said of it, too


# ---- its programs ---------------------------------------------------------------------------------------------------


def test_a_benchmark_runs_no_program_of_theirs(
    home: Home, tmp_path: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is swapped between the look at it and its start: the server is asked in between."""
    evil = home.script("evil", f"#!/bin/sh\nid >{home.path}/ran\n")
    vllm = home.script("bin/vllm", "")
    vllm.unlink()
    vllm.symlink_to(needed("coreutils", "true"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with home.serving(argv0=str(vllm.with_name("python3")), hook=f"ln -sf {evil} {vllm}") as pid:
        ran = doctor("record", str(pid), "--duration", "6", "-o", tmp_path / "r.tar.gz", "--bench", "--num-prompts 1")
    assert not (home.path / "ran").exists()
    assert f"--bench does not run {vllm}, as other users may change {home.path}: run" in one_line(ran)
