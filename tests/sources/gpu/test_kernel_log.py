from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu.kernel_log import xids
from vllm_doctor.sources.host.kernel import Kernel

LOST = "6,1234,5678,-;NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
BOOT = "5,0,0,-;Linux version 6.8.0\n6,1,0,-;Command line: quiet\n SUBSYSTEM=pci\n"


def told(tmp_path: Path, log: str | bytes) -> dict[str, Reading]:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kmsg").write_bytes(log.encode() if isinstance(log, str) else log)
    return xids(Kernel(tmp_path))


def both(reason: Reason) -> dict[str, Reading]:
    return {"gpu_xids": Unknown(reason), "gpu_xid_grave": Unknown(reason)}


def line(xid: int, bus: str = "PCI:0000:17:00", priority: int = 4) -> str:
    return f"{priority},99,100,-;NVRM: Xid ({bus}): {xid}, pid=4711, name=python, Ch 00000008\n"


def test_an_xid_is_named_with_its_gpu(tmp_path: Path) -> None:
    assert told(tmp_path, f"{BOOT}{LOST}\n") == {
        "gpu_xids": Known("79 (fallen off the bus) on 0000:17:00", origin="kernel-log"),
        "gpu_xid_grave": Known(1.0, origin="kernel-log"),
    }


def test_a_healthy_log_has_none(tmp_path: Path) -> None:
    assert told(tmp_path, BOOT) == {"gpu_xids": Unknown(Reason.IDLE), "gpu_xid_grave": Known(0.0)}


def test_each_is_named_once_with_the_newest_last_and_each_grave_one_counts(tmp_path: Path) -> None:
    log = line(63) + line(31) + line(109, "PCI:0000:9D:00") + line(63)
    assert told(tmp_path, log) == {
        "gpu_xids": Known(
            "31 (memory page fault) on 0000:17:00, 109 on 0000:9d:00, 63 (memory page or row retired) on 0000:17:00"
        ),
        "gpu_xid_grave": Known(2.0),
    }


def test_five_are_named_at_most(tmp_path: Path) -> None:
    found = told(tmp_path, "".join(line(200 + n) for n in range(9)))["gpu_xids"]
    assert found == Known(", ".join(f"{n} on 0000:17:00" for n in range(204, 209)))


def test_an_old_driver_leaves_out_the_word_pci(tmp_path: Path) -> None:
    assert told(tmp_path, line(48, "0000:02:00"))["gpu_xid_grave"] == Known(1.0)


@pytest.mark.parametrize(
    "log",
    [
        line(79, priority=12),  # written by a program: facility user
        line(79, priority=8),
        "6,1,2,-;program: NVRM: Xid (PCI:0000:17:00): 79",
        "6,1,2,-;a\\x0aNVRM: Xid (PCI:0000:17:00): 79",
        " NVRM: Xid (PCI:0000:17:00): 79",
        "NVRM: Xid (PCI:0000:17:00): 79",
    ],
)
def test_what_only_looks_like_an_xid_is_none(tmp_path: Path, log: str) -> None:
    assert told(tmp_path, BOOT + log) == {"gpu_xids": Unknown(Reason.IDLE), "gpu_xid_grave": Known(0.0)}


def test_without_a_log_nothing_is_known(tmp_path: Path) -> None:
    assert xids(Kernel(tmp_path)) == both(Reason.NOT_SUPPORTED)


def test_an_empty_log_is_none(tmp_path: Path) -> None:
    assert told(tmp_path, "") == both(Reason.NOT_SUPPORTED)


@pytest.mark.parametrize("kind", ["folder", "fifo", "null"])
def test_what_a_container_puts_there_is_not_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "dev").mkdir()
    kmsg = tmp_path / "dev" / "kmsg"
    match kind:
        case "folder":
            kmsg.mkdir()
        case "fifo":
            os.mkfifo(kmsg)
        case "null":
            kmsg.symlink_to("/dev/null")
    assert xids(Kernel(tmp_path)) == both(Reason.NOT_SUPPORTED)


def test_denied_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    assert told(tmp_path, LOST) == both(Reason.DENIED)


def test_records_come_one_by_one_until_the_device_would_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records: Iterator[bytes | OSError] = iter(
        [BOOT.encode(), BrokenPipeError(), f"{LOST}\n".encode(), line(74).encode(), BlockingIOError()]
    )

    def record(*_: object) -> bytes:
        answer = next(records)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(os, "read", record)
    assert told(tmp_path, LOST)["gpu_xid_grave"] == Known(2.0)


def test_an_endless_log_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "read", lambda *_: line(13).encode())
    start = time.process_time()
    assert told(tmp_path, LOST)["gpu_xid_grave"] == Known(0.0)
    assert time.process_time() - start < 5


def test_any_bytes_are_read(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 500
    assert told(tmp_path, noise + b"\n" + LOST.encode())["gpu_xid_grave"] == Known(1.0)
