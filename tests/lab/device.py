"""What this machine's memory and cores reach, with the threads and the library that vLLM's CPU backend has.

usage: device.py, with the Python that vLLM is installed in. Prints one line of JSON: bandwidth (bytes a second: the
better of reading, and of a triad as in STREAM), flops (of a product of matrices in bfloat16), threads.
"""

import json
import time
from collections.abc import Callable

import torch

TRIES = 20
WORDS = 32 * 1024 * 1024
"""Of an array: 128 MiB, more than any cache here."""
SIDE = 2048


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of some tries."""
    taken = []
    for _ in range(TRIES):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


a, b, c = (torch.rand(WORDS) for _ in range(3))
read = 4 * WORDS / best(lambda: torch.sum(a))
triad = 3 * 4 * WORDS / best(lambda: torch.add(a, b, alpha=3.0, out=c))
x, y = (torch.rand(SIDE, SIDE, dtype=torch.bfloat16) for _ in range(2))
flops = 2 * SIDE**3 / best(lambda: x @ y)
print(json.dumps({"bandwidth": max(read, triad), "flops": flops, "threads": torch.get_num_threads()}))
