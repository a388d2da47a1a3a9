from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.model_files import facts
from vllm_doctor.sources.host.process import ServerProcess, of_pid

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
}
LLAMA_FACTS: dict[str, Value] = {
    "attention_heads": 32.0,
    "kv_heads": 8.0,
    "hidden_layers": 32.0,
    "hidden_size": 4096.0,
    "model_context": 131072.0,
    "model_dtype": "bfloat16",
    "model_quantization": "none",
    "model_experts": 0.0,
    "experts_per_token": 0.0,
    "multimodal": False,
}
LLAMA_KV: dict[str, Value] = {
    "kv_bytes_per_token": 131072.0,
    "kv_window_bytes_per_token": 0.0,
    "kv_window": 0.0,
    "kv_state_bytes": 0.0,
    "kv_state_page_bytes": 0.0,
    "kv_state_copies": 2.0,
    "kv_cache_heads": 8.0,
    "kv_draft_bytes_per_token": 0.0,
}
HUB = "root/.cache/huggingface/hub"
REPO = "models--org--m"


@pytest.fixture
def host(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def told(host: FakeProc, *words: str, files: Mapping[str, str | int], **environ: str) -> dict[str, Reading]:
    """The facts of a server started with these words and variables, which sees these files."""
    host.add(7, ["vllm", "serve", *words], environ=environ, cwd="/srv", files=files)
    kernel = host.kernel()
    return facts(kernel, of_pid(kernel, 7))


def of_config(host: FakeProc, config: object, *words: str) -> dict[str, Reading]:
    return told(host, "/m", *words, files={"m/config.json": json.dumps(config)})


def weights(host: FakeProc, files: Mapping[str, str | int], *words: str, **environ: str) -> Reading:
    return told(host, *words, files=files, **environ)["model_weights"]


# ------------------------------------------------------------------ config.json


def test_a_model_in_a_folder(host: FakeProc) -> None:
    files: dict[str, str | int] = {"m/config.json": json.dumps(LLAMA), "m/model.safetensors": 5000}
    found = told(host, "/m", files=files)
    assert {name: reading.value for name, reading in found.items() if isinstance(reading, Known)} == {
        "model_weights": 5000.0,
        **LLAMA_FACTS,
        **LLAMA_KV,
    }
    assert {reading.origin for reading in found.values() if isinstance(reading, Known)} == {"model-files"}


def test_a_model_beside_the_server(host: FakeProc) -> None:
    assert told(host, "m", files={"srv/m/config.json": json.dumps(LLAMA)})["kv_heads"] == Known(8.0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"num_key_value_heads": None}, {"kv_heads": 32.0}),
        ({"num_key_value_heads": None, "multi_query": True}, {"kv_heads": 1.0}),
        (
            {"num_local_experts": 8, "num_experts_per_tok": 2},
            {"model_experts": 8.0, "experts_per_token": 2.0},
        ),
        (
            {"n_routed_experts": 256, "num_experts_per_tok": 8},
            {"model_experts": 256.0, "experts_per_token": 8.0},
        ),
        ({"torch_dtype": None, "dtype": "torch.float16"}, {"model_dtype": "float16"}),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, {"model_quantization": "awq"}),
        ({"vision_config": {"hidden_size": 1}}, {"multimodal": True, "hidden_size": 4096.0}),
        ({"architectures": ["Qwen2VLForConditionalGeneration"]}, {"multimodal": True}),
        ({"architectures": ["WhisperForConditionalGeneration"]}, {"multimodal": True}),
    ],
)
def test_what_a_config_says(change: dict[str, Any], expected: dict[str, Value], host: FakeProc) -> None:
    found = of_config(host, LLAMA | change)
    for name, value in (LLAMA_FACTS | expected).items():
        assert found[name] == Known(value), name


def test_the_flags_count(host: FakeProc) -> None:
    found = of_config(host, LLAMA, "--kv-cache-dtype", "fp8")
    assert found["kv_bytes_per_token"] == Known(65536.0)


@pytest.mark.parametrize(
    ("overrides", "layers"),
    [
        ('{"num_hidden_layers": 4}', 4.0),
        ('{"text_config": {"num_hidden_layers": 4}}', 4.0),
        ('{"rope_scaling": null}', 32.0),
        ("{", 32.0),
        ("[]", 32.0),
    ],
)
def test_a_config_that_the_command_line_changes(overrides: str, layers: float, host: FakeProc) -> None:
    found = of_config(host, LLAMA, "--hf-overrides", overrides)
    assert found["hidden_layers"] == Known(layers)
    assert found["kv_bytes_per_token"] == Known(layers * 4096)


