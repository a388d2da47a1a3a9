"""Alive, frozen, dead, or slow by its flags: a real vLLM under load, what is done to it, and what the doctor says.

usage: python -m tests.lab.live [GROUP...] [--windows 3 15]      run the cases of live.yaml (all); 1: an answer is wrong
       python -m tests.lab.live --table > docs/live-cases.md    the answers so far

Wrong is "ok" of a server that is sick or slow now, another root than the fault that was put in, and any finding at
warning or worse, or no verdict, of a server that is well now.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.lab.doctor import NO_ANSWER, doctor
from tests.lab.machine import before_all_others
from tests.lab.run import hogged
from tests.lab.server import OUT, loaded, must_be_installed, vllm

CASES = Path(__file__).parent / "live.yaml"
KEPT = OUT / "live"
WINDOWS = (3, 15)
START_SECONDS = 1.0
"""From the doctor's start to its first scrape, about."""
REST_SECONDS = 4.0
SMALL_PIPE = 4096
BESIDE_BUSY_LOOPS = 2
TITLES = {"engine-core": b"VLLM::EngineCore", "worker": b"VLLM::Worker"}
MAY_STAND_BESIDE = frozenset({"cpu-underprovisioned", "cpu-contention"})
"""True of this machine, whatever else is."""
HEAD = """\
# Alive, frozen, dead, slow: what the doctor says

A real vLLM (the lab's: {cores} CPU cores, no GPU, 3.7 million parameters; an API server, an engine core and a
worker, each a process). Each case is put in under a load of requests; one look is taken with `--window 3` and one with
`--window 15`. "load": beside {loops} busy loops. Other work on these cores is told as such, and is no error.

    tests/lab/install.sh && .venv/bin/python -m tests.lab.live
    .venv/bin/python -m tests.lab.live --table > docs/live-cases.md

The cases are in `tests/lab/live.yaml`.
"""


@dataclass(frozen=True)
class Answer:
    """One look of one case, and whether it is right."""

    case: str
    beside: str
    window: int
    verdict: str
    first: str
    headline: str
    here: str
    wrong: list[str] = field(default_factory=list)
    came_about: bool = True
    """Whether what the case is of was there at the end: a pipe fills by what the server has to log."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("groups", nargs="*")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    parser.add_argument("--cases", nargs="+", default=[""], help="words of their names")
    parser.add_argument("--beside", nargs="+", choices=("alone", "load"))
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    groups = yaml.safe_load(CASES.read_text())["groups"]
    if unknown := set(given.groups) - {group["name"] for group in groups}:
        sys.exit(f"no such group: {', '.join(sorted(unknown))}")
    if given.table:
        print(HEAD.format(cores=os.cpu_count(), loops=BESIDE_BUSY_LOOPS))
        print(table(groups))
        return 0
    must_be_installed()
    before_all_others(os.getpid())
    KEPT.mkdir(parents=True, exist_ok=True)
    answers = [
        answer
        for group in groups
        if not given.groups or group["name"] in given.groups
        for answer in of_group(group, given.cases, given.windows, given.beside or group.get("beside", ["alone"]))
    ]
    wrong = sum(bool(answer.wrong) for answer in answers)
    print(f"{len(answers) - wrong} right, {wrong} wrong")
    return 1 if wrong else 0


def of_group(
    group: Mapping[str, Any], words: Sequence[str], windows: Sequence[int], besides: Sequence[str]
) -> Iterator[Answer]:
    """All looks of the group's cases with one of these words in their names."""
    cases = [case for case in group["cases"] if any(word in case["name"] for word in words)]
    looks = [(case, window, beside) for case in cases for beside in besides for window in windows]
    with contextlib.ExitStack() as stack:
        site: Site | None = None
        for case, window, beside in looks:
            if site is None or group.get("fresh"):
                stack.close()
                site = stack.enter_context(serving(group))
            answer = looked(case, window, beside, site)
            path = KEPT / f"{case['name'].replace(' ', '-')}-{beside}-{window}.json"
            path.write_text(json.dumps(asdict(answer), indent=1) + "\n")
            mark = "WRONG" if answer.wrong else "right"
            print(f"{mark} {answer.case} ({beside}, {window} s): {answer.verdict} {answer.first}: {answer.here}")
            for line in answer.wrong:
                print(f"      {line}", flush=True)
            yield answer


