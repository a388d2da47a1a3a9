"""Secrets of all kinds, planted in what the doctor reads, and how they are found again: for tests/test_secrets.py."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from tests.cli.test_examine_local import fake_vllm
from tests.paths import NVIDIA_SMI
from tests.serving import pages, serving, vllm

SMI = NVIDIA_SMI / "h100-driver-550.xml"

API_KEY = "s3cr3tApiKey0123456789"
SECOND_KEY = "sEcondK3y-abcdef-77"
BEARER = "b34r3rT0kenValue.abcdef-0123456789"
HF = "hf_Zq0123456789abcdefGHIJklmn"
SK = "sk-proj-Zq0123456789abcdefGHIJ"
AWS = "AKIAZQ0123456789ABCD"
AWS_SECRET = "wJalrXUtnFEMIzK7MDENGbPxRfiCYSECRETKEY"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzM2NyM3QifQ.c2lnbmF0dXJlLXMzY3IzdA"
PASSWORD = "p4ssw0rd-Zq9"
BASIC = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
SIGNATURE = "51gn4tur3Zq0123456789"
AZURE = "Zm9vYmFyU2VjcmV0QXp1cmVLZXk0123"
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCZqZqZq0123456789"
COOKIE = "zqSession-8f7e6d5c"
DIGEST = "zqDigestResponse0123"
_A = "Zq0a1B2c3D4e5F6g7H8i9JkLmNoPqRsTuVwXyZ" * 5
_HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9" * 3

SHAPES = {
    "a Hugging Face token": HF,
    "an OpenAI key": SK,
    "an AWS key": AWS,
    "a JWT": JWT,
    "a GitHub token": "ghp_" + _A[:36],
    "a GitHub token of its own rights": "github_pat_" + _A[:60],
    "a GitLab token": "glpat-" + _A[:20],
    "a Slack token": "xoxb-" + "123456789012-210987654321-" + _A[:24],
    "a Slack webhook": "https://hooks.slack.com/services/T0" + "ZQ12345/B0ZQ12345/" + _A[:24],
    "an NVIDIA key": "nvapi-" + _A[1:50],
    "an Anthropic key": "sk-ant-api03-" + _A[2:60],
    "a Stripe key": "sk_live_" + _A[:24],
    "a SendGrid key": "SG." + _A[:22] + "." + _A[3:46],
    "a Google key": "AIza" + _A[:35],
    "a Google OAuth token": "ya29." + _A[4:60],
    "an npm token": "npm_" + _A[:36],
    "a PyPI token": "pypi-AgE" + "IcHlwaS5vcmc" + _A[5:70],
    "a Vault token": "hvs." + _A[:95],
    "a Docker Hub token": "dckr_pat_" + _A[6:33],
    "an Azure AD secret": "zqA8Q~" + _A[:34],
    "a Databricks token": "dapi" + _HEX[:32],
    "a DigitalOcean token": "dop_v1_" + _HEX[:64],
    "a Telegram token": "1234567890:AA" + _A[:33],
    "a Mailchimp key": _HEX[1:33] + "-us12",
}
"""Told by their looks, whatever stands around them."""
NAMED: Mapping[str, str | int] = {
    "pass": "zqPass-1a",
    "passphrase": "zqPhrase one two",
    "db_pass": "zqDbPass-2b",
    "pwd": "zqPwd-3c",
    "passwd": "zqPasswd-4d",
    "password": "zqPassword5e",
    "REDIS_PW": "zqRedis-6f",
    "adminPassword": "zqAdmin7g",
    "secret": "zqSecret-8h",
    "client-key-data": "zqClientKeyData9i",
    "keystore.pass": "zqKeystore-1j",
    "x-auth-token": "zqXAuth-2k",
    "cache_salt": "zqSalt-3l",
    "apikey": "zqGlued-4m",
    "session_token": "zqSessionTok-5n",
    "pin_password": 4815162342,
}
"""Told by their names."""
NESTED = {
    "the value of a credential": "zqCredential-6o",
    "a member of auth": "zqMember-7p",
    "a password in a DSN": "zqDsn-8q",
    "the password of Redis": "zqRedisUrl9r",
}
SAID = {
    "a passphrase in a sentence": "zqSpoken-1s",
    "a prompt": "my doctor told me that I have zq-syndrome",
    "an answer": "you should rest and drink zq-tea",
    "a prompt in a template's error": "zq-template words of a client",
    "a prompt in an error of several lines": "zq-second line of a client",
    "a prompt in a request's body": "zq-body words of a client",
    "a prompt that a template rejected": "zq-rejected words of a client",
    "a piece of an answer": "zq-delta words of an answer",
    "a stop word": "zq-stop",
    "a prompt that was taken for a path": "what does zq-path mean for me",
    "a prompt in JSON's error field": "zq-field words of a client",
}
PROMPT, ANSWER = SAID["a prompt"], SAID["an answer"]

SECRETS: dict[str, str] = {
    "an API key": API_KEY,
    "the second API key": SECOND_KEY,
    "a bearer token": BEARER,
    "an AWS secret": AWS_SECRET,
    "a password in a URL": PASSWORD,
    "basic authorization": BASIC,
    "digest authorization": DIGEST,
    "a cookie": COOKIE,
    "a signed URL": SIGNATURE,
    "an Azure key": AZURE,
    "a private key": PEM,
    **SHAPES,
    **{f"called {name}": str(value) for name, value in NAMED.items()},
    **NESTED,
    **SAID,
}
ENCODED_PASSWORD = "p%34ssw0rd-Zq9"

Plant = Callable[[Path], contextlib.AbstractContextManager[Sequence[str | Path]]]

DOCUMENT = {
    "deep": [{"db": dict(NAMED)}],
    "ids": list(SHAPES.values()),
    "credentials": {"user": "u", "value": NESTED["the value of a credential"]},
    "auth": {"kind": "simple", "more": [NESTED["a member of auth"]]},
    "dsn": f"host=h user=u password={NESTED['a password in a DSN']} dbname=d",
    "cache": f"redis://:{NESTED['the password of Redis']}@h:6379/0",
}
"""In the JSON of a flag."""
WORDS = [
    "--api-key", API_KEY, SECOND_KEY,
    "--hf-token", HF,
    "--otlp-traces-endpoint", f"http://alice:{PASSWORD}@otlp:4317",
    "--download-dir", f"https://b.blob.core/x?sv=1&sig={SIGNATURE}",
    "--kv-transfer-config", json.dumps({"auth_token": BEARER, "aws_secret_access_key": AWS_SECRET}),
    "--additional-config", json.dumps({"headers": {"Authorization": f"Bearer {JWT}"}, "id": AWS, "key": AZURE}),
    "--hf-overrides", json.dumps(DOCUMENT),
]  # fmt: skip
ENVIRONMENT = {
    "HF_TOKEN": HF,
    "VLLM_API_KEY": API_KEY,
    "AWS_SECRET_ACCESS_KEY": AWS_SECRET,
    "VLLM_S3_ENDPOINT": f"https://alice:{PASSWORD}@s3:9000",
    "VLLM_EXTRA": f"key={SK}",
    "NCCL_X": AWS,
    "RAY_ADDRESS": f"ray://alice:{ENCODED_PASSWORD}@head:10001",
    "CUDA_NOTE": f"AccountKey={AZURE};x=1",
    "VLLM_PASSPHRASE": str(NAMED["passphrase"]),
    "RAY_REDIS_PW": str(NAMED["REDIS_PW"]),
    "VLLM_DB_PASS": str(NAMED["db_pass"]),
    "VLLM_OPTIONS": json.dumps(DOCUMENT),
}


@contextlib.contextmanager
def command_line(folder: Path) -> Iterator[Sequence[str]]:
    with fake_vllm(folder, *WORDS, name="preemption") as fake:
        yield [str(fake.pid)]


@contextlib.contextmanager
def environment(folder: Path) -> Iterator[Sequence[str]]:
    with fake_vllm(folder, name="preemption", env=ENVIRONMENT) as fake:
        yield [str(fake.pid)]


@contextlib.contextmanager
def config_file(folder: Path) -> Iterator[Sequence[str]]:
    named = {name: value for name, value in NAMED.items() if "." not in name}
    config = {
        "api-key": [API_KEY, SECOND_KEY],
        "hf_token": HF,
        "otlp-traces-endpoint": f"http://alice:{PASSWORD}@h:1",
        "kv-transfer-config": {"auth_token": BEARER, "key": AZURE},
        "hf-overrides": DOCUMENT,
        **named,
        "users": [{"user": {"client-key-data": NAMED["client-key-data"]}}],
    }
    (folder / "c.yaml").write_text(json.dumps(config))  # JSON is YAML
    with fake_vllm(folder, "--config", str(folder / "c.yaml"), name="preemption") as fake:
        yield [str(fake.pid)]


@contextlib.contextmanager
def url(folder: Path) -> Iterator[Sequence[str]]:
    with serving(vllm(pages("preemption"))) as server:
        yield [server.url.replace("://", f"://alice:{PASSWORD}@") + f"/?token={API_KEY}"]


@contextlib.contextmanager
def dead_url(folder: Path) -> Iterator[Sequence[str]]:
    yield [f"http://alice:{PASSWORD}@127.0.0.1:1/x?api_key={API_KEY}&pwd={NAMED['pwd']}"]


@contextlib.contextmanager
def header(folder: Path) -> Iterator[Sequence[str]]:
    (folder / "token").write_text(JWT)
    with serving(vllm(pages("preemption"))) as server:
        yield [server.url, "--header", f"X-Api-Key: {API_KEY}", "--header", f"Cookie: a={COOKIE}", "--token-file",
               str(folder / "token")]  # fmt: skip


LABELS = {
    "api_key": API_KEY, "auth": f"Bearer {BEARER}", "db_pass": str(NAMED["db_pass"]), "pwd": str(NAMED["pwd"]),
    "url": f"http://alice:{PASSWORD}@h/x?X-Amz-Signature={SIGNATURE}",
    **{f"l{number}": value for number, value in enumerate(SHAPES.values())},
}  # fmt: skip


def labelled() -> list[str]:
    """Answers of /metrics with secrets in their labels."""
    planted = ",".join(f'{name}="{value}"' for name, value in LABELS.items())
    return [re.sub(r'engine="0"', rf'engine="0",{planted}', page) for page in pages("preemption")]


@contextlib.contextmanager
def labels(folder: Path) -> Iterator[Sequence[str]]:
    """A server that tells secrets in its metrics, and in its model's card."""
    card = {"id": f"m-{HF}", "owned_by": "vllm", "root": f"s3://alice:{PASSWORD}@b/{SK}", "max_model_len": 2048,
            "pass": NAMED["pass"], "pin_password": NAMED["pin_password"], "more": DOCUMENT}  # fmt: skip
    models = {"object": "list", "data": [card]}
    with serving(vllm(labelled(), version={"version": f"0.32.0+{HF}"}, models=models)) as server:
        yield [server.url]


