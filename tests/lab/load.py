"""Closed-loop load: N clients, each sends its next request when the last one is answered.

usage: load.py URL '{"clients": 8, "seconds": 60, "prompt": 256, "out": 200}', with the Python that vLLM is in
shared: leading tokens all prompts share; timeout: a client gives up after; think: a client rests; vary: lengths vary;
seed: other prompts; burst: all clients begin at once, every so many seconds; body: more of the request (n, logprobs);
text: the prompt is text, for a gateway that takes no token ids; embed: embeddings are asked for;
stop_after: a client has enough after about so many chunks, and hangs up.
SIGTERM ends it. Prints one line of JSON: requests, tokens, timeouts, stops, errors, seconds.
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
counts = {"requests": 0, "tokens": 0, "timeouts": 0, "stops": 0, "errors": 0}
prefix = [random.Random(7).randrange(10, 2000) for _ in range(load.get("shared", 0))]


async def answered(
    session: aiohttp.ClientSession, what: str, body: dict[str, object], chance: random.Random | None = None
) -> None:
    """One request, to its end or to where its client has enough."""
    enough = load.get("stop_after")
    body = {"model": "tiny", **body, **({"stream": True} if enough else {})}
    async with session.post(f"{url}/v1/{what}", json=body) as response:
        if enough and chance is not None:
            left = chance.randint(enough // 2, enough * 3 // 2)
            async for line in response.content:
                left -= line.startswith(b"data:")
                if left <= 0:
                    counts["stops"] += 1
                    return
        else:
            usage = (await response.json())["usage"]
            counts["tokens"] += usage.get("completion_tokens", 0)
        counts["requests"] += 1


async def client(session: aiohttp.ClientSession, number: int) -> None:
    chance = random.Random(number + 1000 * load.get("seed", 0))
    while True:
        length, out = load["prompt"] - len(prefix), load["out"]
        if load.get("vary"):
            length, out = chance.randint(length // 2, length), chance.randint(out // 2, out)
        tokens = prefix + [chance.randrange(10, 2000) for _ in range(length)]
        if burst := load.get("burst"):
            await asyncio.sleep(burst - time.time() % burst)
        try:
            if load.get("embed"):
                await answered(session, "embeddings", {"input": tokens})
            else:
                prompt = " ".join(map(str, tokens)) if load.get("text") else tokens
                body = {"prompt": prompt, "max_tokens": out, "temperature": 0, "ignore_eos": True}
                await answered(session, "completions", body | load.get("body", {}), chance)
        except TimeoutError:
            counts["timeouts"] += 1
        except (aiohttp.ClientError, KeyError):
            counts["errors"] += 1
            await asyncio.sleep(0.5)
        if load.get("think"):
            await asyncio.sleep(load["think"] * (0.5 + chance.random()))


async def main() -> None:
    timeout = aiohttp.ClientTimeout(total=load.get("timeout", 600))
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
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
