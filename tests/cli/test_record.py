"""The command `record`, and its recordings as sources of everything else."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_examine_local import fake_vllm, gpus
from tests.cli.test_main import Doctor, doctor, one_line, python
from tests.making import shipped_catalogue, shipped_rules
from tests.paths import LOGS
from tests.serving import dead_url, pages, serving, vllm
from tests.zstandard import zstd
from vllm_doctor.cli.main import main
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.recording import archive, demo
from vllm_doctor.session.attach import attach
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.view_model import Status, ViewModel
from vllm_doctor.session.watch import Judge, Watch
from vllm_doctor.sources.server.access import Access

__all__ = ["doctor"]

LOG = LOGS / "preemption.log.gz"


@cache
def _taken(name: str, words: tuple[str, ...]) -> bytes:
    """A recording of two seconds of a recorded server."""
    with tempfile.TemporaryDirectory() as folder, serving(vllm(pages(name))) as server:
        path = Path(folder) / "r.tar.gz"
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["record", server.url, "-o", str(path), "--duration", "2", *words]) == 0
        return path.read_bytes()


def recorded(folder: Path, *words: str, name: str = "preemption") -> Path:
    (folder / "r.tar.gz").write_bytes(_taken(name, words))
    return folder / "r.tar.gz"


def parts(path: Path) -> dict[str, bytes]:
    return archive.read(path)


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder


def changed(folder: Path, path: Path, **edits: Callable[[Any], Any]) -> Path:
    """The recording with recording.json, report.json or another part edited; None leaves a part out."""
    files = parts(path)
    for name, edit in edits.items():
        files[f"{name}.json"] = json.dumps(edit(json.loads(files[f"{name}.json"]))).encode()
    (folder / "changed.tar.gz").write_bytes(archive.packed(files))
    return folder / "changed.tar.gz"


def but_for_time_and_target(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    del report["at"]
    for seen in report["recordings"]:
        del seen["target"]
    return report


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_it_is_readable_only_by_its_owner(mask: int, tmp_path: Path, doctor: Doctor) -> None:
    before = os.umask(mask)
    try:
        assert doctor("record", LOG, "-o", tmp_path / "r.tar.gz").code == 0
    finally:
        os.umask(before)
    assert (tmp_path / "r.tar.gz").stat().st_mode & 0o777 == 0o600


# ---- the same verdict, anywhere -------------------------------------------------------------------------------------


def test_what_was_recorded_is_judged_alike_wherever_it_is_read(tmp_path: Path, doctor: Doctor) -> None:
    path = recorded(tmp_path)
    report = json.loads(parts(path)["report.json"])
    assert report["verdict"] == "critical"
    elsewhere = tmp_path / "some where" / "else"
    elsewhere.mkdir(parents=True)
    moved = Path(shutil.copy(path, elsewhere / "other.tgz"))
    folder = put(tmp_path / "folder", parts(path))
    texts = [doctor(source, "--json").out for source in (path, moved, folder)]
    assert [but_for_time_and_target(text) for text in texts] == [but_for_time_and_target(json.dumps(report))] * 3
    # byte for byte, but for these two lines
    lines = [[line for line in text.splitlines() if '"at":' not in line] for text in texts]
    for other in lines[1:]:
        differ = [(a, b) for a, b in zip(lines[0], other, strict=True) if a != b]
        assert len(differ) == 1
        assert '"target"' in differ[0][0]


def test_a_process_tree_with_gpus_is_judged_alike_without_them(tmp_path: Path) -> None:
    """Recorded with a driver and a /proc, read again by a doctor that has neither."""
    path = tmp_path / "r.tar.gz"
    with fake_vllm(tmp_path, "--max-num-seqs", "64") as fake:
        words = ["record", str(fake.pid), "-o", str(path), "--duration", "1"]
        ran = python("-m", "vllm_doctor", *words, env=gpus("throttled", fake))
    assert (ran.returncode, ran.stderr) == (0, "")
    then = json.loads(parts(path)["report.json"])
    assert {"server", "host", "gpu"} == {source["kind"] for source in then["sources"]}
    assert "gpu-thermal-throttled" in {finding["rule"] for finding in then["findings"]}
    assert then["patient"]["processes"][0]["role"] == "api-server"
    assert then["command"]["was"][-2:] == ["--max-num-seqs", "64"]
    again = python("-m", "vllm_doctor", str(path), "--json", env={"PATH": os.environ["PATH"]})
    assert but_for_time_and_target(again.stdout) == but_for_time_and_target(json.dumps(then))
    assert again.stderr == ""


def test_a_log_is_judged_as_the_log_itself(tmp_path: Path, doctor: Doctor) -> None:
    assert doctor("record", LOG, "-o", tmp_path / "r.tar.gz").code == 0
    direct, again = json.loads(doctor(LOG, "--json").out), json.loads(doctor(tmp_path / "r.tar.gz", "--json").out)
    del again["recordings"], direct["recordings"], again["at"], direct["at"]
    assert again == direct


def test_live_and_recorded_say_the_same(tmp_path: Path, doctor: Doctor) -> None:
    with serving(vllm(pages("max-num-seqs-cap"))) as server:
        live = doctor(server.url, "--json", "--window", "2").report
    then = json.loads(parts(recorded(tmp_path, name="max-num-seqs-cap"))["report.json"])
    assert [f["rule"] for f in then["findings"]] == [f["rule"] for f in live["findings"]]
    timed = "api-server-stalled"  # how long an answer took is in no recording
    assert {**then["rules"], timed: live["rules"][timed]} == live["rules"]
    assert (then["verdict"], then["headline"]) == (live["verdict"], live["headline"])


@pytest.mark.parametrize("name", demo.names())
def test_the_fixtures_are_recordings(name: str, doctor: Doctor) -> None:
    ran = doctor(demo.folder() / name, "--json")
    assert (ran.err, ran.report["error"]) == ("", None)
    assert ran.report["recordings"][0]["taken"].startswith("2026-11-")
    assert ran.report["recordings"][0]["verdict"] is None


@pytest.mark.parametrize("form", FORMATS)
def test_a_recording_in_every_format(form: str, tmp_path: Path, doctor: Doctor) -> None:
    ran = doctor(recorded(tmp_path), "--format", form)
    assert ran.code == 2
    assert "Traceback" not in ran.out + ran.err


def test_the_wishes_of_then_hold_unless_others_are_given(tmp_path: Path, doctor: Doctor) -> None:
    path = recorded(tmp_path, "--goal", "latency", "--slo", "ttft=1ms")
    told = doctor(path, "--json").report
    assert [target["target"] for target in told["slo"]] == ["slo_ttft"]
    given = doctor(path, "--json", "--slo", "ttft=50s").report
    assert [target["seconds"] for target in given["slo"]] == [50]


def test_with_a_log_beside_it(tmp_path: Path, doctor: Doctor) -> None:
    """The log is that server's."""
    told = doctor(recorded(tmp_path), LOG, "--json").report
    assert [source["kind"] for source in told["sources"]] == ["server", "log"]
    assert told["patient"]["engines"] == 1


