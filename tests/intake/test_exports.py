"""Exports become the text that people wrote in them."""

from __future__ import annotations

import json

import pytest

from vllm_doctor.intake import exports
from vllm_doctor.intake.exports import Export

SMI = "```\n| NVIDIA-SMI 550 |\n```"


def test_an_issue_of_the_api_with_its_comments() -> None:
    issue = {
        "url": "https://api.example/1",
        "title": "Slow",
        "user": {"login": "somebody"},
        "body": f"I run it so:\r\n\r\n{SMI}",
        "comments": [{"body": "And the log?\nPlease."}, {"body": "Here."}],
    }
    assert exports.read(json.dumps(issue)) == Export(f"Slow\n\nI run it so:\n\n{SMI}\n\nAnd the log?\nPlease.\n\nHere.")


def test_a_chat() -> None:
    chat = {"messages": [{"author": "a", "content": "vllm serve m\nis slow"}, {"author": "b", "content": "Which GPU?"}]}
    assert exports.read(json.dumps(chat)) == Export("vllm serve m\nis slow\n\nWhich GPU?")


@pytest.mark.parametrize("key", ["", "items"])
def test_of_several_issues_the_first_is_read(key: str) -> None:
    issues = [{"title": "Slow", "body": "vllm serve m\nis slow"}, {"title": "Dead", "body": "vllm serve n\ndies"}]
    export = exports.read(json.dumps({key: issues} if key else issues))
    assert export == Export("Slow\n\nvllm serve m\nis slow", left_out=1)


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
    assert exports.read(raw) is None


def test_a_page_keeps_what_is_preformatted_line_by_line() -> None:
    page = """<!DOCTYPE html><html><head><title>x</title><script>vllm serve nothing</script></head><body>
    <p>We start   it\n so:</p><pre><code>vllm serve m \\\n  --max-num-seqs <span>4</span></code></pre>
    <p>It gets 12 tokens/s &amp; no more.</p><table><tr><td>TPOT</td><td>83 ms</td></tr></table></body></html>"""
    export = exports.read(page)
    assert export is not None
    told = export.text
    assert "vllm serve nothing" not in told
    assert "```\nvllm serve m \\\n  --max-num-seqs 4\n```" in told
    assert "It gets 12 tokens/s & no more." in told
    assert "We start it so:" in told
    assert "| TPOT | 83 ms" in told.replace("  ", " ")


def test_a_page_that_never_ends_is_read_as_far_as_it_goes() -> None:
    export = exports.read("<html>" + "<div>" * 50_000 + "<pre>a\nb")
    assert export is not None
    told = export.text
    assert told.endswith("```\na\nb\n")


def test_deep_json_is_no_export() -> None:
    deep: object = {"body": "a\nb"}
    for _ in range(100):
        deep = {"inner": deep}
    assert exports.read(json.dumps(deep)) is None
