"""Is the hop named in which a request loses its time? Asked of real parts: LiteLLM's proxy, the vLLM project's router
and two vLLM servers behind it, with a delay put into one hop after the other.

usage: python -m tests.lab.path [--window SECONDS] [--delays MS...] [--out FILE.jsonl]

The hops: LiteLLM itself (a hook that takes its time), the way from it to the router, the way from the router to the
servers (each a line of constant delay). Before each delay the same load is looked at without one. A delay is found
where the hop is named, no other one is, and its time is within a tenth of what it takes without the delay and the delay
together. Without a delay no hop may be named. Needs tests/lab/install.sh and tests/lab/path_install.sh.

Ends with 1 where one was not found. Where other virtual machines took much of the CPU meanwhile, a look is made again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.delayed import way
from tests.lab.machine import ROBBED, before_all_others, cpu_times, share_stolen
from tests.lab.server import HERE, LAB, OUT, TRIES, loaded, must_be_installed, vllm

BIN = LAB / "path" / "bin"
FOLDER = OUT / "path"
SERVER = ("--max-model-len", "512", "--enforce-eager", "--dtype", "float32")  # up in half a minute
LOAD = {"clients": 2, "prompt": 24, "out": 16, "text": True, "vary": True}
HOPS = {"gateway": "hook", "gateway-to-router": "to-router", "to-servers": "to-servers"}
"""Hop in the report -> the file with its delay."""
WITHIN = 0.1
_CONFIG = """\
model_list:
  - model_name: tiny
    litellm_params: {{model: hosted_vllm/tiny, api_base: "{router}/v1", api_key: none}}
litellm_settings:
  callbacks: [prometheus, slow_gateway.hook]
  require_auth_for_metrics_endpoint: false
  num_retries: 0
general_settings: {{disable_spend_logs: true, dangerously_permit_weak_or_unset_master_key: true}}
"""


@dataclass(frozen=True)
class Parts:
    """Where they are: what clients ask, and whose metrics are read."""

    gateway: str
    router_metrics: str
    servers: tuple[str, ...]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def program(command: Sequence[str], name: str, ready: str, env: dict[str, str] | None = None) -> Iterator[None]:
    """Started, and answering at this URL."""
    with (FOLDER / f"{name}.log").open("wb") as log:
        started = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | (env or {}), process_group=0
        )
        before_all_others(started.pid, with_children=True)  # it is another machine's: servers cannot starve it
        try:
            until = time.monotonic() + 180
            while True:
                with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(ready, timeout=5):
                    break
                if started.poll() is not None or time.monotonic() > until:
                    sys.exit(f"{name} did not come up; see {FOLDER / name}.log")
                time.sleep(0.5)
            yield
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


@contextlib.contextmanager
def parts() -> Iterator[Parts]:
    """Two servers, the router before them, LiteLLM before that, and between them ways that can be made longer."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in HOPS.values():
        delay(name, 0.0)
    with contextlib.ExitStack() as stack:
        servers = tuple(stack.enter_context(vllm(SERVER, f"path-{name}")) for name in "ab")
        ways = [stack.enter_context(way(server, FOLDER / "to-servers")) for server in servers]
        router, metrics = free_port(), free_port()
        command = [str(BIN / "vllm-router"), "--host", "127.0.0.1", "--port", str(router), "--worker-urls", *ways]
        command += ["--policy", "round_robin", "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)]
        stack.enter_context(program(command, "router", f"http://127.0.0.1:{router}/health"))
        to_router = stack.enter_context(way(f"http://127.0.0.1:{router}", FOLDER / "to-router"))
        config, gateway = FOLDER / "litellm.yaml", free_port()
        config.write_text(_CONFIG.format(router=to_router))
        (FOLDER / "slow_gateway.py").write_text((HERE / "slow_gateway.py").read_text())
        command = [str(BIN / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(gateway)]
        ready = f"http://127.0.0.1:{gateway}/health/readiness"
        env = {"HOOK_SECONDS": str(FOLDER / "hook")}
        stack.enter_context(program(command, "litellm", ready, env))
        yield Parts(f"http://127.0.0.1:{gateway}", f"http://127.0.0.1:{metrics}", servers)


def delay(name: str, seconds: float) -> None:
    path = FOLDER / name
    path.with_suffix(".new").write_text(str(seconds))
    path.with_suffix(".new").rename(path)  # who reads it meanwhile reads the one or the other


def looked(at: Parts, window: float) -> dict[str, Any]:
    """The doctor's report on the whole path; made again while other virtual machines rob this one."""
    command = [sys.executable, "-m", "vllm_doctor", "--json", "--window", str(window), "--timeout", str(window + 40)]
    command += ["--fail-on", "never", at.gateway, at.router_metrics, *at.servers]
    report: dict[str, Any] = {}
    for _ in range(TRIES):
        before = cpu_times()
        started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        before_all_others(started.pid)
        report = json.loads(started.communicate()[0])
        report["stolen"] = share_stolen(before)
        if report["stolen"] <= ROBBED:
            break
    return report


def hop_of(report: dict[str, Any], hop: str) -> float | None:
    return next((one["seconds"] for one in report["path"]["hops"] if one["hop"] == hop), None)


def named(report: dict[str, Any]) -> list[str]:
    return [one["hop"] for one in report["path"]["hops"] if one["blamed_by"]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.path")
    parser.add_argument("--window", type=float, default=15.0)
    parser.add_argument("--delays", type=float, nargs="*", default=[20, 50, 200], metavar="MS")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    must_be_installed()
    failed = 0
    with parts() as at, loaded(at.gateway, LOAD) as counted:
        for milliseconds in options.delays:
            for hop, file in HOPS.items():
                without = looked(at, options.window)
                delay(file, milliseconds / 1000)
                time.sleep(1.0)  # what is on its way arrives
                report = looked(at, options.window)
                delay(file, 0.0)
                time.sleep(1.0)
                usual, seen = hop_of(without, hop), hop_of(report, hop)
                expected = None if usual is None else usual + milliseconds / 1000
                error = None if expected is None or seen is None else seen / expected - 1
                well = named(report) == [hop] and error is not None and abs(error) <= WITHIN and not named(without)
                failed += not well
                row = {
                    "hop": hop, "delay_ms": milliseconds, "without": usual, "seen": seen, "expected": expected,
                    "error": error, "named": named(report), "named_without": named(without),
                    "headline": report["headline"], "requests": report["path"]["requests"],
                    "stolen": report["stolen"], "load": os.getloadavg()[0], "found": well,
                }  # fmt: skip
                print(json.dumps(row), flush=True)
                if options.out is not None:
                    with options.out.open("a") as out:
                        out.write(json.dumps(row | {"path": report["path"], "path_without": without["path"]}) + "\n")
    print(f"{counted}; {failed} not found", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
