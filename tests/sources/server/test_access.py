from __future__ import annotations

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.sources.server.access import Access

HEADERS = {"authorization": "Bearer of-all", "x-tenant": "blue"}


@pytest.mark.parametrize(
    ("of", "base"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:80", "http://h"),
        ("https://h", "https://h:443/llm"),
        ("http://H:8000", "http://h:8000"),
        ("http://h:8000/llm", "http://h:8000/llm"),
        ("http://h:8000/llm", "http://h:8000/llm/a"),
        ("http://h:8000", "http://me:password@h:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_a_token_for_a_url_replaces_that_of_all(of: str, base: str) -> None:
    access = Access(HEADERS, tokens={of: "its-own"})
    assert access.credentials(base) == {"authorization": "Bearer its-own", "x-tenant": "blue"}


@pytest.mark.parametrize(
    ("of", "base"),
    [
        ("http://h:8000", "http://h:8001"),
        ("http://h:8000", "http://g:8000"),
        ("http://h:443", "https://h"),
        ("http://h", "https://h"),
        ("http://h:8000/llm", "http://h:8000"),
        ("http://h:8000/llm", "http://h:8000/llm2"),
        ("http://h@evil", "http://h"),
        ("http://h", "http://h@evil"),
    ],
)
def test_it_is_of_no_other_server(of: str, base: str) -> None:
    assert Access(tokens={of: "its-own"}).credentials(base) == {}


def test_of_two_paths_the_longer_one_counts() -> None:
    access = Access(tokens={"https://h/a": "of-a", "https://h": "of-h", "https://h/a/b": "of-b"})
    bases = ("https://h", "https://h/a", "https://h/a/b/c", "https://h/ab")
    sent = [access.credentials(base)["authorization"].removeprefix("Bearer of-") for base in bases]
    assert sent == ["h", "a", "b", "h"]


def test_only_what_names_its_server_is_for_servers_that_were_found() -> None:
    Access(tokens={"http://h": "its-own"}).check_found()
    with pytest.raises(UsageError, match="go to servers that you name, not to those found"):
        Access(HEADERS).check_found()


def test_it_does_not_show_what_it_holds() -> None:
    assert "of-all" not in repr(Access(HEADERS, tokens={"http://h": "of-all"}))
