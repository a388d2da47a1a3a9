"""Each value of each document from outside, replaced by what cannot be computed with: never our own fault."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compare.test_vllm_bench import detailed
from tests.fake_prometheus import AT
from tests.recording.test_bundle import parts
from tests.serving import MODELS, VERSION
from vllm_doctor.compare import results
from vllm_doctor.model.errors import DoctorError
from vllm_doctor.prometheus import api
from vllm_doctor.prometheus.api import Api
from vllm_doctor.recording import bundle
from vllm_doctor.sources.server import scrapes
from vllm_doctor.sources.server.exposition import Page
from vllm_doctor.sources.server.scrapes import Scrape
from vllm_doctor.sources.server.state import State
from vllm_doctor.vllm import kv_cache, model_config, parameters

LONG = "9" * 400
HOSTILE = (
    LONG, f"-{LONG}", "9" * 5000, "1e400", "1e308", "NaN", "-Infinity", "5e-324", "-1", "0.5", '"x"', f'"{LONG}"', '""',
    r'"\ud800"', "null", "[]", "{}", "[[1]]", '{"a": null}', "true",
)  # fmt: skip
_MARK = "@here@"


def _paths(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = document.items() if isinstance(document, dict) else ()
    for key, value in enumerate(document[:2]) if isinstance(document, list) else items:
        yield from _paths(value, (*path, key))


def _put(document: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return _MARK
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = _put(copy[path[0]], path[1:])
    return copy


def spoilt(document: Any) -> Iterator[str]:
    """The document as JSON, with each of its values replaced by each of these."""
    for path in _paths(document):
        text = json.dumps(_put(document, path))
        yield from (text.replace(f'"{_MARK}"', value) for value in HOSTILE)


def _look(source: str) -> dict[str, Any]:
    raise DoctorError("it is not JSON")


def of_file(tmp_path: Path) -> Callable[[str], object]:
    path = tmp_path / "told.json"

    def read(text: str) -> object:
        path.write_text(text, "utf-8")
        return results.of_source(str(path), _look)

    return read


def of_config(text: str) -> None:
    config = model_config.parse(text)
    if isinstance(config, dict):
        for flags in ({}, {"--hf-overrides": text, "--kv-cache-dtype": "fp8"}):
            changed = model_config.overridden(config, flags.get("--hf-overrides"))
            model_config.facts(changed, config)
            kv_cache.facts(changed, flags)
            parameters.facts(changed)


def of_part(part: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        found = bundle.parsed("r", parts() | {part: text.encode()})
        return [source.observation(frozenset()) for source in found.sources]

    return read


def of_state(tmp_path: Path) -> Callable[[str], object]:
    path = tmp_path / "state"
    now = Scrape(1060.0, Page((), True, True, 0), 50.0, None)

    def read(text: str) -> object:
        path.write_text(f"vllm-doctor/state/v1\n{text}\n", "utf-8")
        state = State(path, lambda: 1060.0, lambda: 2060.0)
        state.recall("t", now)
        assert state.keep("t", now) == ""
        return state.recall("t", now)

    return read


def of_prometheus(text: str) -> object:
    return [api._row(one) for one in Api("http://127.0.0.1:9")._read(200, text.encode(), "/api/v1/query", "vector")]


def of_its_past(text: str) -> object:
    told = Api("http://127.0.0.1:9")._read(200, text.encode(), "/api/v1/query_range", "matrix")
    return [api._track(one) for one in told]


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "intermediate_size": 14336,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip
STATE = {
    "servers": {"t": [{"at": 2000, "boot": None, "clock": 1000, "started": 50, "samples": [["x", [["a", "b"]], 1]]}]}
}
VECTOR = {
    "status": "success",
    "warnings": ["w"],
    "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [AT, "1"]}]},
}
MATRIX = {
    "status": "success",
    "data": {"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": [[AT, "1"], [AT + 300, "2"]]}]},
}
READERS: dict[str, tuple[Any, Callable[[Path], Callable[[str], object]]]] = {
    "bench": (detailed(3), of_file),
    "config": (CONFIG, lambda _: of_config),
    "recording": (json.loads(parts()["recording.json"]), lambda _: of_part("recording.json")),
    "facts": (json.loads(parts()["2-host/facts.json"]), lambda _: of_part("2-host/facts.json")),
    "state": (STATE, of_state),
    "version": (VERSION, lambda _: lambda text: scrapes.identity("t", Page((), True, True, 0), _json(text), MODELS)),
    "models": (MODELS, lambda _: lambda text: scrapes.identity("t", Page((), True, True, 0), VERSION, _json(text))),
    "prometheus": (VECTOR, lambda _: of_prometheus),
    "past of a prometheus": (MATRIX, lambda _: of_its_past),
}


def _json(text: str) -> Any:
    from vllm_doctor.model import outside

    return outside.json(text)


@pytest.mark.parametrize("name", READERS)
def test_a_value_that_is_none_is_left_out_or_refused(name: str, tmp_path: Path) -> None:
    document, reader = READERS[name]
    read = reader(tmp_path)
    read(json.dumps(document))
    for text in spoilt(document):
        with contextlib.suppress(DoctorError):
            read(text)
