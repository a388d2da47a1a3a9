"""A subscriber to the events of a server's KV cache (--kv-events-config), which it publishes by ZMQ.

It only listens: a publisher drops what a subscriber has no room for, and never waits for it. What was published before
is asked of the server's replay_endpoint, where that is given.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.prefix import Prefixes
from vllm_doctor.sources.prefix.kv_blocks import Blocks, FormError
from vllm_doctor.text import extras

if TYPE_CHECKING:
    import zmq

_LARGEST_MESSAGE = 16 * 1024 * 1024
_QUEUED = 256
"""Batches that wait for us; the publisher drops more."""
_MOST_BYTES = 512 * 1024 * 1024
"""Of batches that are read in one look."""
_MOST_ITEMS = 2_000_000
"""Of an array in a batch."""
_SEQUENCE = 8
_END = (-1).to_bytes(_SEQUENCE, "big", signed=True)
_ENDPOINT = re.compile(r"tcp://(?:\[[0-9a-fA-F:.%\w]{2,60}\]|[\w.-]{1,253}):\d{1,5}|ipc://[^\0,]{1,100}", re.ASCII)
_REPLAY_SECONDS = 5.0


@dataclass(frozen=True)
class Endpoint:
    """Where events are published, and where those before can be asked for."""

    published: str
    replayed: str = ""

    def __str__(self) -> str:
        return self.published


@dataclass
class Heard:
    """What came of one endpoint."""

    batches: int = 0
    unreadable: int = 0
    missed: int = 0
    bytes_read: int = 0
    is_replayed: bool = False
    """The replay endpoint answered."""
    is_connected: bool = False
    is_refused: bool = False
    """Something answers there that is no publisher."""
    last: int | None = None


def parse(text: str) -> Endpoint:
    """ "tcp://host:5557", or with the replay_endpoint behind a comma. Raises UsageError."""
    published, comma, replayed = text.partition(",")
    for each in (published, replayed) if comma else (published,):
        if _ENDPOINT.fullmatch(each) is None:
            hint = "; * is where the server listens: name its host" if "*" in each else ""
            raise UsageError(f"--kv-events {each[:100]}: write tcp://HOST:5557, or ipc:///PATH{hint}")
    return Endpoint(published, replayed)


def listen(endpoint: Endpoint, until: float, show_text: bool = False) -> tuple[Prefixes | None, tuple[str, ...]]:
    """The prompts whose blocks were stored until then, on time.monotonic, and what must be said of them.

    Raises SourceError: nothing came, and why.
    """
    try:
        import zmq  # late, with msgpack: only this source needs them
    except ImportError:
        why = extras.missing("kv-events", "--kv-events needs pyzmq and msgpack")
        raise SourceError("not-installed", why) from None
    blocks, heard = Blocks(show_text), Heard()
    try:
        with zmq.Context() as context, context.socket(zmq.SUB) as events, events.get_monitor_socket() as monitor:
            _listen(context, events, monitor, endpoint, until, blocks, heard)
    except zmq.ZMQError as error:
        raise SourceError("unreachable", f"{endpoint}: {error}") from None
    if not heard.batches:
        raise _nothing(endpoint, heard)
    return blocks.prefixes(str(endpoint)), tuple(_notes(endpoint, blocks, heard))


def _listen(
    context: zmq.Context[Any],
    events: zmq.Socket[Any],
    monitor: zmq.Socket[Any],
    endpoint: Endpoint,
    until: float,
    blocks: Blocks,
    heard: Heard,
) -> None:
    import zmq

    _bound(events)
    events.setsockopt(zmq.SUBSCRIBE, b"")
    events.connect(endpoint.published)
    if endpoint.replayed:
        with context.socket(zmq.DEALER) as asked:
            _replay(asked, endpoint.replayed, min(until, time.monotonic() + _REPLAY_SECONDS), blocks, heard)
    poller = zmq.Poller()
    poller.register(events, zmq.POLLIN)
    poller.register(monitor, zmq.POLLIN)
    while (left := until - time.monotonic()) > 0 and heard.bytes_read < _MOST_BYTES and not heard.is_refused:
        ready = dict(poller.poll(round(min(left, 0.5) * 1000)))
        if monitor in ready:
            _note_connection(monitor, heard)
        if events in ready:
            _take(events.recv_multipart(zmq.NOBLOCK), blocks, heard)


def _bound(socket: zmq.Socket[Any]) -> None:
    """Its limits, and none of the system's time after it is closed."""
    import zmq

    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.RCVHWM, _QUEUED)
    socket.setsockopt(zmq.MAXMSGSIZE, _LARGEST_MESSAGE)
    socket.setsockopt(zmq.RECONNECT_IVL, 200)


