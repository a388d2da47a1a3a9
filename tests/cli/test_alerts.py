"""`vllm-doctor alerts`: its files, its output, and a real Prometheus in which they fire."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.test_main import Doctor, doctor, one_line
from tests.promtool import prometheus, promtool, until
from tests.serving import pages, serving, vllm
from tests.test_fixtures import NAMES, expected
from vllm_doctor.alerting.alerts import alert_name
from vllm_doctor.recording import demo

__all__ = ["doctor"]

FILES = {
    "signals.rules.yaml",
    "alerts.rules.yaml",
    "promtool-tests.yaml",
    "prometheusrule.yaml",
    "alertmanager-inhibit.yaml",
    "left-out.txt",
    "loki.yaml",
    "grafana.json",
}


def names(path: Path) -> set[str]:
    return {entry["alert"] for group in yaml.safe_load(path.read_text())["groups"] for entry in group["rules"]}


def test_its_runbooks_are_the_pages_of_a_site(doctor: Doctor, tmp_path: Path) -> None:
    """Each is a page that tests/docs/test_site.py finds there."""
    ran = doctor("alerts", "-o", str(tmp_path / "rules"), "--runbooks", "https://docs.internal/vllm-doctor/")
    assert (ran.code, ran.err) == (0, "")
    for name in ("alerts.rules.yaml", "loki.yaml"):
        (group,) = yaml.safe_load((tmp_path / "rules" / name).read_text())["groups"]
        for entry in group["rules"]:
            rule = entry["labels"]["rule"]
            page = "alerts" if rule == "vllm-doctor-blind" else f"reference/rules/{rule}"
            assert entry["annotations"]["runbook_url"] == f"https://docs.internal/vllm-doctor/{page}.html"


@pytest.mark.parametrize(
    "url", ["docs.internal", "ftp://docs.internal", "https://me:secret@docs.internal", "https://d/?k=s"]
)
def test_runbooks_that_not_everybody_may_see_are_refused(doctor: Doctor, tmp_path: Path, url: str) -> None:
    ran = doctor("alerts", "-o", str(tmp_path / "rules"), "--runbooks", url)
    assert ran.code == 3
    assert "--runbooks: write http:// or https://" in one_line(ran)
    assert "secret" not in ran.err
    assert not (tmp_path / "rules").exists()


def test_a_folder_with_all_files(doctor: Doctor, tmp_path: Path) -> None:
    ran = doctor("alerts", "-o", str(tmp_path / "rules"))
    assert (ran.code, ran.err) == (0, "")
    assert {path.name for path in (tmp_path / "rules").iterdir()} == FILES
    assert "cpu-governor: needs cpu_governor" in ran.out
    assert promtool("test", "rules", "promtool-tests.yaml", cwd=tmp_path / "rules").returncode == 0


def test_without_a_folder_one_rule_file(doctor: Doctor) -> None:
    ran = doctor("alerts")
    assert (ran.code, ran.err) == (0, "")
    assert [group["name"] for group in yaml.safe_load(ran.out)["groups"]] == [
        "vllm-doctor-signals",
        "vllm-doctor-alerts",
    ]
    assert "#   cpu-governor: needs cpu_governor" in ran.out


def test_the_folder_is_written_whole_or_not_at_all(doctor: Doctor, tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    assert doctor("alerts", "-o", str(folder), "--for", "1m").code == 0
    assert 'for: "1m"' in (folder / "alerts.rules.yaml").read_text()
    assert doctor("alerts", "-o", str(folder), "--for", "2m").code == 0  # its own files are replaced
    assert 'for: "2m"' in (folder / "alerts.rules.yaml").read_text()
    (folder / "mine.rules.yaml").write_text("groups: []")
    ran = doctor("alerts", "-o", str(folder), "--for", "3m")
    assert ran.code == 3
    assert "holds other files (mine.rules.yaml)" in one_line(ran)
    assert 'for: "2m"' in (folder / "alerts.rules.yaml").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["rules"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--for", "soon"], "--for"),
        (["--window", "0"], "--window"),
        (["--by", "job,9"], "--by job,9: not a label"),
        (["--select", "namespace=prod"], "--select"),
        (["--logs", "vllm"], "--logs vllm: write it as Loki has it"),
        (["--slo", "ttft"], "--slo ttft"),
        (["--rule", "nothing"], "no rule 'nothing'"),
        (["-o", "/nowhere/at/all"], "-o /nowhere/at/all: cannot be written"),
        (["--url", "http://127.0.0.1:9/metrics"], "127.0.0.1:9"),
        (["--prometheus", "http://127.0.0.1:9"], "127.0.0.1:9"),
        (["--prometheus", "http://127.0.0.1:9", "--url", "http://127.0.0.1:9"], "give one of them"),
    ],
)
def test_bad_input_is_one_line(doctor: Doctor, words: list[str], says: str) -> None:
    ran = doctor("alerts", *words)
    assert (ran.code, ran.out) == (3, "")
    assert says in one_line(ran)


def test_the_choices_stand_in_the_rules(doctor: Doctor) -> None:
    words = ["--window", "10m", "--by", "cluster,instance", "--select", 'namespace="prod"', "--slo", "ttft=2s"]
    text = doctor("alerts", "--rule", "kv-cache-saturated", *words).out
    assert 'vllm:kv_cache_usage_perc{namespace=\\"prod\\"}[10m]' in text
    assert "by (engine, model_name, cluster, instance)" in text
    assert "vllm_doctor:ttft_p99:low > 2" in text


def test_loki_is_asked_for_the_streams_that_were_named(doctor: Doctor, tmp_path: Path) -> None:
    assert doctor("alerts", "-o", str(tmp_path / "rules"), "--logs", '{container="llm"}').code == 0
    text = (tmp_path / "rules" / "loki.yaml").read_text()
    assert 'count_over_time({container="llm"} |~' in text
    assert names(tmp_path / "rules" / "loki.yaml") >= {"VllmEngineDied"}


def test_of_a_server_only_what_it_exports_is_written(doctor: Doctor, tmp_path: Path) -> None:
    with serving(vllm(pages("preemption"))) as server:
        ran = doctor("alerts", "--url", server.url, "-o", str(tmp_path / "rules"))
    assert ran.code == 0
    found = names(tmp_path / "rules" / "alerts.rules.yaml")
    assert "VllmPreemption" in found
    assert "VllmSpecDecodeLowAcceptance" not in found
    assert "spec-decode-low-acceptance: needs" in ran.out
    text = (tmp_path / "rules" / "signals.rules.yaml").read_text()
    assert "vllm:kv_cache_usage_perc" in text
    assert "vllm:gpu_cache_usage_perc" not in text
    assert promtool("test", "rules", "promtool-tests.yaml", cwd=tmp_path / "rules").returncode == 0


def test_of_a_server_without_statistics_nothing_is_written(doctor: Doctor, tmp_path: Path) -> None:
    with serving(vllm(pages("no-log-stats"))) as server:
        ran = doctor("alerts", "--url", server.url, "-o", str(tmp_path / "rules"))
    assert (ran.code, ran.out) == (3, "")
    assert "no statistics of a vLLM" in one_line(ran)
    assert not (tmp_path / "rules").exists()


@pytest.fixture
def replayed() -> Iterator[dict[str, str]]:
    """Every recorded server, played again and again: host:port -> its name."""
    with contextlib.ExitStack() as opened:
        yield {
            opened.enter_context(demo.serving(demo.find(name), again=True)).partition("//")[2]: name for name in NAMES
        }


@pytest.mark.xdist_group("prometheus")
def test_in_a_real_prometheus_the_sick_servers_alert_and_the_healthy_ones_do_not(
    doctor: Doctor, tmp_path: Path, replayed: dict[str, str]
) -> None:
    assert doctor("alerts", "-o", str(tmp_path / "rules"), "--for", "2s", "--window", "20s").code == 0
    rules = sorted((tmp_path / "rules").glob("*.rules.yaml"))
    written = names(tmp_path / "rules" / "alerts.rules.yaml")
    wanted = {(n, alert) for n in NAMES for r in expected(n)["found"] if (alert := alert_name(r)) in written}
    allowed = wanted | {(n, alert_name(rule)) for n in NAMES for rule in expected(n).get("beside", [])}
    assert {"VllmPreemption", "VllmMaxNumSeqsCap", "VllmClientTimeouts", "VllmPrefixCacheOff"} == {a for _, a in wanted}
    with prometheus(tmp_path, list(replayed), rules) as running:

        def fired(state: str = "firing") -> set[tuple[str, str]]:
            return {(replayed[a["labels"]["instance"]], a["labels"]["alertname"]) for a in running.alerts(state)}

        until(lambda: fired() >= wanted, "the sick ones' alerts fire")
        asked = doctor("alerts", "--prometheus", running.url, "-o", str(tmp_path / "there"))
        judged = "min(count_over_time(vllm_doctor:generation_tokens_per_second[5m]))"
        until(lambda: running.rows(judged).get("", 0) >= 15, "all have been judged fifteen times")
        assert fired() | fired("pending") <= allowed
        groups = running.get("rules")["groups"]
        told = [a["annotations"] for a in running.alerts() if a["labels"]["alertname"] == "VllmPreemption"]
    assert {rule["name"]: rule for group in groups for rule in group["rules"] if rule["health"] != "ok"} == {}
    sick = next(address for address, name in replayed.items() if name == "preemption")
    assert told[0]["summary"] == f"tiny, engine 0 of {sick}: The KV cache is too small for the running batch"
    assert "KV cache in use (peak): 100%" in told[0]["description"]
    assert "--max-num-seqs 10;" in told[0]["remedy"]
    assert f"vllm-doctor 'http://{sick}'" in told[0]["remedy"]
    assert "unknown" not in told[0]["description"]
    assert (asked.code, asked.err) == (0, "")
    there = names(tmp_path / "there" / "alerts.rules.yaml")
    assert {"VllmPreemption", "VllmMaxNumSeqsCap", "VllmDoctorBlind"} <= there
    assert not {"VllmSpecDecodeLowAcceptance", "VllmKvOffloadSlow"} & there