def test_two_recordings_are_two_servers(tmp_path: Path, doctor: Doctor) -> None:
    told = doctor(demo.folder() / "preemption", demo.folder() / "idle", "--json").report
    assert len(told["recordings"]) == 2
    assert {engine["subject"]["server"] for engine in told["engines"]} == {
        f"{demo.folder() / name} http://127.0.0.1:8000" for name in ("preemption", "idle")
    }


# ---- what is in it --------------------------------------------------------------------------------------------------


def test_plain_files_that_say_what_they_are(tmp_path: Path, doctor: Doctor) -> None:
    found = parts(recorded(tmp_path))
    assert sorted(found) == [
        "1-server/metrics.prom.zst",
        "1-server/models.json",
        "1-server/version.json",
        "recording.json",
        "report.json",
    ]
    about = json.loads(found["recording.json"])
    assert about["format"] == "vllm-doctor/recording/v2"
    assert len(about["rules"]) == 12
    assert json.loads(found["1-server/version.json"]) == {"version": "0.32.0"}
    assert re.match(rb"# at \d+\.\d{3} clock \d+\n# HELP ", zstd.decompress(found["1-server/metrics.prom.zst"]))


def test_what_was_done_is_said(tmp_path: Path, doctor: Doctor) -> None:
    with serving(vllm(pages("preemption"))) as server:
        ran = doctor("record", server.url, "-o", tmp_path / "r.tar.gz", "--duration", "1")
    assert f"{tmp_path / 'r.tar.gz'}: " in ran.out
    assert re.search(r" kB, \d+ scrapes in \d+ s; masked: nothing\n", ran.out)
    assert "CRITICAL  The KV cache is too small for the running batch" in ran.out
    assert ran.err == ""


