"""Publishes events by vLLM's own classes, for prefix.py; run by the Python of the lab's vLLM.

Standard input: a JSON array of cases, each an array of events as tests/inputs/kv_events.py makes them, hashes in hex.
Standard output: the ports of each case, as JSON. It publishes until standard input is closed.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

from vllm.distributed.kv_events import BlockStored, KVEventBatch, ZmqEventPublisher


def main() -> None:
    cases = json.loads(sys.stdin.readline())
    publishers, ports = [], []
    for events in cases:
        published, replayed = free_port(), free_port()
        publisher = ZmqEventPublisher(
            0, endpoint=f"tcp://*:{published}", replay_endpoint=f"tcp://*:{replayed}", topic="kv"
        )
        for event in events:
            publisher.publish(KVEventBatch(ts=1.0, events=[stored(event)]))
        publishers.append(publisher)
        ports.append((published, replayed))
    print(json.dumps(ports), flush=True)
    sys.stdin.read()
    for publisher in publishers:
        publisher.shutdown()


def stored(event: dict[str, Any]) -> BlockStored:
    parent = event["parent_block_hash"]
    told = {name: value for name, value in event.items() if name != "type"}
    told["block_hashes"] = [bytes.fromhex(name) for name in event["block_hashes"]]
    told["parent_block_hash"] = None if parent is None else bytes.fromhex(parent)
    return BlockStored(**told)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


if __name__ == "__main__":
    main()
