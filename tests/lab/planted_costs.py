"""Planted costs: a real vLLM with one, what `vllm-doctor profile` names, and what a clock in the server says of it.

usage: python -m tests.lab.planted_costs [NAME...]    these scenarios of planted_costs.yaml (all)
       python -m tests.lab.planted_costs --table      the table of what was measured so far, for docs/profile.md
       python -m tests.lab.planted_costs --frames     modules of rules/profile/parts.yaml that no vLLM of the lab has

Well: the part is named with its share, within 10 percentage points of the clock's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.lab.machine import before_all_others
from tests.lab.server import AN_HOUR, HERE, LAB, OUT, RAMP_SECONDS, VLLM, must_be_installed, vllm
from vllm_doctor.rules import parts

SCENARIOS = HERE / "planted_costs.yaml"
KEPT = OUT / "profiles"
CLOCKS = OUT / "profile-clocks"
SECONDS = 10
POINTS = 0.10
"""How far a share may be from the clock's."""
TEMPLATE = """{%- for turn in range(400) %}{%- for message in messages %}
{%- set words = message['content'].split(' ') %}
{%- for word in words %}{%- if word|length > 40 %}{{ word|upper }}{%- endif %}{%- endfor %}{%- endfor %}{%- endfor %}
{%- for message in messages %}{{ message['role'] }}: {{ message['content'] }}
{% endfor %}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--frames", action="store_true")
    options = parser.parse_args()
    scenarios = yaml.safe_load(SCENARIOS.read_text())
    if options.frames:
        return frames()
    if options.table:
        print(table([one["name"] for one in scenarios]))
        return 0
    must_be_installed()
    KEPT.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for one in scenarios:
        if not options.names or one["name"] in options.names:
            told = measured(one)
            (KEPT / f"{one['name']}.json").write_text(json.dumps(told, indent=1))
            wrong += not told["well"]
            print({key: value for key, value in told.items() if key != "profile"}, flush=True)
    return 1 if wrong else 0


def measured(one: Mapping[str, Any]) -> dict[str, Any]:
    """One scenario: what was named, and what is true."""
    shutil.rmtree(CLOCKS, ignore_errors=True)
    CLOCKS.mkdir(parents=True)
    env = {
        **one.get("env", {}),
        "TIMED": ",".join(one.get("timed", [])),
        "TIMED_OUT": str(CLOCKS),
        "PYTHONPATH": str(HERE / "timed"),
    }
    args = ["--max-model-len", "2048", *one.get("args", [])]
    if one.get("tokenizer") == "slow":
        args += ["--tokenizer", str(slow_tokenizer())]
    if one.get("template"):
        (OUT / "slow.jinja").write_text(TEMPLATE)
        args += ["--chat-template", str(OUT / "slow.jinja")]
    elif "chat" in one["load"]:
        (OUT / "plain.jinja").write_text("{% for message in messages %}{{ message['content'] }}\n{% endfor %}")
        args += ["--chat-template", str(OUT / "plain.jinja")]
    with contextlib.ExitStack() as opened:
        is_slow = threading.Event()
        output = opened.enter_context(slow_pipe(one["slow_pipe"], is_slow)) if "slow_pipe" in one else None
        url = opened.enter_context(vllm(args, f"profile-{one['name']}", env, output=output))
        is_slow.set()
        (CLOCKS / "go").touch()
        opened.callback(is_slow.clear)  # the server's last words are not waited for
        opened.enter_context(at_work(url, one["load"]))
        time.sleep(RAMP_SECONDS)
        time.sleep(5)
        before, began, ran_before = clocks(), time.monotonic(), wanted()
        words = [sys.executable, "-m", "vllm_doctor", "profile", url, "--json", "--rate", "100"]
        words += ["--seconds", str(SECONDS)]
        words += ["--native"] if one.get("native") else []
        ran = subprocess.run(words, capture_output=True, text=True, timeout=120)
        after = clocks()
        took = time.monotonic() - began
        ran_after = wanted()
    profile = json.loads(ran.stdout)
    if profile["error"]:
        return {"name": one["name"], "well": False, "error": profile["error"]}
    pid = next(p["pid"] for p in profile["profiles"][0]["processes"] if p["role"] == one["role"])
    share = (ran_after[pid] - ran_before[pid]) / took
    return compared(one, profile, before, after, share, took, ran.returncode)


def compared(
    one: Mapping[str, Any],
    profile: dict[str, Any],
    before: Mapping[int, dict[str, Any]],
    after: Mapping[int, dict[str, Any]],
    wanted: float,
    took: float,
    code: int,
) -> dict[str, Any]:
    processes = [p for p in profile["profiles"][0]["processes"] if p["role"] == one["role"]]
    main = next(t for p in processes for t in p["threads"] if t["is_main"])
    named, thread = max((t["shares"].get(one["part"], 0.0), t["name"]) for p in processes for t in p["threads"])
    true = max(shares(before, after, [p["pid"] for p in processes]).values(), default=None)
    if one.get("largest_work"):  # as long as the kernel says that the thread ran or waited for a CPU, less other parts
        others = sum(v for k, v in main["shares"].items() if k not in (one["part"], "idle", "device-wait"))
        true = max(0.0, wanted - others)
    worked = {k: v for k, v in main["shares"].items() if k != "idle"}
    well = true is not None and abs(named - true) <= POINTS
    if one.get("largest"):
        well = well and max(worked, key=lambda part: worked[part]) == one["part"]
    found = [finding["rule"] for finding in profile["findings"]]
    if "findings" in one:
        well = well and found == one["findings"]
    return {
        "name": one["name"],
        "at": time.strftime("%Y-%m-%d"),
        "part": one["part"],
        "role": one["role"],
        "thread": thread,
        "named": round(named, 3),
        "clock": None if true is None else round(true, 3),
        "busy": main["busy"],
        "top": list(worked.items())[:3],
        "findings": found,
        "exit_code": code,
        "seconds": round(took, 1),
        "well": well,
        "profile": profile,
    }


def shares(
    before: Mapping[int, dict[str, Any]], after: Mapping[int, dict[str, Any]], pids: list[int]
) -> dict[tuple[int, str], float]:
    """The share of its time that each thread spent inside, by the clock in its process."""
    found = {}
    for pid in pids:
        if pid in before and pid in after:
            seconds = after[pid]["at"] - before[pid]["at"]
            for thread, spent in after[pid]["spent"].items():
                found[pid, thread] = (spent - before[pid]["spent"].get(thread, 0.0)) / seconds
    return found


def wanted() -> dict[int, float]:
    """Seconds in which the main thread of each process ran, or waited for a CPU, by the kernel."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/schedstat"):
        with contextlib.suppress(OSError, ValueError):
            ran, waited, _ = map(int, path.read_text().split())
            found[int(path.parent.name)] = (ran + waited) / 1e9
    return found


