"""What people ask, by topic, and what answers it: topics.yaml, and its table, docs/topics.md.

`python -m tests.rules.topics` writes the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT

DATA = Path(__file__).parent / "topics.yaml"
PAGE = ROOT / "docs" / "topics.md"
_HEAD = """\
# What people ask, and what answers it

Threads of the last 18 months by topic, where at least two were about it: the rules that answer it (`vllm-doctor rules
ID`), the entries of [known faults](regressions.md), the commands, and what of it nothing answers, with the reason.

| topic | threads | rules | known faults | commands | not answered |
| --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Topic:
    """`threads`: (owner/repo, number). `lacks`: what nothing answers, and why; "" where all is answered."""

    name: str
    says: str
    threads: tuple[tuple[str, int], ...]
    rules: tuple[str, ...]
    regressions: tuple[str, ...]
    commands: tuple[str, ...]
    lacks: str


def topics() -> list[Topic]:
    return [_topic(one) for one in yaml.safe_load(DATA.read_text("utf-8"))]


def _topic(one: dict[str, Any]) -> Topic:
    rules, regressions, commands = (tuple(one.get(key, ())) for key in ("rules", "regressions", "commands"))
    threads = tuple((repo, number) for repo, numbers in one["threads"].items() for number in numbers)
    return Topic(one["topic"], one["says"], threads, rules, regressions, commands, one.get("not", ""))


def page() -> str:
    return _HEAD + "".join(f"| {' | '.join(_cells(topic))} |\n" for topic in topics())


def _cells(topic: Topic) -> Iterator[str]:
    yield f"{topic.name}: {topic.says}"
    yield " ".join(f"[{repo} {number}](https://github.com/{repo}/issues/{number})" for repo, number in topic.threads)
    for names in (topic.rules, topic.regressions, topic.commands):
        yield ", ".join(f"`{name}`" for name in names) or "—"
    yield topic.lacks or "—"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