_STAMP = "11-20 10:00"
_NAMED_LINES = "".join(
    f"INFO 11-20 10:00:03 [x.py:3] connecting with {name}={shlex.quote(str(value))} and {{'{name}': {value!r}}}\n"
    for name, value in NAMED.items()
)
_STATS = (
    "INFO 11-20 10:00:{second} [loggers.py:236] Engine 000: Avg prompt throughput: 770.0 tokens/s, Avg generation "
    "throughput: 2768.0 tokens/s, Running: 17 reqs, Waiting: 7 reqs, GPU KV cache usage: 99.0%, Prefix cache hit rate: "
    "0.0%\n"
)
LOG = f"""\
INFO 11-20 10:00:00 [api_server.py:100] vLLM API server version 0.32.0
INFO 11-20 10:00:01 [utils.py:233] non-default args: {{'model': 'tiny', 'api_key': ['{API_KEY}', '{SECOND_KEY}'], \
'hf_token': '{HF}', 'otlp_traces_endpoint': 'http://alice:{PASSWORD}@h:4317', 'hf_overrides': {DOCUMENT!r}}}
INFO 11-20 10:00:02 [x.py:1] Authorization: Bearer {BEARER} Authorization: Basic {BASIC}
INFO 11-20 10:00:02 [x.py:1] headers {{'authorization': 'Bearer {JWT}', 'cookie': 'session={COOKIE}'}}
INFO 11-20 10:00:02 [x.py:1] Proxy-Authorization: Digest {DIGEST}
ERROR 11-20 10:00:03 [x.py:2] RuntimeError: cannot read s3://alice:{PASSWORD}@b/x?X-Amz-Signature={SIGNATURE}&x=1
INFO 11-20 10:00:03 [x.py:9] cannot read s3://alice:{PASSWORD}@b/x?X-Amz-Signature={SIGNATURE}&x=1
INFO 11-20 10:00:03 [x.py:2] AWS_SECRET_ACCESS_KEY={AWS_SECRET} id {AWS} AccountKey={AZURE};
INFO 11-20 10:00:03 [x.py:2] found {" ".join(SHAPES.values())}
{_NAMED_LINES}INFO 11-20 10:00:03 [x.py:4] options {json.dumps(DOCUMENT)}
INFO 11-20 10:00:03 [x.py:4] options as text {json.dumps(json.dumps(DOCUMENT))}
INFO 11-20 10:00:03 [x.py:5] unlocked with passphrase {SAID["a passphrase in a sentence"]} of the store
INFO 11-20 10:00:03 [x.py:5] api_key=SecretStr('{API_KEY}') --db-password '{NAMED["password"]}'
INFO 11-20 10:00:03 [x.py:2] -----BEGIN PRIVATE KEY-----
{PEM}
-----END PRIVATE KEY-----
INFO 11-20 10:00:04 [logger.py:39] Received request cmpl-1: prompt: '{PROMPT}', params: SamplingParams(n=1)
INFO 11-20 10:00:04 [logger.py:39] Received request cmpl-2: prompt: 'x
{PROMPT}
', params: SamplingParams(n=1)
INFO 11-20 10:00:04 [request_logger.py:109] Generated response cmpl-1: output: '{ANSWER}', finish_reason: stop
DEBUG 11-20 10:00:04 [request_logger.py:60] Request cmpl-1 details: prompt: "{PROMPT}", prompt_token_ids: [1, 2]
DEBUG 11-20 10:00:04 [request_logger.py:77] Request cmpl-1 JSON body: {{"messages": [{{"content": "{PROMPT}"}}]}}
INFO 11-20 10:00:04 [async_llm.py:9] Added with SamplingParams(n=1, stop=['{SAID["a stop word"]}'], seed=None)
DEBUG 11-20 10:00:04 [hermes_tool_parser.py:133] delta_text: {SAID["a piece of an answer"]}
WARNING 11-20 10:00:04 [hf.py:927] Chat template rejected the request: {SAID["a prompt that a template rejected"]}
INFO:     127.0.0.1:1234 - "POST /v1/completions?api_key={API_KEY} HTTP/1.1" 200 OK
ERROR 11-20 10:00:05 [serving_chat.py:200] Error in preprocessing prompt inputs
ERROR 11-20 10:00:05 [serving_chat.py:200] Traceback (most recent call last):
ERROR 11-20 10:00:05 [serving_chat.py:200]   File "/v/site-packages/vllm/renderers/hf.py", line 1, in render
ERROR 11-20 10:00:05 [serving_chat.py:200]     return template.render(x)
ERROR 11-20 10:00:05 [serving_chat.py:200] jinja2.exceptions.TemplateError: \
{SAID["a prompt in a template's error"]} here
ERROR 11-20 10:00:06 [x.py:6] TemplateError: {SAID["a prompt in a template's error"]} here
ERROR 11-20 10:00:07 [x.py:7] OSError: [Errno 36] File name too long: '{SAID["a prompt that was taken for a path"]}'
ERROR:    Exception in ASGI application
Traceback (most recent call last):
  File "/v/lib/python3.12/site-packages/uvicorn/protocols/http/h11_impl.py", line 403, in run_asgi
    result = await app(
ValueError: a template says
{SAID["a prompt in an error of several lines"]}

  and {SAID["a prompt in an error of several lines"]}
INFO:     127.0.0.1:1234 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error
fastapi.exceptions.RequestValidationError: [{{'input': {{'messages': [{{'role': 'user', \
'text': '{SAID["a prompt in a request's body"]}'}}]}}}}]
{_STATS.format(second=10)}{_STATS.format(second=20)}\
ERROR 11-20 10:00:21 [core.py:900] EngineCore encountered a fatal error.
ERROR 11-20 10:00:21 [core.py:900] Traceback (most recent call last):
ERROR 11-20 10:00:21 [core.py:900]   File "/x/y.py", line 1, in f
ERROR 11-20 10:00:21 [core.py:900] ValueError: token {HF} refused, api_key={API_KEY}, input_value='{PROMPT}'
{{"level": "error", "message": "failed", "exc_info": "Traceback (most recent call last):\\n  File \
\\"/x/y.py\\", line 1\\nValueError: {SAID["a prompt in JSON's error field"]}"}}
"""


