"""The lab: a real vLLM, real load, and the diagnosis it must get.

usage: python -m tests.lab.run --record NAME   keep a recording of a scenario in fixtures/NAME
       python -m tests.lab.run [NAME...]       run the scenarios (all), compare with what is expected; 1 if one differs

Install first: tests/lab/install.sh. Where vLLM is missing this fails, it does not skip.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.lab.doctor import NO_ANSWER, doctor
from tests.lab.machine import ROBBED, before_all_others, busy, cpu_times, share_stolen
from tests.lab.server import OUT, PAUSE_SECONDS, loaded, must_be_installed, vllm
from vllm_doctor.recording import archive

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent.parent / "fixtures"
RECORDED_SECONDS = 10
LOOKS = 6
SHOWN = ("requests_running", "requests_waiting", "kv_cache_usage", "generation_tokens_per_second")


@contextlib.contextmanager
def hogged(count: int) -> Iterator[None]:
    """So many busy loops beside the server."""
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        if hogs:
            time.sleep(PAUSE_SECONDS)
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@contextlib.contextmanager
def limited(cores: float | None, url: str) -> Iterator[None]:
    """The server's processes in a control group with a CPU quota. Raises OSError where none can be made."""
    if cores is None:
        yield
        return
    v1, v2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    top = v1 if v1.exists() else v2
    group = top / "vllm-doctor-lab"
    pids = [process["pid"] for process in processes(url)]
    group.mkdir(exist_ok=True)
    try:
        if top is v1:
            (group / "cpu.cfs_quota_us").write_text(f"{round(cores * 100_000)}")
        else:
            (group / "cpu.max").write_text(f"{round(cores * 100_000)} 100000")
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        time.sleep(PAUSE_SECONDS)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(OSError):
                (top / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def pointed_at(url: str, how: str) -> list[str]:
    """What the doctor is told: the URL, a worker's pid, or nothing."""
    if how == "url":
        return [url]
    if how == "none":
        return []
    return [str(process["pid"]) for process in processes(url) if process["role"] == "worker"][:1]


def processes(url: str) -> list[dict[str, Any]]:
    """The server's processes, as the doctor finds them. Raises RuntimeError where it finds none."""
    for _ in range(LOOKS):
        answer = doctor(url, "--json", "--window", "0")
        found: list[dict[str, Any]] = json.loads(answer.stdout or NO_ANSWER)["patient"]["processes"]
        if found:
            return found
        time.sleep(PAUSE_SECONDS)
    raise RuntimeError(f"no processes of {url} were found: {answer.stdout[:2000]} {answer.stderr}")


def run(scenario: dict[str, Any], url: str) -> bool:
    """Whether the diagnosis is the expected one; the outputs are kept in .lab/out.

    On two cores the load itself pauses now and then, and a look into a pause truly sees something else: there are
    more looks, a pause apart, and each that differed is printed.
    """
    name = scenario["name"]
    source = pointed_at(url, scenario.get("point_at", "url"))
    with loaded(url, scenario["load"]), hogged(scenario.get("hogs", 0)), limited(scenario.get("quota"), url):
        for look in range(1, LOOKS + 1):
            before = cpu_times()
            answer = doctor(*source, "--json")
            stolen = share_stolen(before)
            (OUT / f"{name}.json").write_text(answer.stdout)
            report = json.loads(answer.stdout or NO_ANSWER)
            wrong = differences(report, answer.returncode, scenario["expect"], robbed=stolen > ROBBED)
            shown = {vital: report["vitals"].get(vital) for vital in SHOWN}
            first = report["findings"][0]["rule"] if report["findings"] else "-"
            mark = "ok  " if not wrong else "FAIL" if look == LOOKS else "look"
            print(f"{mark} {name:<30}{report['verdict']:<10}{first:<30}{json.dumps(shown)}")
            for line in wrong:
                print(f"       {line}")
            if not wrong:
                break
            print(f"       stolen {stolen:.0%}; {busy()}")
            print(f"       {report['findings'][0]['here'] if report['findings'] else ''}", flush=True)
            time.sleep(PAUSE_SECONDS)
    return not wrong


def differences(report: dict[str, Any], exit_code: int, expect: dict[str, Any], robbed: bool = False) -> list[str]:
    """What differs from what is expected.

    Where this machine's own CPUs are `robbed` by other machines, cpu-contention is true, whatever else is.
    """
    wrong = []
    findings = report["findings"]
    others = [finding for finding in findings if finding["rule"] != "cpu-contention"]
    excused = robbed and others != findings and expect.get("root") != "cpu-contention"
    if excused:
        findings = others
    if not excused and report["verdict"] not in (expect["verdict"], expect.get("or_verdict")):
        wrong.append(f"verdict {report['verdict']}, not {expect['verdict']}: {report['headline']}")
    if exit_code != {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}[report["verdict"]]:
        wrong.append(f"exit code {exit_code} for {report['verdict']}")
    if "root" in expect and [finding["rule"] for finding in findings[:1]] != [expect["root"]]:
        wrong.append(f"root {findings[0]['rule'] if findings else None}, not {expect['root']}")
    # A 2-core machine is too small for a vLLM's three processes: that is true, and no error.
    allowed = {expect.get("root"), "cpu-underprovisioned", *expect.get("also", [])}
    if "has" in expect:
        allowed.add(expect["has"])
        if expect["has"] not in [finding["rule"] for finding in findings]:
            wrong.append(f"{expect['has']} was not found")
    # A note (random prompts never hit the prefix cache) and a symptom of the root are no second diagnosis.
    beside = [f["rule"] for f in findings if f["rule"] not in allowed and f["role"] not in ("symptom", "info")]
    if beside:
        wrong.append(f"beside it: {', '.join(beside)}")
    remedies = findings[0]["remedies"] if findings else []
    for flag, value in expect.get("set", {}).items():
        given = [remedy["set"][flag] for remedy in remedies if flag in remedy["set"]]
        if value not in given:
            wrong.append(f"{flag}: {given}, not {value}")
    if "cores_wanted" in expect:
        cores = report["patient"]["cores"] or {}
        if cores.get("wanted") != expect["cores_wanted"]:
            wrong.append(f"cores {cores}, not {expect['cores_wanted']} wanted")
    for text in expect.get("says", []):
        if not findings or text not in findings[0]["here"]:
            wrong.append(f"{text!r} is not in: {findings[0]['here'] if findings else None}")
    lacking = [flag for flag in expect.get("command", []) if flag not in (report["command"] or {"was": []})["was"]]
    if lacking:
        wrong.append(f"the command lacks {lacking}: {report['command']}")
    if "unset" in expect and not any(expect["unset"] in remedy["unset"] for remedy in remedies):
        wrong.append(f"no remedy drops {expect['unset']}")
    return wrong


def read_log(name: str, expect: dict[str, Any]) -> bool:
    """Whether the log of the server that was just stopped says so: one run, no death, and what was found in it."""
    report = json.loads(doctor(str(OUT / f"{name}.log"), "--json").stdout or NO_ANSWER)
    found = [finding["rule"] for finding in report["findings"]]
    ends = [run["end"] for run in report.get("lives", [])]
    # One that does not stop in time is killed, and then the log just ends.
    wrong = [f"runs that end: {ends}, not one"] if ends not in (["stopped"], ["open"]) else []
    wrong += [f"{rules} was not found" for rules in expect.get("found", []) if not set(rules.split("|")) & set(found)]
    wrong += [f"{rule} was found" for rule in ["engine-died", *expect.get("never", [])] if rule in found]
    print(f"{'FAIL' if wrong else 'ok  '} {f'log of {name}':<30}{report['verdict']:<10}{', '.join(found)}")
    for line in wrong:
        print(f"       {line}")
    sys.stdout.flush()
    return not wrong


def record(scenario: dict[str, Any], url: str) -> None:
    """Keep what the doctor sees of a scenario, as a fixture: a recording without its report, which new rules change."""
    folder = FIXTURES / scenario["name"]
    with (
        tempfile.TemporaryDirectory() as place,
        loaded(url, scenario["load"]),
        hogged(scenario.get("hogs", 0)),
        limited(scenario.get("quota"), url),
    ):
        path = Path(place) / "r.tar.gz"
        words = ["record", url, "-o", str(path), "--duration", str(RECORDED_SECONDS), "--share"]
        answer = subprocess.run([sys.executable, "-m", "vllm_doctor", *words], capture_output=True, text=True)
        if answer.returncode:
            raise RuntimeError(answer.stderr)
        parts = archive.read(path)
    del parts["report.json"]
    for name, body in parts.items():
        packed = name.endswith(".txt")
        target = folder / (f"{name}.gz" if packed else name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(body, mtime=0) if packed else body)
    print(f"recorded {folder}: write its expected.yaml")


def main() -> int:
    must_be_installed()
    before_all_others(os.getpid())
    servers = yaml.safe_load((HERE / "scenarios.yaml").read_text())["servers"]
    if sys.argv[1:2] == ["--record"]:
        [(scenario, server)] = [(c, s) for s in servers for c in s["scenarios"] if c["name"] == sys.argv[2]]
        with vllm(server["args"], scenario["name"], server.get("env")) as url:
            record(scenario, url)
        return 0
    failed = total = 0
    for server in servers:
        named = sys.argv[1:]
        wanted = [s for s in server["scenarios"] if (s["name"] in named if named else not s.get("by_name"))]
        if not wanted:
            continue
        with vllm(server["args"], wanted[0]["name"], server.get("env")) as url:
            for scenario in wanted:
                total += 1
                try:
                    failed += not run(scenario, url)
                except OSError as error:
                    if "quota" not in scenario:
                        raise
                    total -= 1
                    print(f"NOT RUN {scenario['name']}: no control group can be made here ({error})")
                sys.stdout.flush()
        total += 1
        failed += not read_log(wanted[0]["name"], server.get("log", {}))
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