def _note_connection(monitor: zmq.Socket[Any], heard: Heard) -> None:
    import zmq
    from zmq.utils.monitor import recv_monitor_message

    event = recv_monitor_message(monitor, zmq.NOBLOCK)["event"]
    failed = (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
    heard.is_connected |= event == zmq.EVENT_HANDSHAKE_SUCCEEDED
    heard.is_refused |= event in failed and not heard.is_connected


def _replay(socket: zmq.Socket[Any], where: str, until: float, blocks: Blocks, heard: Heard) -> None:
    """What was published before, from the first batch that the server still has."""
    import zmq

    _bound(socket)
    socket.setsockopt(zmq.SNDTIMEO, 1000)
    socket.connect(where)
    socket.send_multipart([b"", (0).to_bytes(_SEQUENCE, "big")])
    while (left := until - time.monotonic()) > 0 and heard.bytes_read < _MOST_BYTES:
        if not socket.poll(round(left * 1000)):
            return
        frames = socket.recv_multipart(zmq.NOBLOCK)[1:]  # an empty one parts the address
        heard.is_replayed = True
        if len(frames) == 3 and frames[1] == _END:
            return
        _take(frames, blocks, heard)


def _take(frames: list[bytes], blocks: Blocks, heard: Heard) -> None:
    """A message: the topic, a number, and a batch."""
    heard.bytes_read += sum(map(len, frames))
    if len(frames) != 3 or len(frames[1]) != _SEQUENCE:
        heard.unreadable += 1
        return
    number = int.from_bytes(frames[1], "big")
    if heard.last is not None and heard.last < number < 1 << 62:
        heard.missed += number - heard.last - 1
    heard.last = number
    try:
        blocks.add(unpacked(frames[2]))
        heard.batches += 1
    except (FormError, ValueError):
        heard.unreadable += 1


def unpacked(payload: bytes) -> object:
    """What msgpack holds. Raises ValueError where it is none, or too much."""
    import msgpack

    try:
        return msgpack.unpackb(
            payload,
            raw=False,
            strict_map_key=False,
            unicode_errors="replace",
            max_array_len=_MOST_ITEMS,
            max_map_len=1000,
            max_str_len=100_000,
            max_bin_len=100_000,
            max_ext_len=0,
        )
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError("no msgpack") from error


def _nothing(endpoint: Endpoint, heard: Heard) -> SourceError:
    """Why nothing came."""
    if heard.unreadable:
        return SourceError("not-vllm", f"{endpoint}: {heard.unreadable:,} messages came, none of them vLLM's KV events")
    if heard.is_refused:
        return SourceError("not-vllm", f"{endpoint}: what answers there does not speak ZMQ: is it the port of HTTP?")
    if heard.is_connected:
        return SourceError(
            "empty", f"{endpoint}: no event came: send requests meanwhile, or sample longer (--window 60)"
        )
    return SourceError(
        "unreachable",
        f'{endpoint} does not answer: start vLLM with --kv-events-config \'{{"enable_kv_cache_events": true,'
        ' "publisher": "zmq", "endpoint": "tcp://*:5557"}\'',
    )


def _notes(endpoint: Endpoint, blocks: Blocks, heard: Heard) -> Iterator[str]:
    if endpoint.replayed and not heard.is_replayed:
        yield f"{endpoint.replayed} does not answer: what was published before is not known"
    if heard.missed:
        yield f"{heard.missed:,} batches of KV events were missed: prompts in them were not compared"
    if heard.unreadable or blocks.odd:
        yield f"{heard.unreadable + blocks.odd:,} KV events could not be read"
    if blocks.sparse:
        yield f"{blocks.sparse:,} KV events leave out blocks, as of a sliding window: they were not compared"
    if blocks.left_out:
        yield f"{blocks.left_out:,} blocks were not kept: there were too many"
    if not blocks.stored:
        yield "no block was stored meanwhile: each prompt was found in the cache, or is shorter than a block"
