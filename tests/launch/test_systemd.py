from __future__ import annotations

import pytest

from tests.launch.manifests.written import of_file
from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Flaw, Form, Resources, Start


def unit(text: str) -> Start:
    [start] = read(f"[Service]\n{text}\n")
    return start


def test_a_unit() -> None:
    [start] = of_file("vllm.service")
    assert (start.form, start.place) == (Form.SYSTEMD, "ExecStart, line 12")
    assert start.argv[:3] == ("/opt/vllm/bin/vllm", "serve", "/models/%i")
    assert start.command.model is None
    assert start.command.flags == {
        "--tensor-parallel-size": 2.0,  # systemd leaves a comment among continued lines out, and goes on
        "--hf-overrides": '{"a": 100}',
        "--max-num-seqs": 128.0,
        "--api-key": "[masked]",
    }
    assert start.unknown_flags == {"--gpu-memory-utilization"}
    assert start.environment == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "VLLM_LOGGING_LEVEL": "INFO",
        "API_SECRET": None,
        "FLAGS": None,
    }
    assert start.resources == Resources(cpu_limit=4.0, open_files=65536.0)
    assert start.notes == ("EnvironmentFile= is not read: what it sets is not known",)
    assert not start.is_environment_whole


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("ExecStart=vllm serve m", "vllm serve m"),
        ("ExecStart=-/usr/bin/env A=1 vllm serve m", "vllm serve m"),
        ("ExecStart=@/bin/bash -c 'exec vllm serve m'", "vllm serve m"),
        ("ExecStart=\nExecStart=vllm serve m", "vllm serve m"),
        ("Environment=M=m\nExecStart=vllm serve ${M} $$x%%", "vllm serve m $x%"),
        ("ExecStart=/usr/bin/docker run vllm/vllm-openai --model m", "vllm serve --model m"),
    ],
)
def test_commands(text: str, argv: str) -> None:
    assert unit(text).argv == tuple(argv.split())


@pytest.mark.parametrize(
    ("text", "kind", "lost"),
    [
        ("ExecStart=vllm serve m \\ \n  --dtype half\nRestart=no", Flaw.SPACE_AFTER_BACKSLASH, ("--dtype",)),
        ("ExecStart=vllm serve m \\ # x\n  --dtype half", Flaw.COMMENT_AFTER_BACKSLASH, ("--dtype",)),
        ("ExecStart=vllm serve m\n  --dtype half", Flaw.MISSING_BACKSLASH, ("--dtype",)),
        ("ExecStart=vllm serve m --x 'y", Flaw.UNBALANCED_QUOTE, ()),
    ],
)
def test_faults(text: str, kind: Flaw, lost: tuple[str, ...]) -> None:
    start = unit(text)
    assert kind in {fault.kind for fault in start.faults}
    assert start.lost == lost
    assert "--dtype" not in start.command.flags


def test_what_a_unit_grants() -> None:
    start = unit("CPUQuota=250%\nAllowedCPUs=0-7 12\nLimitNOFILE=1024:4096\nExecStart=vllm serve m")
    assert start.resources == Resources(cpu_limit=2.5, open_files=1024.0)
    assert start.is_environment_whole
