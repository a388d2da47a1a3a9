from __future__ import annotations

import random

import pytest

from vllm_doctor.model.reading import Value
from vllm_doctor.sources.log.entry_arguments import Arguments, parse

SECRET = "S3CRET-0123456789abcdef"


def flags(inside: str) -> dict[str, Value]:
    """Of the line of vLLM 0.9 and later."""
    found = parse(f"{{{inside}}}", with_defaults=False)
    assert found.whole
    return dict(found.flags)


def command(inside: str) -> tuple[str, ...]:
    return parse(f"{{{inside}}}", with_defaults=False).command


@pytest.mark.parametrize(
    ("inside", "flag", "value"),
    [
        ("'max_num_seqs': 64", "--max-num-seqs", 64),
        ("'gpu_memory_utilization': 0.92", "--gpu-memory-utilization", 0.92),
        ("'gpu_memory_utilization': 1e-05", "--gpu-memory-utilization", 1e-05),
        ("'enforce_eager': True", "--enforce-eager", True),
        ("'enable_prefix_caching': False", "--enable-prefix-caching", False),
        ("'dtype': 'bfloat16'", "--dtype", "bfloat16"),
        ("'served_model_name': ['tiny', 'small']", "--served-model-name", "tiny small"),
        ("'speculative_config': {'method': 'ngram', 'n': 3}", "--speculative-config", '{"method": "ngram", "n": 3}'),
        (
            "'speculative_config': {'a': None, 'b': [True, False]}",
            "--speculative-config",
            '{"a": null, "b": [true, false]}',
        ),
        ("'chat_template': \"it's, {here}\"", "--chat-template", "it's, {here}"),
        (r"'chat_template': 'it\'s, {here}'", "--chat-template", r"it\'s, {here}"),
        ("'chat_template': ''", "--chat-template", ""),
    ],
)
def test_a_flag(inside: str, flag: str, value: Value) -> None:
    assert flags(f"'port': 8000, {inside}, 'seed': 7") == {"--port": 8000, flag: value, "--seed": 7}


@pytest.mark.parametrize(
    "inside",
    [
        "'seed': None",  # not given
        "'no_such_flag': 1",
        "'config': None",
        "7: 8",
        "'seed'",
        "",
        " , , ",
    ],
)
def test_what_is_no_flag(inside: str) -> None:
    assert flags(inside) == {}


def test_what_no_parser_reads_back_is_left_as_it_is() -> None:
    found = flags("'compilation_config': {'mode': <CompilationMode.VLLM: 3>, 'sizes': [1, 2]}, 'max_num_seqs': 8")
    assert found["--compilation-config"] == "{'mode': <CompilationMode.VLLM: 3>, 'sizes': [1, 2]}"
    assert found["--max-num-seqs"] == 8


def test_a_namespace_holds_the_defaults_too() -> None:
    """Until 0.8: a False is a switch that was not given."""
    found = parse(
        "Namespace(subparser='serve', model_tag='/models/tiny', host=None, port=8000, enforce_eager=True, "
        "trust_remote_code=False, rope_scaling=None, allowed_origins=['*'], max_num_seqs=256, "
        "dispatch_function=<function serve at 0x7f>, uvicorn_log_level='info')",
        with_defaults=True,
    )
    assert found.whole
    assert found.model == "/models/tiny"
    assert found.flags["--enforce-eager"] is True
    assert found.flags["--max-num-seqs"] == 256
    assert "--trust-remote-code" not in found.flags
    assert "--host" not in found.flags


# Secrets


@pytest.mark.parametrize(
    "inside",
    [
        f"'api_key': '{SECRET}'",
        f"'api_key': ['{SECRET}', '{SECRET}-2']",
        f"'hf_token': '{SECRET}'",
        f"'ssl_keyfile_password': '{SECRET}'",
        f"'api_key': ['a, b', '{SECRET}'], 'seed': 1",
        f"'kv_transfer_config': {{'extra': {{'api_key': '{SECRET}'}}}}",
        f"'model_loader_extra_config': {{'token': '{SECRET}'}}",
        f"'model': 'https://user:{SECRET}@host/models/tiny'",
        f"'model_tag': 'https://user:{SECRET}@host/models/tiny'",
        f"'download_dir': 's3://key:{SECRET}@bucket/models'",
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_no_secret_is_kept(inside: str, cut: bool) -> None:
    text = f"{{{inside}, 'max_num_seqs': 4, 'port': 8000}}"
    for end in range(len(text)) if cut else [len(text)]:
        found = parse(text[:end] if cut else text, with_defaults=False)
        assert SECRET[:10] not in repr(found) + " ".join(found.command)
    assert parse(text, with_defaults=False).flags["--max-num-seqs"] == 4


def test_that_a_key_was_given_is_told() -> None:
    assert "--api-key" in command(f"'api_key': ['{SECRET}']")


# The command line


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("'model_tag': '/models/tiny', 'model': '/models/other'", ("/models/tiny",)),
        ("'model': '/models/tiny'", ("/models/tiny",)),
        ("'max_model_len': 1000000", ("--max-model-len", "1000000")),
        ("'gpu_memory_utilization': 0.95", ("--gpu-memory-utilization", "0.95")),
        ("'enforce_eager': True", ("--enforce-eager",)),
        ("'enable_prefix_caching': False", ("--no-enable-prefix-caching",)),
        ("", ()),
    ],
)
def test_the_command_that_gives_these(inside: str, words: tuple[str, ...]) -> None:
    assert command(inside) == ("vllm", "serve", *words)


