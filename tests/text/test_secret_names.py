from __future__ import annotations

import pytest

from vllm_doctor.text import secret_names
from vllm_doctor.vllm import flags, metrics


@pytest.mark.parametrize(
    "name",
    sorted(
        secret_names.words("""
    pass db_pass dbpass userPass keystore.pass passphrase pass_phrase pwd PWD_ADMIN passwd password
    adminPassword mysqlpassword REDIS_PW RAY_REDIS_PW VLLM_PASSPHRASE password_hash ssl-keyfile-password secret
    client_secret secret_id AWS_SECRET_ACCESS_KEY credentials api_key apiKey x-api-key --api-key api_keys
    API_KEY_2 OPENAI_API_KEY_PROD key lmcache.api_key client-key-data AZURE_STORAGE_KEY token hf_token HFToken
    authToken access-token session_token myapp_token tokens auth basic_auth proxyAuth oauth2 Authorization
    cookie Set-Cookie cache_salt psk github_pat
    """)
    ),
)
def test_names_of_secrets(name: str) -> None:
    assert secret_names.is_secret(name)


@pytest.mark.parametrize(
    "name",
    sorted(
        secret_names.words("""
    max_tokens num_batched_tokens --max-num-batched-tokens token_budget token_ids eos_token_id eos_token
    bos_token tokenizer tokenizer_mode tokens_per_second prompt_tokens next_token bypass passthrough
    pass_through forward_pass pass_config post_grad_custom_post_pass compass author authority authored auth_type
    kv_transfer_key routing_key cache_key public_key --key-cache monkey hotkey keys missing_keys PWD OLDPWD
    secret_name secretName secretKeyRef token_file password_file credentials_path access_key_id
    VLLM_USE_FASTOKENS enable_auth require_password power pwm --enable-prompt-tokens-details
    --return-tokens-as-token-ids --ssl-keyfile engine model_name le
    """)
    ),
)
def test_names_of_no_secrets(name: str) -> None:
    assert not secret_names.is_secret(name)


def test_of_all_that_vllm_takes_these_are_secrets() -> None:
    assert {name for name in flags.names() if secret_names.is_secret(name)} == {"--api-key", "--hf-token"}


def test_no_metric_is_a_secret() -> None:
    assert not [name for name in metrics.shown() if secret_names.is_secret(name)]


def test_every_secret_has_a_stem_in_its_name() -> None:
    """By which texts without any are passed over."""
    for name in ("db_pass", "REDIS_PW", "credentials", "cache_salt", "github_pat", "oauth", "apikey", "jwt", "otp"):
        assert secret_names.is_secret(name)
        assert any(stem in name.lower() for stem in secret_names.STEMS)
