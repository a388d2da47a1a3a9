"""The lab: a real vLLM, real load, and the diagnosis it must get.

usage: run.py [NAME...]            run the scenarios (all), compare with what is expected; 1 if one differs
       run.py --cure NAME [ROUNDS [N]]
                                   apply the doctor's N-th cure (1) and measure tokens/s, before and after in turns

Install first: tests/lab/install.sh. Where vLLM is missing this fails, it does not skip.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
LAB = HERE.parent.parent / ".lab"
VLLM = LAB / "vllm" / "bin"
OUT = LAB / "out"
RAMP_SECONDS = 12
MEASURE_SECONDS = 30
LOOKS = 4
PAUSE_SECONDS = 5
NO_ANSWER = '{"verdict": "unknown", "headline": "no answer", "findings": [], "vitals": {}}'
DOCTOR_SECONDS = 120
SHOWN = ("requests_running", "requests_waiting", "kv_cache_usage", "generation_tokens_per_second")


@contextlib.contextmanager
def vllm(args: list[str], name: str) -> Iterator[str]:
    """A vLLM server on a free loopback port; gives its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    OUT.mkdir(parents=True, exist_ok=True)
    env = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    command = [str(VLLM / "vllm"), "serve", str(LAB / "tiny"), "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), *args]
    url = f"http://127.0.0.1:{port}"
    with (OUT / f"{name}.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        try:
            _wait_until_up(server, url, OUT / f"{name}.log")
            yield url
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _wait_until_up(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if server.poll() is not None:
            sys.exit(f"vllm ended with {server.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    sys.exit(f"vllm did not come up; see {log}")


@contextlib.contextmanager
def loaded(url: str, load: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Clients at work, past their ramp."""
    command = [str(VLLM / "python"), str(HERE / "load.py"), url, json.dumps({"seconds": 600, **load})]
    clients = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(RAMP_SECONDS)
        yield clients
    finally:
        clients.terminate()
        clients.communicate(timeout=60)


def doctor(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The doctor's answer. One that hangs is asked where (SIGABRT, faulthandler), and has not answered."""
    command = [sys.executable, "-X", "faulthandler", "-m", "vllm_doctor", url, "--timeout", "40", *options]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        stdout, stderr = started.communicate(timeout=DOCTOR_SECONDS)
    except subprocess.TimeoutExpired:
        started.send_signal(signal.SIGABRT)
        stdout, stderr = started.communicate()
        print(f"the doctor hung for {DOCTOR_SECONDS} s; {machine()}\n{stderr}", flush=True)
    return subprocess.CompletedProcess(command, started.returncode, stdout, stderr)


def machine() -> str:
    """How busy this machine is: a look that differed may be the machine's."""
    pressures = {path.name: path.read_text().split("\n")[0] for path in Path("/proc/pressure").glob("*")}
    steal = Path("/proc/stat").read_text().split("\n")[0].split()[8]
    return f"load {os.getloadavg()}, steal ticks {steal}, pressure {pressures}"


def run(scenario: dict[str, Any], url: str) -> bool:
    """Whether the diagnosis is the expected one; the outputs are kept in .lab/out.

    On two cores the load itself pauses now and then, and a look into a pause truly sees something else: there are
    more looks, a pause apart, and each that differed is printed.
    """
    name = scenario["name"]
    with loaded(url, scenario["load"]):
        for look in range(1, LOOKS + 1):
            answer = doctor(url, "--json")
            (OUT / f"{name}.json").write_text(answer.stdout)
            report = json.loads(answer.stdout or NO_ANSWER)
            wrong = differences(report, answer.returncode, scenario["expect"])
            shown = {vital: report["vitals"].get(vital) for vital in SHOWN}
            first = report["findings"][0]["rule"] if report["findings"] else "-"
            mark = "ok  " if not wrong else "FAIL" if look == LOOKS else "look"
            print(f"{mark} {name:<30}{report['verdict']:<10}{first:<30}{json.dumps(shown)}")
            for line in wrong:
                print(f"       {line}")
            if not wrong:
                break
            print(f"       {machine()}", flush=True)
            time.sleep(PAUSE_SECONDS)
        (OUT / f"{name}.txt").write_text(doctor(url, "--text").stdout)
    return not wrong


def differences(report: dict[str, Any], exit_code: int, expect: dict[str, Any]) -> list[str]:
    """What differs from what is expected."""
    wrong = []
    findings = report["findings"]
    if report["verdict"] not in (expect["verdict"], expect.get("or_verdict")):
        wrong.append(f"verdict {report['verdict']}, not {expect['verdict']}: {report['headline']}")
    if exit_code != {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}[report["verdict"]]:
        wrong.append(f"exit code {exit_code} for {report['verdict']}")
    if "root" in expect and [finding["rule"] for finding in findings[:1]] != [expect["root"]]:
        wrong.append(f"root {findings[0]['rule'] if findings else None}, not {expect['root']}")
    allowed = {expect.get("root"), *expect.get("also", [])}
    beside = [finding["rule"] for finding in findings if finding["rule"] not in allowed]
    if beside:
        wrong.append(f"beside it: {', '.join(beside)}")
    remedies = findings[0]["remedies"] if findings else []
    for flag, value in expect.get("set", {}).items():
        given = [remedy["set"][flag] for remedy in remedies if flag in remedy["set"]]
        if value not in given:
            wrong.append(f"{flag}: {given}, not {value}")
    if "unset" in expect and not any(expect["unset"] in remedy["unset"] for remedy in remedies):
        wrong.append(f"no remedy drops {expect['unset']}")
    return wrong


def cure(scenario: dict[str, Any], args: list[str], rounds: int, nth: int) -> float:
    """Measure tokens/s without and with the doctor's n-th cure, in turns; after over before."""
    results: dict[str, list[float]] = {"before": [], "after": []}
    cured: list[str] = []
    for turn in range(rounds):
        with vllm(args, f"{scenario['name']}-before") as url, loaded(url, scenario["load"]):
            if not cured:
                remedy = json.loads(doctor(url, "--json").stdout)["findings"][0]["remedies"][nth - 1]
                cured = _applied(args, remedy)
                print(f"the cure: {remedy['do']}\n  before: {' '.join(args)}\n  after:  {' '.join(cured)}", flush=True)
            results["before"].append(_tokens_per_second(url))
        with vllm(cured, f"{scenario['name']}-after") as url, loaded(url, scenario["load"]):
            results["after"].append(_tokens_per_second(url))
        print(
            f"round {turn + 1}: before {results['before'][-1]:,.0f} tok/s, after {results['after'][-1]:,.0f} tok/s",
            flush=True,
        )
    before, after = (sum(values) / rounds for values in results.values())
    print(f"{scenario['name']}: {before:,.0f} -> {after:,.0f} tok/s, x {after / before:.2f}")
    return after / before


def _applied(args: list[str], remedy: dict[str, Any]) -> list[str]:
    """The arguments with the remedy's flags set and unset."""
    kept, place = [], 0
    while place < len(args):
        flag = args[place]
        has_value = place + 1 < len(args) and not args[place + 1].startswith("--")
        if flag not in remedy["unset"] and flag not in remedy["set"]:
            kept += args[place : place + 1 + has_value]
        place += 1 + has_value
    for flag, value in remedy["set"].items():
        kept += [flag] if value is True else [flag, str(value)]
    return kept


def _tokens_per_second(url: str) -> float:
    def tokens() -> float:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:generation_tokens_total"))

    start, before = time.monotonic(), tokens()
    time.sleep(MEASURE_SECONDS)
    after = tokens()
    return (after - before) / (time.monotonic() - start)


def main() -> int:
    if not (VLLM / "vllm").exists():
        sys.exit("no vLLM in .lab: run tests/lab/install.sh first")
    servers = yaml.safe_load((HERE / "scenarios.yaml").read_text())["servers"]
    if sys.argv[1:2] == ["--cure"]:
        rounds, nth = [int(text) for text in [*sys.argv[3:], *("2", "1")[len(sys.argv) - 3 :]]]
        [(scenario, args)] = [(c, s["args"]) for s in servers for c in s["scenarios"] if c["name"] == sys.argv[2]]
        return 0 if cure(scenario, args, rounds, nth) > 1 else 1
    failed = total = 0
    for server in servers:
        wanted = [s for s in server["scenarios"] if not sys.argv[1:] or s["name"] in sys.argv[1:]]
        if not wanted:
            continue
        with vllm(server["args"], wanted[0]["name"]) as url:
            for scenario in wanted:
                total += 1
                failed += not run(scenario, url)
                sys.stdout.flush()
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
