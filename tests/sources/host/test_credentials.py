from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import credentials
from vllm_doctor.sources.host.credentials import Credentials, acting_as, of_process
from vllm_doctor.sources.host.kernel import Kernel, table

OTHER = Credentials(65534, 65533, (7, 8))
as_root = pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can act as another user")


def ids(thread: str = "thread-self") -> tuple[str, str, list[str]]:
    """The user, group and groups that count for files."""
    rows = table(Path(f"/proc/{thread}/status").read_text())
    return rows["Uid"].split()[3], rows["Gid"].split()[3], rows.get("Groups", "").split()


def status(host: FakeProc, uids: str = "5 5 5 5", gids: str = "6 6 6 6", groups: str = "") -> Credentials | Reason:
    host.add(100, ["vllm", "serve", "m"])
    host.write("proc/100/status", f"Name:\tx\nUid:\t{uids}\nGid:\t{gids}\nGroups:\t{groups}\n")
    return of_process(host.kernel(), 100)


def test_whose_a_process_is(tmp_path: Path) -> None:
    host = FakeProc(tmp_path)
    assert status(host) == Credentials(5, 6)
    assert status(host, groups="6 20 999") == Credentials(5, 6, (6, 20, 999))


@pytest.mark.parametrize(
    ("uids", "gids"), [("5 0 0 0", "6 6 6 6"), ("0 5 0 5", "6 6 6 6"), ("5 5 5 5", "6 42 42 42"), ("", "")]
)
def test_one_that_changes_its_user_is_nobodys(uids: str, gids: str, tmp_path: Path) -> None:
    assert status(FakeProc(tmp_path), uids, gids) is Reason.DENIED


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_a_program_that_runs_as_its_owner_is_nobodys(mode: int, tmp_path: Path) -> None:
    """sudo that waits for a password is root's by all its ids; its words are anybody's."""
    host = FakeProc(tmp_path)
    host.add(100, ["vllm", "serve", "m"])
    host.write("sudo", "").chmod(mode)
    host.link("proc/100/exe", str(tmp_path / "sudo"))
    assert of_process(host.kernel(), 100) is Reason.DENIED


def test_one_that_has_ended(tmp_path: Path) -> None:
    assert of_process(Kernel(tmp_path), 100) is Reason.ABSENT


@as_root
def test_a_thread_opens_files_as_that_user_and_no_other_thread_does(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("")
    path.chmod(0o600)
    before = ids()
    inside, done = threading.Event(), threading.Event()
    seen = []

    def act() -> None:
        with acting_as(OTHER):
            seen.append(ids())
            with pytest.raises(PermissionError):
                os.open(path, os.O_RDONLY)
            inside.set()
            done.wait(30)
        seen.append(ids())

    thread = threading.Thread(target=act)
    thread.start()
    assert inside.wait(30)
    assert ids() == before
    os.close(os.open(path, os.O_RDONLY))
    done.set()
    thread.join()
    assert seen == [("65534", "65533", ["7", "8"]), before]


@as_root
def test_an_error_within_leaves_nothing_behind() -> None:
    before = ids()
    with pytest.raises(ZeroDivisionError), acting_as(OTHER):
        raise ZeroDivisionError
    assert ids() == before


@as_root
def test_groups_that_only_the_doctor_has_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("")
    path.chmod(0o640)
    tmp_path.chmod(0o755)
    descriptor = os.open(path, os.O_RDONLY)
    groups = os.getgroups()
    os.setgroups([0])
    try:
        with acting_as(OTHER), pytest.raises(PermissionError):
            os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        assert os.getgroups() == [0]
        os.chown(path, -1, 8)
        with acting_as(OTHER):
            os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY))
    finally:
        os.setgroups(groups)
        os.close(descriptor)


@as_root
def test_where_it_is_not_known_whose_it_is_nothing_is_opened() -> None:
    with pytest.raises(PermissionError), acting_as(Reason.DENIED):
        raise AssertionError


@as_root
@pytest.mark.parametrize("machine", ["vax", ""])
def test_on_a_machine_that_is_not_known_nothing_is_opened(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials._libc.cache_clear()
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(PermissionError, match="not known how"), acting_as(OTHER):
        raise AssertionError


def test_root_acts_for_root_and_any_other_doctor_with_its_own_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert [credentials.is_other(who) for who in (Credentials(0, 0), OTHER, Reason.STALE)] == [False, True, True]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert [credentials.is_other(who) for who in (Credentials(0, 0), OTHER, Reason.STALE)] == [False] * 3
    with acting_as(OTHER), acting_as(Reason.STALE):
        pass
