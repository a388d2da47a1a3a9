"""What people read is in the field's words: rules, screens, reports, errors, help and docs.

Who finds a word here that he needs says in `ALLOWED` why; JSON keys, reason codes in JSON and rule ids are a contract,
and none of this.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import FIXTURES, LOGS, PACKAGE, ROOT
from tests.test_fixtures import NAMES, judged
from vllm_doctor.cli import main
from vllm_doctor.model.reason import Reason
from vllm_doctor.render import checkmk, html, markdown, nagios, openmetrics, text

WORDS = {
    r"told|tells?": "reported, shown, known",
    r"anew": "again",
    r"beside": "with, next to, compared to",
    r"cure[sd]?|mend(?:s|ed)?": "fix",
    r"medians?|\d\dth percentile": "p50, p99",
    r"died|dies": "crashed, exited",
    r"computed again|throws? (?:out|away)|thrown (?:out|away)": "recomputed, preempts",
    r"stands? still|stood still": "is blocked, stops rising",
    r"in flight at a time": "concurrent requests",
    r"com(?:es?|ing) of (?:it|them)|came of (?:it|them)": "no tokens generated",
    r"(?:tokens|requests|samples|images|operations|bytes|times) a second": "tokens/s, tokens per second",
    r"(?:one|first|second|last|each) looks?|looked at|looked into|look tells": "sample, scrape, examined",
    r"vital signs?": "key metrics",
    r"taken in": "prompt tokens/s",
    r"answers again|attached again": "reconnected",
    r"seen from here|its start is not here": "what is known, what is excluded, what would decide",
    r"exit non-zero from here on": "minimum severity for a non-zero exit",
    r"as (?:far as )?(?:anybody|nobody) (?:says|looked)|[Nn]obody (?:says|looked|knows|can)": "is not known",
    r"petty|complaints?|for ever|grave": "negligible, symptom, without end, severe",
    r"I (?:need|am|see|can|cannot|was|do|have)|I'm|I've|[Rr]un me": "no first person: name the thing",
    r"[Ww]e (?:need|are|see|can|cannot|do|have)|my|our|me": "the same",
}
SPOKEN = {re.compile(rf"(?<![\w./`'-])(?:{word})(?![\w`'=-])"): instead for word, instead in WORDS.items()}
SHOWN = {
    re.compile(rf"(?<![\w-])(?:{'|'.join(reason for reason in Reason if '-' in reason)})(?![\w-])"): "IN_SHORT[reason]",
    re.compile(r"(?<![\w.,–/-])1 (?:GPUs|requests|engines|tokens|cores|processes|runs)\b"): "singular",
    re.compile(r"\d[eE]-\d\d"): "a number without an exponent",
    re.compile(r"Unknown\(|Reason\.|None\b"): "words",
}
ALLOWED = {
    "cure.sh": "the file that the terminal writes: a name that scripts know",
    "docs/cures.md": "a page's address",
    "median error": "of a fit, in docs/speed.md: not of a latency",
    "median of high over low": "the same",
    "median of the rounds": "of a measurement in the lab",
    "median e2e latency (ms)": "what SGLang's client prints",
    "cannot tell": "a word of compare's JSON: a contract",
    'class="died"': "of the HTML page's style sheet",
}
WRITTEN_BY_TOOLS = {
    "rules-seen.md": "tests/rules/seen: what public reports said",
    "topics.md": "tests/rules/topics.yaml, the same",
    "live-cases.md": "the lab",
    "guides.md": "tests/guides.py: what the doctor prints, which is checked where it is made",
    "cures.md": "the lab",
}
PROSE = {
    "title", "why", "not_this_rule", "do", "risk", "expect", "basis", "says", "effect", "also", "cause", "by", "lacks",
    "does",
}  # fmt: skip
LISTS = {"here", "computed", "then", "shows"}
"""Keys of rules with a list of sentences."""
SILENT = {"sources", "examples", "gives", "log-lines"}
"""What a thread on the net says, and what is compared with."""
READ = (
    "alerting", "cli", "compare", "fleet", "launch", "model", "prometheus", "recording", "regressions", "render",
    "session", "sources", "tui",
)  # fmt: skip
"""Folders whose texts people read; the others hold tables and languages."""


def wrong(said: str, *sets: dict[re.Pattern[str], str]) -> list[str]:
    """Each word that the field does not say, with what it says."""
    for allowed in ALLOWED:
        said = said.replace(allowed, "")
    return [f"{m[0]!r} in {said[max(0, m.start() - 50) : m.end() + 30]!r}: {instead}"
            for words in sets or (SPOKEN,) for word, instead in words.items() for m in word.finditer(said)]  # fmt: skip


def sentences(node: Any, key: str = "") -> Iterator[str]:
    """What a rule's file says to people."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name not in SILENT:
                yield from sentences(value, str(name))
    elif isinstance(node, list):
        for value in node:
            yield from sentences(value, key)
    elif isinstance(node, str) and (key in PROSE or key in LISTS):
        yield " ".join(re.sub(r"\{\w+\}", "{}", node).split())