def clocks() -> dict[int, dict[str, Any]]:
    found = {}
    for path in CLOCKS.glob("*.json"):
        with contextlib.suppress(ValueError, OSError):
            found[int(path.stem)] = json.loads(path.read_text())
    return found


@contextlib.contextmanager
def at_work(url: str, load: Mapping[str, Any]) -> Iterator[None]:
    command = [str(VLLM / "python"), str(HERE / "planted_load.py"), url, json.dumps({"seconds": AN_HOUR, **load})]
    clients = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    before_all_others(clients.pid)
    try:
        yield
    finally:
        clients.terminate()
        print(clients.communicate(timeout=60)[0].strip(), flush=True)


@contextlib.contextmanager
def slow_pipe(bytes_per_second: int, is_slow: threading.Event) -> Iterator[int]:
    """What reads the log takes so many bytes a second, once it is slow."""
    reading, writing = os.pipe()
    ended = threading.Event()

    def read() -> None:
        with (OUT / "profile-slow-pipe.log").open("wb") as log:
            while not ended.is_set():
                part = os.read(reading, 1024 if is_slow.is_set() else 65536)
                if not part:
                    return
                log.write(part)
                log.flush()
                if is_slow.is_set():
                    time.sleep(len(part) / bytes_per_second)

    threading.Thread(target=read, daemon=True).start()
    try:
        yield writing
    finally:
        is_slow.clear()
        ended.set()
        os.close(writing)


def slow_tokenizer() -> Path:
    """A tokenizer that is written in Python, and needs no vocabulary: of bytes."""
    folder = OUT / "slow-tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}))
    shutil.copy(LAB / "tiny" / "config.json", folder / "config.json")
    return folder


def table(names: list[str]) -> str:
    rows = ["| planted | part | in | share named | by the clock | finding | |", "|---|---|---|---:|---:|---|---|"]
    for name in names:
        path = KEPT / f"{name}.json"
        if path.exists():
            told = json.loads(path.read_text())
            if "error" in told:
                rows.append(f"| {name} | | | | | {told['error']} | |")
                continue
            clock = f"{told['clock']:.0%}" if told["clock"] is not None else ""
            where = f"{told['role']}, {told['thread']}"
            found = ", ".join(told["findings"]) or "none"
            well = "✔" if told["well"] else "✖"
            rows.append(f"| {name} | {told['part']} | {where} | {told['named']:.0%} | {clock} | {found} | {well} |")
    return "\n".join(rows)


def frames() -> int:
    """Modules that no vLLM of the lab has: moved, or of older releases."""
    roots = [path for lab in ("vllm", "vllm-other") for path in (LAB / lab).glob("lib/python3*/site-packages")]
    known = parts.load()
    for one in (entry for part in known.parts for entry in part.frames):
        if one.path not in (parts.ANY, "<template>") and not any((root / one.path).exists() for root in roots):
            print(one.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