def docker(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-20T10:00:00.1Z"})


def cri(line: str) -> str:
    return f"2026-11-20T10:00:00.123456789Z stderr F {line}"


def journald(line: str) -> str:
    return f"Nov 20 10:00:00 host vllm[7]: {line}"


def compose(line: str) -> str:
    return f"vllm-1  | {line}"


def plain(line: str) -> str:
    return line


def log(wrap: Callable[[str], str]) -> Plant:
    @contextlib.contextmanager
    def written(folder: Path) -> Iterator[Sequence[str]]:
        path = folder / "vllm.log"
        path.write_text("".join(wrap(line) + "\n" for line in LOG.splitlines()))
        yield [str(path)]

    return written


@contextlib.contextmanager
def nvidia_smi(folder: Path) -> Iterator[Sequence[str]]:
    text = SMI.read_text()
    told = f"python --api-key {API_KEY} --hf-token {HF} http://alice:{PASSWORD}@h --db-pass {NAMED['db_pass']} {SK}"
    text = re.sub(r"<process_name>[^<]*</process_name>", f"<process_name>{told}</process_name>", text)
    text = text.replace("<product_name>NVIDIA H100", f"<product_name>{AWS} NVIDIA H100")
    (folder / "smi.xml").write_text(text)
    with serving(vllm(pages("preemption"))) as server:
        yield [server.url, "--nvidia-smi", str(folder / "smi.xml")]


FLAGS = [*WORDS, "--db-pass", str(NAMED["db_pass"]), "--max-num-seqs", "4", "--enforce-eager"]
SETTINGS = {**ENVIRONMENT, "VLLM_LOGGING_LEVEL": "DEBUG"}


@contextlib.contextmanager
def compose_file(folder: Path) -> Iterator[Sequence[str]]:
    service = {"image": "vllm/vllm-openai:v0.32.0", "command": ["--model", "tiny", *FLAGS], "environment": SETTINGS}
    (folder / "compose.yaml").write_text(json.dumps({"services": {"vllm": service}}))
    yield ["--command", str(folder / "compose.yaml")]


@contextlib.contextmanager
def deployment(folder: Path) -> Iterator[Sequence[str]]:
    container = {
        "name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model", "tiny", *FLAGS],
        "env": [{"name": name, "value": value} for name, value in SETTINGS.items()],
    }  # fmt: skip
    spec = {"template": {"spec": {"containers": [container]}}}
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "vllm"}, "spec": spec}
    (folder / "deployment.yaml").write_text(json.dumps(document, indent=1))
    yield ["--command", str(folder / "deployment.yaml")]


