"""Thirty planted places where prompts part: by events of vLLM's own publisher, and of a real server, and by its log.

    python -m tests.lab.prefix            all three
    python -m tests.lab.prefix publisher  its classes and its socket alone, each case by itself
    python -m tests.lab.prefix server     a server with a cache that publishes, all cases after each other
    python -m tests.lab.prefix log        the log of a server that logs requests (not adapters and salts: it has none)

Needs the extra kv-events. A case is right where the doctor names its token, and what changes there.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.inputs.kv_events import Cache
from tests.inputs.prefixes import Planted, planted
from tests.lab.server import HERE, OUT, VLLM, must_be_installed, vllm
from vllm_doctor.sources.prefix import kv_events
from vllm_doctor.sources.prefix.kv_events import Endpoint

_WORDS = 2048
"""Of the lab's model."""
_LONGEST = 24000
_SECONDS = 1.5


def main(arguments: list[str]) -> int:
    must_be_installed()
    ways = {"publisher": by_publisher, "server": by_server, "log": by_log}
    wrong = 0
    for name in arguments or ways:
        judged = [(one.name, where(one), seen) for one, seen in ways[name]()]
        good = sum(expected == seen for _, expected, seen in judged)
        for case, expected, seen in judged:
            print(f"right  {case}: {seen}" if expected == seen else f"WRONG  {case}: {expected}, said {seen}")
        print(f"{name}: {good} of {len(judged)}")
        wrong += len(judged) - good
    return 1 if wrong else 0


def where(one: Planted) -> str:
    return f"token {one.at} ({one.change.value})"


def by_publisher() -> Iterator[tuple[Planted, str]]:
    cases = list(planted(_WORDS))
    command = [str(VLLM / "python"), str(HERE / "publish.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE) as publisher:
        assert publisher.stdin is not None
        assert publisher.stdout is not None
        publisher.stdin.write(json.dumps([events(one) for one in cases]) + "\n")
        publisher.stdin.flush()
        for one, (published, replayed) in zip(cases, json.loads(publisher.stdout.readline()), strict=True):
            endpoint = Endpoint(f"tcp://127.0.0.1:{published}", f"tcp://127.0.0.1:{replayed}")
            seen, _ = kv_events.listen(endpoint, time.monotonic() + _SECONDS)
            groups = seen.groups if seen is not None else ()
            yield one, ", ".join(f"token {group.at} ({group.change.value})" for group in groups)
        publisher.stdin.close()


def events(one: Planted) -> list[dict[str, Any]]:
    cache, found = Cache(), []
    for place, prompt in enumerate(one.prompts):
        found += cache.events(prompt, keys=[one.keys[place]] if one.keys else None)
    for event in found:
        event["block_hashes"] = [name.hex() for name in event["block_hashes"]]
        event["parent_block_hash"] = event["parent_block_hash"] and event["parent_block_hash"].hex()
    return found


def by_server() -> Iterator[tuple[Planted, str]]:
    cases = list(planted(_WORDS))
    published, replayed = free_port(), free_port()
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{published}",
        "replay_endpoint": f"tcp://*:{replayed}",
    }
    longer = {"max_position_embeddings": _LONGEST}
    flags = ["--kv-events-config", json.dumps(config), "--enable-prefix-caching", "--max-model-len", str(_LONGEST)]
    with vllm([*flags, "--block-size", "32", "--hf-overrides", json.dumps(longer)], "prefix") as url:
        for one in cases:
            for place, prompt in enumerate(one.prompts):
                complete(url, prompt, one.keys[place] if one.keys else None)
        where_told = f"tcp://127.0.0.1:{published},tcp://127.0.0.1:{replayed}"
        command = [sys.executable, "-m", "vllm_doctor", url, "--kv-events", where_told, "--json", "--fail-on", "never"]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    yield from compared(cases, report)


def by_log() -> Iterator[tuple[Planted, str]]:
    cases = [one for one in planted(_WORDS) if not one.keys]
    longer = ["--hf-overrides", json.dumps({"max_position_embeddings": _LONGEST}), "--max-model-len", str(_LONGEST)]
    with vllm([*longer, "--enable-log-requests"], "prefix-log", {"VLLM_LOGGING_LEVEL": "DEBUG"}) as url:
        for one in cases:
            for prompt in one.prompts:
                complete(url, prompt, None)
    command = [sys.executable, "-m", "vllm_doctor", str(OUT / "prefix-log.log"), "--json", "--fail-on", "never"]
    yield from compared(cases, json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout))


def compared(cases: Sequence[Planted], report: Mapping[str, Any]) -> Iterator[tuple[Planted, str]]:
    """Each case, and whether the report tells of it; what it tells besides is printed."""
    told = [
        f"token {group['at']} ({group['change']})"
        for seen in report["prefixes"]
        for group in seen["groups"]
        if group["at"] == group["at_most"]
    ]
    for one in cases:
        expected = where(one)
        if expected in told:
            told.remove(expected)
            yield one, expected
        else:
            yield one, "nothing of it"
    if told:
        print(f"and said besides: {', '.join(told)}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def complete(url: str, prompt: list[int], salt: str | None) -> None:
    body: dict[str, Any] = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "temperature": 0}
    if salt is not None:
        body["cache_salt"] = salt
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
