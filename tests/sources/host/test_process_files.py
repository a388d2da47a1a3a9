from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import process_files
from vllm_doctor.sources.host.credentials import Credentials
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.process_files import ProcessFiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs O_PATH")

OWN = Credentials(os.geteuid(), os.getegid())
NOBODY = Credentials(65534, 65534)


@pytest.fixture
def host(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def files(host: FakeProc, links: Mapping[str, str] | None = None) -> ProcessFiles:
    host.add(100, ["vllm", "serve", "m"], files={"models/m/config.json": "inside"})
    host.write("models/m/config.json", "outside")
    for name, target in (links or {}).items():
        host.link(f"proc/100/root/{name}", target)
    return ProcessFiles(host.kernel(), 100, OWN, 10000)


def test_links_stay_within_the_container(host: FakeProc, tmp_path: Path) -> None:
    seen = files(
        host,
        {
            "absolute": "/models/m",
            "up": f"../../../../../../../../..{tmp_path}/models/m",
            "up2": "../../../models/m",
            "models/m/beside": "../m/./config.json",
            "circle": "circle",
            "stdin": "/proc/self/fd/0",
        },
    )
    assert seen.text("/absolute/config.json") == "inside"
    assert seen.text("/up/config.json") is Reason.ABSENT
    assert seen.text("/up2/config.json") == "inside"
    assert seen.text("/absolute/beside") == "inside"
    assert seen.text("/absolute/../m/config.json") == "inside"
    assert seen.text("/circle/x") is Reason.INVALID
    assert seen.text("/stdin") is Reason.NOT_SUPPORTED
    assert seen.text("/models/m/config.json\0") is Reason.ABSENT
    assert seen.text("/models/m/config.json/x") is Reason.ABSENT
    assert seen.names("/absolute") == ["beside", "config.json"]


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(host: FakeProc, tmp_path: Path) -> None:
    """The host's file has the path that the link has, and is never read, whenever it is swapped."""
    seen = files(host)
    (tmp_path / "proc/100/root/link").symlink_to(f"{tmp_path}/models")
    (tmp_path / "proc/100/root/folder").mkdir()
    over = threading.Event()

    def swap() -> None:
        root = tmp_path / "proc/100/root"
        while not over.is_set():
            (root / "models").rename(root / "aside")
            (root / "link").rename(root / "models")
            (root / "models").rename(root / "link")
            (root / "aside").rename(root / "models")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        texts = {seen.text("/folder/../models/m/config.json") for _ in range(500)}
    finally:
        over.set()
        swapper.join()
    assert texts <= {"inside", Reason.ABSENT}


def test_only_regular_files_of_some_size_are_read(host: FakeProc, tmp_path: Path) -> None:
    seen = files(host)
    os.mkfifo(tmp_path / "proc/100/root/pipe")
    assert seen.text("/pipe") is Reason.NOT_SUPPORTED
    assert seen.text("/models") is Reason.NOT_SUPPORTED
    assert seen.text("/models/m/config.json", limit=5) is Reason.INVALID
    assert seen.text("/models/m/config.json", limit=6) == "inside"


def test_a_path_takes_a_bounded_number_of_steps_and_few_descriptors(host: FakeProc) -> None:
    seen = files(host)
    before = os.listdir("/proc/self/fd")
    assert seen.text("/models/.." * 300 + "/models/m/config.json") == "inside"
    assert seen.text("/models/m/../.." * 250 + "/models/m/config.json") is Reason.INVALID
    assert seen.text("/models/." * 1000) is Reason.ABSENT
    assert os.listdir("/proc/self/fd") == before


def test_another_process_with_its_pid_has_no_files_here(host: FakeProc) -> None:
    files(host)
    assert ProcessFiles(host.kernel(), 100, OWN, 9999).text("/models/m/config.json") is Reason.STALE


def test_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    assert process_files.own(Kernel()).text(str(tmp_path / "a")) == "text"
    assert process_files.own(Kernel(tmp_path)).text(str(tmp_path / "a")) is Reason.ABSENT


# ------------------------------------------------------------------ the standard output of a real process


@contextlib.contextmanager
def writing(stdout: int) -> Iterator[ProcessFiles]:
    """The files of a process that has this as its standard output, as nobody would see them."""
    with subprocess.Popen(["sleep", "60"], stdout=stdout) as process:
        try:
            stat = Path(f"/proc/{process.pid}/stat").read_text()
            yield ProcessFiles(Kernel(), process.pid, NOBODY, int(stat.rpartition(")")[2].split()[19]))
        finally:
            process.kill()


as_root = pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can act as another user")


@as_root
@pytest.mark.parametrize(
    ("flags", "mode", "is_read"),
    [
        (os.O_WRONLY | os.O_APPEND, 0o600, True),
        (os.O_RDWR, 0o600, True),
        (os.O_RDONLY, 0o600, False),
        (os.O_RDONLY, 0o604, True),
        (getattr(os, "O_PATH", 0), 0o600, False),
        (getattr(os, "O_PATH", 0), 0o604, True),
    ],
)
def test_a_real_process_has_its_log_where_it_writes_or_its_user_may_read(
    flags: int, mode: int, is_read: bool, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("line\n")
    path.chmod(mode)
    descriptor = os.open(path, flags)
    with writing(descriptor) as seen:
        os.close(descriptor)
        if is_read:
            with os.fdopen(seen.output()) as file:
                assert file.read() == "line\n"
        else:
            with pytest.raises(PermissionError):
                seen.output()


def test_a_real_process_that_writes_into_a_pipe() -> None:
    reading, writing_end = os.pipe()
    with writing(writing_end) as seen, pytest.raises(OSError, match="no regular file") as caught:
        seen.output()
    assert caught.value.errno == errno.ENOTSUP
    os.close(reading)
    os.close(writing_end)


def test_a_real_process_that_has_ended(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file, writing(file.fileno()) as seen:
        pass
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        seen.output()
