"""A secret of each kind is planted in each source, and looked for in every output: as it is, and encoded."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.test_examine_local import fake_vllm
from tests.cli.test_main import Doctor, doctor
from tests.paths import NVIDIA_SMI
from tests.serving import pages, serving, vllm
from tests.zstandard import zstd
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.recording import archive

__all__ = ["doctor"]

SMI = NVIDIA_SMI / "h100-driver-550.xml"

API_KEY = "s3cr3tApiKey0123456789"
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
PROMPT = "my doctor told me that I have zq-syndrome"
ANSWER = "you should rest and drink zq-tea"
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCZqZqZq0123456789"

SECRETS = {
    "an API key": API_KEY,
    "a bearer token": BEARER,
    "a Hugging Face token": HF,
    "an OpenAI key": SK,
    "an AWS key": AWS,
    "an AWS secret": AWS_SECRET,
    "a JWT": JWT,
    "a password in a URL": PASSWORD,
    "basic authorization": BASIC,
    "a signed URL": SIGNATURE,
    "an Azure key": AZURE,
    "a prompt": PROMPT,
    "an answer": ANSWER,
    "a private key": PEM,
}
ENCODED_PASSWORD = "p%34ssw0rd-Zq9"

Plant = Callable[[Path], contextlib.AbstractContextManager[Sequence[str | Path]]]

WORDS = [
    "--api-key", API_KEY, SK,
    "--hf-token", HF,
    "--otlp-traces-endpoint", f"http://alice:{PASSWORD}@otlp:4317",
    "--download-dir", f"https://b.blob.core/x?sv=1&sig={SIGNATURE}",
    "--kv-transfer-config", json.dumps({"auth_token": BEARER, "aws_secret_access_key": AWS_SECRET}),
    "--additional-config", json.dumps({"headers": {"Authorization": f"Bearer {JWT}"}, "id": AWS}),
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
    (folder / "c.yaml").write_text(
        f"api-key: [{API_KEY}, {SK}]\nhf_token: {HF}\notlp-traces-endpoint: http://alice:{PASSWORD}@h:1\n"
        f"kv-transfer-config: {{auth_token: {BEARER}, key: {AZURE}}}\n"
    )
    with fake_vllm(folder, "--config", str(folder / "c.yaml"), name="preemption") as fake:
        yield [str(fake.pid)]


@contextlib.contextmanager
def url(folder: Path) -> Iterator[Sequence[str]]:
    with serving(vllm(pages("preemption"))) as server:
        yield [server.url.replace("://", f"://alice:{PASSWORD}@") + f"/?token={API_KEY}"]


@contextlib.contextmanager
def dead_url(folder: Path) -> Iterator[Sequence[str]]:
    yield [f"http://alice:{PASSWORD}@127.0.0.1:1/x?api_key={API_KEY}"]


@contextlib.contextmanager
def header(folder: Path) -> Iterator[Sequence[str]]:
    (folder / "token").write_text(JWT)
    with serving(vllm(pages("preemption"))) as server:
        yield [server.url, "--header", f"X-Api-Key: {API_KEY}", "--header", f"Cookie: a={SK}", "--token-file",
               str(folder / "token")]  # fmt: skip


@contextlib.contextmanager
def labels(folder: Path) -> Iterator[Sequence[str]]:
    """A server that tells secrets in its metrics, and in its model's card."""
    planted = ",".join(
        f'{name}="{value}"'
        for name, value in (("api_key", API_KEY), ("auth", f"Bearer {BEARER}"), ("who", HF), ("by", SK), ("k", AWS),
                            ("url", f"http://alice:{PASSWORD}@h/x?X-Amz-Signature={SIGNATURE}"), ("jwt", JWT))
    )  # fmt: skip
    told = [re.sub(r'engine="0"', rf'engine="0",{planted}', page) for page in pages("preemption")]
    card = {"id": f"m-{HF}", "owned_by": "vllm", "root": f"s3://alice:{PASSWORD}@b/{SK}", "max_model_len": 2048}
    models = {"object": "list", "data": [card]}
    with serving(vllm(told, version={"version": f"0.32.0+{HF}"}, models=models)) as server:
        yield [server.url]


