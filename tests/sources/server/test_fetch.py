"""Addresses of servers, and the bounds of one exchange with them: more of these in test_server, over real sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.serving import Answer, Served, serving
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.fetch import Advice, Connection, base_of, shown

SECRET = "s3cr3t-passw0rd"
ADVICE = Advice(
    late="{where}: late after {seconds:.1f}",
    over="{where}: over",
    endless="{where}: endless",
    too_large="{where}: large",
    unreadable=("not-mine", "{where}: {error}"),
)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/metrics/", "http://127.0.0.1:8000"),
        ("https://gpu1/serve/llama/", "https://gpu1/serve/llama"),
        ("https://gpu1/serve/llama/metrics", "https://gpu1/serve/llama"),
        ("gpu1:8000", "http://gpu1:8000"),
        ("gpu1:8000/prefix/metrics", "http://gpu1:8000/prefix"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("http://[fe80::1%25eth0]:8000", "http://[fe80::1%25eth0]:8000"),
        ("http://h:8000/metrics?x=1#y", "http://h:8000"),
        ("HTTP://h:8000", "http://h:8000"),
    ],
)
def test_the_base_of_an_address(url: str, base: str) -> None:
    assert base_of(url) == base


@pytest.mark.parametrize(
    "url", ["http://", "ftp://h/", "file:///etc/passwd", "http://h:port", "http://h:99999", "http://[::1", "http:///x"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="not a URL"):
        base_of(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"http://me:{SECRET}@h:8000/p", "http://h:8000/p"),
        (f"https://{SECRET}@h", "https://h"),
        (f"http://me:p@{SECRET}@h:8000", "http://h:8000"),
        ("http://h:8000/p", "http://h:8000/p"),
        (f"me:{SECRET}@h:port", "h:port"),
        (f"http://me:{SECRET}@h:port", "http://h:port"),
        (f"http://me:pa/{SECRET}@h:8000", "http://h:8000"),
        (f"http://me:pa#{SECRET}@h:8000", "http://h:8000"),
        (f"http://me:pa?{SECRET}@h:8000", "http://h:8000"),
        (f"me:{SECRET}@[::1", "[::1"),
        (f"http://me:{SECRET}@[::1", "http://[::1"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, said: str) -> None:
    assert shown(url) == said


# ---- one exchange -------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Served]:
    """/there is somewhere, /away leads to it."""
    routes = {
        "/there": lambda request: Answer(b"found"),
        "/away": lambda request: Answer(b"", 302, {"location": "/there"}),
    }
    with serving(routes) as served:
        yield served


@contextmanager
def connected(server: Served, follows: bool = True) -> Iterator[Connection]:
    with closing(Connection(server.url, Access(), time.monotonic, ADVICE, follows)) as connection:
        yield connection


def test_a_redirect_is_followed(server: Served) -> None:
    with connected(server) as connection:
        answer = connection.get("/away", time.monotonic() + 60)
    assert (answer.status, answer.body, answer.location) == (200, b"found", "")


def test_a_redirect_that_is_not_to_be_followed_is_the_answer(server: Served) -> None:
    with connected(server, follows=False) as connection:
        answer = connection.get("/away", time.monotonic() + 60)
    assert (answer.status, answer.location) == (302, f"{server.url}/there")


def test_who_asks_says_it_in_its_own_words(server: Served) -> None:
    with connected(server) as connection:
        with pytest.raises(SourceError) as of_path:
            connection.get("/there", time.monotonic() - 1)
        with pytest.raises(SourceError) as named:
            connection.post("/there", time.monotonic() - 1, "me")
    assert [str(of_path.value), str(named.value)] == [f"{server.url}/there: over", "me: over"]
