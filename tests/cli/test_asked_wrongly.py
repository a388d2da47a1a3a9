"""A server that is asked by the wrong scheme: said first where nothing else answers, else after what does."""

from __future__ import annotations

from tests.cli.test_main import Doctor, doctor
from tests.paths import LOGS
from tests.serving import pages, serving, vllm

__all__ = ["doctor"]


def test_beside_a_sick_server_that_answers_its_finding_stays_first(doctor: Doctor) -> None:
    with serving(vllm(pages("preemption"))) as sick, serving(vllm(pages("healthy-busy"))) as other:
        wrong = other.url.replace("http://", "https://")
        ran = doctor(sick.url, wrong, "--text", "--window", "1")
    assert ran.out.startswith("CRITICAL  The KV cache is too small for the running batch")
    assert ran.code == 2
    assert "speaks plain HTTP, not TLS" in ran.err


def test_a_log_that_shows_it_slow_is_no_answer(doctor: Doctor) -> None:
    log = str(LOGS / "max-num-seqs-cap.log.gz")
    assert doctor(log, "--text").out.startswith("WARNING")
    with serving(vllm(pages("max-num-seqs-cap"))) as served:
        ran = doctor(served.url.replace("http://", "https://"), log, "--text", "--window", "1")
    assert ran.code == 3
    assert "speaks plain HTTP, not TLS" in " ".join(ran.out.split())[:200]
