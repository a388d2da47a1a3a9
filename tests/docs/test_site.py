"""The documentation site: it is built without a warning, and every link within it leads somewhere."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.paths import ROOT
from vllm_doctor.cli import commands
from vllm_doctor.rules import rule_set

_LINK = re.compile(r'<(?:a|link|img|script)\b[^>]*?\b(?:href|src)="([^"]*)"')
_ID = re.compile(r'\bid="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-j", "2", "-d", str(folder / "trees")]
    built = subprocess.run([*words, str(ROOT / "docs"), str(folder / "html")], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder / "html"


def links(site: Path) -> Iterator[tuple[Path, str]]:
    for page in site.rglob("*.html"):
        for link in _LINK.findall(page.read_text("utf-8")):
            yield page, html.unescape(link)


def test_its_links_lead_somewhere(site: Path) -> None:
    ids: dict[Path, frozenset[str]] = {}
    broken = []
    for page, link in links(site):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not target.is_file():
            broken.append(f"{page.relative_to(site)}: {link}")
        elif parts.fragment and target.suffix == ".html":
            if target not in ids:
                ids[target] = frozenset(map(html.unescape, _ID.findall(target.read_text("utf-8"))))
            if unquote(parts.fragment) not in ids[target]:
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """A page that is read on a host without a network, or one that must not tell who reads it, is whole."""
    fetched = re.compile(r'<(?:link|img|script)\b[^>]*?\b(?:href|src)="(?:https?:)?//')
    assert [page.name for page in site.rglob("*.html") if fetched.search(page.read_text("utf-8"))] == []


def test_each_rule_and_command_has_a_page(site: Path) -> None:
    reference = site / "reference"
    assert [
        rule.id for rule in rule_set.load([]).rules if not (reference / "rules" / f"{rule.id}.html").is_file()
    ] == []
    assert [name for name in commands.ABOUT if not (reference / "options" / f"{name}.html").is_file()] == []


def test_a_rules_page_says_what_to_do(site: Path) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "reference/rules/preemption.html").read_text("utf-8")))
    assert "The KV cache is too small for the running batch" in text
    assert "- --num-gpu-blocks-override" in text
    assert "--watermark is in vLLM 0.24.0 and later" in text
    assert "vllm-doctor demo preemption" in text
    assert "https://docs.vllm.ai/en/stable/configuration/optimization/" in text


def test_a_flag_is_not_written_with_a_dash_of_print(site: Path) -> None:
    """Smart quotes make "–max-num-seqs" of it, which no shell takes."""
    wrong = re.compile(r"[–—][a-z][a-z-]+-[a-z]")
    assert [str(page) for page in site.rglob("*.html") if wrong.search(page.read_text("utf-8"))] == []
