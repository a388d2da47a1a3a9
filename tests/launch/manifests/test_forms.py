from __future__ import annotations

import pytest

from vllm_doctor.launch import yaml_tree
from vllm_doctor.launch.source import read
from vllm_doctor.model.errors import SourceError


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("args: [--model, m]\nimage: vllm/vllm-openai", "vllm serve --model m"),
        ("command: [vllm, serve]\nargs:\n- m", "vllm serve m"),
        ("containers:\n- image: x\n  command: [vllm]\n  args: [serve, m]", "vllm serve m"),
        (
            '{"kind": "Pod", "apiVersion": "v1", "spec": {"containers": [{"args": ["vllm", "serve", "m"]}]}}',
            "vllm serve m",
        ),
        ("services: {a: {image: vllm/vllm-openai, command: serve m}}", "vllm serve m"),
        ("services: {a: {entrypoint: vllm serve, command: [m]}}", "vllm serve m"),
        ("services: {a: {command: bash -c 'vllm serve m'}}", "vllm serve m"),
        ("services: {a: {build: ., command: --model m --max-num-seqs 4}}", "vllm serve --model m --max-num-seqs 4"),
        ("---\n# one\n---\nservices: {a: {command: vllm serve m}}", "vllm serve m"),
        ("model: m\nmax-num-seqs: 4\n", "vllm serve --config config.yaml"),
    ],
)
def test_forms_by_structure(text: str, argv: str) -> None:
    [start] = read(text)
    assert start.argv == tuple(argv.split())
    assert start.command.model == "m"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a: [1", "unreadable", "line 2: this is no valid YAML"),
        ("services: {a: {command: !secret S3CRET}}", "unreadable", "line 1: a tag"),
        ("services: !!python/object:os.system {}", "unreadable", "line 1: a tag"),
        ("a: &a [*a]", "too-large", "line 1: nested deeper than 50 levels"),
        ("services:\n  <<: 5\n", "unreadable", "line 2: << takes a mapping"),
        ("services:\n  ? [a]\n  : 1\n", "unreadable", "line 2: a key must be a plain text"),
        ("services: {a: *none}", "unreadable", "line 1: this is no valid YAML"),
        ("a: " + "[" * 100_000, "too-large", "line 1: nested deeper than 50 levels"),
        ("- " * 100_000, "too-large", "line 1: nested deeper than 50 levels"),
        ("a: 1\nb: 2\n", "not-vllm", "it is neither a compose file"),
        ("services: {a: {image: nginx}}", "not-vllm", "no vLLM server is started here"),
        ("apiVersion: v1\nkind: Service\n", "not-vllm", "no vLLM server is started here"),
        ("a:\n\x07", "unreadable", "this is no valid YAML"),
    ],
)
def test_what_cannot_be_read(text: str, kind: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        read(text)
    assert caught.value.kind == kind
    assert message in str(caught.value)
    assert "S3CRET" not in str(caught.value)


def test_a_small_text_does_not_unfold_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(SourceError, match="unfolds to more than 50,000 values"):
        read("\n".join(lines))
    merged = "\n".join(
        ["m0: &m0 {x: 1, y: 2}", *(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 9))]
    )
    with pytest.raises(SourceError, match="unfolds to more than 50,000 values"):
        read(merged)


def test_values_as_yaml_has_them() -> None:
    [root] = yaml_tree.read("{a: 1, b: 0x10, c: 1.5, d: off, e: ~, f: '1', g: 2020-01-01, h: 1_000, i: [.inf]}").roots
    assert root.plain == {
        "a": 1, "b": 16, "c": 1.5, "d": False, "e": None, "f": "1", "g": "2020-01-01", "h": 1000, "i": [".inf"],
    }  # fmt: skip


def test_a_template_that_is_no_yaml() -> None:
    with pytest.raises(SourceError, match="of a chart's template give what `helm template` prints"):
        read("command:\n{{- if or\n  (eq .a .b)\n}}\n- vllm\n{{- end }}\n- serve\n")
