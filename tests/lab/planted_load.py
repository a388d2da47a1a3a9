"""Closed-loop clients that ask as people do: chats and streams, with a body of any kind.

usage: planted_load.py URL '{"clients": 4, "seconds": 60, "body": {...}}', with the Python that vLLM is in
`chat`: messages of so many words each; `prompt`: a text of so many words; `schema`: another schema with each request.
SIGTERM ends it; it prints the tokens that were answered.
"""

import asyncio
import contextlib
import json
import random
import signal
import sys
import time

import aiohttp

url, load = sys.argv[1], json.loads(sys.argv[2])
counts = {"requests": 0, "chunks": 0, "errors": 0}
WORDS = ["alpha", "beta", "gamma", "delta", "omega", "river", "stone", "cloud", "seven", "paper"]


def text(chance: random.Random, count: int) -> str:
    return " ".join(chance.choice(WORDS) + str(chance.randrange(1000)) for _ in range(count))


def body(chance: random.Random) -> tuple[str, dict[str, object]]:
    asked: dict[str, object] = {"model": "tiny", "temperature": 0.8, **load.get("body", {})}
    if load.get("schema"):
        names = [text(chance, 1) for _ in range(load["schema"])]
        kinds = [chance.choice(["string", "integer", "boolean"]) for _ in names]
        properties = {name: {"type": kind} for name, kind in zip(names, kinds, strict=True)}
        schema = {"type": "object", "properties": properties, "required": names}
        asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "row", "schema": schema}}
    if chat := load.get("chat"):
        roles = ["user", "assistant"]
        asked["messages"] = [
            {"role": roles[place % 2], "content": text(chance, words)} for place, words in enumerate(chat)
        ]
        return "chat/completions", asked
    asked["prompt"] = text(chance, load["prompt"])
    return "completions", asked


async def client(session: aiohttp.ClientSession, number: int) -> None:
    chance = random.Random(number)
    while True:
        what, asked = body(chance)
        try:
            async with session.post(f"{url}/v1/{what}", json=asked) as response:
                if response.status != 200 and not counts["errors"]:
                    print(await response.text(), file=sys.stderr)
                counts["errors"] += response.status != 200
                async for line in response.content:
                    counts["chunks"] += line.startswith(b"data:")
                counts["requests"] += response.status == 200
        except aiohttp.ClientError:
            counts["errors"] += 1
            await asyncio.sleep(0.5)


async def main() -> None:
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=1 << 24) as session:
        clients = [asyncio.create_task(client(session, number)) for number in range(load["clients"])]
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), load["seconds"])
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


start = time.monotonic()
asyncio.run(main())
print(json.dumps({**counts, "seconds": round(time.monotonic() - start, 2)}))