LOG = f"""\
INFO 11-20 10:00:00 [api_server.py:100] vLLM API server version 0.32.0
INFO 11-20 10:00:01 [utils.py:233] non-default args: {{'model': 'tiny', 'api_key': ['{API_KEY}', '{SK}'], \
'hf_token': '{HF}', 'otlp_traces_endpoint': 'http://alice:{PASSWORD}@h:4317'}}
INFO 11-20 10:00:02 [x.py:1] Authorization: Bearer {BEARER} Authorization: Basic {BASIC}
INFO 11-20 10:00:02 [x.py:1] headers {{'authorization': 'Bearer {JWT}', 'cookie': 'session={API_KEY}'}}
ERROR 11-20 10:00:03 [x.py:2] RuntimeError: cannot read s3://alice:{PASSWORD}@b/x?X-Amz-Signature={SIGNATURE}&x=1
INFO 11-20 10:00:03 [x.py:2] AWS_SECRET_ACCESS_KEY={AWS_SECRET} id {AWS} AccountKey={AZURE};
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
INFO:     127.0.0.1:1234 - "POST /v1/completions?api_key={API_KEY} HTTP/1.1" 200 OK
INFO 11-20 10:00:10 [loggers.py:236] Engine 000: Avg prompt throughput: 770.0 tokens/s, Avg generation throughput: \
2768.0 tokens/s, Running: 17 reqs, Waiting: 7 reqs, GPU KV cache usage: 99.0%, Prefix cache hit rate: 0.0%
INFO 11-20 10:00:20 [loggers.py:236] Engine 000: Avg prompt throughput: 770.0 tokens/s, Avg generation throughput: \
2768.0 tokens/s, Running: 17 reqs, Waiting: 7 reqs, GPU KV cache usage: 99.0%, Prefix cache hit rate: 0.0%
ERROR 11-20 10:00:21 [core.py:900] EngineCore encountered a fatal error.
ERROR 11-20 10:00:21 [core.py:900] Traceback (most recent call last):
ERROR 11-20 10:00:21 [core.py:900]   File "/x/y.py", line 1, in f
ERROR 11-20 10:00:21 [core.py:900] ValueError: token {HF} refused, api_key={API_KEY}, input_value='{PROMPT}'
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
    told = f"python --api-key {API_KEY} --hf-token {HF} http://alice:{PASSWORD}@h {SK}"
    text = re.sub(r"<process_name>[^<]*</process_name>", f"<process_name>{told}</process_name>", text)
    text = text.replace("<product_name>NVIDIA H100", f"<product_name>{AWS} NVIDIA H100")
    (folder / "smi.xml").write_text(text)
    with serving(vllm(pages("preemption"))) as server:
        yield [server.url, "--nvidia-smi", str(folder / "smi.xml")]


@contextlib.contextmanager
def manifest(folder: Path) -> Iterator[Sequence[str]]:
    (folder / "compose.yaml").write_text(
        "services:\n  vllm:\n    image: vllm/vllm-openai:v0.32.0\n"
        f"    command: --model tiny --api-key {API_KEY} --hf-token {HF} --max-num-seqs 4 --enforce-eager\n"
        f"    environment:\n      VLLM_API_KEY: {SK}\n      AWS_SECRET_ACCESS_KEY: {AWS_SECRET}\n"
        f"      VLLM_S3: https://alice:{PASSWORD}@s3:9000\n"
    )
    yield ["--command", str(folder / "compose.yaml")]


@contextlib.contextmanager
def written_command(folder: Path) -> Iterator[Sequence[str]]:
    yield ["--command", f"AWS_SECRET_ACCESS_KEY={AWS_SECRET} vllm serve tiny --api-key {API_KEY} --hf-token={HF}"
           f" --otlp-traces-endpoint http://alice:{PASSWORD}@h --enforce-eager"]  # fmt: skip


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
    "compose file": manifest,
    "command as text": written_command,
}


def found_in(text: str) -> list[str]:
    """Which secrets stand in a text: as they are, in base64 at any place of three, percent-encoded, escaped."""
    texts = [text, text.replace("\\", "")]
    found = []
    for what, secret in SECRETS.items():
        forms = {secret, quote(secret, safe=""), secret.upper(), secret.lower()}
        if what == "a password in a URL":
            forms |= {ENCODED_PASSWORD, f"alice:{PASSWORD}"}
        for shift in range(3):
            coded = base64.b64encode(b"\0" * shift + secret.encode()).decode()
            forms.add(coded[4 if shift else 0 : len(coded) // 4 * 4 - 4])
        if any(form in one for form in forms for one in texts):
            found.append(what)
    return found


def test_what_looks_for_secrets_finds_them() -> None:
    for what, secret in SECRETS.items():
        assert what in found_in(f"x {secret} y")
        assert what in found_in(base64.b64encode(f"id:{secret}:z".encode()).decode())
        assert what in found_in(quote(f"{secret}=", safe=""))
    assert found_in("nothing in here") == []
    assert sorted(found_in(LOG)) == sorted(SECRETS)


@pytest.mark.parametrize("source", SOURCES)
def test_no_secret_leaves_in_any_format(source: str, tmp_path: Path, doctor: Doctor) -> None:
    with SOURCES[source](tmp_path) as words:
        for form in FORMATS:
            ran = doctor(*words, "--format", form, "--window", "0")
            assert found_in(ran.out + ran.err) == [], form
        ran = doctor(*words, "--text", "--window", "0", "--strict", "-o", tmp_path / "report.txt")
        assert found_in((tmp_path / "report.txt").read_text() + ran.out + ran.err) == []


@pytest.mark.parametrize("share", [(), ("--share",)], ids=["", "shared"])
@pytest.mark.parametrize("source", SOURCES)
def test_no_secret_leaves_in_a_recording(source: str, share: Sequence[str], tmp_path: Path, doctor: Doctor) -> None:
    path = tmp_path / "r.tar.gz"
    with SOURCES[source](tmp_path) as words:
        ran = doctor("record", *words, *share, "-o", path, "--duration", "0.2")
    assert found_in(ran.out + ran.err) == []
    if source == "URL that refuses":
        assert not path.exists()
        return
    assert ran.code == 0, ran.err
    found = archive.read(path)
    for name, body in found.items():
        text = zstd.decompress(body) if name.endswith(".zst") else body
        assert found_in(f"{name}\n{text.decode()}") == [], name
    masked = json.loads(found["recording.json"])["redacted"]
    never_read = ("URL", "header and token file", "environment", "nvidia-smi file")
    assert bool(masked) or source in never_read
    again = doctor(path, "--json")
    assert found_in(again.out + again.err) == []
    assert again.report["redacted"] == json.loads(found["report.json"])["redacted"]


# ---- names, in what is shared ---------------------------------------------------------------------------------------

NAMES = ["gpu-box-17", "acme-corp.internal", "10.31.7.9", "fd12:3456::9", "/home/jdoe", "jdoe", "jane.doe@acme.com",
         "/data/secret-project/llama-ft"]  # fmt: skip
SHARED_LOG = """\
INFO 11-20 10:00:00 [api_server.py:100] vLLM API server version 0.32.0
INFO 11-20 10:00:01 [utils.py:233] non-default args: {'model': '/data/secret-project/llama-ft', 'host': 'gpu-box-17'}
INFO 11-20 10:00:02 [x.py:1] init_method=tcp://10.31.7.9:5000, http://acme-corp.internal:80/x, [fd12:3456::9]
INFO 11-20 10:00:02 [x.py:1] file /home/jdoe/venv/lib/python3.12/site-packages/vllm/x.py of jane.doe@acme.com
INFO 11-20 10:00:03 [x.py:1] gpu-box-17 is up, 10.31.7.9 too; docs: https://docs.vllm.ai/en/latest on 127.0.0.1
INFO 11-20 10:00:10 [loggers.py:236] Engine 000: Avg prompt throughput: 770.0 tokens/s, Avg generation throughput: \
2768.0 tokens/s, Running: 17 reqs, Waiting: 7 reqs, GPU KV cache usage: 99.0%, Prefix cache hit rate: 0.0%
"""


def shared_log(folder: Path, doctor: Doctor, *words: str) -> dict[str, bytes]:
    (folder / "vllm.log").write_text(SHARED_LOG)
    assert doctor("record", folder / "vllm.log", *words, "-o", folder / "r.tar.gz").code == 0
    return archive.read(folder / "r.tar.gz")


def test_what_is_shared_names_nobody(tmp_path: Path, doctor: Doctor) -> None:
    found = shared_log(tmp_path, doctor, "--share")
    text = "\n".join(body.decode() for body in found.values())
    assert [name for name in NAMES if name in text] == []
    assert str(tmp_path) not in text
    log = found["1-log/000.log"].decode()
    assert "site-packages/vllm/x.py" in log  # whose code it is helps, and tells nobody's name
    assert "https://docs.vllm.ai/en/latest on 127.0.0.1" in log
    told = {item["what"] for item in json.loads(found["recording.json"])["redacted"]}
    assert told >= {"host", "address", "user", "path"}


def test_the_same_name_has_the_same_pseudonym(tmp_path: Path, doctor: Doctor) -> None:
    log = shared_log(tmp_path, doctor, "--share")["1-log/000.log"].decode().splitlines()
    host = re.search(r"'host': '(host-\d+)'", log[1])
    address = re.search(r"tcp://(address-\d+):5000", log[2])
    assert host is not None
    assert address is not None
    assert f"{host[1]} is up, {address[1]} too" in log[4]


def test_the_verdict_is_the_same(tmp_path: Path, doctor: Doctor) -> None:
    plain, shared = (json.loads(shared_log(tmp_path, doctor, *words)["report.json"]) for words in ((), ("--share",)))
    assert (plain["verdict"], plain["rules"], plain["vitals"]) == (shared["verdict"], shared["rules"], shared["vitals"])


def test_without_it_names_stay(tmp_path: Path, doctor: Doctor) -> None:
    text = shared_log(tmp_path, doctor)["1-log/000.log"].decode()
    assert [name for name in NAMES if name not in text] == []
