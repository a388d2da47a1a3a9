from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vllm_doctor.launch import model
from vllm_doctor.launch.source import read
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.host.kernel import Kernel

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16", "vocab_size": 128256,
    "intermediate_size": 14336, "max_position_embeddings": 131072,
}  # fmt: skip


def folder(path: Path, config: str, weights: int = 16 * 2**30) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(config, "utf-8")
    with open(path / "model.safetensors", "wb") as file:
        file.truncate(weights)
    return path


def found(text: str) -> tuple[dict[str, Reading], tuple[str, ...]]:
    [start] = read(text)
    return model.facts(Kernel(), start)


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_a_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path / "llama", json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    for name in (str(path), "./llama", "llama"):
        facts, notes = found(f"vllm serve {name}")
        assert (facts["model_weights"], facts["model_dtype"]) == (Known(16.0 * 2**30), Known("bfloat16"))
        assert notes == ()


def test_a_name_that_is_in_the_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "home/.cache/huggingface/hub/models--org--llama/snapshots/abc"
    folder(snapshot, json.dumps(LLAMA))
    assert found("vllm serve org/llama")[0]["model_dtype"] == Known("bfloat16")
    assert found("docker run vllm/vllm-openai --model org/llama")[0]["model_dtype"] == Known("bfloat16")


def test_a_container_s_path_is_not_this_machine_s(tmp_path: Path) -> None:
    path = folder(tmp_path / "llama", json.dumps(LLAMA))
    assert found(f"docker run vllm/vllm-openai --model {path}") == ({}, ())


def test_a_path_that_does_not_exist_is_said() -> None:
    facts, notes = found("vllm serve /no/such/model")
    assert facts == {}
    assert notes == ("the model /no/such/model is not on this machine: its config.json is unknown",)


def test_a_name_that_is_nowhere_is_nothing_to_say() -> None:
    assert found("vllm serve org/model") == ({}, ())
    assert found("vllm serve") == ({}, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_attention_heads": 0},
        {"num_hidden_layers": "32"},
        {"hidden_size": -1},
        {"num_hidden_layers": 10**30},
        {"num_key_value_heads": {"a": 1}},
        {"num_attention_heads": True},
        {"hidden_size": float("nan")},
        {"torch_dtype": "\x1b[31m"},
    ],
    ids=str,
)
def test_a_config_that_lies_is_said_and_not_used(wrong: dict[str, object], tmp_path: Path) -> None:
    path = folder(tmp_path / "m", json.dumps({**LLAMA, **wrong}))
    facts, notes = found(f"vllm serve {path}")
    [note] = notes
    assert "cannot be right" in note
    assert note.isprintable()
    assert facts["model_weights"] == Known(16.0 * 2**30)
    if "hidden_size" in wrong or "num_hidden_layers" in wrong:
        assert "kv_bytes_per_token" not in facts


@pytest.mark.parametrize("text", ["{", "[1]", "null", '{"a":' * 100_000, "9" * 5000, "\ud800"], ids=range(6))
def test_what_is_no_config(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.mkdir()
    (path / "config.json").write_text(text, "utf-8", "surrogatepass")
    facts, notes = found(f"vllm serve {path}")
    assert facts == {}
    assert len(notes) == 1


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "m")
    os.mkfifo(tmp_path / "m" / "config.json")
    assert found(f"vllm serve {tmp_path / 'm'}")[0] == {}


def test_the_adapters_of_a_command_are_read_where_their_folders_are(tmp_path: Path) -> None:
    path = folder(tmp_path / "llama", json.dumps(LLAMA))
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"r": 16}', "utf-8")
    command = f"vllm serve {path} --enable-lora --lora-modules a={adapter}"
    assert found(command)[0]["lora_rank_largest"] == Known(16.0)
    assert "lora_rank_largest" not in found(f"{command} b={tmp_path / 'none'}")[0]
