from __future__ import annotations

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Flaw, Form


def test_programs() -> None:
    first, second = read(
        "[supervisord]\nnodaemon=true\n"
        "[program:proxy]\ncommand=nginx -g 'daemon off;'\n"
        '[program:chat]\nenvironment=CUDA_VISIBLE_DEVICES="0,1",NCCL_DEBUG=INFO,X=%(ENV_X)s\n'
        "command=/opt/bin/vllm serve m  ; the model\n    --max-model-len 8192\n    --port %(ENV_PORT)s\n"
        "autostart=true   ; yes\n"
        '[program:embed]\ncommand=/bin/bash -c "VLLM_USE_V1=1 vllm serve n --dtype half"\n'
    )
    assert (first.form, first.place) == (Form.SUPERVISOR, "program:chat, line 7")
    assert first.command.flags == {"--max-model-len": 8192.0}
    assert first.unknown_flags == {"--port"}
    assert first.environment == {"CUDA_VISIBLE_DEVICES": "0,1", "NCCL_DEBUG": "INFO", "X": None}
    assert (second.place, second.command.flags) == ("program:embed, line 12", {"--dtype": "half"})
    assert second.environment["VLLM_USE_V1"] == "1"


def test_a_quote_that_nothing_closes() -> None:
    [start] = read("[program:a]\ncommand=vllm serve m --hf-overrides '{\n")
    assert [fault.kind for fault in start.faults] == [Flaw.UNBALANCED_QUOTE]
