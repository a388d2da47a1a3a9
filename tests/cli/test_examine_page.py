"""The command on a saved page of /metrics, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, doctor, one_line
from tests.serving import pages
from vllm_doctor.cli import one_shot

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


def test_a_model_of_a_long_name_is_not_printed_whole(tmp_path: Path, doctor: Doctor) -> None:
    path = tmp_path / "metrics.prom"
    path.write_text(pages("preemption")[-1].replace('model_name="tiny"', f'model_name="{"m" * 20_000}"'))
    for form in ("text", "markdown", "html"):
        assert "m" * 301 not in "".join(doctor(path, "--format", form).out.split())
    report = doctor(path, "--json").report
    names = [report["patient"]["model"], *(engine["subject"]["model_name"] for engine in report["engines"])]
    assert {len(name) for name in names} == {4096}


def test_engines_without_end_are_judged_until_the_time_is_up(
    tmp_path: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.prom"
    path.write_text("".join(f'vllm:num_requests_running{{engine="{n}",model_name="m"}} 1\n' for n in range(300)))
    monkeypatch.setattr(one_shot, "_until", lambda deadline: lambda share: True)
    ran = doctor(path, "--json")
    assert ran.report["error"] == {
        "kind": "timeout",
        "message": "299 of 300 engines were not judged in time: raise --timeout",
    }
    assert (ran.report["verdict"], ran.code) == ("unknown", 3)
    assert ran.report["vitals_unknown"]["requests_running"] == "timeout"
