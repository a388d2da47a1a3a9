"""vllm-doctor expect, as it is run: flags and a load in, a range and an exit code out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests import paths
from vllm_doctor.cli import main
from vllm_doctor.sources.host import process

Ran = Callable[..., tuple[int, str, str]]
SCHEMA = json.loads((paths.PACKAGE / "render" / "expect.v1.schema.json").read_text("utf-8"))
ASKED = ("expect", "--model", "Qwen/Qwen3-32B", "--gpu", "4xH100", "-tp", "4")
RANGES = ("tpot_ms", "ttft_ms", "output_tokens_per_second", "output_tokens_per_second_per_request")


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No server, and no model's files of this machine."""

    def find(kernel: object) -> None:
        raise AssertionError("nobody is asked")

    monkeypatch.setattr(process, "find", find)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-cache"))


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    def ran(*arguments: str) -> tuple[int, str, str]:
        code = main.main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return ran


@pytest.fixture
def expected(ran: Ran) -> Callable[..., dict[str, Any]]:
    """The answer in JSON."""

    def expected(*arguments: str) -> dict[str, Any]:
        code, out, err = ran(*arguments, "--json")
        assert (code, err) == (0, "")
        document: dict[str, Any] = json.loads(out)
        jsonschema.Draft202012Validator(SCHEMA).validate(document)
        assert document["schema"] == "vllm-doctor/expect/v1"
        found: dict[str, Any] = document["expect"]
        return found

    return expected


def test_the_answer_for_a_person(ran: Ran) -> None:
    code, out, err = ran(*ASKED, "--concurrency", "16", "--input-len", "1024", "--output-len", "512")
    assert (code, err) == (0, "")
    assert out.startswith("EXPECT  ")
    assert max(map(len, out.splitlines())) <= 80
    shown = " ".join(out.split())
    for said in (
        "Qwen/Qwen3-32B · 4 × H100",
        "16 concurrent requests, each with 1,024 prompt tokens and 512 generated tokens",
        "Fits yes: 15.3 GiB of weights on each GPU",
        "Speed time per output token",
        "total tokens/s",
        "checkpoint table: Qwen",
    ):
        assert said in shown


def test_the_answer_in_json(expected: Callable[..., dict[str, Any]]) -> None:
    found = expected(*ASKED, "--concurrency", "16", "--input-len", "1024", "--output-len", "512")
    assert found["fits"] is True
    assert (found["concurrency"], found["input_len"], found["output_len"]) == (16, 1024, 512)
    for name in RANGES:
        values = [found[name][key] for key in ("bound", "low", "typical", "high")]
        assert all(type(value) in (int, float) for value in values)
        assert values[1] <= values[2] <= values[3]
    assert found["tpot_ms"]["bound"] <= found["tpot_ms"]["low"]
    assert found["output_tokens_per_second"]["bound"] >= found["output_tokens_per_second"]["high"]
    assert found["output_tokens_per_second"]["typical"] == pytest.approx(
        16 * found["output_tokens_per_second_per_request"]["typical"], rel=1e-4
    )
    assert found["requests_that_fit"] == found["kv_tokens"] // 1536
    assert {"what", "value", "unit", "from"} == set(found["assumptions"][0])
    assert found["unknown"] == []


def test_more_requests_are_slower_each_and_faster_together(expected: Callable[..., dict[str, Any]]) -> None:
    few, many = (expected(*ASKED, "--concurrency", requests) for requests in ("1", "128"))
    assert few["tpot_ms"]["typical"] < many["tpot_ms"]["typical"]
    assert few["output_tokens_per_second"]["typical"] < many["output_tokens_per_second"]["typical"]


def test_vllms_own_options_are_taken_as_vllm_takes_them(expected: Callable[..., dict[str, Any]]) -> None:
    plain = expected(*ASKED)
    assert expected("expect", "Qwen/Qwen3-32B", "--gpu", "4xH100", "--tensor-parallel-size=4") == plain
    small = expected(*ASKED, "--dtype", "fp8", "--kv-cache-dtype", "fp8", "--max-num-seqs", "8")
    assert small["weights_gib_per_gpu"] == pytest.approx(plain["weights_gib_per_gpu"] / 2, rel=0.15)
    assert small["kv_tokens"] > 1.9 * plain["kv_tokens"]
    assert (small["requests_running"], small["requests_queued"]) == (8, 8)
    assert small["queue_ms"]["typical"] > 0


