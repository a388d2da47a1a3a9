from __future__ import annotations

import pytest

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form


@pytest.mark.parametrize(
    "columns",
    [
        "root        12  3.5  0.9 9234 1234 ?  Ssl  10:46   0:25 ",
        "me     12     1  0 10:46 pts/0    00:00:25  \\_ ",
        "  12 ?        Ssl    0:25 ",
    ],
)
def test_a_row(columns: str) -> None:
    [start] = read(
        "USER PID COMMAND\n"
        f'{columns}/usr/bin/python3 /opt/bin/vllm serve m --hf-overrides {{"a": 1, "b": 2}} --max-model-len 8192\n'
        "root 13 0.0 0.0 1 2 ? S 10:53 0:00 VLLM::EngineCore\n"
    )
    assert (start.form, start.place) == (Form.PROCESS_LIST, "line 2")
    assert start.command.flags == {"--hf-overrides": '{"a": 1, "b": 2}', "--max-model-len": 8192.0}


def test_a_row_that_the_terminal_broke() -> None:
    [start] = read("root 12 3.5 0.9 1 2 ? Ssl 10:46 0:25 python -m vllm.entrypoints.openai.api_server --dtype\nhalf\n")
    assert start.command.flags == {"--dtype": "half"}


def test_what_is_left_out() -> None:
    [start] = read("root 12 0.0 0.0 1 2 ? S 10:46 0:25 /usr/bin/vllm serve ...\n")
    assert start.is_open
    assert start.command.model is None
