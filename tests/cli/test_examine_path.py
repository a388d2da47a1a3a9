"""A gateway, a router and servers on one command line: over HTTP, from saved pages, and from a recording."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.serving import Answer, Served, in_turn, serving, vllm
from vllm_doctor.cli.main import main

PAGES = ROOT / "tests/data/path"


def pages_of(name: str) -> list[str]:
    return [(PAGES / f"{name}.{place}.prom").read_text("utf-8") for place in (0, 1)]


@pytest.fixture
def litellm() -> Iterator[Served]:
    """As LiteLLM has it: /metrics is a mounted application, and redirects to /metrics/."""
    routes = {
        "/metrics": lambda request: Answer(b"", 307, {"Location": "/metrics/"}),
        "/metrics/": in_turn(pages_of("litellm")),
    }
    with serving(routes) as server:
        yield server


@pytest.fixture
def behind() -> Iterator[list[str]]:
    """The router's metrics, and two servers."""
    router = {"/metrics": in_turn(pages_of("vllm-router"))}
    with serving(router) as one, serving(vllm(pages_of("a"))) as a, serving(vllm(pages_of("b"))) as b:
        yield [one.url, a.url, b.url]


def examined(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    for_a_moment = ("--window", "0.2") if any("http" in word for word in words) else ()  # files are not watched
    main([*words, "--json", *for_a_moment, "--fail-on", "never"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_roles_are_told_by_the_pages(litellm: Served, behind: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    document = examined(capsys, litellm.url, *behind)
    assert [source["role"] for source in document["path"]["sources"]] == ["gateway", "router", "server", "server"]
    assert round(document["path"]["seconds"], 3) == 0.159
    assert document["error"] is None
    assert not litellm.asked("/v1/models")  # a gateway is asked for its metrics, and for nothing else


def test_roles_are_told_by_the_user(behind: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    router, a, b = behind
    document = examined(capsys, "--role", f"router={router}", "--role", f"prefill={a}", "--role", f"decode={b}")
    assert [(source["role"], source["target"]) for source in document["path"]["sources"]] == [
        ("router", router), ("prefill", a), ("decode", b),
    ]  # fmt: skip
    assert {hop["hop"] for hop in document["path"]["hops"]} >= {"prefill-compute", "kv-handover", "decode-rest"}
    told = {source["target"]: source["role"] for source in document["sources"] if source["kind"] != "host"}
    assert told == {router: "router", a: "prefill", b: "decode"}


def test_roles_are_told_by_the_commands_that_the_urls_name(
    behind: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "disagg.sh"
    script.write_text(
        "".join(
            f"vllm serve m --port {url.rpartition(':')[2]}"
            f""" --kv-transfer-config '{{"kv_connector":"P2pNcclConnector","kv_role":"{role}"}}' &\n"""
            for url, role in zip(behind[1:], ("kv_consumer", "kv_producer"), strict=True)
        )
    )
    document = examined(capsys, *behind[1:], "--command", str(script))
    assert [(source["role"], source["target"]) for source in document["path"]["sources"]] == [
        ("prefill", behind[2]), ("decode", behind[1]),
    ]  # fmt: skip
    assert [source["error"] for source in document["sources"]] == [None] * len(document["sources"])
    assert [source["kind"] for source in document["sources"]].count("command") == 2


def test_a_page_that_nobody_knows_needs_a_role(behind: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/metrics": lambda request: "# TYPE x counter\nx 1\n"}) as unknown:
        refused = examined(capsys, unknown.url, behind[1])
        assert refused["sources"][0]["error"]["kind"] == "not-vllm"
        taken = examined(capsys, "--role", f"gateway={unknown.url}", behind[1])
    assert taken["error"] is None
    assert taken["path"]["sources"][0]["role"] == "gateway"
    assert taken["path"]["hops"][0] == {
        "hop": "gateway", "says": "gateway itself", "seconds": None, "unknown": "absent", "share": None,
        "because": None, "blamed_by": None,
    }  # fmt: skip


def test_saved_pages_are_a_path_without_times(capsys: pytest.CaptureFixture[str]) -> None:
    document = examined(capsys, str(PAGES / "litellm.1.prom"), str(PAGES / "a.1.prom"))
    assert [source["role"] for source in document["path"]["sources"]] == ["gateway", "server"]
    assert (document["path"]["seconds"], document["path"]["unknown"]) == (None, "first-scrape")


def test_a_recording_keeps_what_the_user_said(
    behind: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, (router, a, b) = tmp_path / "path.tar.gz", behind
    words = ["--role", f"router={router}", "--role", f"prefill={a}", "--role", f"decode={b}"]
    assert main(["record", *words, "-o", str(kept), "--duration", "1.2"]) == 0
    capsys.readouterr()
    document = examined(capsys, str(kept))
    assert [source["role"] for source in document["path"]["sources"]] == ["router", "prefill", "decode"]
    assert document["path"]["seconds"] is not None


@pytest.mark.parametrize("role", ["http://h:8000", "proxy=http://h:8000", "gateway=", "gateway"])
def test_a_role_that_is_none(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--role", role, "--json"]) == 3
    assert "gateway, router, prefill, decode, server" in capsys.readouterr().err
