"""The command on a saved page of /metrics, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, doctor, one_line
from tests.serving import pages

__all__ = ["doctor"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.prom"
    path.write_text(pages("preemption")[-1])
    return path


def test_what_needs_no_rate_is_judged(path: Path, doctor: Doctor) -> None:
    report = doctor(path, "--json").report
    [source] = report["sources"]
    assert (source["kind"], source["target"], source["scrapes"]) == ("page", str(path), 1)
    assert report["patient"]["model"] == "tiny"
    assert "kv-cache-saturated" in {finding["rule"] for finding in report["findings"]}
    [because] = [unknown["because"] for unknown in report["unknown"] if unknown["rule"] == "preemption"]
    assert set(because.values()) == {"first-scrape"}


def test_it_says_how_to_see_more(path: Path, doctor: Doctor) -> None:
    text = " ".join(doctor(path).out.split())
    assert "a saved page is one moment" in text
    assert "--window 3" not in text


def test_a_command_beside_it_tells_its_flags(path: Path, doctor: Doctor) -> None:
    report = doctor(path, "--command", "vllm serve tiny --num-gpu-blocks-override 80", "--json").report
    assert report["command"]["was"] == ["vllm", "serve", "tiny", "--num-gpu-blocks-override", "80"]


def test_a_page_of_another_program(tmp_path: Path, doctor: Doctor) -> None:
    path = tmp_path / "node.prom"
    path.write_text("# TYPE node_load1 gauge\nnode_load1 0.5\n")
    assert "none of vLLM's" in one_line(doctor(path))


def test_it_is_not_recorded(path: Path, doctor: Doctor) -> None:
    assert "one moment" in one_line(doctor("record", path, "-o", path.parent / "r.tar.gz"))
