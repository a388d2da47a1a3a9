"""The load that stands beside a command."""

from __future__ import annotations

import pytest

from vllm_doctor.launch import offered
from vllm_doctor.launch.source import facts, read
from vllm_doctor.model.reading import Known

WHOLE = {"bench_concurrency_asked": 128.0, "bench_input_len_asked": 1000.0, "bench_output_len_asked": 5000.0}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vllm bench serve --max-concurrency 128 --random-input-len 1000 --random-output-len=5000", WHOLE),
        ("(bench: random 1000 in / 5000 out, 450 prompts, max-concurrency 128)", WHOLE),
        ("max_concurrency=128, 1000 input / 5000 output tokens", WHOLE),
        ("the client has max_concurrency=256 (source=fallback)", {"bench_concurrency_asked": 256.0}),
        ("--max-concurrency 16\n--max-concurrency 32", {}),
        ("--max-num-seqs 128 --max-model-len 8192", {}),
        ("it took 3 in / out of 7", {}),
    ],
)
def test_the_load_as_people_write_it(text: str, found: dict[str, float]) -> None:
    assert offered.of_text(text) == found


def test_it_stands_beside_one_command_alone() -> None:
    client = "vllm bench serve --max-concurrency 128"
    [start] = read(f"vllm serve a/b\n{client}\n")
    assert facts(start)["bench_concurrency_asked"] == Known(128.0, origin="cmdline")
    two = read(f"vllm serve a/b --port 1\nvllm serve a/c --port 2\n{client}\n")
    assert not any("bench_concurrency_asked" in facts(one) for one in two)
