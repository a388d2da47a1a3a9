"""The fix rate: a real vLLM with a fault, the command that the doctor prints, and the throughput of both.

usage: python -m tests.lab.cure [FAULT...] [--rounds LEAST MOST]   measure these faults (all); 1: one is not fixed
       python -m tests.lab.cure --table > docs/cures.md            the measurements so far

The faulty server is started, loaded, examined and measured; it stops, and exactly the printed command is started
instead. Then the fixed, the faulty and a healthy server (the same flags without the fault) run at once and are loaded
in turns, in another order each round, until the faulty one's best is below the healthy one's worst: a fault that cannot
be distinguished from noise is not claimed. Fixed: at least 90 % of the healthy one's median.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.lab.doctor import NO_ANSWER, doctor
from tests.lab.machine import before_all_others
from tests.lab.server import OUT, PAUSE_SECONDS, loaded, must_be_installed, started, tokens_per_second, vllm

HEAD = """\
# The fix rate

Faults of a real vLLM (the lab's: {cores} CPU cores, no GPU, a model of 3.7 million parameters), and its throughput
after exactly the command that the doctor printed was started instead. Generation tokens/s: the median of the rounds,
with the lowest and the highest. "healthy" has the same flags without the fault. All three servers are loaded in turns.
Fixed: at least 90 % of healthy.

    tests/lab/install.sh && .venv/bin/python -m tests.lab.cure
    .venv/bin/python -m tests.lab.cure --table > docs/cures.md

The faults, their flags and their loads are in `tests/lab/faults.yaml`.
"""
FAULTS = Path(__file__).parent / "faults.yaml"
KEPT = OUT / "cures"
LOOKS = 4
MEASURE_SECONDS = 20
LEAST_ROUNDS, MOST_ROUNDS = 3, 8
CURED = 0.9


@dataclass(frozen=True)
class Result:
    """One fault: what was found and changed, and tokens per second, one for each round."""

    fault: str
    at: str
    """The day."""
    no_loss: str
    """Why none is expected here."""
    found: list[str]
    lacking: list[str]
    changes: list[str]
    sick: list[float]
    cured: list[float]
    healthy: list[float]

    @property
    def is_told(self) -> bool:
        """Whether sick can be told from healthy."""
        return max(self.sick) < min(self.healthy)

    @property
    def is_cured(self) -> bool:
        return not self.lacking and self.cured_to_healthy >= CURED

    @property
    def cured_to_healthy(self) -> float:
        return statistics.median(self.cured) / statistics.median(self.healthy) if self.cured else 0.0

    @property
    def is_well(self) -> bool:
        """Cured, or known to do no harm here, and none was seen."""
        return (bool(self.no_loss) and not self.is_told) or (self.is_told and self.is_cured)

    @property
    def says(self) -> str:
        if not self.is_told:
            return f"no loss distinguishable from noise{self.no_loss and ': ' + self.no_loss}"
        if self.lacking:
            return f"not found: {', '.join(self.lacking)}"
        return "fixed" if self.is_cured else "not fixed"


def measured(fault: Mapping[str, Any], least_rounds: int, most_rounds: int) -> Result:
    """Examine the sick server, start what the doctor prints, measure all three."""
    name, env, load = fault["name"], fault.get("env", {}), fault["load"]
    rates: dict[str, list[float]] = {"sick": [], "cured": [], "healthy": []}
    with vllm(fault["sick"], f"{name}-sick", env) as url, loaded(url, load):
        found, lacking, command = _examined(url, fault["finds"], fault.get("changes", {}))
        rates["sick"].append(tokens_per_second(url, MEASURE_SECONDS))
    with contextlib.ExitStack() as stack:
        urls = {}
        if command:
            print(f"{name}: {' '.join(command['was'])}\n{' ' * len(name)}  {' '.join(command['now'])}", flush=True)
            port, new_env = int(url.rsplit(":", 1)[1]), _changed(env, command)
            urls["cured"] = stack.enter_context(started(command["now"], port, f"{name}-cured", new_env))
        urls["healthy"] = stack.enter_context(vllm(fault["healthy"], f"{name}-healthy"))
        order = list(urls)
        for turn in range(most_rounds):
            for kind in order:
                with loaded(urls[kind], load):
                    rates[kind].append(tokens_per_second(urls[kind], MEASURE_SECONDS))
            told = ", ".join(f"{kind} {rates[kind][-1]:,.0f}" for kind in rates if rates[kind])
            print(f"{name} round {turn + 1}: {told}", flush=True)
            is_told = max(rates["sick"]) < min(rates["healthy"])
            if turn + 1 >= least_rounds and (is_told or "no_loss" in fault):
                break
            if not turn:
                urls["sick"] = stack.enter_context(vllm(fault["sick"], f"{name}-sick", env))
                order.append("sick")
            order = order[1:] + order[:1]
    return Result(
        name, time.strftime("%Y-%m-%d"), fault.get("no_loss", ""), found, lacking, _differences(command), **rates
    )


def _examined(
    url: str, finds: Sequence[str], changes: Mapping[str, Any]
) -> tuple[list[str], list[str], dict[str, Any] | None]:
    """The findings, what is lacking of what was expected, and the command with its correction."""
    found: list[str] = []
    lacking: list[str] = []
    command: dict[str, Any] | None = None
    for _ in range(LOOKS):
        report = json.loads(doctor(url, "--json").stdout or NO_ANSWER)
        causes = [finding for finding in report["findings"] if finding["role"] in ("root", "blind")]
        found = [finding["rule"] for finding in causes if finding["severity"] != "info"]
        lacking = [rules for rules in finds if not set(rules.split("|")) & set(found)]
        command = report["command"] if report["command"] and report["command"]["now"] else None
        changed = {change["name"]: change["now"] for change in command["changes"]} if command else {}
        lacking += [name for name, value in changes.items() if name not in changed or changed[name] != value]
        if not lacking and command:
            break
        time.sleep(PAUSE_SECONDS)
    return found, lacking, command


def _changed(env: Mapping[str, str], command: Mapping[str, Any]) -> dict[str, str]:
    """The server's variables after the correction."""
    changes = {change["name"]: change["now"] for change in command["changes"] if not change["name"].startswith("-")}
    return {name: str(value) for name, value in {**env, **changes}.items() if value is not None}


def _differences(command: Mapping[str, Any] | None) -> list[str]:
    """--max-num-seqs 2 -> 32, for each change."""
    changes = command["changes"] if command else []
    return [f"{c['name']} {_value(c['was'])} → {_value(c['now'])}" for c in changes]


def _value(value: object) -> str:
    return "none" if value is None else str(value)


def table(results: Sequence[Result]) -> str:
    """Markdown: medians, with the least and the most of all rounds."""
    ratios = ("fixed / faulty", "fixed / healthy")
    head = ("fault", "finding", "changed", "faulty", "fixed", "healthy", *ratios, "result", "date")
    rows = [
        (
            result.fault,
            ", ".join(result.found),
            "; ".join(result.changes),
            *(_spread(rates) for rates in (result.sick, result.cured, result.healthy)),
            _ratio(result.cured, result.sick),
            _ratio(result.cured, result.healthy),
            result.says,
            result.at,
        )
        for result in results
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _spread(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f}–{max(rates):,.0f})" if rates else "–"


def _ratio(over: Sequence[float], under: Sequence[float]) -> str:
    """Of the medians; in brackets the least and the most of one round."""
    if not over:
        return "–"
    each = [a / b for a, b in zip(over, under, strict=True)]
    return f"{statistics.median(over) / statistics.median(under):.2f} ({min(each):.2f}–{max(each):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("faults", nargs="*")
    parser.add_argument("--rounds", type=int, nargs=2, default=(LEAST_ROUNDS, MOST_ROUNDS))
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    faults = yaml.safe_load(FAULTS.read_text())
    if unknown := set(given.faults) - {fault["name"] for fault in faults}:
        sys.exit(f"no such fault: {', '.join(sorted(unknown))}")
    if given.table:
        kept = [KEPT / f"{fault['name']}.json" for fault in faults]
        print(HEAD.format(cores=os.cpu_count()))
        print(table([Result(**json.loads(path.read_text())) for path in kept if path.exists()]))
        return 0
    must_be_installed()
    before_all_others(os.getpid())
    KEPT.mkdir(parents=True, exist_ok=True)
    results = []
    for fault in faults:
        if not given.faults or fault["name"] in given.faults:
            results.append(measured(fault, *given.rounds))
            (KEPT / f"{fault['name']}.json").write_text(json.dumps(asdict(results[-1]), indent=1) + "\n")
            print(f"{fault['name']}: {results[-1].says}", flush=True)
    print(table(results))
    return 0 if all(result.is_well for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
