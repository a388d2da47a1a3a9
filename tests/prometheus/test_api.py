"""Instant queries: what comes back, and what is said of what cannot be asked."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.fake_prometheus import AT, vector
from tests.serving import Answer, dead_url, raw, serving
from vllm_doctor.model.errors import SourceError
from vllm_doctor.prometheus import api
from vllm_doctor.prometheus.api import Api
from vllm_doctor.sources.server.access import Access


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("prometheus:9090", "http://prometheus:9090"),
        ("http://h:9090/", "http://h:9090"),
        ("https://h/prometheus/graph", "https://h/prometheus"),
        ("http://h:9090/api/v1/query", "http://h:9090"),
        ("prom+http://h:9090/?pod=x", "http://h:9090"),
        ("prom+https://h/select/0/prometheus/?pod=x", "https://h/select/0/prometheus"),
    ],
)
def test_the_address_of_the_api(url: str, expected: str) -> None:
    assert api.address(url) == expected


@pytest.fixture
def secure() -> Iterator[tuple[str, trustme.CA]]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with serving({"/api/v1/query": lambda request: vector([])}, tls=context) as server:
        yield server.url, authority


def test_tls(secure: tuple[str, trustme.CA], tmp_path: Path) -> None:
    url, authority = secure
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for access in (Access(ca_file=tmp_path / "ca.pem"), Access(insecure=True)):
        one = Api(url, access)
        assert one.rows("up", AT, time.monotonic() + 60) == []
        one.close()
    one = Api(url)
    with pytest.raises(SourceError, match="--ca-file") as caught:
        one.rows("up", AT, time.monotonic() + 60)
    one.close()
    assert caught.value.kind == "tls"


def test_nobody_listens() -> None:
    with pytest.raises(SourceError, match="refuses connections"):
        Api(dead_url()).rows("up", AT, time.monotonic() + 60)


def test_what_speaks_no_http() -> None:
    with raw(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH\r\n")) as url, pytest.raises(SourceError):
        Api(url).rows("up", AT, time.monotonic() + 60)


def test_no_time_is_left() -> None:
    with serving({}) as server, pytest.raises(SourceError, match="--timeout") as caught:
        Api(server.url).rows("up", AT, time.monotonic() - 1)
    assert caught.value.kind == "timeout"
    assert server.requests == []


def test_a_slow_answer_is_given_up() -> None:
    ahead = [0.0]

    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            ahead[0] += 100
            yield b" "

    with serving({"/api/v1/query": lambda request: Answer(pieces())}) as server:
        one = Api(server.url, clock=lambda: time.monotonic() + ahead[0])
        with pytest.raises(SourceError, match="does not end") as caught:
            one.rows("up", AT, time.monotonic() + 60)
    assert caught.value.kind == "timeout"


def test_hostile_elements_of_a_result_are_left_out() -> None:
    good = {"metric": {"__name__": "vllm:num_requests_running", "engine": "0"}, "value": [1, "1"]}
    bad: list[object] = [None, 1, {}, {"metric": 1, "value": [1, "1"]}, {"metric": {"a": 1}, "value": [1, "1"]}]
    bad += [
        {"metric": {}, "value": [1, "x"]},
        {"metric": {}, "value": "12"},
        {"metric": {}, "value": [1]},
        {"metric": {}, "value": [1, []]},
    ]
    for element in bad:
        assert api._row(element) is None
    assert api._row(good) is not None


@pytest.mark.parametrize("warnings", ["5", "true", '{"a": 1}', '"w"', "[5, null]"])
def test_warnings_that_are_none_are_no_reason_to_fail(warnings: str) -> None:
    body = f'{{"status": "success", "warnings": {warnings}, "data": {{"resultType": "vector", "result": []}}}}'
    with serving({"/api/v1/query": lambda request: body}) as server:
        one = Api(server.url)
        assert one.rows("up", AT, time.monotonic() + 60) == []
        assert not one.warnings
        one.close()


def test_rows_that_cannot_be_read_are_left_out_and_counted() -> None:
    rows = ", ".join(
        f'{{"metric": {{}}, "value": [1, {value}]}}' for value in ('"1"', '"1e308"', "9" * 400, "[]", '"NaN"')
    )
    body = f'{{"status": "success", "data": {{"resultType": "vector", "result": [{rows}]}}}}'
    with serving({"/api/v1/query": lambda request: body}) as server:
        one = Api(server.url)
        found = [row.value for row in one.rows("up", AT, time.monotonic() + 60)]
        assert found[0] == 1.0
        assert len(found) == 3  # and NaN, and what JSON has as infinite: not known
        assert one.unread == 2
        one.close()