def test_what_was_before_and_after_a_bad_verdict(tmp_path: Path, doctor: Doctor) -> None:
    with demo.serving(demo.find("preemption"), again=True) as url:
        ran = doctor("record", url, "-o", tmp_path / "r.tar.gz", "--duration", "1", "--on", "critical", "--share")
    assert ran.code == 0
    assert "vllm-doctor: critical: The KV cache is too small" in ran.err
    found = parts(tmp_path / "r.tar.gz")
    about = json.loads(found["recording.json"])
    assert about["shared"] is True
    assert about["seconds"] >= 1
    assert zstd.decompress(found["1-server/metrics.prom.zst"]).startswith(b"# at 0.000 ")
    assert json.loads(found["report.json"])["verdict"] == "critical"


def test_to_wait_for_a_verdict_a_living_server_is_needed(tmp_path: Path, doctor: Doctor) -> None:
    ran = doctor("record", LOG, "-o", tmp_path / "r.tar.gz", "--on", "critical")
    assert "watches a running server" in one_line(ran)
    assert list(tmp_path.iterdir()) == []


# ---- what has changed since -----------------------------------------------------------------------------------------


def test_another_verdict_under_other_rules_is_said(tmp_path: Path, doctor: Doctor) -> None:
    path = recorded(tmp_path)
    other = changed(
        tmp_path,
        path,
        recording=lambda about: about | {"rules": "0123456789ab"},
        report=lambda report: report | {"verdict": "ok", "headline": "All was well"},
    )
    ran = doctor(other)
    assert ran.code == 2
    assert "Verdict when it was captured, by other rules: OK All was well" in " ".join(ran.out.split())
    seen = doctor(other, "--json").report["recordings"][0]
    assert (seen["verdict"], seen["same_rules"], seen["rules"]) == ("ok", False, "0123456789ab")


def test_the_same_verdict_is_not_said_twice(tmp_path: Path, doctor: Doctor) -> None:
    ran = doctor(recorded(tmp_path))
    assert "When it was taken" not in ran.out
    assert "recorded 20" in ran.out


def test_rules_left_out_are_other_rules(tmp_path: Path, doctor: Doctor) -> None:
    ran = doctor(recorded(tmp_path), "--skip", "preemption", "--json")
    seen = ran.report["recordings"][0]
    assert (seen["same_rules"], seen["verdict"]) == (False, "critical")


