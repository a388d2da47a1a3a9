"""Exports become the text that people wrote in them."""

from __future__ import annotations

import json

import pytest

from vllm_doctor.intake import exports

SMI = "```\n| NVIDIA-SMI 550 |\n```"


def test_an_issue_of_the_api_with_its_comments() -> None:
    issue = {
        "url": "https://api.example/1",
        "title": "Slow",
        "user": {"login": "somebody"},
        "body": f"I run it so:\r\n\r\n{SMI}",
        "comments": [{"body": "And the log?\nPlease."}, {"body": "Here."}],
    }
    assert exports.text(json.dumps(issue)) == f"Slow\n\nI run it so:\n\n{SMI}\n\nAnd the log?\nPlease.\n\nHere."


def test_a_chat() -> None:
    chat = {"messages": [{"author": "a", "content": "vllm serve m\nis slow"}, {"author": "b", "content": "Which GPU?"}]}
    assert exports.text(json.dumps(chat)) == "vllm serve m\nis slow\n\nWhich GPU?"


@pytest.mark.parametrize(
    "raw",
    [
        "vllm serve m --max-num-seqs 4\n",
        '{"request_throughput": 1.5, "model_id": "m"}',
        '{"body": "one line"}',
        '{"body": 3',
        "[" * 100_000,
        "# A page\n\n<b>bold</b>",
    ],
)
def test_what_is_no_export(raw: str) -> None:
    assert exports.text(raw) is None


def test_a_page_keeps_what_is_preformatted_line_by_line() -> None:
    page = """<!DOCTYPE html><html><head><title>x</title><script>vllm serve nothing</script></head><body>
    <p>We start   it\n so:</p><pre><code>vllm serve m \\\n  --max-num-seqs <span>4</span></code></pre>
    <p>It gets 12 tokens/s &amp; no more.</p><table><tr><td>TPOT</td><td>83 ms</td></tr></table></body></html>"""
    told = exports.text(page)
    assert told is not None
    assert "vllm serve nothing" not in told
    assert "```\nvllm serve m \\\n  --max-num-seqs 4\n```" in told
    assert "It gets 12 tokens/s & no more." in told
    assert "We start it so:" in told
    assert "| TPOT | 83 ms" in told.replace("  ", " ")


def test_a_page_that_never_ends_is_read_as_far_as_it_goes() -> None:
    told = exports.text("<html>" + "<div>" * 50_000 + "<pre>a\nb")
    assert told is not None
    assert told.endswith("```\na\nb\n")


def test_deep_json_is_no_export() -> None:
    deep: object = {"body": "a\nb"}
    for _ in range(100):
        deep = {"inner": deep}
    assert exports.text(json.dumps(deep)) is None