@dataclass
class Site:
    """A server under load; `reader`: of its output."""

    url: str
    root: int
    reader: int
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def pids(self, whom: str) -> list[int]:
        """Who is meant; of workers one."""
        if whom == "reader":
            return [self.reader]
        group = [pid for pid in _numbers() if _group(pid) == self.root]
        if whom == "all":
            return group
        if whom == "api-server":
            return [self.root]
        return [pid for pid in group if _words(pid).startswith(TITLES[whom])][:1]

    def restart(self) -> None:
        """The same command once more."""
        words = [word.decode() for word in self.command.split(b"\0") if word]
        log = (OUT / "live-restarted.log").open("wb")
        self.started.append(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, process_group=0))

    @property
    def is_blocked(self) -> bool:
        """Whether the API server stands in a write to a pipe, by the kernel's word."""
        return "pipe_write" in Path(f"/proc/{self.root}/wchan").read_text()

    def hang(self, whom: str) -> None:
        """Its main thread sleeps in a call, which is no stop: gdb lets the process go on.

        Until it does, the process is held by a debugger, which takes gdb seconds beside a load.
        """
        pid, seconds = self.pids(whom)[0], 1_000_000 * (max(WINDOWS) + 20)
        words = ["gdb", "-batch", "-p", str(pid), "-ex", f"call (int)usleep({seconds})"]
        self.started.append(
            subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)
        )
        while not (self.is_traced(pid) and "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()):
            if self.started[-1].poll() is not None:
                raise RuntimeError("gdb ended before the call that it was to make")
            time.sleep(0.1)

    @staticmethod
    def is_traced(pid: int) -> bool:
        """Whether a debugger is attached."""
        return "\nTracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()

    def let_go(self) -> None:
        """End what was put into it or started beside it."""
        while self.started:
            process = self.started.pop()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __post_init__(self) -> None:
        self.command = _words(self.root)


@contextlib.contextmanager
def serving(group: Mapping[str, Any]) -> Iterator[Site]:
    """The group's server, loaded."""
    with contextlib.ExitStack() as stack:
        reader, output = 0, None
        if group.get("piped"):
            read, output = os.pipe()
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, SMALL_PIPE)  # it fills in a moment
            reading = subprocess.Popen(["cat"], stdin=read, stdout=subprocess.DEVNULL)
            os.close(read)
            stack.callback(_ended, reading)
            stack.callback(os.close, output)
            reader = reading.pid
        url = stack.enter_context(vllm(group["args"], f"live-{group['name']}", group.get("env"), output=output))
        stack.enter_context(loaded(url, group["load"]))
        port = url.rsplit(":", 1)[1].encode()
        root = next(p for p in _numbers() if b"\0serve\0" in _words(p) and b"\0--port\0" + port + b"\0" in _words(p))
        site = Site(url, root, reader)
        try:
            yield site
        finally:
            signalled(site, {"do": "CONT", "whom": "all"})
            site.let_go()


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def looked(case: Mapping[str, Any], window: int, beside: str, site: Site) -> Answer:
    """One look, while it is done to the server what the case says; afterwards what was stopped goes on."""
    acts = case.get("acts", [])
    early = sorted((act for act in acts if act["at"] < 0), key=lambda act: act["at"])
    with hogged(BESIDE_BUSY_LOOPS if beside == "load" else 0):
        for place, act in enumerate(early):
            signalled(site, act)
            time.sleep((early[place + 1]["at"] if place + 1 < len(early) else 0) - act["at"])
        later = [
            threading.Timer(START_SECONDS + act["at"] * window, signalled, (site, act))
            for act in acts
            if act["at"] >= 0
        ]
        for timer in later:
            timer.start()
        answer = doctor(site.url, "--json", "--window", str(window), "--timeout", str(window + 8))
        for timer in later:
            timer.join()
    came_about = not case.get("blocks") or site.is_blocked
    for whom in ("all", "reader"):
        signalled(site, {"do": "CONT", "whom": whom})
    site.let_go()
    time.sleep(REST_SECONDS)
    report = json.loads(answer.stdout or NO_ANSWER)
    findings = report["findings"]
    return Answer(
        case=case["name"],
        beside=beside,
        window=window,
        verdict=report["verdict"],
        first=findings[0]["rule"] if findings else "-",
        headline=report["headline"],
        here=findings[0]["here"] if findings else "",
        wrong=list(faults(case, report, beside)) if came_about else [],
        came_about=came_about,
    )


