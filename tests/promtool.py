"""promtool, and a real Prometheus that has rules: what it records, and what alerts there.

Both are in Debian's package `prometheus` (tests/real_prometheus.py).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.real_prometheus import command, running

PATIENCE = 300.0
"""Seconds. A machine that others use lets a Prometheus wait, and then its scrapes fail."""
T = TypeVar("T")


def promtool(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """promtool, run in this folder; stdout and stderr together."""
    asked = [command("promtool"), *words]
    return subprocess.run(asked, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)


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
    """One that scrapes these targets (host:port), and has these rules."""
    config = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "vllm", "static_configs": [{"targets": list(targets)}]}],
    }
    with running(folder / "prometheus", config) as url:
        yield Prometheus(url)
