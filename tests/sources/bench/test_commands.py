"""Benchmark commands within a text."""

from __future__ import annotations

from vllm_doctor.sources.bench.commands import commands
from vllm_doctor.sources.bench.run import LATENCY, SERVE, THROUGHPUT


def test_flags_of_commands_in_prose_and_shells() -> None:
    text = (
        "I ran `vllm bench serve --model m --num-prompts=100 --ignore-eos` and\n"
        "python3 benchmarks/benchmark_throughput.py --model 'a b' --input-len 5 > out.txt\n"
        "$ vllm bench latency --batch-size 4 | tee x\n"
    )
    serve, throughput, latency = commands(text.replace("`", " "))
    assert serve.tool == SERVE
    assert serve.flags["--num-prompts"] == "100"
    assert serve.flags["--ignore-eos"] in ("", "and")
    assert (throughput.tool, throughput.flags) == (THROUGHPUT, {"--model": "a b", "--input-len": "5"})
    assert (latency.tool, latency.flags) == (LATENCY, {"--batch-size": "4"})


def test_lines_are_joined_as_a_shell_does_and_as_a_quote_shows() -> None:
    (command,) = commands("> vllm bench serve \\\n>   --model m \\\n>   --seed 3\n> and that was it\n")
    assert command.flags == {"--model": "m", "--seed": "3"}


def test_a_sentence_about_the_tool_is_no_command() -> None:
    assert list(commands("WARNING: vllm bench serve no longer sets temperature==0 (greedy)")) == []


def test_a_namespace_has_what_the_command_left_out() -> None:
    text = (
        "Namespace(seed=7, num_prompts=10, dataset_name='random', random_input_len=256, random_output_len=64, "
        "sharegpt_output_len=9, base_url=None, request_rate=inf, max_concurrency=8, ignore_eos=True, save_result=False)"
    )
    (command,) = commands(text)
    assert command.tool == SERVE
    assert command.flags == {
        "--seed": "7", "--num-prompts": "10", "--dataset-name": "random", "--random-input-len": "256",
        "--random-output-len": "64", "--request-rate": "inf", "--max-concurrency": "8", "--ignore-eos": "",
    }  # fmt: skip


def test_hostile_text_ends() -> None:
    assert next(commands("vllm bench serve " + "-" * 100_000)).flags == {}
    assert len(list(commands("vllm bench serve --a 1\n" * 1000))) == 64
    assert list(commands("Namespace(" * 10_000)) == []


def test_a_copy_of_the_script_is_known_by_its_flags() -> None:
    (found,) = commands("python test_serving.py --backend vllm --num-prompts 1000 --request-rate 60\n")
    assert (found.tool, found.flags["--request-rate"]) == (SERVE, "60")
    assert list(commands("python serve.py --port 8000 --num-prompts 3\npython3 -m http.server\n")) == []


def test_an_abbreviated_flag_is_the_one_that_argparse_takes_it_for() -> None:
    [command] = commands("vllm bench serve --num-prompt=4096 --random-input 512 --dataset sharegpt --max-conc 8\n")
    assert command.flags == {
        "--num-prompts": "4096", "--random-input-len": "512", "--dataset": "sharegpt", "--max-concurrency": "8",
    }  # fmt: skip
    [command] = commands("vllm bench serve --num 4 --random 5\n")  # of several, or too short to be one
    assert command.flags == {"--num": "4", "--random": "5"}
