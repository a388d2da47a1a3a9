"""A real vLLM server, clients at work, and the tokens that it makes for them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.lab.machine import ROBBED, before_all_others, cpu_times, share_stolen

HERE = Path(__file__).resolve().parent
LAB = HERE.parent.parent / ".lab"
VLLM = LAB / "vllm" / "bin"
OUT = LAB / "out"
RAMP_SECONDS = 10
PAUSE_SECONDS = 5
AN_HOUR = 3600
TRIES = 4


def must_be_installed() -> None:
    """Ends the program where there is no vLLM; from now on it ends with its servers, also when it is killed."""
    if not (VLLM / "vllm").exists():
        sys.exit("no vLLM in .lab: run tests/lab/install.sh first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@contextlib.contextmanager
def vllm(
    args: Sequence[str],
    name: str,
    more_env: Mapping[str, str] | None = None,
    model: Path = LAB / "tiny",
    output: int | None = None,
    executable: Path = VLLM / "vllm",
) -> Iterator[str]:
    """A vLLM server on a free loopback port; gives its URL. Whatever its model, it is called "tiny".

    `output`: the descriptor that it writes to, in place of its log. `executable`: of which release.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(executable), "serve", str(model), "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), *args]
    with started(command, port, name, more_env, output) as url:
        yield url


@contextlib.contextmanager
def started(
    command: Sequence[str],
    port: int,
    name: str,
    more_env: Mapping[str, str] | None = None,
    output: int | None = None,
) -> Iterator[str]:
    """The server that this command starts; gives its URL."""
    OUT.mkdir(parents=True, exist_ok=True)
    env = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_USE_AOT_COMPILE": "0",  # what it keeps fails to load on the CPU, and is compiled anew at each start
        **(more_env or {}),
    }
    url = f"http://127.0.0.1:{port}"
    with (OUT / f"{name}.log").open("wb") as log:
        # A group, not a session: Linux gives each session its scheduling group, and some versions starve one of two.
        server = subprocess.Popen(
            command, stdout=log if output is None else output, stderr=subprocess.STDOUT, env=env, process_group=0
        )
        try:
            _wait_until_up(server, url, OUT / f"{name}.log")
            yield url
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)  # what it left behind


def _wait_until_up(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if server.poll() is not None:
            sys.exit(f"vllm ended with {server.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    sys.exit(f"vllm did not come up; see {log}")


@contextlib.contextmanager
def loaded(url: str, load: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Clients at work, past their ramp, until this ends; then it holds what they counted (load.py)."""
    command = [str(VLLM / "python"), str(HERE / "load.py"), url, json.dumps({"seconds": AN_HOUR, **load})]
    clients = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    before_all_others(clients.pid)
    counted: dict[str, float] = {}
    try:
        time.sleep(RAMP_SECONDS)
        yield counted
    finally:
        clients.terminate()
        counted.update(json.loads(clients.communicate(timeout=60)[0] or "{}"))


def tokens_per_second(url: str, seconds: float) -> float:
    """Tokens generated, over so many seconds from now; measured anew while other virtual machines rob this one."""
    for _ in range(TRIES):
        before = cpu_times()
        rate = _tokens_per_second(url, seconds)
        if share_stolen(before) <= ROBBED:
            break
    return rate


def _tokens_per_second(url: str, seconds: float) -> float:
    def tokens() -> float:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:generation_tokens_total"))

    start, before = time.monotonic(), tokens()
    time.sleep(seconds)
    after = tokens()
    return (after - before) / (time.monotonic() - start)
