from __future__ import annotations

import pytest

from vllm_doctor.launch.source import read


@pytest.mark.parametrize(
    ("given", "argv", "role"),
    [
        ("python3 -m dynamo.vllm --model m --migration-limit 3 -tp 2", "vllm serve --model m -tp 2", None),
        ("python -m dynamo.vllm --model m --is-decode-worker", "vllm serve --model m", "decode"),
        ("python -m dynamo.vllm --disaggregation-mode=prefill --model=m", "vllm serve --model=m", "prefill"),
        ("python -m dynamo.vllm --compilation-config.mode 3 --model m", None, None),
    ],
)
def test_a_worker(given: str, argv: str | None, role: str | None) -> None:
    [start] = read(given)
    assert start.argv == tuple((argv or given.replace("python -m dynamo.vllm", "vllm serve")).split())
    assert [note for note in start.notes if "role" in note] == ([f"its role: {role}"] if role else [])