def literals(path: Path) -> Iterator[str]:
    """The texts of a module that are no docstrings and no patterns, with {} where a value stands."""
    tree = ast.parse(path.read_text())
    documented = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documented | inner:
            yield node.value


@pytest.mark.parametrize("path", sorted((ROOT / "rules").rglob("*.yaml")), ids=lambda path: path.stem)
def test_a_rule_speaks_the_words_of_the_field(path: Path) -> None:
    if path.parent.name == "log-lines":
        pytest.skip("vLLM's own lines")
    assert [found for said in sentences(yaml.safe_load(path.read_text())) for found in wrong(said)] == []


def is_prose(said: str) -> bool:
    return len(said.split()) > 1 and not re.search(r"\(\?|\\[bdsw]", said)


@pytest.mark.parametrize("folder", READ)
def test_messages_and_labels_do(folder: str) -> None:
    texts = {said for path in (PACKAGE / folder).rglob("*.py") for said in literals(path) if is_prose(said)}
    assert [found for said in sorted(texts) for found in wrong(said)] == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.schema.json")), ids=lambda path: path.name)
def test_a_schema_does(path: Path) -> None:
    said = re.findall(r'"description": "((?:[^"\\]|\\.)*)"', path.read_text())
    assert [found for one in said for found in wrong(one)] == []


PAINTERS = (text, markdown, html, nagios, checkmk, openmetrics)


@pytest.mark.parametrize("name", NAMES)
def test_a_report_does_in_each_format(name: str) -> None:
    report = judged(name, slice(None))
    shown = " ".join(
        re.sub(r"<style>.*?</style>|<[^>]*>", " ", painter.render(report), flags=re.DOTALL) for painter in PAINTERS
    )
    assert wrong(" ".join(shown.split()), SPOKEN, SHOWN) == []


PAGES = [
    [str(FIXTURES / "max-num-seqs-cap"), "--text", "--explain"],
    [str(LOGS / "preemption.log.gz"), "--text"],
    [str(FIXTURES / "bench" / "cold.json"), "--text"],
    ["compare", str(FIXTURES / "max-num-seqs-cap"), str(FIXTURES / "healthy-busy")],
    ["expect", "--model", "meta-llama/Llama-3.1-8B", "--gpu", "H100"],
    ["regressions", "0.19.0", "0.21.0"],
    ["rules", "preemption"],
    ["--command", "vllm serve m -tp 2", "--gpu", "H100", "--text"],
]


@pytest.mark.parametrize("words", PAGES, ids=lambda words: " ".join(Path(word).name for word in words))
def test_a_page_does(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main.main(words)
    shown = " ".join(capsys.readouterr().out.split())
    assert len(shown) > 100
    assert wrong(shown, SPOKEN, SHOWN) == []


COMMANDS = (
    "", "compare", "fleet", "alerts", "rules", "demo", "flags", "expect", "regressions", "recipe", "profile", "record",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        main.main([*([command] if command else []), "--help"])
    assert wrong(" ".join(capsys.readouterr().out.split())) == []


SCREENS = sorted((ROOT / "tests" / "tui").glob("*screens/*.txt"))


@pytest.mark.parametrize("path", SCREENS, ids=lambda path: path.stem)
def test_a_screen_does(path: Path) -> None:
    assert wrong(path.read_text(), SPOKEN, SHOWN) == []


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_the_docs_do(path: Path) -> None:
    if path.name in WRITTEN_BY_TOOLS:
        pytest.skip(WRITTEN_BY_TOOLS[path.name])
    no_prose = r"```.*?```|`[^`\n]*`|(?<=\])\([^)\s]*\)|^\|.*$|^    .*$"
    prose = re.sub(no_prose, "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [found for line in prose.splitlines() for found in wrong(line)] == []
