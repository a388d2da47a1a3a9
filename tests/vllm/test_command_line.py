from __future__ import annotations

import json
import time

import pytest

from vllm_doctor.model.reading import Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm.command_line import Command, ReadConfig, changed, masked, parse, program_of

SERVE = ["/opt/vllm/bin/python", "/opt/vllm/bin/vllm", "serve"]
SECRET = "s3cr3t-Zz91-value"


def no_config(path: str) -> Reason:
    raise AssertionError(f"{path} was read")


def served(*words: str, read_config: ReadConfig = no_config) -> Command:
    return parse([*SERVE, *words], read_config)


def flags(*words: str) -> dict[str, Value]:
    return dict(served("m", *words).flags)


def configured(text: str | Reason, *words: str) -> Command:
    return served("--config", "/etc/vllm.yaml", *words, read_config=lambda path: text)


# ------------------------------------------------------------------ which programs are servers


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("vllm serve m", "vllm serve"),
        ("/opt/v/bin/python3.12 /opt/v/bin/vllm serve m", "vllm serve"),
        ("python -m vllm serve m", "vllm serve"),
        ("python3 -m vllm.entrypoints.cli.main serve m", "vllm serve"),
        ("python3 -u -X faulthandler -W ignore -m vllm.entrypoints.cli.main serve m", "vllm serve"),
        ("python3 /src/vllm/entrypoints/cli/main.py serve m", "vllm serve"),
        (
            "python -m vllm.entrypoints.openai.api_server --model m",
            "python -m vllm.entrypoints.openai.api_server",
        ),
        (
            "python -O /src/vllm/entrypoints/openai/api_server.py --model m",
            "python -m vllm.entrypoints.openai.api_server",
        ),
    ],
)
def test_servers(line: str, program: str) -> None:
    found = program_of(line.split())
    assert found is not None
    assert found[0] == program
    assert parse(line.split(), no_config).model == "m"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "vllm",
        "vllm bench serve --model m",
        "vllm chat",
        "vllm complete --url http://h:8000/v1",
        "python -m vllm bench serve",
        "python /opt/v/bin/vllm bench throughput",
        "python -m vllm.benchmarks.serve",
        "sh -c vllm|serve|m",
        "docker run vllm/vllm-openai vllm serve m",
        "tail -f vllm.log serve",
        "vim /opt/v/bin/vllm serve",
        "uv run vllm serve m",
        "nsys profile vllm serve m",
        "python -c import|vllm serve",
        "python -uc import|vllm serve",
        "python -",
        "python",
        "python -m",
        "python my_vllm serve",
        "grep vllm serve",
    ],
)
def test_others(line: str) -> None:
    words = [word.replace("|", " ") for word in line.split()]
    assert program_of(words) is None
    assert parse(words, no_config).flags == {}


# ------------------------------------------------------------------ flags


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--max-num-seqs 64", {"--max-num-seqs": 64.0}),
        ("--max_num_seqs=64", {"--max-num-seqs": 64.0}),
        ("--max-num-seqs 64 --max-num-seqs 8", {"--max-num-seqs": 8.0}),
        ("--gpu-memory-utilization 0.95", {"--gpu-memory-utilization": 0.95}),
        ("--device-memory-utilization .5", {"--gpu-memory-utilization": 0.5}),
        ("-tp 2 -pp=4 -dp 8 -asc 3", {
            "--tensor-parallel-size": 2.0, "--pipeline-parallel-size": 4.0,
            "--data-parallel-size": 8.0, "--api-server-count": 3.0,
        }),
        ("-q awq -ep", {"--quantization": "awq", "--enable-expert-parallel": True}),
        ("-qawq", {"--quantization": "awq"}),
        ("-O3", {"--optimization-level": 3.0}),
        ("-O 2", {"--optimization-level": 2.0}),
        ("-O=1", {"--optimization-level": 1.0}),
        ('-O {"level":3}', {"--compilation-config": '{"level":3}'}),
        ("-cc.mode=3", {"--compilation-config.mode": 3.0}),
        ("-O.mode 3", {"--compilation-config.mode": 3.0}),
        ("--compilation_config.pass_config.fuse_norm true", {"--compilation-config.pass_config.fuse_norm": True}),
        ("--attention-config.window 2k", {"--attention-config.window": 2000.0}),
        ("--no-enable-prefix-caching", {"--enable-prefix-caching": False}),
        ("--no_enable_prefix_caching", {"--enable-prefix-caching": False}),
        ("--enforce-eager", {"--enforce-eager": True}),
        ("--enable-chunked-prefill False", {"--enable-chunked-prefill": False}),
        ("--disable-access-log-for-endpoints /health", {"--disable-access-log-for-endpoints": "/health"}),
        ("--max-model-len -1", {"--max-model-len": -1.0}),
        ("--max-model-len auto", {"--max-model-len": -1.0}),
        ("--max-model-len 32k", {"--max-model-len": 32000.0}),
        ("--max-model-len 32K", {"--max-model-len": 32768.0}),
        ("--max-num-batched-tokens 1.5M", {"--max-num-batched-tokens": "1.5M"}),
        ("--max-num-batched-tokens 25.6k", {"--max-num-batched-tokens": 25600.0}),
        ("--block-size 1k", {"--block-size": "1k"}),
        ("--seed 1e999", {"--seed": "1e999"}),
        ("--revision 1234567", {"--revision": "1234567"}),
        ("--served-model-name a b --port 1", {"--served-model-name": "a b", "--port": 1.0}),
        ("--cudagraph-capture-sizes 1 2 4", {"--cudagraph-capture-sizes": "1 2 4"}),
        ("--max-num-se 4", {"--max-num-seqs": 4.0}),
        ("--max-num 4", {"--max-num": 4.0}),
        ("--a-plugins-own-flag x", {"--a-plugins-own-flag": "x"}),
        ("--a-plugins-own-switch --port 1", {"--a-plugins-own-switch": True, "--port": 1.0}),
        ("--port", {"--port": True}),
    ],
)  # fmt: skip
def test_flags(words: str, expected: dict[str, Value]) -> None:
    assert flags(*words.split()) == expected


