"""A way between two servers that is longer than it should be: each piece of a request arrives so many seconds later.

usage: delayed.py PORT SERVER_PORT SECONDS, on the loopback device. A file descriptor's worth of bytes that arrive
together leave together, so that a request waits once. The answers are not held up.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

BLOCK = 1 << 16


@contextlib.contextmanager
def way(url: str, seconds: float) -> Iterator[str]:
    """The URL of a way to this server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    relay = subprocess.Popen([sys.executable, __file__, str(port), url.rsplit(":", 1)[1], str(seconds)])
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        relay.kill()
        relay.wait()


async def passed(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
    """A line of constant delay: what comes later is not held up by what came before."""
    loop = asyncio.get_running_loop()
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def sent() -> None:
        while True:
            due, block = await on_the_way.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not block:
                break
            sink.write(block)
            await sink.drain()
        sink.close()

    sending = asyncio.create_task(sent())
    with contextlib.suppress(OSError):
        while block := await source.read(BLOCK):
            on_the_way.put_nowait((loop.time() + seconds, block))
    on_the_way.put_nowait((loop.time() + seconds, b""))
    with contextlib.suppress(OSError):
        await sending


async def main(port: int, server: int, seconds: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asked = await asyncio.open_connection("127.0.0.1", server)
        await asyncio.gather(passed(reader, asked, seconds), passed(answers, writer, 0.0))

    async with await asyncio.start_server(connected, "127.0.0.1", port) as listening:
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
