"""A proxy that buffers: what the server answers is passed on every so many seconds.

usage: relay.py PORT SERVER_PORT SECONDS, on the loopback device
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
def relayed(url: str, seconds: float) -> Iterator[str]:
    """The URL of such a proxy in front of this one."""
    with standing_before(url, __file__, str(seconds)) as (proxy, _):
        yield proxy


@contextlib.contextmanager
def standing_before(url: str, script: str, *words: str) -> Iterator[tuple[str, int]]:
    """The URL and the pid of a script that takes a port of its own, that of a server, and these words."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    relay = subprocess.Popen([sys.executable, script, str(port), url.rsplit(":", 1)[1], *words])
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", relay.pid
    finally:
        relay.kill()
        relay.wait()


async def passed(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
    with contextlib.suppress(OSError):
        while block := await source.read(BLOCK):
            sink.write(block)
            await sink.drain()
            await asyncio.sleep(seconds)
    sink.close()


async def main(port: int, server: int, seconds: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asked = await asyncio.open_connection("127.0.0.1", server)
        await asyncio.gather(passed(reader, asked, 0), passed(answers, writer, seconds))

    async with await asyncio.start_server(connected, "127.0.0.1", port) as listening:
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
