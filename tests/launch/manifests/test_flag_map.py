from __future__ import annotations

import pytest

from vllm_doctor.launch import yaml_tree
from vllm_doctor.launch.manifests import flag_map


@pytest.mark.parametrize(
    ("key", "flag"),
    [
        ("max-model-len", "--max-model-len"),
        ("maxModelLen", "--max-model-len"),
        ("MAX_MODEL_LEN", "--max-model-len"),
        ("--max_model_len", "--max-model-len"),
        ("enableLoRA", "--enable-lora"),
        ("no-enable-prefix-caching", "--no-enable-prefix-caching"),
        ("someNewThing", "--some-new-thing"),
    ],
)
def test_a_key_in_any_spelling(key: str, flag: str) -> None:
    assert flag_map.flag_of(key) == flag


def test_values_of_each_kind() -> None:
    [node] = yaml_tree.read(
        "maxModelLen: 8192\nenforceEager: true\nenablePrefixCaching: false\ndownload_dir:\n"
        "lora-modules: [a=b, c=d]\nspeculativeConfig: {method: ngram}\ntrust-remote-code: false\n"
    ).roots
    assert [word.text for word in flag_map.words(node)] == [
        "--max-model-len", "8192", "--enforce-eager", "--no-enable-prefix-caching",
        "--lora-modules", "a=b", "c=d", "--speculative-config", '{"method": "ngram"}', "--no-trust-remote-code",
    ]  # fmt: skip
    assert "--no-enable-prefix-caching" not in [word.text for word in flag_map.words(node, turns_off=False)]