def test_a_model_after_a_switch() -> None:
    found = served("--enforce-eager", "org/m", "--trust-remote-code")
    assert found.model == "org/m"
    assert found.flags == {"--enforce-eager": True, "--trust-remote-code": True}


def test_the_positional_model_wins() -> None:
    assert served("a", "--model", "b").model == "a"
    assert served("--port", "1").model is None


def test_json_is_kept_as_text() -> None:
    text = '{"method": "ngram",\n "num_speculative_tokens": 3}'
    assert flags("--speculative-config", text) == {"--speculative-config": text}


# ------------------------------------------------------------------ the --config file


def test_a_config_file() -> None:
    found = configured("""
        model: org/m
        tensor_parallel_size: 4
        max-model-len: 16k
        enable-prefix-caching: false
        enforce-eager: true
        served-model-name: [a, b]
        lora-modules: []
        chat-template: null
        speculative-config: {method: ngram, num_speculative_tokens: 3}
    """)
    assert found.model == "org/m"
    assert found.flags == {
        "--config": "/etc/vllm.yaml",
        "--model": "org/m",
        "--tensor-parallel-size": 4.0,
        "--max-model-len": 16000.0,
        "--enable-prefix-caching": False,
        "--enforce-eager": True,
        "--served-model-name": "a b",
        "--speculative-config": '{"method": "ngram", "num_speculative_tokens": 3}',
    }
    assert found.notes == ()


def test_of_another_programs_file_nothing_is_kept_but_its_keys() -> None:
    """Any process can name any file as its --config: a kubeconfig is such a mapping."""
    found = configured(f"apiVersion: v1\nusers: [{{user: {{password: {SECRET}}}}}]\nport: 8\na.b: {SECRET}\n")
    assert found.flags == {"--config": "/etc/vllm.yaml", "--port": 8.0}
    assert found.config_keys == {"--port": "port"}
    assert found.strange_keys == ("apiVersion", "users", "a.b")
    assert SECRET not in repr(found)


def test_the_command_line_wins_over_the_file() -> None:
    found = configured("{port: 1, max-num-seqs: 8, model: b}", "--port", "2", "--model", "a")
    assert found.flags["--port"] == 2.0
    assert found.flags["--max-num-seqs"] == 8.0
    assert found.model == "a"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (Reason.DENIED, "--config /etc/vllm.yaml: not read (denied), so its flags are not known"),
        (f"a: [{SECRET}", "--config /etc/vllm.yaml: not read (line 2: no valid YAML), so its flags are not known"),
        ("- a\n- b", "it is no mapping"),
        ("a: &x [1]\nb: *x", "it has aliases"),
        ("a: " + "x" * 1_000_001, "larger than 1 MB"),
        ("a: " + "[" * 100_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
        ("? " * 100_000, "nested too deeply"),
        ("a: !!python/object:os.system x", "no valid YAML"),
        ("a: \x01", "no valid YAML"),
    ],
)
def test_a_config_that_cannot_be_read(text: str | Reason, note: str) -> None:
    found = configured(text, "--port", "2")
    assert found.flags == {"--config": "/etc/vllm.yaml", "--port": 2.0}
    assert len(found.notes) == 1
    assert note in found.notes[0]
    assert SECRET not in repr(found)


def test_an_empty_config() -> None:
    assert configured("# nothing\n").notes == ()


def test_vllm_reads_no_config_after_an_equals_sign() -> None:
    found = served("m", "--config=/etc/vllm.yaml")
    assert found.notes == ("--config=FILE: vLLM reads the file only from `--config FILE`",)