def test_overrides_of_a_part(host: FakeProc) -> None:
    config = {"text_config": LLAMA, "vision_config": {}}
    found = of_config(host, config, "--hf-overrides", '{"text_config": {"num_key_value_heads": 4}}')
    assert (found["kv_heads"], found["hidden_layers"]) == (Known(4.0), Known(32.0))


def test_older_names(host: FakeProc) -> None:
    found = of_config(host, {"n_head": 12, "n_layer": 6, "n_embd": 768, "n_positions": 1024})
    names = ("attention_heads", "kv_heads", "hidden_layers", "hidden_size", "model_context")
    assert [found[name] for name in names] == [Known(float(n)) for n in (12, 12, 6, 768, 1024)]
    assert found["model_dtype"] == Unknown(Reason.ABSENT)


def test_a_model_of_several_parts(host: FakeProc) -> None:
    inner = LLAMA | {"dtype": "float32"}
    parts: tuple[dict[str, Any], ...] = (
        {"text_config": inner, "vision_config": {"num_hidden_layers": 2}, "hidden_size": 1},
        {"thinker_config": {"text_config": inner, "audio_config": {"num_hidden_layers": 2}}},
    )
    for config in parts:
        found = of_config(host, config)
        assert found["hidden_layers"] == Known(32.0)
        assert found["hidden_size"] == Known(4096.0)
        assert found["multimodal"] == Known(True)


def test_modelopts_own_file(host: FakeProc) -> None:
    files = {"m/config.json": json.dumps(LLAMA), "m/hf_quant_config.json": '{"quantization": {"quant_algo": "FP8"}}'}
    assert told(host, "/m", files=files)["model_quantization"] == Known("modelopt")


def test_a_config_elsewhere(host: FakeProc) -> None:
    files: dict[str, str | int] = {"m.gguf": 77, "conf/config.json": json.dumps(LLAMA)}
    found = told(host, "/m.gguf", "--hf-config-path", "/conf", files=files)
    assert found["model_weights"] == Known(77.0)
    assert found["hidden_layers"] == Known(32.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        "[" * 100_000,
        '{"a":' * 100_000,
        " " * 1_000_001,
    ],
    ids=range(7),
)
def test_a_config_that_is_none(text: str, host: FakeProc) -> None:
    found = told(host, "/m", files={"m/config.json": text, "m/model.safetensors": 5})
    assert found.pop("model_weights") == Known(5.0)
    assert set(found.values()) == {Unknown(Reason.INVALID)}


@pytest.mark.parametrize("value", ["32", True, -1, 1e300, float("nan"), float("inf"), [1], {"a": 1}, 2**60, 10**400])
def test_a_number_that_is_none(value: object, host: FakeProc) -> None:
    found = of_config(host, {"hidden_size": value, "num_experts": value, "num_key_value_heads": value})
    for name in ("hidden_size", "model_experts", "kv_heads"):
        assert found[name] == Unknown(Reason.INVALID)


@pytest.mark.parametrize("value", [7, ["a"], "a\x1b[31m"])
def test_a_text_that_is_none(value: object, host: FakeProc) -> None:
    found = of_config(host, {"dtype": value, "quantization_config": {"quant_method": value}, "architectures": value})
    assert found["model_dtype"] == found["model_quantization"] == Unknown(Reason.INVALID)
    assert found["multimodal"] == Known(False)


# ------------------------------------------------------------------ weights


@pytest.mark.parametrize(
    ("files", "total"),
    [
        ({"a-1.safetensors": 10, "a-2.safetensors": 20, "pytorch_model.bin": 99, "x.gguf": 99}, 30),
        ({"model-1.safetensors": 10, "consolidated.safetensors": 99}, 10),
        ({"consolidated-1.safetensors": 10, "consolidated-2.safetensors": 5}, 15),
        ({"pytorch_model-1.bin": 10, "training_args.bin": 99}, 10),
        ({"m-Q4.gguf": 10}, 10),
    ],
)
def test_weights(files: dict[str, int], total: float, host: FakeProc) -> None:
    assert weights(host, {f"m/{name}": size for name, size in files.items()}, "/m") == Known(float(total))


def test_large_weights(host: FakeProc) -> None:
    assert weights(host, {"m/1.safetensors": 2**36, "m/2.safetensors": 2**36}, "/m") == Known(2.0**37)


def test_no_weights(host: FakeProc) -> None:
    assert weights(host, {"m/config.json": "{}"}, "/m") == Unknown(Reason.ABSENT)


