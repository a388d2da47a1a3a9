from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import adapter_files
from vllm_doctor.sources.host.process import ServerProcess, of_pid
from vllm_doctor.vllm.command_line import Command


@pytest.fixture
def host(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def told(host: FakeProc, *words: str, files: Mapping[str, str | int]) -> dict[str, Reading]:
    host.add(7, ["vllm", "serve", "m", *words], cwd="/srv", files=files)
    return adapter_files.facts(of_pid(host.kernel(), 7))


FILES = {
    "loras/a/adapter_config.json": '{"r": 8}',
    "srv/b/adapter_config.json": '{"r": 32}',
    "loras/odd/adapter_config.json": '{"r": "many"}',
}


def test_the_largest_rank_of_the_adapters_that_are_named(host: FakeProc) -> None:
    assert told(host, "--lora-modules", "a=/loras/a", "b=b", files=FILES)["lora_rank_largest"] == Known(32.0)


@pytest.mark.parametrize(("path", "reason"), [("/loras/none", Reason.ABSENT), ("/loras/odd", Reason.INVALID)])
def test_of_adapters_of_which_one_cannot_be_read_nothing_is_said(host: FakeProc, path: str, reason: Reason) -> None:
    found = told(host, "--lora-modules", "a=/loras/a", f"x={path}", files=FILES)
    assert found == {"lora_rank_largest": Unknown(reason)}


def test_a_server_without_adapters(host: FakeProc) -> None:
    assert told(host, files=FILES) == {}


def test_a_server_whose_files_are_not_at_hand() -> None:
    server = ServerProcess(7, command=Command((), flags={"--lora-modules": "a=/loras/a"}))
    assert adapter_files.facts(server) == {"lora_rank_largest": Unknown(Reason.NOT_LOCAL)}
