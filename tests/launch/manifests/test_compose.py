from __future__ import annotations

from tests.launch.manifests.written import of_file
from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Flaw, Form, Resources


def test_compose() -> None:
    chat, embed = of_file("compose.yaml")
    assert (chat.form, chat.place, chat.version) == (Form.COMPOSE, "services.chat.command", "0.11.0")
    assert chat.command.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert chat.command.flags["--tensor-parallel-size"] == 2.0
    assert chat.command.flags["--speculative-config"] == '{"method": "ngram", "num_speculative_tokens": 3}'
    assert chat.unknown_flags == {"--max-num-seqs"}
    assert [fault.says for fault in chat.faults] == [
        "${MAX_SEQS} is not in the text: the value of --max-num-seqs is not known"
    ]
    assert chat.environment == {"HF_TOKEN": None, "VLLM_LOGGING_LEVEL": "DEBUG"}
    assert chat.resources == Resources(gpus=2.0, cpu_limit=8.0, host_ipc=True)
    assert embed.argv == (
        "python3", "-m", "vllm.entrypoints.openai.api_server",
        "--model=BAAI/bge-m3", "--enforce-eager", "--api-key", "[masked]",
    )  # fmt: skip
    assert embed.environment["VLLM_LOGGING_LEVEL"] == "INFO"
    assert embed.resources == Resources(gpus=1.0, shm_bytes=8.0 * 2**30)


def test_backslashes_in_a_folded_text() -> None:
    [start] = read("services:\n  a:\n    command: >\n      vllm serve m \\\n      --dtype half\n")
    assert start.lost == ("--dtype",)
    [start] = read("services:\n  a:\n    command: |\n      vllm serve m \\\n      --dtype half\n")
    assert start.lost == ("--dtype",)
    [start] = read("services:\n  a:\n    command: |\n      vllm serve m \\\n        --dtype half\n")
    assert [(fault.kind, fault.line) for fault in start.faults] == [(Flaw.STRAY_WORD, 4)]
    assert start.command.flags == {"--dtype": "half"}


def test_variables_of_compose() -> None:
    [start] = read(
        "services: {a: {command: 'vllm serve m --dtype $DT --seed $$X', environment: [A=1, HF_HOME=$$h, B]}}"
    )
    assert start.unknown_flags == {"--dtype"}
    assert start.command.flags == {"--seed": "$X"}
    assert start.environment == {"A": None, "HF_HOME": "$h", "B": None}
