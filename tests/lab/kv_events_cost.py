"""What it costs a server that somebody listens to the events of its KV cache: CPU of vLLM's own publisher, a step.

    python -m tests.lab.kv_events_cost     a table for docs/prefixes.md (a minute; needs the extra kv-events)

The same steps are published with nobody there, and with this package's subscriber; then it asks for all of them again.
CPU time is of the publisher's whole process, as the kernel counts it: nothing but publishing runs in it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from functools import partial
from typing import IO

STEPS, A_SECOND = 200, 50
BLOCK = 16
KINDS = {"decode": (4, 1), "prefill": (4, 128)}
"""Of a step: requests that fill blocks, and how many each: 64 requests that decode, or 8,192 tokens of prompts."""


def main() -> int:
    from tests.lab.prefix import free_port  # late: the lab's Python, which publishes, has none of these
    from tests.lab.server import VLLM, must_be_installed
    from vllm_doctor.sources.prefix import kv_events

    must_be_installed()
    print("| a step | bytes | nobody listens | a subscriber | a step that is replayed |\n|---|---:|---:|---:|---:|")
    for kind in KINDS:
        published, replayed = free_port(), free_port()
        words = [str(VLLM / "python"), __file__, "--publish", kind, str(published), str(replayed)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as publisher:
            assert publisher.stdin is not None
            assert publisher.stdout is not None
            asked, told = publisher.stdin, publisher.stdout
            size = told.readline().strip()
            used = partial(_used, asked, told)
            alone = -used("look") + used("publish")
            seconds = STEPS / A_SECOND + 3
            live = kv_events.parse(f"tcp://127.0.0.1:{published}")
            listener = threading.Thread(target=kv_events.listen, args=(live, time.monotonic() + seconds))
            listener.start()
            time.sleep(1)  # until it has subscribed
            heard = -used("look") + used("publish")
            listener.join()
            both = kv_events.parse(f"tcp://127.0.0.1:{published},tcp://127.0.0.1:{replayed}")
            before = used("look")
            kv_events.listen(both, time.monotonic() + 2)
            again = (used("look") - before) / 2  # of twice as many steps
            costs = " | ".join(f"{cost / STEPS * 1e6:,.0f} µs" for cost in (alone, heard, again))
            print(f"| {kind} | {size} | {costs} |", flush=True)
            asked.close()
    return 0


def _used(asked: IO[str], told: IO[str], what: str) -> float:
    """Seconds of CPU of the publisher until now, after what it is asked to do."""
    asked.write(what + "\n")
    asked.flush()
    return float(told.readline())


def publish(kind: str, published: str, replayed: str) -> None:
    """Run by the Python of the lab's vLLM: the steps, each time that a line comes; then the CPU of each."""
    from vllm.distributed.kv_events import BlockStored, KVEventBatch, ZmqEventPublisher, msgspec

    requests, blocks = KINDS[kind]
    publisher = ZmqEventPublisher(0, endpoint=f"tcp://*:{published}", replay_endpoint=f"tcp://*:{replayed}", topic="kv")
    number = 0

    def step() -> KVEventBatch:
        nonlocal number
        events = []
        for _ in range(requests):
            number += 1
            hashes = [(number * 1000 + place).to_bytes(32, "big") for place in range(blocks)]
            events.append(
                BlockStored(
                    block_hashes=hashes,
                    parent_block_hash=None,
                    token_ids=list(range(1000, 1000 + BLOCK * blocks)),
                    block_size=BLOCK,
                    lora_id=None,
                    medium="GPU",
                    lora_name=None,
                )
            )
        return KVEventBatch(ts=1.0, events=events)

    print(len(msgspec.msgpack.encode(step())), flush=True)
    batches = [step() for _ in range(STEPS)]  # made before, as the scheduler makes them in any case
    for line in sys.stdin:
        if line.strip() == "publish":
            for batch in batches:
                publisher.publish(batch)
                time.sleep(1 / A_SECOND)
        print(time.process_time(), flush=True)
    publisher.shutdown()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--publish"]:
        publish(*sys.argv[2:])
    else:
        sys.exit(main())
