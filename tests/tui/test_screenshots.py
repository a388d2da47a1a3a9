"""The screenshots of the README and of docs/terminal.md show what the program shows."""

from __future__ import annotations

import html
import re

from tests.paths import ROOT
from tests.tui.screenshots import DOCS, SHOTS, shots

README = (ROOT / "README.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "terminal.md").read_text("utf-8")


def words(svg: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(r"<text [^>]*>([^<]*)</text>", svg)]


def test_they_are_as_they_would_be_made_now() -> None:
    for name, svg in shots().items():
        kept = (DOCS / f"{name}.svg").read_text("utf-8")
        assert words(kept) == words(svg), "python -m tests.tui.screenshots makes them anew"


def test_the_page_shows_them_and_says_how_they_are_made() -> None:
    for name in SHOTS:
        assert f"({name}.svg)" in PAGE
    assert "-m tests.tui.screenshots" in PAGE
    assert "(docs/overview.svg)" in README


def test_the_page_names_the_keys() -> None:
    for key in (
        "`/`",
        "`s`",
        "`c`",
        "`y`",
        "`w`",
        "`p`",
        "`r`",
        "`?`",
        "`q`",
        "`+`",
        "`-`",
        "`e`",
        "`1`",
        "Tab",
        "Enter",
    ):
        assert key in PAGE
