"""A way between two servers that is longer than it should be: each piece of a request arrives so many seconds later.

usage: delayed.py PORT SERVER_PORT FILE, on the loopback device. FILE holds the seconds, and is read for each piece.
It is a line of constant delay, so that a request in several pieces waits once. The answers are not held up.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ != "__main__":
    from tests.lab import relay
    from tests.lab.machine import before_all_others

BLOCK = 1 << 16


@contextlib.contextmanager
def way(url: str, seconds: Path) -> Iterator[str]:
    """The URL of a way to this server, as long as this file says."""
    with relay.standing_before(url, __file__, str(seconds)) as (longer, pid):
        before_all_others(pid)
        yield longer


def seconds_of(file: Path | None) -> float:
    return float(file.read_text() or "0") if file is not None else 0.0


async def passed(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: Path | None) -> None:
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
            on_the_way.put_nowait((loop.time() + seconds_of(seconds), block))
    on_the_way.put_nowait((loop.time() + seconds_of(seconds), b""))
    with contextlib.suppress(OSError):
        await sending


async def main(port: int, server: int, seconds: Path) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asked = await asyncio.open_connection("127.0.0.1", server)
        await asyncio.gather(passed(reader, asked, seconds), passed(answers, writer, None))

    async with await asyncio.start_server(connected, "127.0.0.1", port) as listening:
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
