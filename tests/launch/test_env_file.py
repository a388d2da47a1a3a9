from __future__ import annotations

from vllm_doctor.launch import env_file
from vllm_doctor.launch.unexpanded import mark


def test_the_lines_of_an_env_file() -> None:
    text = """# for vLLM
MODEL=org/m # the chat model
export SEQS = 64
QUOTED='a # b'
DOUBLE="${SEQS}k"
FROM=${MODEL}-${OTHER}
ALONE
EMPTY=
not a line
"""
    assert env_file.values(text) == {
        "MODEL": "org/m",
        "SEQS": "64",
        "QUOTED": "a # b",
        "DOUBLE": "64k",
        "FROM": f"org/m-{mark('${OTHER}')}",
        "ALONE": None,
        "EMPTY": "",
    }
