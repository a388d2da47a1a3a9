from __future__ import annotations

from collections import Counter

import pytest

from vllm_doctor.text import redact

X = "zqPlanted"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ('--hf-overrides \'{"auth":{"pass":"X"}}\'', '--hf-overrides \'{"auth":{"pass":"[masked]"}}\''),
        ('"{\\"auth\\":{\\"pass\\":\\"X\\"}}"', '"{\\"auth\\":{\\"pass\\":\\"[masked]\\"}}"'),
        ("passphrase X", "passphrase [masked]"),
        ("the passphrase is correct horse X", "the passphrase is [masked]"),
        ("passphrase: correct horse X, n=1", "passphrase: [masked], n=1"),
        ("pwd=X", "pwd=[masked]"),
        ("password: X", "password: [masked]"),
        ("RAY_REDIS_PW=X", "RAY_REDIS_PW=[masked]"),
        ("db_pass: 12345678", "db_pass: [masked]"),
        ('{"secrets": [{"name": "a", "value": "X"}]}', '{"secrets": [{"name": "[masked]", "value": "[masked]"}]}'),
        ('{"auth": {"user": "u", "pass": 12345678}}', '{"auth": {"user": "[masked]", "pass": [masked]}}'),
        ("auth: {user: bob, value: X}", "auth: {user: [masked], value: [masked]}"),
        ("api_keys: [abc, X]", "api_keys: [[masked]]"),
        ("api_key=SecretStr('X')", "api_key=SecretStr('[masked]')"),
        ("os.environ['MY_TOKEN'] = 'X'", "os.environ['MY_TOKEN'] = '[masked]'"),
        ('export DB_PASS="a b X"', 'export DB_PASS="[masked]"'),
        ("password=a&b;c,X)d n=1", "password=[masked] n=1"),
        ("(password=X)", "(password=[masked])"),
        ("--db-password 'X' -q", "--db-password '[masked]' -q"),
        ("-Dkeystore.pass=X", "-Dkeystore.pass=[masked]"),
        ("auth=('bob', 'X')", "auth=('[masked]', '[masked]')"),
        ("Proxy-Authorization: Digest X", "Proxy-Authorization: [masked]"),
        ("the token zqA1b2C3d4E5 was refused", "the token [masked] was refused"),
        ("host=h user=u password=X dbname=d", "host=h user=u password=[masked] dbname=d"),
    ],
)
def test_the_value_is_masked_and_its_surroundings_stay(text: str, clean: str) -> None:
    text = text.replace("X", X)
    masked: Counter[str] = Counter()
    assert redact.secrets(text, masked) == clean
    assert masked.total() >= 1
    assert redact.secrets(clean, Counter()) == clean


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: key: lm_head.weight is missing",
        "password is required",
        "password authentication failed for user bob",
        "vLLM 0.33.0 does not have --db-pass (was in no version)",
        "set --api-key or VLLM_API_KEY",
        "eos_token='</s>' bos_token=\"<s>\" pad_token: <pad>",
        "tokenizer_mode=auto, skip_tokenizer_init=False, tokenizer_revision=None",
        "pass_config: {'enable_fusion': 'yes'}, custom_passes=['a']",
        "author: Bob, authority=x, PWD=/root bypass=always passthrough=yes",
        "if key == 'x' and token != 'y'",
        "token_budget=5, max_tokens: 512, tokens=16, key=3, auth=True",
        "routing_key=abc, cache_key: 'abc', prompt_key=prompt",
        "auth_type: basic, secretName: x, token_file=/run/t, password_file: /run/p",
        "next token: the; per token: 5 ms; a token 151643; the key 12",
        'vllm:iteration_tokens_total_bucket{le="8.0",model_name="m"} 3',
        "the forward pass took 5 s; pass: 3 of 4",
        "from the host's memory to the GPU in each forward pass: a step takes as long; its primary key: words",
    ],
)
def test_what_no_secret_is_called_stays(text: str) -> None:
    masked: Counter[str] = Counter()
    assert redact.secrets(text, masked) == text
    assert not masked
