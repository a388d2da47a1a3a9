"""Events from a socket: a publisher as vLLM's, one that is none, and none at all."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.inputs.kv_events import Cache
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.prefix import Change
from vllm_doctor.sources.prefix import kv_events
from vllm_doctor.sources.prefix.kv_events import Endpoint, parse

zmq = pytest.importorskip("zmq", reason="the extra kv-events is not installed")
msgpack = pytest.importorskip("msgpack")

SYSTEM = random.Random(1).choices(range(30000), k=800)
WAIT = 20.0
Frames = list[bytes]


def batch(number: int, *events: object) -> Frames:
    return [b"kv@topic", number.to_bytes(8, "big"), msgpack.packb([1.5, list(events), 0])]


@contextlib.contextmanager
def published(messages: Sequence[Frames], replayed: Sequence[Frames] | None = None) -> Iterator[Endpoint]:
    """A publisher that says the same over and over: a subscriber hears it whenever it comes."""
    context = zmq.Context()
    publisher, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    replay = router.bind_to_random_port("tcp://127.0.0.1")
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(0.02):
            for message in messages:
                publisher.send_multipart(message)
            if replayed is not None and router.poll(0):
                client, _, asked = router.recv_multipart()
                assert asked == bytes(8)
                for message in replayed:
                    router.send_multipart([client, b"", *message])
                router.send_multipart([client, b"", b"", (-1).to_bytes(8, "big", signed=True), b""])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        where = f"tcp://127.0.0.1:{replay}" if replayed is not None else ""
        yield Endpoint(f"tcp://127.0.0.1:{port}", where)
    finally:
        is_over.set()
        thread.join()
        publisher.close(linger=0)
        router.close(linger=0)
        context.term()


def heard(endpoint: Endpoint, seconds: float = 0.7) -> Any:
    return kv_events.listen(endpoint, time.monotonic() + seconds)


def mutated(count: int = 3) -> list[Any]:
    return Cache().events(*([*SYSTEM[:37], 40000 + n, *SYSTEM[37:]] for n in range(count)))


def test_prompts_are_compared() -> None:
    with published([batch(number, event) for number, event in enumerate(mutated())]) as endpoint:
        found, notes = heard(endpoint)
    assert (found.prompts, found.worst.change, found.worst.at, found.target) == (3, Change.HEAD, 37, endpoint.published)
    assert not any("could not be read" in note for note in notes)


def test_what_was_before_is_asked_for() -> None:
    before = [batch(number, event) for number, event in enumerate(mutated())]
    with published([], before) as endpoint:
        found, _ = heard(endpoint)
    assert (found.prompts, found.worst.at) == (3, 37)


def test_what_was_missed_is_told() -> None:
    events = mutated(2)
    with published([], [batch(0, events[0]), batch(5, events[1])]) as endpoint:
        _, notes = heard(endpoint)
    assert notes == ("4 batches of KV events were missed: prompts in them were not compared",)


HOSTILE = {
    "no msgpack": b"\xc1\xff",
    "nothing": b"",
    "a number": msgpack.packb(7),
    "an array of 4 G": b"\xdd\xff\xff\xff\xff",
    "a map of 4 G": b"\xdf\xff\xff\xff\xff",
    "deep": b"\x91" * 100_000,
    "an extension": b"\xc7\x01\x05x",
    "no text": b"\x93\xcb" + bytes(8) + b"\x91\x81\xa4type\xa2\xff\xfe\x00",
    "a map as a key": b"\x81\x80\x01",
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_batch_is_borne(payload: bytes) -> None:
    odd = [b"", bytes(8), payload]
    with published([], [odd, batch(1, *mutated())]) as endpoint:
        found, notes = heard(endpoint, 0.6)
    assert found.prompts == 3
    assert notes in ((), ("1 KV events could not be read",))


@pytest.mark.parametrize("frames", [[b""], [b"", b"short", b"x"], [b"a", bytes(8), b"\x90", b"d"]])
def test_other_messages_are_no_events(frames: Frames) -> None:
    with published([frames]) as endpoint, pytest.raises(SourceError, match="none of them vLLM's KV events") as caught:
        heard(endpoint)
    assert caught.value.kind == "not-vllm"


def test_random_bytes_are_borne() -> None:
    chance = random.Random(5)
    for _ in range(3000):
        with contextlib.suppress(ValueError):
            kv_events.unpacked(chance.randbytes(chance.randrange(60)))


def test_nobody_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(SourceError, match="start vLLM with --kv-events-config") as caught:
        heard(Endpoint(f"tcp://127.0.0.1:{port}"), 0.3)
    assert caught.value.kind == "unreachable"


def test_nothing_happens_there() -> None:
    with published([]) as endpoint, pytest.raises(SourceError, match="no event came: send requests") as caught:
        heard(endpoint, 0.5)
    assert caught.value.kind == "empty"


def test_a_server_of_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                client, _ = server.accept()
                client.recv(100)
                client.sendall(
                    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\r\nInvalid HTTP request received."
                )
                client.close()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(SourceError, match="does not speak ZMQ") as caught:
                heard(Endpoint(f"tcp://127.0.0.1:{server.getsockname()[1]}"), WAIT)
        finally:
            thread.join()
    assert caught.value.kind == "not-vllm"


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(
        SourceError, match=r"pip install pyzmq msgpack where .* pip install '\.\[kv-events\]'"
    ) as caught:
        heard(Endpoint("tcp://127.0.0.1:5557"))
    assert caught.value.kind == "not-installed"


@pytest.mark.parametrize(
    "text", ["tcp://host:5557", "tcp://10.0.0.1:5557,tcp://10.0.0.1:5558", "tcp://[::1]:5557", "ipc:///tmp/kv"]
)
def test_endpoints(text: str) -> None:
    published, _, replayed = text.partition(",")
    assert parse(text) == Endpoint(published, replayed)


@pytest.mark.parametrize(
    "text",
    ["", "host:5557", "http://host:5557", "tcp://host", "tcp://a:1,", "inproc://x", "tcp://a b:1", "tcp://a:1\n"],
)
def test_no_endpoints(text: str) -> None:
    with pytest.raises(UsageError, match="write tcp://HOST:5557"):
        parse(text)


def test_the_servers_own_wildcard() -> None:
    with pytest.raises(UsageError, match="name its host"):
        parse("tcp://*:5557")
