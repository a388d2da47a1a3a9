"""Text that becomes Markdown stays what it was: through MyST's own parser."""

from __future__ import annotations

import re

import marks
import pytest
from markdown_it import MarkdownIt

TEXTS = (
    "--max-num-seqs 10 | 20",
    "a <script> of *stars* and _lines_, [a](b), `code`, {braces}, #3, $x$, ~y~",
    "back\\slash and ``two``",
    "p99 < 2 s & more",
)


def shown(html: str) -> str:
    text = re.sub(r"<[^>]+>", "", html)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&").strip()


@pytest.mark.parametrize("text", TEXTS)
def test_plain_text_stays(text: str) -> None:
    assert shown(MarkdownIt().render(marks.plain(text))) == text


@pytest.mark.parametrize("text", TEXTS)
def test_code_stays_in_a_table(text: str) -> None:
    html = MarkdownIt().enable("table").render(marks.table(("a", "b"), [(marks.code(text), "x")]))
    assert html.count("<td>") == 2
    assert text in shown(html)
    assert "<td><code>" in html


def test_a_url_becomes_a_link() -> None:
    html = MarkdownIt().render(marks.plain("see https://docs.vllm.ai/en/stable/x_y/ (or *not*)."))
    assert '<a href="https://docs.vllm.ai/en/stable/x_y/">' in html
    assert "<em>" not in html