def test_a_weight_that_is_missing(host: FakeProc) -> None:
    host.link("proc/7/root/m/2.safetensors", "../blobs/gone")
    assert weights(host, {"m/1.safetensors": 10}, "/m") == Unknown(Reason.ABSENT)


# ------------------------------------------------------------------ the Hugging Face cache


def snapshot(commit: str, size: int, hub: str = HUB) -> dict[str, str | int]:
    return {f"{hub}/{REPO}/snapshots/{commit}/model.safetensors": size}


@pytest.mark.parametrize(
    ("hub", "environ", "words"),
    [
        (HUB, {"HOME": "/root"}, ()),
        (HUB, {}, ()),  # by the container's /etc/passwd
        ("c", {"HF_HUB_CACHE": "/c", "HF_HOME": "/d"}, ()),
        ("c", {"HUGGINGFACE_HUB_CACHE": "/c"}, ()),
        ("d/hub", {"HF_HOME": "/d"}, ()),
        ("root/d/hub", {"HF_HOME": "~/d", "HOME": "/root"}, ()),
        ("x/huggingface/hub", {"XDG_CACHE_HOME": "/x"}, ()),
        ("dl", {"HF_HOME": "/d"}, ("--download-dir", "/dl")),
    ],
)
def test_caches(hub: str, environ: dict[str, str], words: tuple[str, ...], host: FakeProc) -> None:
    files = snapshot("abc", 9, hub) | {"etc/passwd": "root:x:0:0::/root:/bin/sh\n"}
    assert weights(host, files, "org/m", *words, **environ) == Known(9.0)


def test_the_snapshot_in_use(host: FakeProc) -> None:
    files = snapshot("abc", 1) | snapshot("def", 2)
    environ = {"HOME": "/root"}
    assert weights(host, files | {f"{HUB}/{REPO}/refs/main": "abc"}, "org/m", **environ) == Known(1.0)
    assert weights(host, files, "org/m", "--revision", "def", **environ) == Known(2.0)
    assert weights(host, files | {f"{HUB}/{REPO}/refs/v1": "def"}, "org/m", "--revision", "v1", **environ) == Known(2.0)
    assert weights(host, files, "org/m", "--revision", "v2", **environ) == Unknown(Reason.ABSENT)
    assert weights(host, files, "org/m", "--revision", "../../x", **environ) == Unknown(Reason.ABSENT)


def test_the_newest_snapshot(host: FakeProc) -> None:
    host.add(7, ["vllm"], files=snapshot("abc", 1) | snapshot("def", 2))
    os.utime(host.root / "proc/7/root" / HUB / REPO / "snapshots/def", (1, 1))
    assert weights(host, {}, "org/m", HOME="/root") == Known(1.0)


def test_links_into_the_caches_blobs(host: FakeProc) -> None:
    host.link(f"proc/7/root/{HUB}/{REPO}/snapshots/abc/model.safetensors", "../../blobs/1")
    assert weights(host, {f"{HUB}/{REPO}/blobs/1": 9}, "org/m", HOME="/root") == Known(9.0)


@pytest.mark.parametrize("model", ["org/m", "s3://bucket/m", "../m", "org/m/n", "a b", ""])
def test_a_model_that_is_not_here(model: str, host: FakeProc) -> None:
    found = told(host, model, files={}, HOME="/root")
    assert set(found.values()) == {Unknown(Reason.ABSENT)}


# ------------------------------------------------------------------ servers that cannot be seen


def test_no_model_is_named(host: FakeProc) -> None:
    assert set(told(host, files={}).values()) == {Unknown(Reason.ABSENT)}


def test_an_environment_that_is_denied(host: FakeProc) -> None:
    found = replace(of_named(host), environ=Reason.DENIED)
    assert set(facts(host.kernel(), found).values()) == {Unknown(Reason.DENIED)}


def of_named(host: FakeProc) -> ServerProcess:
    host.add(7, ["vllm", "serve", "org/m"])
    return of_pid(host.kernel(), 7)


def test_a_server_of_which_nothing_is_seen(host: FakeProc) -> None:
    assert set(facts(host.kernel(), ServerProcess.unseen()).values()) == {Unknown(Reason.NOT_LOCAL)}


def test_a_server_that_has_ended(host: FakeProc) -> None:
    found = of_named(host)
    (host.root / "proc/7/status").unlink()
    assert set(facts(host.kernel(), found).values()) == {Unknown(Reason.ABSENT)}