def test_long_values_are_cut() -> None:
    found = flags(f"'chat_template': '{'x' * 5000}', 'seed': 1")
    assert len(str(found["--chat-template"])) <= 300
    assert found["--seed"] == 1


# What is torn


def test_of_a_namespace_what_is_the_default_says_nothing() -> None:
    text = (
        "Namespace(config='', allowed_origins=['*'], dtype='auto', config_format=<ConfigFormat.AUTO: 'auto'>, "
        "gpu_memory_utilization=0.9, swap_space=4, max_num_seqs=32, kv_cache_dtype='fp8', use_v2_block_manager=True)"
    )
    found = parse(text, with_defaults=True)
    assert "--dtype" in found.flags
    told = {"--max-num-seqs": 32, "--kv-cache-dtype": "fp8"}
    assert {**found.given("0.8.5.post1").flags} == told
    assert {**found.given(None).flags} == told
    assert {**found.given("0.4.1").flags} == told


def test_what_was_set_to_the_default_was_set() -> None:
    found = parse("{'gpu_memory_utilization': 0.9}", with_defaults=False)
    assert found.given("0.10.0") == found


@pytest.mark.parametrize("text", ["", "Namespace", "{", "{'max_num_seqs': 6", "{'a': {'b': [1, 2", "{'a': '}"])
def test_what_was_cut_is_not_whole_and_half_a_value_is_none(text: str) -> None:
    assert parse(text, with_defaults=False) == Arguments({}, None, whole=False)


def test_what_stands_before_the_cut_is_kept() -> None:
    found = parse("{'seed': 7, 'dtype': 'auto', 'max_num_seqs': 6", with_defaults=False)
    assert (found.flags, found.whole) == ({"--seed": 7, "--dtype": "auto"}, False)


@pytest.mark.parametrize("seed", range(4))
def test_any_text_will_do(seed: int) -> None:
    chance = random.Random(seed)
    whole = "{'model_tag': '/m', 'max_num_seqs': 4, 'api_key': ['k'], 'x': {'a': <B: 3>, \"b\": (1, 'c\\'d')}}"
    for _ in range(3000):
        letters = list(whole)
        for _ in range(chance.randint(1, 8)):
            letters[chance.randrange(len(letters))] = chance.choice("{}[]()'\",:\\ a1=-.\x00é")
        found = parse("".join(letters), with_defaults=chance.random() < 0.5)
        assert all(isinstance(word, str) for word in found.command)


@pytest.mark.parametrize("text", ["{" * 60000, "'" * 60000, "{'a': " * 10000, "[" + "1," * 30000, "{" + "\\" * 60000])
def test_time_is_linear_in_the_text(text: str) -> None:
    """A quadratic one would take minutes."""
    assert parse(text, with_defaults=False).flags == {}


@pytest.mark.parametrize(
    "text",
    [
        "{'model_tag': '/models/tiny', 'tensor_parallel_size': 8, 'kv_ca",
        "{'model_tag': '/models/tiny', 'attention_config': AttentionConfig(backend=None)}",
        "{'model_tag': '/models/tiny', 'compilation_config': {'mode': <CompilationMode.VLLM: 3>}}",
        "{'model_tag': '/models/tiny', 'lora_modules': [LoRAModulePath(name='a', path='b')]}",
        f"{{'model_tag': '/models/tiny', 'chat_template': '{'x' * 400}'}}",
    ],
    ids=["cut", "an object", "an enum", "objects in a list", "a long text"],
)
def test_what_would_start_another_server_is_no_command(text: str) -> None:
    assert parse(text, with_defaults=False).command == ()


def test_a_default_that_no_command_line_takes_is_not_missing() -> None:
    text = "Namespace(model_tag='/models/tiny', config_format=<ConfigFormat.AUTO: 'auto'>, max_num_seqs=4)"
    assert parse(text, with_defaults=True).given("0.8.0").command == (
        "vllm",
        "serve",
        "/models/tiny",
        "--max-num-seqs",
        "4",
    )


def test_a_quoted_text_is_no_object() -> None:
    assert command("'chat_template': 'a(b) <c>'")[-1] == "a(b) <c>"