@pytest.mark.parametrize(
    ("dtype", "bytes_each"), [("bf16", 2), ("fp8", 1), ("nvfp4", 0.6), ("awq", 0.6), ("INT4", 0.6)]
)
def test_what_people_call_a_data_type(expected: Callable[..., dict[str, Any]], dtype: str, bytes_each: float) -> None:
    found = expected(*ASKED, "--dtype", dtype)
    assert found["weights_gib_per_gpu"] == pytest.approx(32.8e9 * bytes_each / 4 / 2**30, rel=0.1)


def test_the_version_is_that_of_the_option(expected: Callable[..., dict[str, Any]]) -> None:
    old = {one["what"]: one for one in expected(*ASKED, "--vllm", "0.19.0")["assumptions"]}
    new = {one["what"]: one for one in expected(*ASKED)["assumptions"]}
    assert (old["vLLM"]["value"], old["vLLM"]["from"]) == ("0.19.0", "user")
    assert new["vLLM"]["from"] == "newest"
    assert old["share of memory that vLLM takes"]["value"] < new["share of memory that vLLM takes"]["value"]


def test_a_command_in_place_of_options(expected: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text("#!/bin/sh\nexec vllm serve Qwen/Qwen3-32B \\\n  -tp 4\n")
    plain = expected(*ASKED)
    for given in ("vllm serve Qwen/Qwen3-32B -tp 4", str(script)):
        assert expected("expect", "--command", given, "--gpu", "4xH100") == plain


def test_a_model_of_a_folder(expected: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 16, "vocab_size": 128_256,
        "max_position_embeddings": 131_072, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    with (tmp_path / "model.safetensors").open("wb") as weights:
        weights.truncate(2_471_645_608)
    found = expected("expect", "--model", str(tmp_path), "--gpu", "L4")
    assert found["weights_gib_per_gpu"] == pytest.approx(2.302, rel=1e-3)
    assert "model-files" in {one["from"] for one in found["assumptions"]}


def test_a_model_that_is_too_large_is_an_answer(ran: Ran, expected: Callable[..., dict[str, Any]]) -> None:
    asked = ("expect", "--model", "meta-llama/Llama-3.1-70B-Instruct", "--gpu", "H100")
    found = expected(*asked)
    assert (found["fits"], found["gpus"]) == (False, 1)
    assert found["gpus_needed"] in (2, 4)
    assert found["tpot_ms"] == dict.fromkeys(("bound", "low", "typical", "high"))
    code, out, _ = ran(*asked)
    assert code == 0
    assert out.startswith("TOO LARGE  The model needs ")
    assert "[model-too-large]" in out


def test_requests_that_are_longer_than_the_context(ran: Ran) -> None:
    shown = " ".join(ran(*ASKED, "--input-len", "65536")[1].split())
    assert "vLLM refuses them: the context limit is 40,960 tokens" in shown


def test_a_kv_cache_that_was_made_too_small_by_hand(ran: Ran) -> None:
    out = ran(*ASKED, "--kv-cache-memory-bytes", "1M", "--max-model-len", "16")[1]
    assert out.startswith("TOO LARGE  The KV cache is too small for a request of 2,048 tokens")


def test_flags_that_vllm_refuses(ran: Ran, expected: Callable[..., dict[str, Any]]) -> None:
    asked = ("expect", "--model", "Qwen/Qwen3-32B", "--gpu", "8xH100", "-tp", "3")
    assert expected(*asked)["refused"] == "64 attention heads cannot be divided by --tensor-parallel-size (3)"
    assert ran(*asked)[1].startswith("REFUSED  vLLM does not start: 64 attention heads")
    assert expected(*ASKED)["refused"] is None


def test_what_the_rules_find_in_the_command_is_said_with_what_it_costs(ran: Ran) -> None:
    shown = " ".join(ran(*ASKED, "--enforce-eager")[1].split())
    assert "are switched off [enforce-eager]: at most " in shown
    assert "The speed above is without what these cost." in shown
    (found,) = json.loads(ran(*ASKED, "--enforce-eager", "--json")[1])["findings"]
    assert found["rule"] == "enforce-eager"
    assert 1 < found["costs_at_most_ms"] < 100
    assert "[enforce-eager]: at most" not in " ".join(ran(*ASKED)[1].split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "which model? vllm-doctor expect --model MODEL --gpu 4xH100"),
        (("--model", "no/such-thing", "--gpu", "H100"), "the size of the model is not known: name it as on"),
        (("--model", "Qwen/Qwen3-32B"), "the GPU's memory is not known: name the GPUs: --gpu 4xH100"),
        (("--model", "Qwen/Qwen3-32B", "--gpu", "H1000"), "H100"),
        (("--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--concurency", "4"), "no option --concurency; did you mean"),
        (("--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--concurrency", "0"), "invalid count value: '0'"),
        (("--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--output-len", "1e99"), "invalid count value"),
        (("--model", "Qwen/Qwen3-32B", "--gpu", "H100", "-tp", "0"), "sizes of parallelism from 1 on"),
        (("--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--vllm", "banana"), "--vllm banana: write a version"),
        (("--model", "no/Qwen-3-32", "--gpu", "H100"), "the nearest names: Qwen/"),
        (("--command", "vllm serve m", "--model", "m", "--gpu", "H100"), "--command holds vLLM's own options"),
        (("--command", "echo hello", "--gpu", "H100"), "no vLLM server is started here"),
    ],
)  # fmt: skip
def test_where_nothing_can_be_told_one_line_says_why(ran: Ran, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = ran("expect", *arguments)
    assert (code, out) == (3, "")
    assert says in err
    assert err.count("\n") == 1
    code, out, _ = ran("expect", *arguments, "--json")
    document = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert (code, document["expect"]) == (3, None)
    assert says in document["error"]["message"]


@pytest.mark.parametrize(
    "hostile",
    [
        ("--max-model-len", "99999999999999999999999"),
        ("--gpu-memory-utilization", "nan"),
        ("--gpu-memory-utilization", "-1e308"),
        ("--cpu-offload-gb", "1e308"),
        ("--kv-cache-memory-bytes", "1"),
        ("--block-size", "0"),
        ("--max-num-seqs", "inf"),
        ("--hf-overrides", "[1e999]"),
        ("-dp", "99999999999999999999"),
        ("-pp", "-1"),
        ("--concurrency", "1000000000", "--output-len", "1000000000"),
    ],
    ids=lambda words: words[0] + words[1][:9],
)
def test_values_that_make_no_sense_are_an_answer_or_one_line(ran: Ran, hostile: tuple[str, ...]) -> None:
    code, out, err = ran(*ASKED, *hostile)
    assert (code, bool(out), err.count("\n")) in ((0, True, 0), (3, False, 1))
    assert "internal error" not in err
    assert all(len(line) <= 80 for line in out.splitlines())
    document = json.loads(ran(*ASKED, *hostile, "--json")[1], parse_constant=lambda text: pytest.fail(text))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_several_commands_are_refused(ran: Ran, tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text("vllm serve Qwen/Qwen3-8B --port 1 &\nvllm serve Qwen/Qwen3-4B --port 2\n")
    code, _, err = ran("expect", "--command", str(script), "--gpu", "H100")
    assert (code, err) == (3, "vllm-doctor: --command holds several commands of vLLM: give one of them\n")


def test_no_secret_of_the_command_leaves(ran: Ran) -> None:
    for form in ((), ("--json",)):
        _, out, _ = ran(*ASKED, "--api-key", "sk-0123456789abcdefghijklmnop", *form)
        assert "0123456789abcdef" not in out


def test_it_is_written_whole_into_a_file(ran: Ran, tmp_path: Path) -> None:
    code, out, _ = ran(*ASKED, "-o", str(tmp_path / "expected.txt"))
    assert (code, out) == (0, "")
    assert (tmp_path / "expected.txt").read_text().startswith("EXPECT  ")


def test_a_plain_examination_of_a_command_says_what_it_will_give(ran: Ran) -> None:
    command = "vllm serve Qwen/Qwen3-32B -tp 4"
    code, out, _ = ran("--command", command, "--gpu", "4xH100", "--text")
    assert code == 3  # nothing was measured
    shown = " ".join(out.split())
    assert "Fits yes: 15.3 GiB of weights on each GPU" in shown
    assert "1 request " in shown
    assert "16 requests " in shown
    assert "Costs" not in shown
    _, out, _ = ran("--command", f"{command} --enforce-eager", "--gpu", "4xH100", "--text")
    shown = " ".join(out.split())
    assert "Costs What the speed above is without, with 1 request:" in shown
    assert "[enforce-eager]: at most " in shown
    _, out, _ = ran("--command", command, "--gpu", "4xH100", "--json")
    expect = json.loads(out)["expect"]
    assert [load["concurrency"] for load in expect["loads"]][:2] == [1, 16]
    assert expect["fits"] is True


def test_a_context_that_does_not_fit_is_a_finding(ran: Ran) -> None:
    code, out, _ = ran("--command", "vllm serve meta-llama/Llama-3.1-8B-Instruct", "--gpu", "L4", "--json")
    report = json.loads(out)
    assert code == 2
    assert report["findings"][0]["rule"] == "context-exceeds-kv-cache"
    now = report["command"]["now"]
    assert now[-2] == "--max-model-len"
    code, out, _ = ran("--command", " ".join(now), "--gpu", "L4", "--json")
    assert "context-exceeds-kv-cache" not in {finding["rule"] for finding in json.loads(out)["findings"]}
