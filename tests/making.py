"""What several tests make: scrapes, and readings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path

from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.window import Sample, Window
from vllm_doctor.rules import catalogue, regression, rule
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import Rule
from vllm_doctor.text import words


def window(*pages: str, every: float = 2.0) -> Window:
    """A window of these pages, scraped `every` so many seconds. A page is lines of `name{label="value"} 1`."""
    made = Window()
    for place, page in enumerate(pages):
        made.add(100.0 + every * place, [_sample(line) for line in page.splitlines() if line.strip()])
    return made


def _sample(line: str) -> Sample:
    match = re.fullmatch(r"\s*([\w:]+)(?:\{(.*)\})? (\S+)\s*", line)
    assert match is not None, line
    labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', match[2] or "")))
    return Sample(match[1], labels, float(match[3]))


def reads(**values: Reading | Value) -> Callable[[str], Reading]:
    """How to read signals of which only these are known."""

    def read(name: str) -> Reading:
        value = values.get(name, Unknown(Reason.ABSENT))
        return value if isinstance(value, Known | Unknown) else Known(value)

    return read


def catalogue_of(folder: Path, signals: str, diagnosis: str = "") -> Catalogue:
    """The catalogue of these texts, which are written to signals/signals.yaml and diagnosis.yaml of the folder."""
    (folder / "signals").mkdir(exist_ok=True)
    (folder / "signals" / "signals.yaml").write_text(signals, "utf-8")
    if diagnosis:
        (folder / "diagnosis.yaml").write_text(diagnosis, "utf-8")
    return catalogue.load(folder)


@cache
def shipped_catalogue() -> Catalogue:
    return catalogue.load(rule.shipped())


@cache
def shipped_rules() -> tuple[Rule, ...]:
    signals = shipped_catalogue()
    return rule.load([rule.shipped()], signals, faults=regression.load([rule.shipped()], signals.signals))


SAMPLES = {"share": "0.93"}
"""A value of a signal of this unit; of all others 2."""


CHOICES = {"--max-lora-rank": "16"}
"""Of flags that take only some numbers."""


def settings_of_rules() -> list[list[str]]:
    """The words that set each flag of each shipped rule, with a sample where the value is computed."""
    signals = shipped_catalogue().signals
    found = []
    for shipped in shipped_rules():
        for remedy in shipped.remedies:
            for name, value in remedy.set.items():
                for signal in words.names(str(value)):
                    sample = SAMPLES.get(signals[signal].unit, CHOICES.get(name, "2"))
                    value = str(value).replace(f"{{{signal}}}", sample)
                found.append(shlex.split(words.flag(name, value)))
    return found
