"""vllm-doctor compare, as it is run: two words in, an outcome and an exit code out."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.compare.test_vllm_bench import detailed, run
from tests.paths import DATA, PACKAGE
from tests.serving import pages, serving, vllm
from vllm_doctor.cli import compare, main
from vllm_doctor.recording import demo

Ran = Callable[..., tuple[int, str, str]]
SCHEMA = json.loads((PACKAGE / "render" / "compare.v1.schema.json").read_text("utf-8"))
REPORT_SCHEMA = json.loads((PACKAGE / "render" / "report.v1.schema.json").read_text("utf-8"))
FIXTURES = demo.folder()
GUIDELLM = DATA / "guidellm"


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    def ran(*arguments: str) -> tuple[int, str, str]:
        code = main.main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return ran


@pytest.fixture
def reported(ran: Ran, tmp_path: Path) -> Callable[..., str]:
    """The report on a recording as a file, with some of its measures multiplied."""

    def reported(name: str, file: str, factors: Mapping[str, float] | None = None, **changed: Any) -> str:
        _, out, _ = ran(str(FIXTURES / name), "--json")
        document = json.loads(out)
        jsonschema.validate(document, REPORT_SCHEMA)
        for measure, factor in (factors or {}).items():
            for key in ("value", "low", "high"):
                document["measures"][measure][key] *= factor
        path = tmp_path / file
        path.write_text(json.dumps(document | changed))
        return str(path)

    return reported


def as_json(ran: Ran, *arguments: str) -> tuple[int, Any]:
    code, out, _ = ran("compare", *arguments, "--json")
    document = json.loads(out)
    jsonschema.validate(document, SCHEMA)
    assert code == {"PASS": 0, "FAIL": 2, "INCONCLUSIVE": 3}[document["outcome"]]
    return code, document


CURED = {"tokens_out": 2.0, "tokens_in": 2.0, "requests": 2.0, "arrivals": 2.0, "request_time": 0.5}


def test_two_reports(ran: Ran, reported: Callable[..., str]) -> None:
    before, after = reported("preemption", "before.json"), reported("preemption", "after.json", CURED)
    code, out, err = ran("compare", before, after)
    assert (code, err) == (0, "")
    assert out.startswith("PASS  It got better: generation tokens 2,573/s → 5,146/s (× 2)")
    assert "yes: tokens per prompt 256, tokens per answer 700, concurrent requests 24" in " ".join(out.split())
    assert all(len(line) <= 80 for line in out.splitlines()), out
    assert ran("compare", after, before)[0] == 2
    assert as_json(ran, before, after)[1]["same_load"] is True


def test_it_names_the_doctors_advice(ran: Ran, reported: Callable[..., str]) -> None:
    words = ["vllm", "serve", "tiny", "--max-num-seqs"]
    advised = {"name": "--max-num-seqs", "was": 64, "now": 10, "rule": "preemption"}
    was = {"was": [*words, "64"], "now": [*words, "10"], "changes": [advised], "left_out": []}
    before = reported("preemption", "before.json", command=was)
    after = reported(
        "preemption", "after.json", CURED, command=was | {"was": [*words, "10"], "now": None, "changes": []}
    )
    code, document = as_json(ran, before, after)
    assert document["headline"].startswith("The fix worked: ")
    assert document["changes"] == [
        {"name": "--max-num-seqs", "was": 64, "now": 10, "advised": "yes", "rule": "preemption"}
    ]
    assert code == 0
    assert "--max-num-seqs 64 → 10   (as vllm-doctor advised [preemption])" in ran("compare", before, after)[1]


def test_two_recordings_of_other_loads(ran: Ran) -> None:
    code, document = as_json(ran, str(FIXTURES / "max-num-seqs-cap"), str(FIXTURES / "healthy-busy"))
    assert (code, document["same_load"]) == (3, False)
    assert document["before"]["kind"] == "recording"
    assert document["findings"]["gone"] == ["max-num-seqs-cap"]
    assert not {row["is"] for row in document["measures"]} & {"better", "worse"}
    (changed,) = (change for change in document["changes"] if change["name"] == "--max-num-seqs")
    assert (changed["was"], changed["now"]) == (2, 64)


def test_a_recording_with_itself(ran: Ran) -> None:
    code, document = as_json(ran, *[str(FIXTURES / "preemption")] * 2)
    assert (code, document["reasons"][0][:29]) == (3, "no difference beyond the spread"[:29])


def test_an_idle_server_after_is_not_cured(ran: Ran) -> None:
    code, document = as_json(ran, str(FIXTURES / "preemption"), str(FIXTURES / "idle"))
    assert (code, document["outcome"]) == (3, "INCONCLUSIVE")
    assert document["reasons"][0].startswith("after, ")


@pytest.mark.parametrize(("more", "seconds"), [((), 2.0), (("--window", "1"), 1.0)])
def test_after_is_watched_for_as_long_as_before(
    more: tuple[str, ...], seconds: float, ran: Ran, reported: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "_WINDOW", 0.5)
    (source,) = json.loads(Path(reported("preemption", "whole.json")).read_text())["sources"][:1]
    before = reported("preemption", "before.json", sources=[source | {"kind": "server", "window_s": 2.0}])
    with serving(vllm(pages("preemption"))) as server:
        _, document = as_json(ran, before, server.url, *more)
    assert seconds - 0.1 < document["after"]["seconds"] < seconds + 0.9


def test_a_window_of_nothing_is_one_sample(ran: Ran) -> None:
    with serving(vllm(pages("preemption"))) as server:
        _, document = as_json(ran, str(FIXTURES / "preemption"), server.url, "--window", "0")
    assert "after, no rates were measured: sample longer (--window 20), or compare recordings" in document["reasons"]


def test_live_servers_are_looked_at_now(ran: Ran, hurried: None) -> None:
    with serving(vllm(pages("preemption"))) as one, serving(vllm(pages("preemption"))) as other:
        code, document = as_json(ran, one.url, other.url)
    assert code == 3
    assert {row["name"] for row in document["measures"]} >= {"tokens_out", "ttft", "waiting"}
    assert document["before"]["kind"] == "server"


def test_a_log_does_not_tell_the_load(ran: Ran) -> None:
    log = str(FIXTURES / "logs" / "max-num-seqs-cap.log.gz")
    code, document = as_json(ran, log, log)
    assert (code, document["same_load"]) == (3, None)
    assert "tokens per prompt" in document["reasons"][0]
    assert next(row for row in document["measures"] if row["name"] == "tokens_out")["before"]["value"] > 0


def saved(path: Path, *runs: dict[str, Any]) -> str:
    path.write_text("\n".join(json.dumps(one) for one in runs))
    return str(path)


def test_one_run_of_a_benchmark_each(ran: Ran, tmp_path: Path) -> None:
    before = saved(tmp_path / "a.json", run())
    slow, fast = run(output_throughput=1200.0), run(output_throughput=2500.0)
    assert as_json(ran, before, saved(tmp_path / "b.json", slow))[0] == 3
    code, out, _ = ran("compare", before, saved(tmp_path / "c.json", fast))
    assert code == 0
    assert "± 15 % is assumed from run to run" in out


def test_repeated_runs_tell_a_smaller_difference(ran: Ran, tmp_path: Path) -> None:
    values = (1000.0, 1010.0, 990.0, 1005.0)
    before = saved(tmp_path / "a.json", *(run(output_throughput=value) for value in values))
    after = saved(tmp_path / "b.json", *(run(output_throughput=1.2 * value) for value in values))
    code, document = as_json(ran, before, after)
    assert (code, document["notes"]) == (0, [])


@pytest.mark.parametrize("other", [{"max_concurrency": 12}, {"request_rate": 5.0}, {"total_input_tokens": 25600}])
def test_another_benchmark_is_inconclusive(ran: Ran, tmp_path: Path, other: dict[str, Any]) -> None:
    before = saved(tmp_path / "a.json", run())
    code, document = as_json(ran, before, saved(tmp_path / "b.json", run(output_throughput=2500.0) | other))
    assert (code, document["same_load"]) == (3, False)


def test_a_detailed_run_has_its_own_spread(ran: Ran, tmp_path: Path) -> None:
    before = saved(tmp_path / "a.json", detailed())
    _, document = as_json(ran, before, before)
    assert next(row for row in document["measures"] if row["name"] == "tokens_out")["before"]["spread"] == "parts"


def test_two_models_are_refused(ran: Ran, tmp_path: Path) -> None:
    one, other = saved(tmp_path / "a.json", run()), saved(tmp_path / "b.json", run(model_id="other"))
    code, out, err = ran("compare", one, other)
    assert (code, out) == (3, "")
    assert err == "vllm-doctor: two different models cannot be compared: tiny before, other after\n"
    code, out, _ = ran("compare", one, other, "--json")
    jsonschema.validate(json.loads(out), SCHEMA)
    assert json.loads(out)["error"]["kind"] == "usage"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"schema": "vllm-doctor/report/v2"}', "a newer vllm-doctor"),
        ('{"schema": "vllm-doctor/report/v1"}', "is not a report as vllm-doctor writes it"),
        ('{"schema": "vllm-doctor/report/v1", "at": ', "was cut off"),
        ('{"a": 1}', "neither a report"),
        ("[]", "neither a report"),
        ("[" * 100_000, "nested too deeply"),
        ("", ""),
        ("\x00\x01", ""),
    ],
)
def test_a_file_that_is_neither(ran: Ran, tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    code, out, err = ran("compare", str(path), str(path))
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert why in err
    assert "internal error" not in err


@pytest.mark.parametrize(
    "measure",
    [{"value": "x", "low": 1, "high": 2, "samples": 8, "spread": "parts"}, {"value": 1}, 7,
     {"value": 1, "low": 1, "high": 2, "samples": 8, "spread": "guess"}],
)  # fmt: skip
def test_a_forged_report_is_refused(ran: Ran, reported: Callable[..., str], measure: Any) -> None:
    path = reported("preemption", "x.json", measures={"tokens_out": measure})
    code, _, err = ran("compare", path, path)
    assert (code, "is not a report as vllm-doctor writes it" in err) == (3, True)


def test_a_report_without_measures_is_too_little(ran: Ran, reported: Callable[..., str]) -> None:
    old = reported("preemption", "old.json", measures={})
    assert as_json(ran, old, old)[0] == 3


def test_two_results_of_guidellm_are_compared(ran: Ran, tmp_path: Path) -> None:
    result = json.loads((GUIDELLM / "0.8.1.json").read_text())
    before, after = (str(tmp_path / name) for name in ("before.json", "after.json"))
    result["benchmarks"][0]["duration"] *= 10
    Path(before).write_text(json.dumps(result))
    for metric in ("output_tokens_per_second", "requests_per_second"):
        result["benchmarks"][0]["metrics"][metric]["successful"]["mean"] *= 2
    Path(after).write_text(json.dumps(result))
    code, document = as_json(ran, before, after)
    assert (code, document["outcome"], document["same_load"]) == (0, "PASS", True)
    assert {document[side]["seen_by"] for side in ("before", "after")} == {"GuideLLM"}
    assert document["headline"] == "It got better: generation tokens 210/s → 420/s (× 2)"


def test_nothing_there(ran: Ran, tmp_path: Path) -> None:
    for words in (["nowhere.json"], ["a", "b", "c"], [], [str(tmp_path), str(tmp_path)]):
        code, out, err = ran("compare", *words)
        assert (code, out, err.count("\n")) == (3, "", 1)


def test_an_unreachable_server_is_one_line(ran: Ran) -> None:
    code, out, err = ran("compare", "http://127.0.0.1:1", "http://127.0.0.1:1", "--json")
    document = json.loads(out)
    jsonschema.validate(document, SCHEMA)
    assert (code, document["outcome"], document["error"]["kind"]) == (3, "INCONCLUSIVE", "unreachable")
    assert (err.count("\n"), "refuses connections" in err) == (1, True)


def test_hostile_texts_do_not_reach_the_terminal(ran: Ran, reported: Callable[..., str]) -> None:
    patient = {"vllm": "\x1b[31m0.32", "model": "x\x1b]0;pwned\x07", "engines": 1, "gpus": None, "gpu": None}
    before = reported("preemption", "a.json", patient=patient)
    _, out, err = ran("compare", before, before)
    assert "\x1b" not in out + err
    assert "\x07" not in out + err


def test_o_writes_the_file(ran: Ran, reported: Callable[..., str], tmp_path: Path) -> None:
    before = reported("preemption", "a.json")
    code, out, _ = ran("compare", before, before, "-o", str(tmp_path / "out.txt"))
    assert (code, out) == (3, "")
    assert (tmp_path / "out.txt").read_text().startswith("INCONCLUSIVE")
    assert ran("compare", before, before, "--format", "nagios")[0] == 3


def test_two_reports_are_compared_without_rules_or_a_client(reported: Callable[..., str]) -> None:
    """What they would need to be read is never loaded: that is what makes it fast."""
    path = reported("preemption", "a.json")
    code = (
        "import sys; from vllm_doctor.cli.main import main; main(['compare', sys.argv[1], sys.argv[1]]);"
        "print([m for m in ('httpx', 'psutil', 'textual', 'vllm_doctor.rules.rule') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_recording_that_holds_its_report_is_not_judged_anew(ran: Ran, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "preemption", tmp_path / "before")
    _, out, _ = ran(str(FIXTURES / "preemption"), "--json")
    document = json.loads(out)
    document["findings"] = []
    (tmp_path / "before" / "report.json").write_text(json.dumps(document))
    assert as_json(ran, str(tmp_path / "before"), str(FIXTURES / "preemption"))[1]["findings"]["new"] == ["preemption"]


def test_a_packed_log_is_a_log(ran: Ran, tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"hello\n"))
    assert ran("compare", str(path), str(path))[0] == 3