@contextlib.contextmanager
def unit(folder: Path) -> Iterator[Sequence[str]]:
    words = " ".join(json.dumps(word).replace("%", "%%") for word in FLAGS)
    settings = "".join(f"Environment={json.dumps(f'{name}={value}')}\n" for name, value in SETTINGS.items())
    (folder / "vllm.service").write_text(f"[Service]\n{settings}ExecStart=/usr/bin/vllm serve tiny {words}\n")
    yield ["--command", str(folder / "vllm.service")]


def _settings() -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in SETTINGS.items())


@contextlib.contextmanager
def script(folder: Path) -> Iterator[Sequence[str]]:
    (folder / "start.sh").write_text(
        f"#!/bin/bash\nexport {_settings()}\ncurl -H 'Authorization: Bearer {BEARER}' -u alice:x https://h\n"
        f"exec vllm serve tiny {shlex.join(FLAGS)}\n"
    )
    yield ["--command", str(folder / "start.sh")]


@contextlib.contextmanager
def docker_run(folder: Path) -> Iterator[Sequence[str]]:
    settings = " ".join(f"-e {shlex.quote(f'{name}={value}')}" for name, value in SETTINGS.items())
    yield ["--command", f"docker run --gpus all {settings} vllm/vllm-openai:v0.32.0 --model tiny {shlex.join(FLAGS)}"]


