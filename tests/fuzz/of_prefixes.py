"""Harnesses of prompts: events of a KV cache, and logged requests."""

from __future__ import annotations

from collections.abc import Hashable

from tests.fuzz.harness import finite, harness
from tests.inputs.kv_events import Cache
from vllm_doctor.model import prefix
from vllm_doctor.model.prefix import Prefixes


def _batches() -> list[bytes]:
    try:
        import msgpack
    except ImportError:
        return [b"\x92\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x90"]
    events = [
        *Cache(4).events([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9, 6, 7, 8], keys=["a", ["b", 0]]),
        *Cache(4, is_array=True).events([1, 2, 3, 4, 5, 6, 7, 8]),
        {"type": "BlockRemoved", "block_hashes": [b"x"], "medium": "GPU"},
        {"type": "AllBlocksCleared"},
    ]
    return [msgpack.packb([1.0, each, 0]) for each in ([event] for event in events)] + [msgpack.packb([1.0, events])]


@harness(
    _batches, "type", "BlockStored", "block_hashes", "token_ids", "parent_block_hash", "group_idx", raises=(ValueError,)
)
def kv_events(data: bytes) -> Hashable:
    """A batch of a publisher, and the same once more behind it."""
    from vllm_doctor.sources.prefix.kv_blocks import Blocks
    from vllm_doctor.sources.prefix.kv_events import unpacked

    try:
        batch = unpacked(data)
    except ImportError:  # the extra is not installed
        return None
    blocks = Blocks(show_text=True)
    blocks.add(batch)
    blocks.add(batch)
    return blocks.odd, blocks.sparse, _checked(blocks.prefixes("here"))


_OLD = b"INFO 11-20 10:52:03 [logger.py:42] Received request c-1: prompt: "
_NEW = b"DEBUG 11-20 10:52:03 [request_logger.py:51] Request c-1 details: prompt: "
_LORA = b"lora_request: LoRARequest(lora_name='a', lora_int_id=1).\n"
_LINES = (
    _OLD + b"'a \\'b\\' \\u4f60\\n', params: P(n=1), " + _LORA + _OLD + b"\"a 'c'\", params: P(n=1), " + _LORA,
    _NEW + b"None, prompt_token_ids: [1, 2, 3, 4]\n" + _NEW + b"'<tools>', prompt_token_ids: [1, 2, 5]\n",
    b'{"log": "Received request c-1: prompt: \'a\', params: SamplingParams(n=1)\\n", "stream": "stderr"}\n' * 2,
)


@harness(
    lambda: list(_LINES), "prompt: ", "Received request x: ", " details: ", "prompt_token_ids: [", "\\x", "\\U0010"
)
def request_log(data: bytes) -> Hashable:
    """A log of requests."""
    from vllm_doctor.sources.log.bytes_stream import Held
    from vllm_doctor.sources.prefix import request_log

    found, notes = request_log.examine([Held("a.log", data, 0.0)], "a.log", show_text=True)
    return len(notes), _checked(found)


def _checked(found: Prefixes | None) -> Hashable:
    if found is None:
        return None
    assert 0 <= found.again <= found.units
    assert 0 <= found.shared <= found.units
    return finite(prefix.facts(found, "log")), len(found.groups)