# ------------------------------------------------------------------ secrets


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", SECRET],
        ["--api_key", SECRET, SECRET + "2"],
        [f"--api-key={SECRET}"],
        ["--api-ke", SECRET],
        ["--api-key", f"-{SECRET}"],
        ["--hf-token", SECRET],
        ["--seed-token", SECRET],
        ["--ssl-keyfile-password", SECRET],
        ["--kv-transfer-config.extra.api_key", SECRET],
        ["--kv-transfer-config", json.dumps({"a": {"access_key": SECRET}, "b": 1})],
        ["--kv-transfer-config", f"{{'secret_access_key' : '{SECRET}'}}"],
        ["--otlp-traces-endpoint", f"https://user:{SECRET}@h:4317"],
        ["--otlp-traces-endpoint", f"https://h:4317/?token={SECRET}&x=1"],
        [f"AWS_SECRET_ACCESS_KEY={SECRET}"],
        [f"authorization: Bearer {SECRET}"],
    ],
)
def test_secrets_are_masked(words: list[str]) -> None:
    for argv in ([*SERVE, "m", *words, "--port", "1"], ["python", "my_server.py", *words, "--port", "1"]):
        found = parse(argv, no_config)
        assert SECRET not in repr(found)
        assert "[masked]" in " ".join(found.argv)
        assert found.argv[-2:] == ("--port", "1")
    assert served("m", *words, "--port", "1").flags["--port"] == 1.0


def test_secrets_of_a_config_file() -> None:
    found = configured(f"api-key: [{SECRET}, b]\nhf_token: {SECRET}\nkv-transfer-config: {{api_key: {SECRET}}}\n")
    assert SECRET not in repr(found)
    assert found.flags["--api-key"] == "[masked]"
    assert found.flags["--kv-transfer-config"] == '{"api_key": "[masked]"}'


@pytest.mark.parametrize(
    "text",
    [
        "/data/hf_models_cache/llama",
        "/models/sk-llama",
        '{"num_speculative_tokens": 3, "tokenizer_mode": "slow"}',
        "http://h:8000/v1",
        "org/tokenizer-m",
    ],
)
def test_what_is_no_secret(text: str) -> None:
    assert masked(text) == text


def test_switches_are_no_secrets() -> None:
    assert flags("--allow-credentials", "--max-prompt-adapter-token", "8") == {
        "--allow-credentials": True,
        "--max-prompt-adapter-token": 8.0,
    }


@pytest.mark.parametrize("piece", ["a-", '"secret', "bearer ", "key=", "sk-", "://", "'key':", '"key": "\\', "x@"])
def test_a_hostile_argument_does_not_take_long(piece: str) -> None:
    started = time.process_time()
    masked(piece * (131_072 // len(piece)))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("written", "flag", "value"),
    [
        ("--disable-prefix-caching", "--enable-prefix-caching", False),
        ("--enable-hybrid-kv-cache-manager", "--disable-hybrid-kv-cache-manager", False),
        ("--disable-log-stats", "--disable-log-stats", True),
        ("--enable-prefix-caching", "--enable-prefix-caching", True),
        ("--disable-unheard-of", "--disable-unheard-of", True),
    ],
)
def test_an_opposite_that_a_newer_parser_takes(written: str, flag: str, value: bool) -> None:
    assert served("m", written).flags == {flag: value}


# The command line with other flags


@pytest.mark.parametrize(
    ("before", "set", "unset", "after"),
    [
        ("m --max-num-seqs 4 --x", {"--max-num-seqs": "--max-num-seqs 8"}, [], "m --max-num-seqs 8 --x"),
        ("m --max_num_seqs=4", {"--max-num-seqs": "--max-num-seqs 8"}, [], "m --max-num-seqs 8"),
        ("-tp 2 m", {"--tensor-parallel-size": "--tensor-parallel-size 1"}, [], "--tensor-parallel-size 1 m"),
        ("m --no-enable-x", {"--enable-x": "--enable-x"}, [], "m --enable-x"),
        ("m --enable-x --y 1", {"--enable-x": "--no-enable-x"}, [], "m --no-enable-x --y 1"),
        ("m --seed 1 --seed 2", {"--seed": "--seed 3"}, [], "m --seed 3"),
        ("m", {"--seed": "--seed 3", "--x": "--x"}, [], "m --seed 3 --x"),
        ("--enforce-eager m --served-model-name a b", {}, ["--enforce-eager"], "m --served-model-name a b"),
        ("m --served-model-name a b --seed 1", {}, ["--served-model-name"], "m --seed 1"),
        ("m -O3", {}, ["--optimization-level"], "m"),
        ("m -cc.mode 3 --x", {}, ["--compilation-config.mode"], "m --x"),
        ("m --api-key k1 k2 --x", {}, ["--x"], "m --api-key k1 k2"),
    ],
)
def test_a_changed_command(before: str, set: dict[str, str], unset: list[str], after: str) -> None:
    argv = ["/opt/bin/python", "-m", "vllm.entrypoints.openai.api_server", *before.split()]
    words = {name: text.split() for name, text in set.items()}
    assert changed(argv, words, unset) == (*argv[:3], *after.split())


def test_a_command_that_is_not_vllms_is_not_changed() -> None:
    argv = ("bash", "-c", "vllm serve m --seed 1")
    assert changed(argv, {"--seed": ["--seed", "2"]}, ()) == argv
