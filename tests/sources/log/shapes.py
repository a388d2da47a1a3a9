"""One log, as it looks after Docker, Kubernetes, journald and others have had it.

Each shape takes the lines that vLLM wrote, without their ends, and gives the bytes that a user would send. All are of
the year 2025 and in UTC; where a wrapper has its own time, it is the line's, or the last one's before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

YEAR = 2025

_WRITTEN = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d) (\d\d:\d\d:\d\d) ")
_PREFIX = re.compile(r"(\([^()]*pid=\d+\)) ")
_LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)(?= \d\d-\d\d )")


def plain(lines: Sequence[str]) -> bytes:
    return _joined(lines)


def crlf(lines: Sequence[str]) -> bytes:
    return _joined(lines, "\r\n")


def utf16(lines: Sequence[str]) -> bytes:
    """What `>` writes in PowerShell."""
    return "".join(f"{line}\r\n" for line in lines).encode("utf-16")


def coloured(lines: Sequence[str]) -> bytes:
    """As vLLM up to 0.11 wrote into files, and newer releases on a terminal."""
    return _joined([_coloured(line, "\x1b") for line in lines])


def colours_torn(lines: Sequence[str]) -> bytes:
    """As copied from a terminal: the escape character is gone, the rest of the sequence is not."""
    return _joined([_coloured(line, "") for line in lines])


def docker_json(lines: Sequence[str]) -> bytes:
    """/var/lib/docker/containers/…-json.log"""
    return _joined(
        [
            json.dumps({"log": f"{line}\n", "stream": "stderr", "time": f"{at:%Y-%m-%dT%H:%M:%S}.123456789Z"})
            for at, line in _timed(lines)
        ]
    )


def docker_timestamps(lines: Sequence[str]) -> bytes:
    """docker logs --timestamps"""
    return _joined([f"{at:%Y-%m-%dT%H:%M:%S}.123456789Z {line}" for at, line in _timed(lines)])


def cri(lines: Sequence[str]) -> bytes:
    """/var/log/pods/…/0.log"""
    return _joined([f"{at:%Y-%m-%dT%H:%M:%S}.123456789+00:00 stderr F {line}" for at, line in _timed(lines)])


def docker_json_in_cri(lines: Sequence[str]) -> bytes:
    return cri(docker_json(lines).decode().splitlines())


def kubectl(lines: Sequence[str]) -> bytes:
    """kubectl logs --prefix --timestamps"""
    return _joined([f"[pod/vllm-0/server] {line}" for line in docker_timestamps(lines).decode().splitlines()])


def stern(lines: Sequence[str]) -> bytes:
    return _joined([f"vllm-7d4b9c6f58-x2x9z server {line}" for line in lines])


def journald(lines: Sequence[str]) -> bytes:
    """journalctl -u vllm"""
    return _joined([f"{at:%b %d %H:%M:%S} gpu-1 vllm[812]: {line}" for at, line in _timed(lines)])


def journald_iso(lines: Sequence[str]) -> bytes:
    """journalctl -o short-iso-precise"""
    return _joined([f"{at:%Y-%m-%dT%H:%M:%S}.123456+0000 gpu-1 vllm[812]: {line}" for at, line in _timed(lines)])


def journald_json(lines: Sequence[str]) -> bytes:
    """journalctl -o json; what is not printable makes a message an array of bytes."""
    return _joined(
        [
            json.dumps(
                {
                    "__REALTIME_TIMESTAMP": f"{at.timestamp() * 1e6:.0f}",
                    "PRIORITY": "6",
                    "SYSLOG_IDENTIFIER": "vllm",
                    "_PID": "812",
                    "_HOSTNAME": "gpu-1",
                    "MESSAGE": list(_coloured(line, "\x1b").encode()) if n % 2 else line,
                }
            )
            for n, (at, line) in enumerate(_timed(lines))
        ]
    )


def compose(lines: Sequence[str]) -> bytes:
    """docker compose logs"""
    return _joined([f"vllm-1   | {line}" for line in lines])


def compose_coloured(lines: Sequence[str]) -> bytes:
    return _joined([f"\x1b[36mvllm-1   |\x1b[0m {_coloured(line, chr(27))}" for line in lines])


def cloud_logging(lines: Sequence[str]) -> bytes:
    """Google's, an entry a line; the severity is that of the stream, not of the record."""
    return _joined(
        [
            json.dumps(
                {
                    "insertId": f"a{n}",
                    "resource": {"type": "k8s_container", "labels": {"pod_name": "vllm-0", "container_name": "server"}},
                    "severity": "ERROR",
                    "timestamp": f"{at:%Y-%m-%dT%H:%M:%S}.123456789Z",
                    **({"jsonPayload": {"message": line}} if n % 2 else {"textPayload": line}),
                }
            )
            for n, (at, line) in enumerate(_timed(lines))
        ]
    )


def syslog(lines: Sequence[str]) -> bytes:
    return _joined([f"<13>{line}" for line in journald(lines).decode().splitlines()])


SHAPES: dict[str, Callable[[Sequence[str]], bytes]] = {
    shape.__name__: shape
    for shape in (
        plain, crlf, utf16, coloured, colours_torn, docker_json, docker_timestamps, cri, docker_json_in_cri, kubectl,
        stern, journald, journald_iso, journald_json, compose, compose_coloured, cloud_logging, syslog,
    )
}  # fmt: skip


def _joined(lines: Sequence[str], end: str = "\n") -> bytes:
    return "".join(f"{line}{end}" for line in lines).encode()


def _timed(lines: Sequence[str]) -> Iterator[tuple[datetime, str]]:
    at = datetime(YEAR, 1, 1, tzinfo=UTC)
    for line in lines:
        if written := _WRITTEN.search(line):
            at = datetime.fromisoformat(f"{YEAR}-{written[1]}T{written[2]}Z") + timedelta(microseconds=123456)
        yield at, line


def _coloured(line: str, escape: str) -> str:
    line = _PREFIX.sub(rf"{escape}[0;36m\1{escape}[0;0m ", line, count=1)
    return _LEVEL.sub(rf"{escape}[32m\1{escape}[0m", line, count=1)
