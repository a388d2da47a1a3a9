from __future__ import annotations

import time

import pytest

from vllm_doctor.launch.source import facts, read
from vllm_doctor.launch.start import Form, Resources
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.reading import Known

NOTE = "found by its keys' names: what the program that reads this document makes of them is not known"


def test_values_of_ones_own_chart() -> None:
    [start] = read(
        "model: {name: granite, huggingfaceName: org/granite}\nserver:\n  replicas: 1\n  maxModelLen: 8192\n"
        "  maxNumSeqs: 256\n  enablePrefixCaching: true\n  colour: red\n"
        "  image: {repository: vllm/vllm-openai, tag: v0.11.0}\nresources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    assert (start.form, start.place, start.version) == (Form.VALUES, "server", "0.11.0")
    assert start.command.model == "org/granite"
    assert start.command.flags == {
        "--max-model-len": 8192.0,
        "--max-num-seqs": 256.0,
        "--enable-prefix-caching": True,
    }
    assert start.resources == Resources(gpus=1.0)
    assert start.notes == (NOTE, "not read of server: colour")


def test_lists_of_arguments_and_roles() -> None:
    decode, prefill = read(
        "app:\n  decode: {extraArgs: [--max-model-len, '20480', --enable-chunked-prefill]}\n"
        "  prefill: {extraArgs: ['--max-model-len 1024', --max-num-seqs=4]}\n"
    )
    assert decode.argv == ("vllm", "serve", "--max-model-len", "20480", "--enable-chunked-prefill")
    assert prefill.argv == ("vllm", "serve", "--max-model-len", "1024", "--max-num-seqs=4")
    assert prefill.place == "app.prefill.extraArgs"


def test_models_of_a_list() -> None:
    one, two = read(
        "models:\n- {model_id: org/a, vllm_config: {max_num_seqs: 4, dtype: half}}\n"
        "- {model_id: org/b, vllm_config: {max_num_seqs: 8}}\n- {model_id: c, enabled: false, vllm_config: {seed: 1}}\n"
    )
    assert (one.command.model, two.command.model) == ("org/a", "org/b")


def test_commands_wherever_they_stand() -> None:
    [start] = read("jobs:\n  a:\n    env: {M: org/m}\n    steps:\n    - run: vllm serve $M --max-num-seqs 4\n")
    assert (start.place, start.command.model) == ("jobs.a.steps[0].run", "org/m")
    [start] = read("tasks: {serve: {command: [vllm, serve, org/m], args: [--seed, '1']}}\n")
    assert start.argv == ("vllm", "serve", "org/m", "--seed", "1")


@pytest.mark.parametrize(
    "text",
    [
        "description: vllm serve is a command\n",
        "model: m\nport: 80\nhost: a\nseed: 1\ndtype: x\n"
        + "other: 1\nmore: 2\nstill: 3\nthings: 4\nand: 5\nthen: 6\n",
        "args: [--verbose, --seed, '1']\nname: x\n",
        "trainer: {max_steps: 3, seed: 1, dtype: bf16, revision: x}\n",
    ],
)
def test_what_is_no_server(text: str) -> None:
    with pytest.raises(SourceError):
        read(text)


def test_much_of_it_ends() -> None:
    began = time.monotonic()
    wide = "a:\n" + "".join(f"- {{maxModelLen: 1, maxNumSeqs: {n}, blockSize: 2}}\n" for n in range(3000))
    deep = "".join("  " * n + f"k{n}:\n" for n in range(48)) + "  " * 48 + "run: vllm serve m\n"
    with pytest.raises(SourceError, match="more than"):
        read(wide)
    assert read(deep)
    assert time.monotonic() - began < 20


def test_arguments_in_one_text_and_keys_of_an_engine() -> None:
    [start] = read(
        "deploy: {image: vllm, model: org/m, max_model_len: 8, max_num_seqs: 4,\n"
        "  extra_args: '--seed 1 --block-size 32'}\n"
    )
    assert start.argv[4:] == ("--max-model-len", "8", "--max-num-seqs", "4", "--seed", "1", "--block-size", "32")
    assert start.command.model == "org/m"
    [start] = read("engineArgs: {max-model-len: 8192}\nmodel: hf://org/m\nresources: {accelerator: 'A10G:2'}\n")
    assert (start.command.model, start.command.flags) == ("org/m", {"--max-model-len": 8192.0})
    assert (start.resources.gpu, start.resources.gpus) == ("A10G", 2.0)


def test_a_proxy_starts_no_engine() -> None:
    with pytest.raises(SourceError, match="LiteLLM, which starts no engine"):
        read("model_list:\n- {model_name: x, litellm_params: {model: hosted_vllm/org/m, api_base: 'http://x'}}\n")


@pytest.mark.parametrize("end", ["", "```\n", "```\nThanks!\n"])
def test_flags_and_variables_in_a_fence_that_may_be_open(end: str) -> None:
    [start] = read(
        "Hello! I don't know what to do.\n\n## Serving setting\n```\nenv:\n  VLLM_XPU_ENABLE_XPU_GRAPH: '0' \n"
        "  ZE_AFFINITY_MASK: 0,1\nargs:\n  host: 127.0.0.1\n  dtype: float16\n  block-size: 64 \n"
        f"  max-num-batched-tokens: 8192  \n  enforce-eager: true \n  trust-remote-code: true  \n{end}"
    )
    assert start.command.flags["--max-num-batched-tokens"] == 8192.0
    assert start.command.flags["--enforce-eager"] is True
    assert "ZE_AFFINITY_MASK" in start.environment
    assert facts(start)["device_written"] == Known("xpu", origin="environ")
