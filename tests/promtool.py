"""A real Prometheus, and its promtool.

Both are in Debian's package `prometheus` (apt-get install prometheus; .ci/run installs it).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

PATIENCE = 300.0
"""Seconds. A machine that others use lets a Prometheus wait, and then its scrapes fail."""
T = TypeVar("T")


def _installed(name: str) -> str:
    """The program. Fails with how to install it: without it nothing says that what we write is right."""
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed: apt-get install prometheus"
    return found


def promtool(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """promtool, run in this folder; stdout and stderr together."""
    command = [_installed("promtool"), *words]
    return subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)


@dataclass(frozen=True)
class Prometheus:
    """One that is up."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def rows(self, query: str) -> dict[str, float]:
        """What a query gives now, by the instance."""
        found = self.get("query", query=query)["result"]
        return {row["metric"].get("instance", ""): float(row["value"][1]) for row in found}

    def alerts(self, state: str = "firing") -> list[dict[str, Any]]:
        """The alerts in this state: labels and annotations."""
        return [alert for alert in self.get("alerts")["alerts"] if alert["state"] == state]


def until(asked: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """What is asked for, as soon as there is any; so many seconds at most."""
    end = time.monotonic() + patience
    while not (found := asked()):
        assert time.monotonic() < end, f"{what}: not within {patience:.0f} s"
        time.sleep(0.2)
    return found


@contextlib.contextmanager
def prometheus(
    folder: Path, targets: Sequence[str], rules: Sequence[Path], interval: str = "2s"
) -> Iterator[Prometheus]:
    """One on a free port of loopback that scrapes these targets (host:port), and has these rules."""
    program = _installed("prometheus")
    config = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "vllm", "static_configs": [{"targets": list(targets)}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=output, stderr=output)
    try:

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(OSError, urllib.error.URLError):
                return bool(urllib.request.urlopen(f"http://{address}/-/ready", timeout=5).status == 200)
            return False

        until(is_ready, "prometheus is ready")
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