def faults(case: Mapping[str, Any], report: Mapping[str, Any], beside: str) -> Iterator[str]:
    """What is wrong with an answer."""
    findings = report["findings"]
    grave = [f["rule"] for f in findings if f["severity"] != "info" and f["role"] != "symptom"]
    if case["now"] == "well":
        if others := set(grave) - MAY_STAND_BESIDE:
            yield f"a server that is well, and found were {', '.join(sorted(others))}"
        if report["verdict"] == "unknown":
            yield f"a server that is well, and no verdict: {report['headline']}"
        return
    if case["now"] == "gone":
        if report["verdict"] == "ok":
            yield f"ok of a server that is gone: {report['headline']}"
        return
    may_lead = [*case["rules"], *(MAY_STAND_BESIDE if case["now"] == "slow" and beside == "load" else ())]
    if report["verdict"] not in (("critical", "warning") if case["now"] == "slow" else ("critical",)):
        yield f"verdict {report['verdict']}: {report['headline']}"
    if not set(case["rules"]) & {f["rule"] for f in findings}:
        yield f"not found: {' or '.join(case['rules'])}"
    if not grave or grave[0] not in may_lead:
        yield f"root {grave[0] if grave else None}, not {' or '.join(case['rules'])}"
    if findings and report["headline"] != findings[0]["title"]:
        yield f"the headline is another one: {report['headline']}"


def signalled(site: Site, act: Mapping[str, Any]) -> None:
    """Send the signal; who is gone is gone."""
    if act["do"] == "RESTART":
        site.restart()
        return
    if act["do"] == "HANG":
        site.hang(act["whom"])
        return
    for pid in site.pids(act["whom"]):
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[f"SIG{act['do']}"])


def table(groups: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a row for each case, alone and beside a load, with its answers by window."""
    found = [_kept(path) for path in KEPT.glob("*.json")]
    head = ("case", "beside", "truth", "how known", *(f"says with --window {window}" for window in WINDOWS), "result")
    rows = []
    for how, case in ((group["how"], case) for group in groups for case in group["cases"]):
        for beside in ("alone", "load"):
            answers = {a.window: a for a in found if a.case == case["name"] and a.beside == beside}
            if not answers:
                continue
            says = [_said(answers[window]) if window in answers else "–" for window in WINDOWS]
            wrong = [f"{a.window} s: {'; '.join(a.wrong)}" for a in answers.values() if a.wrong]
            result = f"wrong ({', '.join(wrong)})" if wrong else "right"
            rows.append((case["name"], beside, case["truth"], how, *says, result))
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _kept(path: Path) -> Answer:
    told = json.loads(path.read_text())
    return Answer(**{name: told[name] for name in Answer.__dataclass_fields__ if name in told})


def _said(answer: Answer) -> str:
    says = f"{answer.verdict}: {answer.headline}"
    return says if answer.came_about else f"(the fault had not come about yet) {says}"


def _numbers() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


if __name__ == "__main__":
    sys.exit(main())