# ---- what is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "verdict", "says"),
    [
        ("1-server/metrics.prom.zst", "unknown", "lacks 1-server/metrics.prom.zst"),
        ("report.json", "critical", None),
        ("1-server/version.json", "critical", None),
        ("1-server/models.json", "critical", None),
    ],
)
def test_what_is_missing_is_unknown(
    lost: str,
    verdict: str,
    says: str | None,
    tmp_path: Path,
    doctor: Doctor,
) -> None:
    files = parts(recorded(tmp_path))
    del files[lost]
    ran = doctor(put(tmp_path / "r", files), "--json")
    assert ran.report["verdict"] == verdict
    if says is not None:
        assert says in one_line(ran)
    if lost == "1-server/version.json":
        assert ran.report["patient"]["vllm"] is None


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", r"no \.tar\.gz|ends early|no recording\.json"),
        (b"not an archive", r"is no \.tar\.gz"),
        (archive.packed({"x.json": b"{}"}), "no recording.json"),
        (archive.packed({"recording.json": b'{"format": "vllm-doctor/recording/v9"}'}), "update it$"),
        (archive.packed({"recording.json": b"\xff\xfe"}), "is no JSON"),
        (archive.packed({"recording.json": b"[" * 100_000}), "is no JSON"),
    ],
)
def test_what_is_no_recording_is_one_line(body: bytes, says: str, tmp_path: Path, doctor: Doctor) -> None:
    (tmp_path / "r.tar.gz").write_bytes(body)
    before = sorted(tmp_path.rglob("*"))
    ran = doctor(tmp_path / "r.tar.gz", "--json")
    assert re.search(says, one_line(ran))
    assert ran.report["verdict"] == "unknown"
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_folder_is_none(tmp_path: Path, doctor: Doctor) -> None:
    assert "no recording.json" in one_line(doctor(tmp_path))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["http://127.0.0.1:1"], "where to?"),
        (["http://127.0.0.1:1", "-o", "."], "is a folder"),
        (["http://127.0.0.1:1", "-o", "no/such/r.tar.gz"], "there is no such folder"),
        (["http://127.0.0.1:1", "-o", "r.tar.gz", "--duration", "x"], "--duration"),
        (["no-such-file", "-o", "r.tar.gz"], "neither a file"),
        ([demo.folder() / "idle", "-o", "r.tar.gz"], "recorded already"),
    ],
)
def test_wrong_usage(words: list[str | Path], says: str, doctor: Doctor) -> None:
    assert says in one_line(doctor("record", *words))


def test_where_nothing_answers_nothing_is_written(tmp_path: Path, doctor: Doctor) -> None:
    ran = doctor("record", dead_url(), "-o", tmp_path / "r.tar.gz", "--duration", "0.3")
    assert "nothing to record" in one_line(ran)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_vllm_is_not_recorded(tmp_path: Path, doctor: Doctor) -> None:
    with serving({"/metrics": lambda request: "up 1\n"}) as server:
        ran = doctor("record", server.url, "-o", tmp_path / "r.tar.gz", "--duration", "0.3")
    assert "is not a vLLM server" in one_line(ran)
    assert list(tmp_path.iterdir()) == []


# ---- at a terminal --------------------------------------------------------------------------------------------------


def test_at_a_terminal_it_is_lived_through_again() -> None:
    signals = shipped_catalogue()
    told: list[ViewModel] = []

    def attached(opened: ExitStack) -> Any:
        look = Attachment(signals.metrics, Access(), 3.0, 0.0)
        return attach([str(demo.folder() / "preemption")], look, opened)

    made = Watch(attached, Judge(shipped_rules(), signals, {}))

    def tell(view_model: ViewModel) -> None:
        told.append(view_model)
        if view_model.report is not None and view_model.report.sources[0].window_s > 29:
            made.control.stop()

    made.run(tell)
    last = told[-1]
    assert {view_model.status for view_model in told} == {Status.REPLAYED}
    assert last.report is not None
    assert (last.report.verdict, last.report.recordings[0].seconds) == ("critical", 29.131)
    assert len(last.trend.times) > 20
    assert last.trend.last("kv_cache_usage") == 1.0
    assert {span.rule for span in last.spans} == {"preemption", "kv-cache-saturated"}
    assert last.problem is None
    assert not last.goes_on
