from __future__ import annotations

from pathlib import Path

import pytest

from tests.making import shipped_catalogue
from tests.serving import recording
from vllm_doctor.model.reading import Known
from vllm_doctor.sources.server import saved_scrape

WANTED = shipped_catalogue().metrics
PAGE = recording("preemption").pages[3]

CURL = b"""\
  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current
                                 Dload  Upload   Total   Spent    Left  Speed
100  9000  100  9000    0     0   871k      0 --:--:-- --:--:-- --:--:--  878k
"""


def kept(folder: Path, body: bytes) -> Path:
    path = folder / "metrics.prom"
    path.write_bytes(body)
    return path


@pytest.mark.parametrize(
    ("body", "is_one"),
    [
        (PAGE, True),
        (b"\r\n".join(PAGE.splitlines()) + b"\r\n", True),
        (PAGE.decode().encode("utf-16"), True),
        (b"# kept on Friday\n\n" + PAGE, True),
        (b"".join(b"    " + line + b"\n" for line in PAGE.splitlines()), True),
        (PAGE[: len(PAGE) // 2], True),
        (b'up{job="x y",path="{a}"} 1 1732060000000\nnode_load1 0.5\nx_bucket{le="+Inf"} NaN\n', True),
        (b"", False),
        (b"# a comment\n", False),
        (b"INFO 11-20 10:00:00 [x.py:1] started\n", False),
        (b"INFO 11-20\n", False),
        (b"vllm:a 1.5e+06\nvllm:b -0.5\nvllm:c +Inf\n", True),
        (PAGE.splitlines()[0] + b"\nINFO 11-20 10:00:00 [x.py:1] started\n", False),
        (b"#!/bin/sh\nvllm serve org/model\n", False),
        (b"\x00\xff" * 500, False),
        # as it stands in a terminal or an issue
        (b"$ curl -s host:8000/metrics | head\n" + PAGE, True),
        (CURL + b'vllm:num_requests_running{engine="0"} 3.0\n', True),
        (b"```\n" + b"\n".join(PAGE.splitlines()[:9]) + b"\n```\n", True),
        (b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 3.0\nvllm:gpu_pre\n', True),
        (b"# TYPE vllm:num_requests_running gauge\n# TYPE vllm:num_requests_waiting gauge\n", True),
        (b"INFO 11-20 10:00:00 [x.py:1] started\n" * 31 + PAGE, False),
        (b'vllm:num_requests_running{engine="0"} 3.0\n' + b"INFO 11-20 10:00:00 [x.py:1] started\n" * 9, False),
    ],
)
def test_what_is_taken_for_a_page(body: bytes, is_one: bool, tmp_path: Path) -> None:
    assert saved_scrape.is_page(kept(tmp_path, body)) is is_one


def test_what_is_no_file_is_none(tmp_path: Path) -> None:
    assert not saved_scrape.is_page(tmp_path)
    assert not saved_scrape.is_page(tmp_path / "none")


def test_one_moment_of_a_server(tmp_path: Path) -> None:
    seen = saved_scrape.examine(kept(tmp_path, PAGE), WANTED)
    assert seen.error is None
    assert len(seen.window.times) == 1
    assert seen.facts["stats_published"] == Known(True, origin="server")
    assert "one moment" in seen.notes[-1]


@pytest.mark.parametrize(
    ("body", "more", "kind"),
    [(b"node_load1 0.5\n", 0, "not-vllm"), (b"x 1\n", saved_scrape.MAX_FILE, "too-large")],
)
def test_what_is_wrong_with_it_is_told(body: bytes, more: int, kind: str, tmp_path: Path) -> None:
    seen = saved_scrape.examine(kept(tmp_path, body + bytes(more)), WANTED)
    assert seen.error is not None
    assert seen.error.kind == kind


def test_metrics_without_a_value_are_told_from_those_of_another_server(tmp_path: Path) -> None:
    """A labelled metric that nothing was counted of stands on the page by its name alone."""
    named = b"# HELP vllm:num_requests_running Running.\n# TYPE vllm:num_requests_running gauge\nup 1\n"
    said = [saved_scrape.examine(kept(tmp_path, body), WANTED).error for body in (named, b"up 1\n")]
    assert [problem and "no value of any" in str(problem.message) for problem in said] == [True, False]


def test_what_stood_around_it_in_a_terminal_is_passed_over(tmp_path: Path) -> None:
    seen = saved_scrape.examine(kept(tmp_path, b"$ curl host:8000/metrics\n" + CURL + PAGE + b"```\n"), WANTED)
    assert seen.error is None
    plain = saved_scrape.examine(kept(tmp_path, PAGE), WANTED)
    assert seen.window.latest("vllm:num_requests_running") == plain.window.latest("vllm:num_requests_running")


def test_one_that_has_gone(tmp_path: Path) -> None:
    seen = saved_scrape.examine(tmp_path / "none", WANTED)
    assert seen.error is not None
    assert seen.error.kind == "unreadable"