@contextlib.contextmanager
def written_command(folder: Path) -> Iterator[Sequence[str]]:
    yield ["--command", f"{_settings()} vllm serve tiny {shlex.join(FLAGS)}"]


SOURCES: dict[str, Plant] = {
    "command line": command_line,
    "environment": environment,
    "--config file": config_file,
    "URL": url,
    "URL that refuses": dead_url,
    "header and token file": header,
    "metrics and model card": labels,
    "log": log(plain),
    "log of docker": log(docker),
    "log of Kubernetes": log(cri),
    "log of journald": log(journald),
    "log of compose": log(compose),
    "nvidia-smi file": nvidia_smi,
    "compose file": compose_file,
    "Kubernetes file": deployment,
    "systemd unit": unit,
    "shell script": script,
    "docker run": docker_run,
    "command as text": written_command,
}


def _forms(what: str, secret: str) -> frozenset[str]:
    forms = {secret, quote(secret, safe=""), secret.upper(), secret.lower(), json.dumps(secret)[1:-1]}
    if what == "a password in a URL":
        forms |= {ENCODED_PASSWORD, f"alice:{PASSWORD}"}
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + secret.encode()).decode()
        forms.add(coded[4 if shift else 0 : len(coded) // 4 * 4 - 4])
    return frozenset(forms)


_FORMS = {what: _forms(what, secret) for what, secret in SECRETS.items()}


def found_in(text: str) -> list[str]:
    """Which secrets stand in a text: as they are, in base64 at any place of three, percent-encoded, escaped."""
    texts = [text, text.replace("\\", "")] if "\\" in text else [text]
    return [what for what, forms in _FORMS.items() if any(form in one for form in forms for one in texts)]
