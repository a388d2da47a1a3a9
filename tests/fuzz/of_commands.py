"""Harnesses of commands as they are written."""

from __future__ import annotations

from collections.abc import Hashable

from tests.fuzz import corpus
from tests.fuzz.harness import finite, harness, text_of
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Change

_CHANGES = {
    0: [
        Change("--max-num-seqs", None, 7, "a"),
        Change("--kv-cache-dtype", "auto", "fp8", "b"),
        Change("--enable-prefix-caching", None, True, "c"),
        Change("VLLM_USE_V1", None, "1", "d"),
    ]
}


def _command(data: bytes) -> Hashable:
    """A text with commands; what they give; and the corrected text in the form it came in."""
    from vllm_doctor.launch import source

    opened = source.of_text("x", source._decoded(data, "x"))
    assert opened.document is not None
    signs = []
    for start in opened.starts[:3]:
        seen = opened.examine(start, "h", None)
        signs.append((str(start.form), finite(seen.facts)))
    patches = opened.document.patched(_CHANGES)
    for patch in patches:
        assert patch.lines or patch.problem
    return tuple(signs), tuple(bool(patch.problem) for patch in patches)


FLAGS = (
    "vllm serve ", "--max-num-seqs 4", "--config c.yaml", "--model=", "-tp", "--hf-overrides '{\"a\":1}'", "\\\n",
    "&&", "$X", "${X:-1}", "<<EOF\n", "EOF\n", "bash -c '", "exec ", "docker run ", "vllm/vllm-openai:v0.9.1",
    "env A=b ", "; ",
)  # fmt: skip
YAML = (
    "args:", "command:", "containers:", "services:", "image: vllm/vllm-openai:v0.9.1", "kind: Deployment", "spec:",
    "env:", "- name: A", "value:", "---\n", "|\n", ">-\n", "&a ", "*a", "<<: *a", "resources:", "limits:", "shm_size:",
    "nvidia.com/gpu: 2", "deploy:", "modelSpec:", "vllmConfig:", "emptyDir:", '["vllm", "serve", "m"]', "\t", "? ",
)  # fmt: skip


@harness(
    lambda: [*corpus.SHELL, *(text for text in corpus.commands() if b"services:" not in text)],
    *FLAGS,
    weight=2,
    most=3000,
)
def command(data: bytes) -> Hashable:
    """Shell, docker run, Python, Markdown."""
    return _command(data)


@harness(lambda: [text for text in corpus.commands() if b":\n" in text], *YAML, *FLAGS[:6], weight=3, most=5000)
def manifest(data: bytes) -> Hashable:
    """Compose, Kubernetes, Helm values, --config files."""
    return _command(data)


@harness(
    lambda: [text for text in corpus.commands() if b"[Service]" in text],
    "[Service]", "ExecStart=", "Environment=", "EnvironmentFile=-", "\\\n", "%i", "-@!", "CPUQuota=200%", *FLAGS[:5],
    most=3000,
)  # fmt: skip
def unit(data: bytes) -> Hashable:
    """A systemd unit."""
    return _command(data)


_ARGV = (
    b"vllm\nserve\nm\n--max-num-seqs\n64\n--api-key\nx\n--config\nc.yaml",
    b"/usr/bin/python3\n-m\nvllm.entrypoints.openai.api_server\n--model=m\n-O3\n--no-enable-chunked-prefill",
    b'vllm\nserve\n--model\nm\n--kv-transfer-config.kv_role=both\n--hf-overrides\n{"a": 1}\n-tp=2\n--quantization\nfp8',
)


@harness(
    lambda: list(_ARGV), *FLAGS[1:6], "\n", "--", "-", "=", "--config\nx", "max-num-seqs: 7\n", weight=2, most=1500
)
def argv(data: bytes) -> Hashable:
    """The words of a process, with its --config file; and the words that correct it."""
    from vllm_doctor.vllm import command_line

    words = text_of(data).split("\n")
    found = command_line.parse(words, lambda path: "\n".join(words))
    now = command_line.changed(words, {"--max-num-seqs": ("--max-num-seqs", "7")}, {"--seed"})
    again = command_line.parse(now, lambda path: Reason.DENIED)
    if found.program and not any(word.startswith("--config") for word in words) and "--" not in words:
        assert again.flags.get("--max-num-seqs") == 7.0, now
    return bool(found.program), len(found.flags), len(found.notes), len(now)


@harness(
    lambda: [b"model: m\nmax-num-seqs: 7\nhf-overrides: {a: 1}\nlist: [1, b]\nflag: true\n"],
    *YAML[-6:],
    raises=(ValueError,),
    most=2000,
)
def config_file(data: bytes) -> Hashable:
    """--config."""
    from vllm_doctor.vllm import config_file

    return len(config_file.parsed(text_of(data)))
